"""Which row of a RoCE port's GID table would NCCL use? From NVIDIA/nccl net_ib/connect.cc (ncclIbGetGidIndex)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.env.facts.network import GidEntry, RdmaPort
from distdoctor.env.versions import at_least

# Before, the row was NCCL_IB_GID_INDEX with default 0 (release 2.21.5).
CHOOSES_SINCE = "2.21"


@dataclass(frozen=True, slots=True, kw_only=True)
class GidChoice:
    """The row that NCCL would use. `entry` None: that row is empty or hidden."""

    index: int
    entry: GidEntry | None
    why: str


def roce_version(entry: GidEntry) -> int | None:
    """1 or 2, or None when the kind is not known."""
    kind = entry.kind or ""
    if "v2" in kind:
        return 2
    return 1 if "v1" in kind else None


def gid_ipv4(entry: GidEntry) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv4-mapped GID holds."""
    parsed = _parsed(entry)
    return parsed.ipv4_mapped if parsed is not None else None


def is_link_local(entry: GidEntry) -> bool:
    """A GID that no router forwards (fe80::/64)."""
    parsed = _parsed(entry)
    return parsed is not None and parsed.is_link_local


def _parsed(entry: GidEntry) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(entry.gid)
    except ValueError:
        return None


def predict_gid(
    port: RdmaPort, variables: Mapping[str, str], *, nccl_version: str | None = None
) -> GidChoice | None:
    """The row for a RoCE port; None when its table was not read. Without a version, current NCCL's rules."""
    if port.gids is None:
        return None
    rows = {entry.index: entry for entry in port.gids}
    forced = _integer(variables.get("NCCL_IB_GID_INDEX"))
    if forced is not None and forced >= 0:
        return GidChoice(index=forced, entry=rows.get(forced), why=f"NCCL_IB_GID_INDEX={forced}")
    if at_least(nccl_version, CHOOSES_SINCE) is False:
        return GidChoice(index=0, entry=rows.get(0), why=f"default 0 of NCCL {nccl_version}")
    family, version = _wanted_kind(variables)
    index = 0
    for candidate in sorted(rows):
        if candidate and _is_better(rows[candidate], rows.get(index), family, version, variables):
            index = candidate
    return GidChoice(index=index, entry=rows.get(index), why=f"chosen for RoCE v{version}, IPv{family}")


def _wanted_kind(variables: Mapping[str, str]) -> tuple[int, int]:
    family = 6 if variables.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6" else 4
    return family, _integer(variables.get("NCCL_IB_ROCE_VERSION_NUM")) or 2


def _is_better(
    candidate: GidEntry, current: GidEntry | None, family: int, version: int, variables: Mapping[str, str]
) -> bool:
    """ncclUpdateGidIndex, in its order: the wanted family first, then the wanted RoCE version."""
    if _family(candidate) != family or not _in_range(candidate, variables.get("NCCL_IB_ADDR_RANGE")):
        return False
    # An empty row counts as IPv6, as its zeros are no IPv4-mapped address.
    if (6 if current is None else _family(current)) != family:
        return True
    if is_link_local(candidate):
        return False
    differs = current is None or roce_version(candidate) != roce_version(current) or is_link_local(current)
    return differs and roce_version(candidate) == version


def _family(entry: GidEntry) -> int:
    return 4 if gid_ipv4(entry) is not None else 6


def _in_range(entry: GidEntry, range_text: str | None) -> bool:
    if not range_text or "/" not in range_text:
        return True
    try:
        network = ipaddress.ip_network(range_text, strict=False)
    except ValueError:
        return True
    address = gid_ipv4(entry) or _parsed(entry)
    return address is not None and address.version == network.version and address in network


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None
