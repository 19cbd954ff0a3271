"""Which host is each recording of? From its first line, without reading the rest."""

from __future__ import annotations

import msgspec

from distdoctor.errors import InputError
from distdoctor.evidence import read_head
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.recording_format import COLLECTIVES_KEY


def by_host(paths: list[str]) -> list[list[str]]:
    """Recordings of steps, those of one host together, so that they can be read host by host.

    Files of one rank from several hosts (it was restarted elsewhere) stay together, under its last host. Recordings
    of collectives are left to whoever reads them: they are a list of their own, the last one.
    """
    hosts: dict[str, list[str]] = {}
    host_of_rank: dict[int, str] = {}
    collectives: list[str] = []
    told: list[tuple[str, int | None, str]] = []
    for path in paths:
        header = _header(path)
        if COLLECTIVES_KEY in header:
            collectives.append(path)
            continue
        rank, host = header.get("rank"), header.get("host")
        name = host if isinstance(host, str) and host else ""
        number = rank if isinstance(rank, int) else None
        if number is not None:
            host_of_rank[number] = name
        told.append((path, number, name))
    for path, rank, name in told:
        hosts.setdefault(host_of_rank.get(rank, name) if rank is not None else name, []).append(path)
    unknown = hosts.pop("", [])
    groups = list(hosts.values())
    if unknown:
        groups.append(unknown)
    return groups + ([collectives] if collectives else [])


def _header(path: str) -> dict[str, object]:
    try:
        line = text_start(read_head(path)).partition(b"\n")[0]
        found = msgspec.json.decode(line)
    except (InputError, msgspec.DecodeError, RecursionError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
