"""Are all ranks of one host slow together? Then it is the host, not its GPUs one by one."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.model import Confidence, Evidence, Fault, Scope, Severity
from distdoctor.report.names import short_host
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.hosts import MIN_HOSTS, SlowHost
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.checks.cause_words import actions_for, why
from distdoctor.straggler.checks.slow_rank import CRITICAL_COST
from distdoctor.straggler.checks.unjudged import why_not_judged, why_silence_says_nothing
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.words import percent, ranks_words, utc_of


def check_slow_host(facts: Analysed) -> Sequence[Outcome]:
    """A finding for each slow host."""
    if not facts.judged:
        reason, how = why_not_judged(facts)
        return [not_seen(reason, how=how)]
    outcomes: list[Outcome] = []
    for judged in facts.judged:
        outcomes += [_found(judged, host) for host in judged.judgement.hosts] or [_nothing(judged)]
    return outcomes


def _nothing(judged: Judged) -> Outcome:
    hosts = {place.host for place in judged.timings.places if place.host is not None}
    if not hosts:
        return not_seen(
            "the evidence does not tell which rank runs on which host",
            how="say how many GPUs a host has: `--gpus-per-host N`",
        )
    if len(hosts) < MIN_HOSTS:
        return not_seen(
            f"{len(hosts)} host{'s' if len(hosts) != 1 else ''}: a host needs others to be compared with"
        )
    reason = why_silence_says_nothing(judged)
    if reason is not None:
        return not_seen(reason[0], how=reason[1])
    return Passed(detail=f"none of {len(hosts)} hosts is slow as a whole")


def _found(judged: Judged, host: SlowHost) -> Found:
    judgement, source = judged.judgement, judged.source
    places = [judged.timings.places[row] for row in host.rows]
    suspects = [each for each in judgement.suspects if each.row in host.rows]
    causes = [explain_suspect(each).cause for each in suspects] or [Cause.UNKNOWN]
    cause = max(set(causes), key=causes.count)
    together = judgement.cost.together if judgement.cost is not None else None
    measured = any(each.wait_deficit_ms is not None and not each.wait_is_derived for each in suspects)
    ranks = tuple(place.rank for place in places)
    only_waits = judgement.basis is Basis.WAIT_ONLY
    longer = "come late" if only_waits else f"work {percent(host.effect)} longer"
    evidence = [
        Evidence(
            text=f"{host.num_slow} of its {len(host.rows)} ranks ({ranks_words(ranks)}) "
            f"{'come later' if only_waits else 'work longer'} than {judgement.peers.words()}: {percent(host.effect)}"
            f"{' of the time in collectives' if only_waits else ''} in the median, {_when(judged, host)}",
            value=round(100 * host.effect, 2),
            unit="%",
            expected=f"at most {percent(max(host.threshold, judgement.threshold.value))}",
            expected_source="threshold for this number of hosts, their spread and their noise",
            source=source,
        )
    ]
    if together is not None and judgement.cost is not None:
        evidence.append(
            Evidence(
                text=f"estimated: the job would take {percent(together)} less time if all accused were like their peers",
                source=source,
            )
        )
    return Found(
        key=f"{judged.label}host-{host.host}",
        title=judged.titled(
            f"{short_host(host.host)}: all of its ranks {longer}{'' if only_waits else ' than their peers'}"
            if host.num_slow == len(host.rows)
            else f"{short_host(host.host)}: {host.num_slow} of {len(host.rows)} ranks {longer}"
        ),
        severity=Severity.CRITICAL
        if together is not None and together >= CRITICAL_COST
        else Severity.WARNING,
        confidence=Confidence.HIGH
        if measured and judgement.peers.known and judgement.peers.is_whole and not judgement.peers.given_up
        else Confidence.MEDIUM,
        evidence=tuple(evidence),
        explanation="Its ranks are slow together, which points to what they share: CPU, memory, cooling, power, "
        f"storage or other jobs on the host, rather than to one GPU. {why(cause)}",
        actions=actions_for(cause, Place(rank=-1, host=host.host)),
        scope=Scope(ranks=ranks, hosts=(host.host,)),
        cause_class=f"slow_host:{cause.value}",
        fault=Fault.HOST,
    )


def _when(judged: Judged, host: SlowHost) -> str:
    """ "in all 190 steps", "since step 1,200 (2026-11-30T12:20:11Z)", "from step 300 to 420"."""
    steps, unit = judged.judgement.steps, judged.unit
    first, last = int(steps[host.start]), int(steps[host.end - 1])
    if host.end - host.start == len(steps):
        return f"in all {judged.units}"
    if host.start == 0:
        return f"up to {unit} {last:,}"
    at = utc_of(judged, host.start)
    since = f" ({at})" if at else ""
    return (
        f"since {unit} {first:,}{since}"
        if host.end == len(steps)
        else f"from {unit} {first:,}{since} to {last:,}"
    )


CHECK = StragglerCheck(
    id="straggler-slow-host",
    title="hosts whose ranks are slow together",
    run=check_slow_host,
)
