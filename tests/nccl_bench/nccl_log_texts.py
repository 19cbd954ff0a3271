"""Texts in NCCL's grammar for the tests, and the checks run over them."""

from __future__ import annotations

from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.nccl_bench.readers.nccl_log import read_nccl_log


def lines(*texts: str, host: str = "trainer-7", pid: int = 411, device: int = 0, level: str = "INFO") -> str:
    """Each text as one process prints it."""
    return "".join(f"{host}:{pid}:{pid + 9} [{device}] NCCL {level} {text}\n" for text in texts)


def log_of(text: str) -> NcclLog:
    """The log that a text is; it must be one."""
    log = read_nccl_log(text, "job.log")
    assert log is not None
    return log


def facts_of(
    text: str, *, num_hosts: int | None = None, hardware: tuple[HostHardware, ...] = ()
) -> BenchFacts:
    """Facts that hold the log of a text and nothing else, unless said."""
    return BenchFacts(
        origin=Origin.LOG, label="job.log", nccl_log=log_of(text), num_hosts=num_hosts, hardware=hardware
    )


def outcome(check: BenchCheck, facts: BenchFacts) -> Outcome:
    """The only outcome of a check."""
    (only,) = check.run(facts)
    return only


def found(check: BenchCheck, facts: BenchFacts, key: str = "") -> Found:
    """The finding with a key; it must be there."""
    matches = [each for each in check.run(facts) if isinstance(each, Found) and each.key == key]
    assert matches, [getattr(each, "key", each) for each in check.run(facts)]
    assert len(matches[0].title) <= 80
    return matches[0]


TWO_HOSTS = "comm 0x55ab rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0"
ONE_HOST = "comm 0x55ab rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0"
