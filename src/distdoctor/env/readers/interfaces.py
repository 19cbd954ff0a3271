"""Network interfaces from `ip addr`, `ip -br addr`, `ip link` and ifconfig."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distdoctor.env.facts.network import Address, Interface, NetworkFacts

_NAME = r"[A-Za-z][\w.-]{0,20}"
_IP = re.compile(
    rf"^\s*(?P<index>\d{{1,6}}): (?P<name>{_NAME})(?:@(?P<peer>\S+))?: <(?P<flags>[A-Z0-9_,-]*)>(?P<rest>.*)$"
)
_BRIEF = re.compile(
    rf"^\s*(?P<name>{_NAME})(?:@\S+)?\s+(?P<state>UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT)\s+"
    r"(?P<rest>(?:[0-9a-f]{2}:){5}[0-9a-f]{2}.*|[\d.]+/\d+.*|[0-9a-f:]+/\d+.*|)$"
)
_IFCONFIG = re.compile(rf"^(?P<name>{_NAME}): flags=\d+<(?P<flags>[A-Z0-9_,-]*)>\s+mtu (?P<mtu>\d+)")
_IFCONFIG_OLD = re.compile(rf"^(?P<name>{_NAME})\s+Link encap:")
_INET = re.compile(r"^\s+inet6? (?:addr: ?)?(?P<address>[0-9a-fA-F.:]+)(?:/(?P<prefix>\d{1,3}))?")
_MAC = re.compile(r"\b(?:link/(?:ether|infiniband)|ether|HWaddr) (?P<mac>[0-9a-fA-F:]{17,59})")
_ERRORS = re.compile(
    r"\b(?P<way>RX|TX) (?:packets[: ]\d+ )?errors[: ](?P<errors>\d+)\s+dropped[: ](?P<dropped>\d+)"
)
_CIDR = re.compile(r"(?P<address>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]*:[0-9a-fA-F:]+)/(?P<prefix>\d{1,3})")

# Kinds of interface that have no hardware of their own, by the names that their makers give them.
_VIRTUAL = re.compile(
    r"(?:lo|docker|veth|br-|virbr|cni|flannel|cali|tunl|tailscale|wg|tun|tap|dummy|vxlan|nerdctl|podman|lxc|cilium|kube-)"
)


@dataclass(slots=True)
class _Found:
    """An interface under construction."""

    name: str
    index: int | None = None
    state: str | None = None
    is_up: bool | None = None
    mtu: int | None = None
    mac: str | None = None
    addresses: list[Address] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)


def sniff(text: str) -> bool:
    """True when a line opens an interface in the words of one of the tools."""
    return (
        any(
            _IP.match(line) or _IFCONFIG.match(line) or _IFCONFIG_OLD.match(line) for line in text.split("\n")
        )
        or sum(bool(_BRIEF.match(line)) for line in text.split("\n")) > 1
    )


def read(text: str, origin: str) -> NetworkFacts:
    """Interfaces in the order of the text, with state, MTU and addresses. Never raises for any text."""
    found: list[_Found] = []
    for line in text.split("\n"):
        opened = _open(line)
        if opened is not None:
            found.append(opened)
        elif found and line[:1] in (" ", "\t"):
            _take(found[-1], line)
    interfaces: dict[str, _Found] = {}
    for each in found:
        interfaces.setdefault(each.name, each)
    facts = tuple(_facts(each, origin) for each in interfaces.values())
    return NetworkFacts(interfaces=facts or None, sources={"interfaces": origin})


def _open(line: str) -> _Found | None:
    if match := _IP.match(line):
        state = re.search(r"\bstate (\w+)", match["rest"])
        mtu = re.search(r"\bmtu (\d+)", match["rest"])
        return _Found(
            name=match["name"],
            index=int(match["index"]),
            state=state[1].lower() if state else None,
            is_up=_is_up(match["flags"]),
            mtu=int(mtu[1]) if mtu else None,
        )
    if match := _IFCONFIG.match(line):
        return _Found(name=match["name"], is_up=_is_up(match["flags"]), mtu=int(match["mtu"]))
    if match := _IFCONFIG_OLD.match(line):
        mac = _MAC.search(line)
        return _Found(name=match["name"], mac=mac["mac"].lower() if mac else None)
    if match := _BRIEF.match(line):
        addresses = [_address(cidr) for cidr in _CIDR.finditer(match["rest"])]
        state_word = match["state"].lower()
        # `ip -br` shows no flags; loopback and tunnels are "unknown" while they work.
        is_up = None if state_word == "unknown" else state_word == "up"
        return _Found(name=match["name"], state=state_word, is_up=is_up, addresses=addresses)
    return None


def _is_up(flags: str) -> bool:
    """IFF_UP and carrier: `ip` says LOWER_UP, ifconfig RUNNING."""
    words = flags.split(",")
    return "UP" in words and ("LOWER_UP" in words or "RUNNING" in words)


def _take(found: _Found, line: str) -> None:
    if inet := _INET.match(line):
        found.addresses.append(_address(inet))
    if (mac := _MAC.search(line)) and found.mac is None:
        found.mac = mac["mac"].lower()
    if counted := _ERRORS.search(line):
        way = counted["way"].lower()
        found.errors[f"{way}_errors"] = int(counted["errors"])
        if way == "rx":
            found.errors["rx_dropped"] = int(counted["dropped"])
    # Old ifconfig: "UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1".
    if (old := re.search(r"\bMTU:(\d+)", line)) and found.mtu is None:
        found.mtu = int(old[1])
        found.is_up = " UP " in f" {line} " and "RUNNING" in line


def _address(match: re.Match[str]) -> Address:
    prefix = match["prefix"]
    return Address(address=match["address"], prefix_length=int(prefix) if prefix else None)


def _facts(found: _Found, origin: str) -> Interface:
    return Interface(
        name=found.name,
        index=found.index,
        state=found.state,
        is_up=found.is_up,
        mtu=found.mtu,
        mac=found.mac,
        is_virtual=True if _VIRTUAL.match(found.name) else None,
        addresses=tuple(found.addresses),
        rx_errors=found.errors.get("rx_errors"),
        tx_errors=found.errors.get("tx_errors"),
        rx_dropped=found.errors.get("rx_dropped"),
        sources={"state": origin, "addresses": origin, "mtu": origin},
    )
