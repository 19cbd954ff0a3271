"""NCCL's list syntax for interface and HCA names: `[^][=]name[:port[:rail[:plane]]],…`.

Followed from NVIDIA/nccl src/misc/utils.cc (parseStringList, matchIfList) and its callers in socket.cc and
net_ib: one leading `^` turns the whole list into an exclusion, one `=` after it asks for whole names instead
of beginnings, and nothing is trimmed. So in `eth0, eth1` the second name begins with a space, and in
`=eth0,=eth1` it begins with `=`: both match nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEADING_INTEGER = re.compile(r"\s*([+-]?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterEntry:
    """One name of the list. `port` None: any."""

    name: str
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """A parsed list. An empty one admits everything, or with `^` nothing, as in NCCL."""

    text: str
    excludes: bool
    exact: bool
    entries: tuple[FilterEntry, ...]

    def admits(self, name: str, port: int | None = None) -> bool:
        """Would NCCL take this name (and port)?"""
        if not self.entries:
            return not self.excludes
        return (self.entry_for(name, port) is not None) != self.excludes

    def entry_for(self, name: str, port: int | None = None) -> FilterEntry | None:
        """The first entry that the name (and port) matches, whether the list includes or excludes."""
        return next((entry for entry in self.entries if self.entry_matches(entry, name, port)), None)

    def entry_matches(self, entry: FilterEntry, name: str, port: int | None = None) -> bool:
        """Does one entry match? A port that either side leaves open matches any."""
        same_name = name == entry.name if self.exact else name.startswith(entry.name)
        return same_name and (port is None or entry.port is None or port == entry.port)


def parse_name_filter(text: str, *, max_entries: int) -> NameFilter:
    """Parse as NCCL does. Entries beyond `max_entries` (16 interfaces, 32 HCAs) are dropped, as there."""
    rest = text
    excludes = rest.startswith("^")
    rest = rest[1:] if excludes else rest
    exact = rest.startswith("=")
    rest = rest[1:] if exact else rest
    entries = []
    for part in rest.split(","):
        name, _, port = part.partition(":")
        if name:
            port = port.partition(":")[0]
            entries.append(FilterEntry(name=name, port=_atoi(port) if port else None))
    return NameFilter(text=text, excludes=excludes, exact=exact, entries=tuple(entries[:max_entries]))


def _atoi(text: str) -> int:
    """C's atoi: leading digits, or 0 (a port that no HCA has)."""
    match = _LEADING_INTEGER.match(text)
    return int(match.group(1)) if match else 0
