"""Hosts made of files: the /sys and /proc trees that drivers show, for the network tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fake_world import FakeWorld, make_world

BASE = {
    "/proc/sys/kernel/osrelease": "5.15.0-1062-generic\n",
    "/proc/modules": "mlx5_ib 397312 0 - Live 0x0\nnvidia_peermem 16384 0 - Live 0x0\nnvidia 56000000 88 - Live 0x0\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07\nGCC version: 12\n",
    "/proc/self/net/route": (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    ),
    "/sys/kernel/mm/memory_peers/nv_mem/version": "1.3\n",
    "/etc/ld.so.cache": "glibc-ld.so.cache1.1\0libibverbs.so.1\0/lib/x86_64-linux-gnu/libibverbs.so.1\0",
    "/sys/class/net/bonding_masters": "\n",
}


def interface(
    name: str,
    index: int,
    *,
    state: str = "up",
    flags: str = "0x1003",
    speed: str = "100000",
    mtu: int = 1500,
    pci: str | None = None,
    rx_errors: int = 0,
    rx_packets: int = 1_000_000,
) -> dict[str, str]:
    """Files of one interface; with `pci` it is a card at that address."""
    folder = f"/sys/class/net/{name}"
    files = {
        f"{folder}/ifindex": f"{index}\n",
        f"{folder}/operstate": f"{state}\n",
        f"{folder}/flags": f"{flags}\n",
        f"{folder}/speed": f"{speed}\n",
        f"{folder}/mtu": f"{mtu}\n",
        f"{folder}/address": f"02:00:00:00:00:{index:02x}\n",
        f"{folder}/statistics/rx_errors": f"{rx_errors}\n",
        f"{folder}/statistics/tx_errors": "0\n",
        f"{folder}/statistics/rx_dropped": "0\n",
        f"{folder}/statistics/rx_packets": f"{rx_packets}\n",
    }
    if pci is not None:
        files[f"{folder}/device"] = f"-> /sys/devices/pci0000:00/{pci}"
        files[f"/sys/devices/pci0000:00/{pci}/net_of_{name}"] = ""
        files[f"/sys/devices/pci0000:00/{pci}/driver"] = "-> /sys/bus/pci/drivers/mlx5_core"
    return files


LOOPBACK = interface("lo", 1, state="unknown", flags="0x9", speed="", mtu=65536)


def hca(
    device: str,
    number: int,
    *,
    pci: str,
    bridges: Sequence[str] = (),
    numa: int = 0,
    link_layer: str = "InfiniBand",
    state: str = "4: ACTIVE",
    phys_state: str = "5: LinkUp",
    rate: str = "400 Gb/sec (4X NDR)",
    board: str = "MT_0000000838",
    netdev: str | None = None,
    gids: Mapping[int, tuple[str, str]] | None = None,
    counters: Mapping[str, int] | None = None,
    width: int = 16,
    driver: str = "mlx5_core",
    ibdev_node: bool = True,
) -> dict[str, str]:
    """Files of one RDMA device with one port. gids: index → (gid, kind); `number` is its uverbs number."""
    place = "/sys/devices/pci0000:00/" + "".join(f"{bridge}/" for bridge in bridges) + pci
    folder = f"/sys/class/infiniband/{device}"
    port = f"{folder}/ports/1"
    files = {
        f"{folder}/board_id": f"{board}\n",
        f"{folder}/hca_type": "MT4129\n",
        f"{folder}/fw_ver": "28.39.2048\n",
        f"{folder}/device": f"-> {place}",
        f"/sys/bus/pci/devices/{pci}": f"-> {place}",
        f"{place}/class": "0x020700\n",
        f"{place}/numa_node": f"{numa}\n",
        f"{place}/current_link_width": f"{width}\n",
        f"{place}/max_link_width": "16\n",
        f"{place}/driver": f"-> /sys/bus/pci/drivers/{driver}",
        f"{port}/link_layer": f"{link_layer}\n",
        f"{port}/state": f"{state}\n",
        f"{port}/phys_state": f"{phys_state}\n",
        f"{port}/rate": f"{rate}\n",
        f"{port}/lid": f"0x{number + 16:x}\n",
        f"{port}/sm_lid": "0x1\n",
    }
    table = gids if gids is not None else {0: ("fe80:0000:0000:0000:0a00:0000:0000:0001", "IB/RoCE v1")}
    for index in range(4):
        files[f"{port}/gids/{index}"] = "0000:0000:0000:0000:0000:0000:0000:0000\n"
    for index, (gid, kind) in table.items():
        files[f"{port}/gids/{index}"] = f"{gid}\n"
        files[f"{port}/gid_attrs/types/{index}"] = f"{kind}\n"
        if netdev:
            files[f"{port}/gid_attrs/ndevs/{index}"] = f"{netdev}\n"
    for name, value in (counters if counters is not None else {"link_downed": 0, "symbol_error": 0}).items():
        files[f"{port}/counters/{name}"] = f"{value}\n"
    if ibdev_node:
        files[f"/sys/class/infiniband_verbs/uverbs{number}/ibdev"] = f"{device}\n"
        files[f"/dev/infiniband/uverbs{number}"] = ""
    return files


def gpu(pci: str, *, bridges: Sequence[str] = (), numa: int = 0) -> dict[str, str]:
    """Files of one NVIDIA GPU on the PCI tree."""
    place = "/sys/devices/pci0000:00/" + "".join(f"{bridge}/" for bridge in bridges) + pci
    return {
        f"/sys/bus/pci/devices/{pci}": f"-> {place}",
        f"{place}/class": "0x030200\n",
        f"{place}/numa_node": f"{numa}\n",
    }


ROCE_GIDS = {
    0: ("fe80:0000:0000:0000:0a00:00ff:fe00:0001", "IB/RoCE v1"),
    1: ("fe80:0000:0000:0000:0a00:00ff:fe00:0001", "RoCE v2"),
    2: ("0000:0000:0000:0000:0000:ffff:0a01:0005", "IB/RoCE v1"),
    3: ("0000:0000:0000:0000:0000:ffff:0a01:0005", "RoCE v2"),
}

# Bus of the n-th card and of its GPU; four of each on either socket, each pair below one switch.
BUSES = ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")


def infiniband_host(
    root: Path, *, changes: Mapping[str, str] | None = None, **attributes: object
) -> FakeWorld:
    """Eight 400 Gb/s InfiniBand cards and eight GPUs, a management interface, IPoIB down."""
    files = {
        **BASE,
        **LOOPBACK,
        **interface("eth0", 2, pci="0000:01:00.0"),
        **interface("ibs1", 3, state="down"),
    }
    for number, bus in enumerate(BUSES):
        bridges = (f"0000:{bus}:01.0", f"0000:{bus}:02.0")
        files |= hca(f"mlx5_{number}", number, pci=f"0000:{bus}:10.0", bridges=bridges, numa=number // 4)
        files |= gpu(f"0000:{bus}:20.0", bridges=(bridges[0], f"0000:{bus}:03.0"), numa=number // 4)
    world = {
        "addresses": {"lo": ("127.0.0.1/8", "::1/128"), "eth0": ("10.0.0.5/24",)},
        "names": {"host-a": ("10.0.0.5",)},
    }
    return make_world(root, {**files, **(changes or {})}, **{**world, **attributes})


def roce_host(root: Path, *, changes: Mapping[str, str] | None = None, **attributes: object) -> FakeWorld:
    """Two RoCE cards with addresses of their own, and the interface of the host."""
    files = {**BASE, **LOOPBACK, **interface("eth0", 2, pci="0000:01:00.0")}
    for number in range(2):
        name = f"rdma{number}"
        files |= interface(name, 3 + number, pci=f"0000:{BUSES[number]}:00.0", mtu=9000)
        files |= hca(
            f"mlx5_{number}",
            number,
            pci=f"0000:{BUSES[number]}:00.0",
            link_layer="Ethernet",
            netdev=name,
            gids=ROCE_GIDS,
        )
    addresses = {
        "lo": ("127.0.0.1/8",),
        "eth0": ("10.0.0.5/24",),
        "rdma0": ("10.1.0.5/24",),
        "rdma1": ("10.1.1.5/24",),
    }
    world = {"addresses": addresses, "names": {"host-a": ("10.0.0.5",)}}
    return make_world(root, {**files, **(changes or {})}, **{**world, **attributes})


def efa_host(root: Path, **attributes: object) -> FakeWorld:
    """A p5-like host: EFA devices, whose link layer is no Ethernet and no InfiniBand, and one ENA interface."""
    files = {**BASE, **LOOPBACK, **interface("ens5", 2, pci="0000:00:05.0", speed="-1", mtu=9001)}
    for number in range(4):
        files |= hca(
            f"rdmap{16 + number}s27",
            number,
            pci=f"0000:{BUSES[number]}:1b.0",
            link_layer="Unknown",
            rate="100 Gb/sec (4X EDR)",
            board="",
            driver="efa",
            counters={},
        )
    world = {
        "addresses": {"lo": ("127.0.0.1/8",), "ens5": ("172.31.8.9/20",)},
        "names": {"host-a": ("172.31.8.9",)},
    }
    return make_world(root, files, **{**world, **attributes})


def cloud_vm(root: Path, *, changes: Mapping[str, str] | None = None, **attributes: object) -> FakeWorld:
    """Ethernet only."""
    files = {**BASE, **LOOPBACK, **interface("eth0", 2, pci="0000:00:04.0", speed="-1", mtu=1460)}
    world = {
        "addresses": {"lo": ("127.0.0.1/8",), "eth0": ("10.128.0.3/32",)},
        "names": {"host-a": ("10.128.0.3",)},
    }
    return make_world(root, {**files, **(changes or {})}, **{**world, **attributes})


def docker_desktop(root: Path, **attributes: object) -> FakeWorld:
    """A workstation with bridges, veth pairs and a VPN beside its 1 Gb/s card."""
    files = {
        **BASE,
        **LOOPBACK,
        **interface("enp6s0", 2, pci="0000:06:00.0", speed="1000"),
        **interface("tailscale0", 3, state="unknown", flags="0x1091", speed=""),
        **interface("docker0", 4),
        **interface("br-2b7f015e8963", 5, state="down"),
        **interface("vethb485ae1", 7),
    }
    addresses = {
        "lo": ("127.0.0.1/8", "::1/128"),
        "enp6s0": ("10.0.0.1/24", "fe80::1/64"),
        "tailscale0": ("100.64.0.7/32",),
        "docker0": ("172.17.0.1/16",),
        "br-2b7f015e8963": ("172.20.0.1/16",),
        "vethb485ae1": ("fe80::2/64",),
    }
    world = {"addresses": addresses, "names": {"host-a": ("127.0.1.1",)}}
    return make_world(root, files, **{**world, **attributes})
