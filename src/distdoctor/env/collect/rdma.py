"""RDMA ports by /sys/class/infiniband. Nothing here opens a device but to see whether it may be opened."""

from __future__ import annotations

import re
from collections.abc import Mapping

from distdoctor.env.collect.pci import pci_chain, pci_numa_node
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.network import GidEntry, RdmaPort
from distdoctor.report.model import SkipCause

CLASS = "/sys/class/infiniband"

# mlx5 tables have 256 rows; drivers with larger ones do not fill them.
MAX_GIDS = 256

PORT_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)

HARDWARE_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "rx_icrc_encapsulated",
)

_EMPTY_GID = re.compile(r"^(0000:){7}0000$|^fe80:(0000:){6}0000$")


def collect_rdma_ports(world: World) -> tuple[RdmaPort, ...]:
    """All ports of all RDMA devices, in natural order; empty when there is no device.

    Raises PermissionError, OSError when the class folder is there but cannot be listed.
    """
    try:
        devices = world.listdir(CLASS)
    except FileNotFoundError:
        if not world.exists("/sys/class"):  # /sys is not mounted: nothing is known
            raise
        return ()
    uverbs = _uverbs_by_device(world)
    ports = []
    for device in sorted(devices, key=natural):
        shared = _device_facts(world, device, uverbs)
        for port in _port_numbers(world, device):
            ports.append(_port(world, device, port, shared))
    return tuple(ports)


def natural(name: str) -> list[tuple[int, int | str]]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(part)) if part.isdigit() else (0, part) for part in parts]


def _port_numbers(world: World, device: str) -> list[int]:
    try:
        names = world.listdir(f"{CLASS}/{device}/ports")
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


def _uverbs_by_device(world: World) -> dict[str, str]:
    """RDMA device → "uverbs3"."""
    folder = "/sys/class/infiniband_verbs"
    found = {}
    try:
        names = world.listdir(folder)
    except OSError:
        return {}
    for name in names:
        try:
            found[world.read_line(f"{folder}/{name}/ibdev")] = name
        except (OSError, ValueError):
            continue
    return found


def _device_facts(world: World, device: str, uverbs: Mapping[str, str]) -> Reading:
    """What the ports of one device share."""
    folder = f"{CLASS}/{device}"
    reading = Reading()
    reading.take("board", f"{folder}/board_id", lambda: _board(world, folder))
    reading.take("firmware", f"{folder}/fw_ver", lambda: world.read_line(f"{folder}/fw_ver"))
    chain = pci_chain(world, f"{folder}/device")
    reading.put("pci", f"{folder}/device", chain[-1] if chain else None)
    reading.put("numa_node", f"{folder}/device/numa_node", pci_numa_node(world, f"{folder}/device"))
    for field, name in (("pcie_width", "current_link_width"), ("pcie_width_max", "max_link_width")):
        path = f"{folder}/device/{name}"
        reading.take(field, path, lambda path=path: _width(world.read_line(path)))  # type: ignore[misc]
    reading.put("is_virtual_function", f"{folder}/device/physfn", world.exists(f"{folder}/device/physfn"))
    reading.put("is_efa", f"{folder}/device/driver", _is_efa(world, device))
    _take_openable(world, reading, uverbs.get(device))
    return reading


def _board(world: World, folder: str) -> str:
    """hca_type and board_id ("MT4129 MT_0000000838"); drivers that have only one of them give that one."""
    parts = []
    for name in ("hca_type", "board_id"):
        try:
            parts.append(world.read_line(f"{folder}/{name}"))
        except FileNotFoundError:
            continue
    if not any(parts):
        raise UnreadError(SkipCause.UNSUPPORTED, "the driver names no board")
    return " ".join(part for part in parts if part)


def _width(text: str) -> int | None:
    """PCIe lanes; a virtual function reports 0 or 255 because its physical function has the link."""
    lanes = int(text)
    return lanes if 0 < lanes <= 32 else None


def _is_efa(world: World, device: str) -> bool:
    try:
        return world.readlink(f"{CLASS}/{device}/device/driver").rpartition("/")[2] == "efa"
    except OSError:
        # rdma-core renames them to rdmap<bus>s<slot>: a name of no RDMA protocol.
        return device.startswith(("efa_", "rdmap"))


