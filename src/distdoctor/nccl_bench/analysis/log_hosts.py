"""Does the job of a log span several hosts? Judged by the strongest thing that the log or the run says."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.report.model import Confidence

# Hosts with more GPUs exist (16 in HGX-2, 16 in p2.16xlarge), but are rare: more ranks make several hosts likely.
USUAL_GPUS_PER_HOST = 8

# No host that NCCL runs on has more GPUs than this: NVL72 joins hosts, and NCCL then says MNNVL.
MAX_GPUS_PER_HOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsSeen:
    """`several` is None when nothing tells; `why` is the evidence in words."""

    several: bool | None
    why: str
    confidence: Confidence = Confidence.HIGH
    num_hosts: int | None = None
    ranks_per_host: int | None = None
    place: str | None = None
    """File and line of the evidence."""


def hosts_of(facts: BenchFacts) -> HostsSeen:
    """Several hosts, one, or unknown: the run's own count first, then communicators, names, rings and routes."""
    if facts.num_hosts is not None:
        per_host = facts.num_ranks // facts.num_hosts if facts.num_ranks and facts.num_hosts else None
        return HostsSeen(
            several=facts.num_hosts > 1,
            why=f"the run has {facts.num_hosts} host{'s' if facts.num_hosts > 1 else ''}",
            num_hosts=facts.num_hosts,
            ranks_per_host=per_host,
        )
    log = facts.nccl_log
    if log is None:
        return HostsSeen(several=None, why="no log of NCCL", confidence=Confidence.LOW)
    return _by_communicators(log) or _by_names(log) or _by_ranks(log) or _by_routes(log) or _unknown(log)


def _by_communicators(log: NcclLog) -> HostsSeen | None:
    """The largest communicator whose hosts NCCL counted."""
    counted = [comm for comm in log.comms if comm.num_hosts is not None]
    if not counted:
        return None
    largest = max(counted, key=lambda comm: (comm.num_hosts or 0, comm.num_ranks))
    hosts = largest.num_hosts or 1
    joined = ", joined by NVLink across hosts" if largest.mnnvl else ""
    return HostsSeen(
        several=hosts > 1,
        why=f"a communicator has {largest.num_ranks} ranks on {hosts} host{'s' if hosts > 1 else ''}{joined}",
        num_hosts=hosts,
        ranks_per_host=largest.local_ranks,
        place=largest.where,
    )


def _by_names(log: NcclLog) -> HostsSeen | None:
    if len(log.hosts) < 2:
        return None
    shown = ", ".join(log.hosts[:3])
    return HostsSeen(
        several=True,
        why=f"{len(log.hosts)} hosts write into it: {shown}{' …' if len(log.hosts) > 3 else ''}",
        num_hosts=len(log.hosts),
        ranks_per_host=log.devices_per_host,
    )


def _by_ranks(log: NcclLog) -> HostsSeen | None:
    """More ranks than a host has GPUs; a ring that visits them in groups shows the hosts."""
    ranks = max([comm.num_ranks for comm in log.comms] + [log.ring_ranks or 0])
    if ranks <= USUAL_GPUS_PER_HOST:
        return None
    place = log.place_of("ring ranks") if log.ring_ranks else next((comm.where for comm in log.comms), None)
    block = log.ring_block
    grouped = f", and a ring visits them in groups of {block}" if block else ""
    certain = ranks > MAX_GPUS_PER_HOST or block is not None
    return HostsSeen(
        several=True,
        why=f"{ranks} ranks are more than the {USUAL_GPUS_PER_HOST} GPUs of usual hosts{grouped}",
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        num_hosts=ranks // block if block and ranks % block == 0 else None,
        ranks_per_host=block,
        place=place,
    )


def _by_routes(log: NcclLog) -> HostsSeen | None:
    """Ranks joined by the network sit on different hosts, unless P2P and shared memory are both shut off."""
    route = next((each for each in log.routes if each.transport in ("NET", "COLLNET")), None)
    if route is None:
        return None
    return HostsSeen(
        several=True,
        why="ranks are joined by the network, which NCCL uses between hosts",
        confidence=Confidence.MEDIUM,
        place=route.where,
    )


def _unknown(log: NcclLog) -> HostsSeen:
    if log.num_processes and log.num_processes > 1 and len(log.hosts) == 1:
        why = f"all {log.num_processes} processes in the log are on {log.hosts[0]}; whether the job has more hosts is not in it"
    else:
        why = "the log does not say how many hosts the job has"
    return HostsSeen(several=None, why=why, confidence=Confidence.LOW, ranks_per_host=log.devices_per_host)
