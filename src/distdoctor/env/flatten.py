"""Facts of one or many processes as flat rows: one row per value, folded over the hosts and ranks that share it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section, Unread
from distdoctor.env.facts.network import Interface
from distdoctor.report.model import Fact, Scalar

# Lists longer than this say their length and beginning; the file that they came from has the rest.
MAX_LIST = 64

# Names end with their unit; the row shows it as people write it.
_UNITS = {
    "_bytes": "bytes",
    "_s": "s",
    "_w": "W",
    "_mhz": "MHz",
    "_pct": "%",
    "_c": "°C",
    "_gbps": "GB/s",
    "_gbit": "Gb/s",
    "_mbps": "Mb/s",
    "_cpus": "CPUs",
}

# Not facts about the subject: bookkeeping of the sections themselves.
_BOOKKEEPING = frozenset({"sources", "unread"})

# Interpreter internals that no reader acts on; kept for checks, left out of reports.
_INTERNAL = frozenset(
    {
        "python.search_path",
        "process.affinity_cpus",
        "process.parent_affinity_cpus",
        "variables.config_files",
        "variables.settings",
    }
)

Row = tuple[str, Scalar, str | None, str | None]
"""(key, value, source, why it is None)."""


def flat_rows(facts: EnvFacts) -> list[Row]:
    """Every fact of one process as (dotted key, value, source, reason)."""
    rows: list[Row] = []
    for field in dataclasses.fields(facts):
        section = getattr(facts, field.name)
        if isinstance(section, Section):
            rows += _section_rows(field.name, section)
    for name, unread in facts.unread.items():
        rows.append((name, None, None, unread.reason))
    return rows


def fold_facts(processes: Sequence[tuple[str | None, int | None, EnvFacts]]) -> tuple[Fact, ...]:
    """Facts of (host, rank, facts) triples; equal values of one key share a row that names hosts and ranks.

    With a single process, hosts and ranks are left empty.
    """
    alone = len(processes) == 1
    grouped: dict[str, dict[tuple[str, str | None], tuple[Row, list[str], list[int]]]] = {}
    for host, rank, facts in processes:
        for row in flat_rows(facts):
            key, value, _, why = row
            group = grouped.setdefault(key, {})
            _, hosts, ranks = group.setdefault((repr(value), why), (row, [], []))
            if host is not None and host not in hosts:
                hosts.append(host)
            if rank is not None:
                ranks.append(rank)
    result = []
    for key, group in grouped.items():
        for (_, value, source, why), hosts, ranks in group.values():
            result.append(
                Fact(
                    key=key,
                    value=value,
                    unit=_unit(key),
                    source=source,
                    why=why,
                    hosts=() if alone else tuple(hosts),
                    ranks=() if alone else tuple(sorted(ranks)),
                )
            )
    return tuple(result)


def _section_rows(prefix: str, section: Section) -> Iterator[Row]:
    for field in dataclasses.fields(section):
        if field.name in _BOOKKEEPING or f"{prefix}.{field.name}" in _INTERNAL:
            continue
        value = getattr(section, field.name)
        source = section.sources.get(field.name)
        unread = section.unread.get(field.name)
        if value is None:
            if unread is not None:
                yield f"{prefix}.{field.name}", None, source, _why(unread)
            continue
        yield from _value_rows(f"{prefix}.{field.name}", value, source)


def _value_rows(key: str, value: object, source: str | None) -> Iterator[Row]:
    if isinstance(value, Enum):
        yield key, str(value.value), source, None
    elif isinstance(value, str | int | float | bool):
        yield key, value, source, None
    elif isinstance(value, Section):
        yield from _section_rows(key, value)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            if part is not None:
                yield from _value_rows(f"{key}.{field.name}", part, source)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _value_rows(f"{key}.{name}", part, source)
    elif isinstance(value, Iterable):
        yield from _list_rows(key, list(value), source)


def _list_rows(key: str, items: list[object], source: str | None) -> Iterator[Row]:
    if not items:
        return
    if all(isinstance(item, str | int | float) for item in items):
        text = ", ".join(str(item) for item in items[:MAX_LIST])
        yield key, text if len(items) <= MAX_LIST else f"{text} … ({len(items)} in all)", source, None
        return
    for position, item in enumerate(items):
        yield from _value_rows(f"{key}.{_item_name(item, position)}", item, source)


def _item_name(item: object, position: int) -> str:
    """What people call the item: a device's index, an interface's name, a port; else its place."""
    if isinstance(item, Interface):
        # Interface indexes count what was ever made on the host: number 4 is another card elsewhere.
        return item.name
    for name in ("index", "device", "name", "node", "link", "path"):
        value = getattr(item, name, None)
        if value is not None:
            port = getattr(item, "port", None)
            return f"{value}/{port}" if port is not None and name == "device" else str(value)
    return str(position)


def _unit(key: str) -> str | None:
    last = key.rpartition(".")[2]
    return next((unit for suffix, unit in _UNITS.items() if last.endswith(suffix)), None)


def _why(unread: Unread) -> str:
    return f"{unread.reason} ({unread.how})" if unread.how else unread.reason
