"""Does one rank, or one host, come late to collectives, so that all others wait for it?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.late import (
    LAST_SHARE,
    MIN_ITERATIONS,
    LastRank,
    LateRank,
    who_is_late,
)
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.checks.ports import busier, gpus_of
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import short_host
from distdoctor.units import fold_ints

# A training step has hundreds of collectives: 10 ms at each are seconds a step. Our own threshold.
CRITICAL_LATENESS_US = 10_000.0

# Different collectives in which a rank comes last before that is more than a lead. Our own threshold.
CERTAIN_COLLECTIVES = 2

THRESHOLD = "our own thresholds"


def check_late_rank(facts: BenchFacts) -> Sequence[Outcome]:
    """High confidence when own time, waiting of the others and the order of arrival agree; a lead otherwise."""
    if facts.num_ranks == 1:
        return [NotApplicable(detail="one rank waits for nobody")]
    told = who_is_late(facts)
    if not told.loops:
        return [
            not_seen(facts, _why_unseen(facts), how="distdoctor nccl-bench, with barriers between iterations")
        ]
    if told.late:
        return [_late(facts, told.late)]
    if told.last:
        return [_last(facts, each) for each in told.last[:1]]
    most = max((each.last_share for loop in told.loops for each in loop.arrivals), default=0.0)
    return [
        Passed(
            detail=f"nobody is late by {_ms(told.floor_us)} or more; no rank is last in more than {most:.0%}"
        )
    ]


def late_host(facts: BenchFacts, late: Sequence[LateRank]) -> str | None:
    """The host of the late ranks, when they are all of its ranks and it has several, beside other hosts."""
    ranks = {each.rank for each in late}
    hosts = {facts.host_of(rank) for rank in ranks}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    if host is None or len({place.host for place in facts.places}) < 2:
        return None
    on_host = {place.rank for place in facts.places if place.host == host}
    return host if len(on_host) > 1 and on_host == ranks else None


def _late(facts: BenchFacts, late: Sequence[LateRank]) -> Found:
    worst = late[0]
    ranks = tuple(sorted(each.rank for each in late))
    hosts = tuple(dict.fromkeys(host for rank in ranks if (host := facts.host_of(rank)) is not None))
    return Found(
        title=_title(facts, late, ranks),
        severity=Severity.CRITICAL if worst.lateness_us >= CRITICAL_LATENESS_US else Severity.WARNING,
        confidence=Confidence.MEDIUM if busier(facts, hosts) else Confidence.HIGH,
        evidence=(*_late_evidence(late), *_load_evidence(facts, hosts)),
        explanation=(
            "Everybody waits for the last to arrive. Its own time between collectives is longer, it waits least, and "
            "the others wait about as long as it is late: the delay is in its process (processor, scheduling, clock, "
            "data loading in a real job), not in its link. Every collective of a job costs this much more."
        ),
        actions=_actions(facts, ranks, hosts),
        scope=Scope(ranks=ranks, hosts=hosts, gpus=gpus_of(facts, ranks)),
        cause_class="straggler:late_rank",
        fault=Fault.HOST,
    )


def _title(facts: BenchFacts, late: Sequence[LateRank], ranks: tuple[int, ...]) -> str:
    by = _ms(late[0].lateness_us)
    host = late_host(facts, late)
    if host is not None:
        return f"all ranks of {short_host(host)} come {by} late to every collective"
    if len(ranks) > 1:
        return f"{len(ranks)} ranks come up to {by} late: {fold_ints(ranks)}"[:80]
    where = facts.host_of(ranks[0])
    return f"rank {ranks[0]}{f' ({short_host(where)})' if where else ''} comes {by} late to every collective"


def _late_evidence(late: Sequence[LateRank]) -> list[Evidence]:
    worst = late[0]
    lines = [
        Evidence(
            text=(
                f"rank {each.rank}: {_ms(each.own_us)} of its own between collectives, the others "
                f"{_ms(each.others_own_us)}"
            ),
            value=round(each.own_us, 1),
            unit="us",
            expected=f"about {_ms(each.others_own_us)}",
            expected_source="the other ranks of this run",
            source=f"median of {each.iterations} iterations of {each.loop}",
        )
        for each in late[:4]
    ]
    who = "it is" if len(late) == 1 else "they are"
    cost = (
        f", {worst.others_wait_us / worst.transfer_us:.1f} times the transfer itself"
        if worst.transfer_us > 0
        else ""
    )
    loops = f"{worst.num_loops} loop{'s' if worst.num_loops > 1 else ''}"
    lines.append(
        Evidence(
            text=(
                f"{who} last in {worst.last_share:.0%} of the iterations; the others wait "
                f"{_ms(worst.others_wait_us)} for each collective{cost}; seen in {loops}"
            ),
            value=round(worst.others_wait_us, 1),
            unit="us",
            expected=f"last in less than {LAST_SHARE:.0%}",
            expected_source=THRESHOLD,
            source=worst.loop,
        )
    )
    return lines


def _load_evidence(facts: BenchFacts, hosts: Sequence[str]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(text=f"{line}, and not every other host was busy", source="/proc")
        for line in busier(facts, hosts)[:2]
    )


def _last(facts: BenchFacts, last: LastRank) -> Found:
    host = facts.host_of(last.rank)
    sure = last.num_collectives >= CERTAIN_COLLECTIVES
    cost = (
        f" ({last.others_wait_us / last.transfer_us:.1f} times the transfer)" if last.transfer_us > 0 else ""
    )
    return Found(
        key="last",
        title=f"rank {last.rank}{f' ({short_host(host)})' if host else ''} arrives last; its own time does not show why",
        severity=Severity.WARNING if sure else Severity.INFO,
        confidence=Confidence.MEDIUM if sure else Confidence.LOW,
        evidence=(
            Evidence(
                text=(
                    f"last in {last.last_share:.0%} of {last.iterations} iterations; the others wait "
                    f"{_ms(last.others_wait_us)}{cost}"
                ),
                value=round(last.last_share, 3),
                expected="about the same share for every rank",
                expected_source=THRESHOLD,
                source=last.loop,
            ),
        ),
        explanation=(
            "The others wait for this rank, yet between collectives it spends no more time than they do. A GPU that "
            "runs at lower clocks or is throttled, work that others put on it, or the way the algorithm ends can do "
            "this. Its link is not shown to be slow."
        ),
        actions=_actions(facts, (last.rank,), (host,) if host else ()),
        scope=Scope(ranks=(last.rank,), hosts=(host,) if host else (), gpus=gpus_of(facts, (last.rank,))),
        cause_class="straggler:late_rank",
        fault=Fault.UNKNOWN,
    )


def _actions(facts: BenchFacts, ranks: Sequence[int], hosts: Sequence[str]) -> tuple[Action, ...]:
    where = f"on {', '.join(hosts[:4])}: " if hosts else ""
    actions = [
        Action(
            team=Team.PLATFORM,
            text=f"{where}what else runs there, on which cores the rank may run, and whether its CPU is throttled",
            command="uptime; ps -eo pid,psr,pcpu,comm --sort=-pcpu | head; cat /proc/pressure/cpu",
        )
    ]
    indexes = [gpu.index for gpu in gpus_of(facts, ranks) if gpu.index is not None]
    if indexes:
        chosen = ",".join(map(str, indexes[:8]))
        actions.append(
            Action(
                team=Team.HARDWARE,
                text=f"{where}clocks, throttling and other processes of GPU {chosen}",
                command=f"nvidia-smi -q -d CLOCK,PERFORMANCE,PIDS -i {chosen}",
            )
        )
    return tuple(actions)


def _why_unseen(facts: BenchFacts) -> str:
    if facts.arrivals:
        return f"fewer than {MIN_ITERATIONS} iterations, or only collectives with a root, tell of arrivals"
    if not facts.is_live:
        return "a table or log holds one time for all ranks: who came late is not in it"
    return "the loops that tell who arrives late were not measured"


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.3g} ms" if time_us >= 1000 else f"{time_us:.0f} us"


CHECK = BenchCheck(id="bench-late-rank", title="who arrives late at collectives", run=check_late_rank)
