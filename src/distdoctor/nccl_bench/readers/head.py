"""What stands above and below the rows of a table: settings, ranks and devices, versions, the footer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.nccl_bench.definitions import canonical_name
from distdoctor.nccl_bench.readers.numbers import parse_count, parse_number

_SETTINGS = re.compile(
    r"nThreads?\s+(?P<threads>\d+)\s+nGpus\s+(?P<gpus>\d+)(?:\s+minBytes\s+(?P<low>\d+))?(?:\s+maxBytes\s+(?P<high>\d+))?"
    r"(?:\s+step:\s*(?P<step>\d+)\s*\((?P<kind>factor|bytes)\))?(?P<rest>.*)"
)
_REDUCED = re.compile(r"Reducing maxBytes to\s+(\d+)")
_DEVICE = re.compile(
    r"Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?(?:Pid\s+(?P<pid>\d+)\s+)?on\s+(?P<host>\S+(?: \S+){0,2}?)\s+device\s+"
    r"(?P<device>\d+)\s*(?:\[(?P<bus>[0-9A-Za-z:.]*)\])?\s*(?P<model>.*)"
)
_FULL_BUS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(?P<count>\d+)\s*(?P<word>OK|FAILED)?")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(?P<value>\S+)")
_NCCL_TESTS = re.compile(r"nccl-tests version\s+(?P<version>\S+)(?:.*nccl-library=(?P<library>\d+))?")
_RCCL_TESTS = re.compile(r"rccl-tests:\s*Version\s+(?P<version>\S+)")
_LIBRARY = re.compile(
    r"(?P<name>N?R?CCL) version\s*:?\s*(?P<version>\d+\.\d+(?:\.\d+)?)[^\s+]*(?:\+cuda(?P<cuda>\d+\.\d+))?"
)

# Longer host names and GPU models are no names.
MAX_NAME_CHARACTERS = 200
MAX_RANK = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The line `# nThread 1 nGpus 8 minBytes 8 maxBytes …`; None where it does not say."""

    ranks_per_process: int
    min_bytes: int | None
    max_bytes: int | None
    step: int | None
    step_is_factor: bool
    iters: int | None
    validation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """One line of the list of ranks."""

    rank: int
    group: int | None
    pid: int | None
    host: str
    device: int
    pci: str | None
    """Only where the whole address is printed; old versions print the bus alone."""
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The line `# Out of bounds values : 4 FAILED`."""

    count: int
    okay: bool


def parse_settings(text: str) -> Settings | None:
    """The settings in a line, or None."""
    match = _SETTINGS.search(text)
    if match is None:
        return None
    rest = match["rest"]
    ranks = (parse_count(match["threads"]) or 1) * (parse_count(match["gpus"]) or 1)
    return Settings(
        ranks_per_process=max(1, ranks),
        min_bytes=parse_count(match["low"] or ""),
        max_bytes=parse_count(match["high"] or ""),
        step=parse_count(match["step"] or ""),
        step_is_factor=match["kind"] != "bytes",
        iters=_setting(r"(?<!warmup )(?<!agg )\biters:\s*(\d+)", rest),
        validation=_setting(r"\bvalidation:\s*(\d+)", rest),
    )


def _setting(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return parse_count(match[1]) if match else None


def parse_reduced(text: str) -> int | None:
    """The size that memory allows: "Reducing maxBytes to …"."""
    match = _REDUCED.search(text)
    return parse_count(match[1]) if match else None


def parse_device(text: str) -> DeviceLine | None:
    """One rank's device, or None."""
    match = _DEVICE.search(text)
    if match is None:
        return None
    rank = parse_count(match["rank"])
    if rank is None or rank > MAX_RANK:
        return None
    model = match["model"].strip(" \t|")[:MAX_NAME_CHARACTERS]
    return DeviceLine(
        rank=rank,
        group=parse_count(match["group"] or ""),
        pid=parse_count(match["pid"] or ""),
        host=match["host"][:MAX_NAME_CHARACTERS],
        device=parse_count(match["device"]) or 0,
        pci=pci_address(match["bus"] or ""),
        model=model or None,
    )


def pci_address(text: str) -> str | None:
    """`0000:c1:00.0` of `0000:c1:00` (a GPU is function 0); None for the bare bus that old versions print."""
    match = _FULL_BUS.fullmatch(text)
    if match is None:
        return None
    return f"{match[1].lower()[-8:]}:{match[2].lower()}:{match[3].lower()}.{match[4] or '0'}"


def parse_bounds(text: str) -> Bounds | None:
    """The footer's count of wrong tests, or None."""
    match = _BOUNDS.search(text)
    count = parse_count(match["count"]) if match else None
    if match is None or count is None:
        return None
    return Bounds(count=count, okay=match["word"] != "FAILED" and count == 0)


def parse_average(text: str) -> float | None:
    """The footer's average bus bandwidth in GB/s, or None."""
    match = _AVERAGE.search(text)
    number = parse_number(match["value"]) if match else None
    return number.value if number else None


def parse_tool(text: str) -> tuple[str | None, str | None]:
    """The benchmark and its version, and the version of NCCL that it ran with."""
    match = _NCCL_TESTS.search(text)
    if match is not None:
        return f"nccl-tests {match['version'][:40]}", version_of_code(parse_count(match["library"] or ""))
    match = _RCCL_TESTS.search(text)
    return (f"rccl-tests {match['version'][:40]}" if match else None), None


def version_of_code(code: int | None) -> str | None:
    """`2.29.7` of 22907; `2.8.4` of 2804: NCCL changed its encoding with 2.9."""
    if code is None or not 1000 <= code <= 99999:
        return None
    major, rest = divmod(code, 1000 if code < 10000 else 10000)
    return f"{major}.{rest // 100}.{rest % 100}"


def parse_library(text: str) -> tuple[str, str, str | None] | None:
    """Backend ("nccl", "rccl"), its version, and CUDA's, of a line such as `NCCL version 2.21.5+cuda12.4`."""
    match = _LIBRARY.search(text)
    if match is None:
        return None
    backend = "rccl" if match["name"] == "RCCL" else "nccl"
    return backend, match["version"], match["cuda"]


def parse_collective(text: str) -> str | None:
    """Our name of the collective in a banner `Collective test starting: all_reduce_perf`, or None."""
    _, _, name = text.partition(":")
    words = name.split()
    return canonical_name(words[0].rpartition("/")[2]) if words else None
