"""RDMA ports from ibstat, ibstatus, ibv_devinfo, ibdev2netdev and `rdma link`.

The five print the same things in their own words; states come out as sysfs has them ("ACTIVE", "LinkUp"). The rate
of a port that is down is what the hardware last said and means nothing; it is kept and never judged here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distdoctor.env.facts.network import NetworkFacts, RdmaPort

_DEVICE = r"[A-Za-z][\w.-]{1,30}"
_IBSTATUS = re.compile(rf"^\s*Infiniband device '(?P<device>{_DEVICE})' port (?P<port>\d{{1,3}}) status:")
_IBSTAT = re.compile(rf"^\s*CA '(?P<device>{_DEVICE})'\s*$")
_IBSTAT_PORT = re.compile(r"^\s*Port (?P<port>\d{1,3}):\s*$")
_DEVINFO = re.compile(rf"^\s*hca_id:\s*(?P<device>{_DEVICE})\s*$")
_DEVINFO_PORT = re.compile(r"^\s*port:\s*(?P<port>\d{1,3})\s*$")
_NETDEV = re.compile(
    rf"^\s*(?:(?P<pci>[0-9a-f:.]{{12}}) )?(?P<device>{_DEVICE})(?: .*)? port (?P<port>\d{{1,3}})"
    r"(?: \((?P<state>[A-Z]+) *\))? ==> (?P<netdev>[\w.@-]+) \((?P<up>Up|Down)\)"
)
_RDMA_LINK = re.compile(
    rf"^\s*(?:link |\d+/\d+: )(?P<device>{_DEVICE})/(?P<port>\d{{1,3}}):? (?P<rest>.*\bstate \S+.*)$"
)
_PAIR = re.compile(r"^\s+(?P<key>[A-Za-z][\w ]{1,30}):\s*(?P<value>\S.*)$")

_STATES = {
    "active": "ACTIVE", "port_active": "ACTIVE", "down": "DOWN", "port_down": "DOWN", "init": "INIT",
    "initializing": "INIT", "initialize": "INIT", "port_init": "INIT", "armed": "ARMED", "port_armed": "ARMED",
    "active_defer": "ACTIVE_DEFER", "nop": "NOP",
}  # fmt: skip
_PHYS = {
    "linkup": "LinkUp", "link_up": "LinkUp", "disabled": "Disabled", "polling": "Polling", "sleep": "Sleep",
    "portconfigurationtraining": "PortConfigurationTraining", "link_error_recovery": "LinkErrorRecovery",
    "linkerrorrecovery": "LinkErrorRecovery", "nop": "NOP",
}  # fmt: skip
_RATE = re.compile(r"(\d+(?:\.\d+)?)")
_WIDTH = re.compile(r"(\d+)X")


@dataclass(slots=True)
class _Port:
    """A port under construction, with the words of its tool."""

    device: str
    port: int
    tool: str
    values: dict[str, str] = field(default_factory=dict)


def sniff(text: str) -> bool:
    """True when a line opens a device or port in the words of one of the five tools."""
    patterns = (_IBSTATUS, _IBSTAT, _DEVINFO, _NETDEV, _RDMA_LINK)
    return any(pattern.match(line) for line in text.split("\n") for pattern in patterns)


def read(text: str, origin: str) -> NetworkFacts:
    """Ports in the order of the text; `rdma_ports` is None when the text shows none. Never raises for any text."""
    ports: dict[tuple[str, int], _Port] = {}
    for found in _ports(text):
        known = ports.setdefault((found.device, found.port), found)
        for key, value in found.values.items():
            known.values.setdefault(key, value)
    facts = tuple(_facts(port, origin) for port in ports.values())
    return NetworkFacts(rdma_ports=facts or None, sources={"rdma_ports": origin})


def _ports(text: str) -> list[_Port]:
    found: list[_Port] = []
    device: dict[str, str] = {}
    device_name = tool = ""
    current: _Port | None = None
    for line in text.split("\n"):
        if match := _IBSTATUS.match(line):
            current = _Port(device=match["device"], port=int(match["port"]), tool="ibstatus")
            found.append(current)
        elif match := (_IBSTAT.match(line) or _DEVINFO.match(line)):
            device_name, device, current = match["device"], {}, None
            tool = "ibv_devinfo" if "hca_id" in line else "ibstat"
        elif device_name and (match := _IBSTAT_PORT.match(line) or _DEVINFO_PORT.match(line)):
            current = _Port(device=device_name, port=int(match["port"]), tool=tool, values=dict(device))
            found.append(current)
        elif match := _NETDEV.match(line):
            current, device_name = None, ""
            values = {"netdev": match["netdev"]}
            if match["state"]:
                values["state"] = match["state"]
            if match["pci"]:
                values["pci"] = match["pci"]
            found.append(
                _Port(device=match["device"], port=int(match["port"]), tool="ibdev2netdev", values=values)
            )
        elif match := _RDMA_LINK.match(line):
            current, device_name = None, ""
            words = match["rest"].split()
            values = dict(zip(words[::2], words[1::2], strict=False))
            found.append(
                _Port(device=match["device"], port=int(match["port"]), tool="rdma link", values=values)
            )
        elif pair := _PAIR.match(line):
            target = current.values if current is not None else device
            target.setdefault(pair["key"].strip().lower().replace(" ", "_"), pair["value"].strip())
        elif line.strip():
            current, device_name = None, ""
    return found


def _facts(port: _Port, origin: str) -> RdmaPort:
    values = port.values
    source = f"{origin}: {port.tool}"
    phys = values.get("phys_state") or values.get("physical_state")
    layer = _word(values.get("link_layer"))
    facts = {
        "state": _known(_STATES, values.get("state")),
        "phys_state": _known(_PHYS, phys),
        "rate_gbit": _rate(values),
        "link_layer": layer if layer in ("InfiniBand", "Ethernet") else None,
        "lid": _integer(values.get("base_lid") or values.get("port_lid") or values.get("lid")),
        "sm_lid": _integer(values.get("sm_lid")),
        "board": values.get("board_id") or values.get("ca_type"),
        "firmware": values.get("fw_ver") or values.get("firmware_version"),
        "netdev": values.get("netdev"),
        "pci": values.get("pci"),
    }
    known = {name: value for name, value in facts.items() if value is not None}
    is_efa = True if port.device.startswith(("efa_", "rdmap")) else None
    return RdmaPort(
        device=port.device,
        port=port.port,
        is_efa=is_efa,
        sources=dict.fromkeys(known, source),
        **known,  # type: ignore[arg-type]
    )


def _word(text: str | None) -> str | None:
    """ "4: ACTIVE" and "PORT_ACTIVE (4)" without their numbers."""
    if text is None:
        return None
    return re.sub(r"^\d+:\s*|\s*\(\d+\)$", "", text).strip() or None


def _known(words: dict[str, str], text: str | None) -> str | None:
    word = _word(text)
    return words.get(word.lower().replace(" ", ""), word) if word else None


def _rate(values: dict[str, str]) -> float | None:
    """Gb/s: "400", "400 Gb/sec (4X NDR)", or width times speed of ibv_devinfo."""
    if "rate" in values:
        match = _RATE.match(values["rate"])
        return float(match[1]) if match else None
    speed, width = _RATE.match(values.get("active_speed", "")), _WIDTH.match(values.get("active_width", ""))
    return float(speed[1]) * int(width[1]) if speed and width else None


def _integer(text: str | None) -> int | None:
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None
