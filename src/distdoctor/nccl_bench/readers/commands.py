"""The command that made a table: which collective, which NCCL variables, how many processes, up to which size?

Only NCCL_… and RCCL_… variables are taken; whatever else a command line or an environment holds is not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.nccl_bench.definitions import canonical_name
from distdoctor.nccl_bench.readers.numbers import parse_count, parse_number

MAX_OVERRIDES = 200
MAX_VALUE_CHARACTERS = 300

_BINARY = re.compile(
    r"(?P<name>\b(?:all_reduce|all_gather|reduce_scatter|broadcast|reduce|gather|scatter|alltoallv?|sendrecv|hypercube)"
    r"_perf(?:_mpi)?)\b(?P<rest>.*)"
)
_ASSIGNED = re.compile(
    r"(?<![\w$])(?P<name>(?:NCCL|RCCL)_[A-Z0-9_]{1,80})=(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|"
    r"(?P<plain>(?:(?!,[A-Z][A-Z0-9_]*=)[^\s;\"'\\])*))"
)
_SPACED = re.compile(r"-g?env\s+(?P<name>(?:NCCL|RCCL)_[A-Z0-9_]{1,80})\s+(?P<value>[^\s\\-][^\s\\]*)")
_SETS = re.compile(
    r"^[\s$#>+|*-]*(?:NCCL|RCCL)_[A-Z0-9_]+=|\bexport\s|\s-x\s|^-x\s|--export[= ]|\s-g?env\s|\benv\s|_perf(?:_mpi)?\s+-|"
    r"\b(?:mpirun|mpiexec|srun|prterun|orterun|docker run)\b|\\\s*$"
)
_LAUNCHER = re.compile(r"\b(?:mpirun|mpiexec|orterun|prterun|srun)\b")
_PROCESSES = re.compile(r"\s(?:-{1,2}np?|--ntasks)[ =](?P<count>\d{1,7})\b")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kKmMgGtT]?)(?:i?[bB])?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What one or more lines of a command say; None and empty where they do not."""

    collective: str | None = None
    """Our name; "" when the binary is known and is none of ours (hypercube)."""
    is_call: bool = False
    """The binary stands with its options, not merely in a sentence."""
    overrides: tuple[tuple[str, str], ...] = ()
    processes: int | None = None
    max_bytes: int | None = None
    validation: int | None = None

    def with_line(self, other: Command) -> Command:
        """This command continued by another line; what the later line says counts."""
        return Command(
            collective=other.collective if other.collective is not None else self.collective,
            is_call=other.is_call or (self.is_call and other.collective is None),
            overrides=merged((*self.overrides, *other.overrides)),
            processes=other.processes if other.processes is not None else self.processes,
            max_bytes=other.max_bytes if other.max_bytes is not None else self.max_bytes,
            validation=other.validation if other.validation is not None else self.validation,
        )


def parse_command(text: str) -> Command:
    """What a line of a command, an `export` or a sentence says."""
    binary = _BINARY.search(text)
    launcher = _LAUNCHER.search(text)
    processes = _PROCESSES.search(text, launcher.end()) if launcher else None
    options = binary["rest"] if binary else ""
    validation = _option(options, r"c|-?-check")
    return Command(
        collective=(canonical_name(binary["name"]) or "") if binary else None,
        is_call=bool(re.match(r"\s+-{1,2}[a-zA-Z]", options)),
        overrides=overrides_in(text),
        processes=parse_count(processes["count"]) if processes else None,
        max_bytes=parse_size(_option(options, r"e|-?-maxbytes") or ""),
        validation=parse_count(validation or ""),
    )


def overrides_in(text: str) -> tuple[tuple[str, str], ...]:
    """NCCL variables that a line sets, however: `-x A=b`, `--export=ALL,A=b`, `-genv A b`, `export A="b"`.

    A sentence that only mentions one sets nothing.
    """
    if not _SETS.search(text):
        return ()
    found = [
        (match["name"], match["double"] or match["single"] or match["plain"] or "")
        for match in _ASSIGNED.finditer(text)
    ]
    found += [(match["name"], match["value"]) for match in _SPACED.finditer(text)]
    return merged(found)


def merged(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Each variable once, with its last value; at most `MAX_OVERRIDES`."""
    by_name = {name: value[:MAX_VALUE_CHARACTERS] for name, value in pairs}
    return tuple(sorted(by_name.items())[:MAX_OVERRIDES])


def parse_size(text: str) -> int | None:
    """Bytes of `8`, `512M`, `16G`, as nccl-tests' options take them (K is 2^10); None when it is none."""
    match = _SIZE.fullmatch(text.strip())
    number = parse_number(match["number"]) if match else None
    if match is None or number is None:
        return None
    return int(number.value * _UNITS[match["unit"].lower()])


def _option(options: str, names: str) -> str | None:
    match = re.search(rf"(?:^|\s)-(?:{names})[ =]?(?P<value>[^\s-][^\s]*)", options)
    return match["value"].strip("\\'\"`") if match else None
