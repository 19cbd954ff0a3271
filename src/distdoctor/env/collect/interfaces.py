"""Network interfaces by /sys/class/net, with their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdoctor.env.collect.pci import pci_chain
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.network import Address, Interface
from distdoctor.report.model import SkipCause

IFF_UP = 0x1
NET = "/sys/class/net"

# A Kubernetes node can have a thousand veth pairs; what follows is cut off rather than read for seconds.
MAX_INTERFACES = 512


def collect_interfaces(world: World) -> tuple[Interface, ...]:
    """Interfaces by kernel index. Raises OSError when /sys/class/net cannot be listed."""
    names = [name for name in world.listdir(NET) if world.exists(f"{NET}/{name}/ifindex")]
    try:
        addresses: Mapping[str, Sequence[Address]] | None = world.interface_addresses()
        why = ""
    except (OSError, ValueError, UnreadError) as error:
        addresses, why = None, f"addresses of interfaces could not be read: {error}"
    found = [_interface(world, name, addresses, why) for name in names[:MAX_INTERFACES]]
    return tuple(sorted(found, key=lambda each: (each.index is None, each.index or 0, each.name)))


def _interface(
    world: World, name: str, addresses: Mapping[str, Sequence[Address]] | None, why: str
) -> Interface:
    folder = f"{NET}/{name}"
    reading = Reading()
    reading.take("index", f"{folder}/ifindex", lambda: int(world.read_line(f"{folder}/ifindex")))
    state = reading.take("state", f"{folder}/operstate", lambda: world.read_line(f"{folder}/operstate"))
    reading.take("is_up", f"{folder}/flags", lambda: _is_running(world.read_line(f"{folder}/flags"), state))
    reading.take("speed_mbps", f"{folder}/speed", lambda: _speed_mbps(world, folder))
    reading.take("mtu", f"{folder}/mtu", lambda: int(world.read_line(f"{folder}/mtu")))
    reading.take("mac", f"{folder}/address", lambda: world.read_line(f"{folder}/address"))
    has_device = world.exists(f"{folder}/device")
    reading.put("is_virtual", f"{folder}/device", not has_device)
    if has_device:
        reading.take(
            "driver", f"{folder}/device/driver", lambda: _last(world.readlink(f"{folder}/device/driver"))
        )
        chain = pci_chain(world, f"{folder}/device")
        reading.put("pci", f"{folder}/device", chain[-1] if chain else None)
    if world.exists(f"{folder}/master"):
        reading.take("master", f"{folder}/master", lambda: _last(world.readlink(f"{folder}/master")))
    for field in ("rx_errors", "tx_errors", "rx_dropped", "rx_packets"):
        path = f"{folder}/statistics/{field}"
        reading.take(field, path, lambda path=path: int(world.read_line(path)))  # type: ignore[misc]
    if addresses is None:
        reading.miss("addresses", SkipCause.FAILED, why)
    else:
        reading.put("addresses", "getifaddrs()", tuple(addresses.get(name, ())))
    return Interface(name=name, **reading.fields())


def _is_running(flags: str, state: str | None) -> bool:
    """IFF_UP and IFF_RUNNING as getifaddrs() would show them.

    /sys shows the raw flags, which have no IFF_RUNNING: the kernel derives it (dev_get_flags) from an
    operational state of "up" or "unknown"; loopback and tunnels report the latter.
    """
    if state is None:
        raise ValueError("the operational state could not be read")
    return bool(int(flags, 16) & IFF_UP) and state in ("up", "unknown")


def _speed_mbps(world: World, folder: str) -> int:
    """Negotiated speed in Mb/s. Reading it fails while the link is down; -1 says that the driver knows none."""
    speed = int(world.read_line(f"{folder}/speed"))
    if speed <= 0:
        raise UnreadError(SkipCause.UNSUPPORTED, "the driver reports no link speed")
    return speed


def _last(target: str) -> str:
    return target.rstrip("/").rpartition("/")[2]