def _take_openable(world: World, reading: Reading, uverbs: str | None) -> None:
    if uverbs is None:
        reading.miss(
            "openable", SkipCause.ABSENT, "no verbs device belongs to it (ib_uverbs not loaded or hidden)"
        )
        return
    path = f"/dev/infiniband/{uverbs}"
    reading.put("uverbs", "/sys/class/infiniband_verbs", uverbs)
    try:
        world.open_device(path)
    except UnreadError as error:
        reading.miss("openable", error.unread.cause, error.unread.reason, error.unread.how)
    except OSError as error:
        reading.put("openable", path, False)
        reading.put("open_error", path, error.strerror or str(error))
    else:
        reading.put("openable", path, True)


def _port(world: World, device: str, port: int, shared: Reading) -> RdmaPort:
    folder = f"{CLASS}/{device}/ports/{port}"
    reading = Reading()
    reading.take("link_layer", f"{folder}/link_layer", lambda: world.read_line(f"{folder}/link_layer"))
    reading.take("state", f"{folder}/state", lambda: _word(world.read_line(f"{folder}/state")))
    reading.take("phys_state", f"{folder}/phys_state", lambda: _word(world.read_line(f"{folder}/phys_state")))
    reading.take("rate_gbit", f"{folder}/rate", lambda: float(world.read_line(f"{folder}/rate").split()[0]))
    reading.take("lid", f"{folder}/lid", lambda: int(world.read_line(f"{folder}/lid"), 0))
    reading.take("sm_lid", f"{folder}/sm_lid", lambda: int(world.read_line(f"{folder}/sm_lid"), 0))
    reading.take("gids", f"{folder}/gids", lambda: _gids(world, folder))
    reading.take("netdev", f"{folder}/gid_attrs/ndevs", lambda: _netdev(world, device, folder))
    reading.take("counters", f"{folder}/counters", lambda: _some_counters(world, device, port))
    own, device_wide = reading.fields(), shared.fields()
    return RdmaPort(
        device=device,
        port=port,
        **{
            **device_wide,
            **own,
            "sources": {**device_wide["sources"], **own["sources"]},
            "unread": {**device_wide["unread"], **own["unread"]},
        },
    )


def _word(text: str) -> str:
    """ "4: ACTIVE" → "ACTIVE"."""
    return text.partition(":")[2].strip() or text


def _gids(world: World, folder: str) -> tuple[GidEntry, ...]:
    """Rows that hold a GID. The attributes of an empty row, or of one of another container, fail to read."""
    entries = []
    names = [name for name in world.listdir(f"{folder}/gids") if name.isdigit()]
    for index in sorted(int(name) for name in names)[:MAX_GIDS]:
        try:
            gid = world.read_line(f"{folder}/gids/{index}")
        except OSError:
            continue
        if _EMPTY_GID.match(gid):
            continue
        kind = _attribute(world, f"{folder}/gid_attrs/types/{index}")
        netdev = _attribute(world, f"{folder}/gid_attrs/ndevs/{index}")
        entries.append(GidEntry(index=index, gid=gid, kind=kind, netdev=netdev))
    return tuple(entries)


def _attribute(world: World, path: str) -> str | None:
    try:
        return world.read_line(path) or None
    except OSError:
        return None


def _netdev(world: World, device: str, folder: str) -> str:
    for index in range(4):
        name = _attribute(world, f"{folder}/gid_attrs/ndevs/{index}")
        if name:
            return name
    names = world.listdir(f"{CLASS}/{device}/device/net")
    if len(names) != 1:
        raise UnreadError(SkipCause.UNSUPPORTED, f"{len(names)} interfaces belong to {device}")
    return names[0]


def _some_counters(world: World, device: str, port: int) -> Mapping[str, int]:
    counters = read_counters(world, device, port)
    if not counters:
        raise UnreadError(SkipCause.UNSUPPORTED, f"{device} shows no error counters here")
    return counters


def read_counters(world: World, device: str, port: int) -> Mapping[str, int]:
    """Error counters of a port since they were last reset; names that the driver lacks are left out.

    Stops at the first read that the device refuses: on a restricted function each one leaves a line in the
    kernel log (leptonai/gpud issue 1164).
    """
    folder = f"{CLASS}/{device}/ports/{port}"
    found: dict[str, int] = {}
    for group, names in (("counters", PORT_COUNTERS), ("hw_counters", HARDWARE_COUNTERS)):
        for name in names:
            try:
                found[name] = int(world.read_line(f"{folder}/{group}/{name}"))
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                return found
    return found
