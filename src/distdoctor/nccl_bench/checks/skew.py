"""Do ranks wait for one another longer than data moves, without one of them being the cause?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from distdoctor.nccl_bench.analysis.late import who_is_late
from distdoctor.nccl_bench.analysis.noise import busy_hosts
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.lateness import ArrivalsOfGroup
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Waiting beyond this many times the transfer itself dominates. Our own threshold.
DOMINATES = 2.0

# On GPU hosts that much waiting, with nothing to do in between, is no jitter of microseconds. Our own threshold.
WARN_GPU_US = 1000.0


def check_skew(facts: BenchFacts) -> Sequence[Outcome]:
    """Info on CPUs and busy hosts, where it is usual; a warning on GPU hosts. Silent when somebody is late."""
    if facts.num_ranks == 1:
        return [NotApplicable(detail="one rank waits for nobody")]
    told = who_is_late(facts)
    if not told.loops:
        return [not_seen(facts, "waiting of single ranks was not measured")]
    if told.late or told.last:
        return [Passed(detail="waiting has one cause: see bench-late-rank")]
    worst = max(told.loops, key=_waiting_us)
    waited = _waiting_us(worst)
    if waited <= max(told.floor_us, DOMINATES * worst.transfer_us):
        return [
            Passed(
                detail=f"ranks wait {waited:.0f} us for one another, the transfer takes {worst.transfer_us:.0f} us"
            )
        ]
    return [_found(facts, worst, waited, told.floor_us)]


def _waiting_us(loop: ArrivalsOfGroup) -> float:
    return median(each.wait_us for each in loop.arrivals)


def _found(facts: BenchFacts, loop: ArrivalsOfGroup, waited: float, floor_us: float) -> Found:
    busy = busy_hosts(facts)
    on_gpu = floor_us < WARN_GPU_US
    most = max(loop.arrivals, key=lambda each: each.last_share)
    warn = on_gpu and waited >= WARN_GPU_US and not busy
    return Found(
        title="ranks wait for one another longer than data moves; no single one is late",
        severity=Severity.WARNING if warn else Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"median wait {waited:.0f} us, the transfer itself {loop.transfer_us:.0f} us",
                value=round(waited, 1),
                unit="us",
                expected=f"at most {max(floor_us, DOMINATES * loop.transfer_us):.0f} us",
                expected_source="our own threshold: twice the transfer",
                source=f"{loop.collective} in {loop.group_label}, a barrier before each iteration",
            ),
            Evidence(
                text=(
                    f"the last to arrive changes: rank {most.rank}, most often last, is it in "
                    f"{most.last_share:.0%} of {most.iterations} iterations"
                ),
                value=round(most.last_share, 3),
            ),
            *(Evidence(text=f"busy: {line}", source="/proc") for line in busy[:3]),
        ),
        explanation=(
            "Small collectives are as slow as the rank that happens to be put aside by its operating system. With "
            "many ranks somebody always is: daemons, interrupts, other jobs on the cores, too few cores for each "
            "rank. Bandwidth at large sizes is hardly touched."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="give each rank cores of its own, and look for what else runs on them",
                command="cat /proc/pressure/cpu; ps -eo pid,psr,pcpu,comm --sort=-pcpu | head",
            ),
        ),
        cause_class="straggler:os_jitter",
        fault=Fault.HOST,
    )


CHECK = BenchCheck(id="bench-skew", title="waiting of ranks for one another", run=check_skew)
