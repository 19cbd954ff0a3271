"""Words for one collective that is slower than its hardware: measured, expected, possible causes, next steps."""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.hypotheses import Hypothesis
from distdoctor.nccl_bench.analysis.shortfall import Shortfall
from distdoctor.nccl_bench.checks.base import Found
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.units import format_bytes

# Below this share of the expectation's low end a job is very slow, not a little. Our own threshold: the losses that
# are published with a cause (one node of a pair bad 0.56, no GPUDirect 0.36, sockets 0.06) lie below it, NVLink
# SHARP lost (0.78) above.
CRITICAL_BELOW = 0.75

# A theoretical expectation is named as a warning only when less than half of it is left. Our own threshold.
THEORY_WARN_BELOW = 0.5

MAX_NAMED_GROUPS = 8

WHAT_BUSBW_IS = (
    "Bus bandwidth is what the busiest link between GPUs carries, so that it can be compared with the hardware "
    "whatever the number of ranks."
)


def found_of(
    shortfall: Shortfall,
    hypotheses: tuple[Hypothesis, ...],
    *,
    noise: str | None,
    climbing: bool,
    num_groups: int,
    slow_groups: tuple[str, ...],
    hosts: tuple[str, ...],
    source: str,
) -> Found:
    """The finding for the slowest group of a set.

    `noise`, `climbing`: what makes the judgement less sure; `slow_groups` of `num_groups` are slow; `hosts` is
    empty where all are.
    """
    confidence = _confidence(shortfall, noise=noise, climbing=climbing)
    top = hypotheses[0] if hypotheses and hypotheses[0].is_said else None
    group = shortfall.curve.group
    several = shortfall.num_hosts > 1
    return Found(
        key=":".join(part for part in (shortfall.curve.collective, group.kind.value) if part),
        title=_title(shortfall, hosts),
        severity=_severity(shortfall, confidence),
        confidence=confidence,
        evidence=(
            _measured(shortfall, source, climbing=climbing),
            *_groups(num_groups, slow_groups),
            *([Evidence(text=f"the row is not steady: {noise}")] if noise else []),
            *(_weighed(each) for each in hypotheses),
        ),
        explanation=_explanation(shortfall, hypotheses, noise=noise),
        actions=_actions(hypotheses),
        scope=Scope(hosts=hosts),
        cause_class=top.cause_class if top else f"{'network' if several else 'gpu'}:below_expected",
        fault=top.fault if top else Fault.UNKNOWN,
    )


def _title(shortfall: Shortfall, hosts: tuple[str, ...]) -> str:
    where = f" on {hosts[0]}" if len(hosts) == 1 and len(hosts[0]) <= 20 else ""
    expectation = shortfall.expectation
    return (
        f"{shortfall.curve.collective}{where}: {shortfall.measured_gbps:.4g} GB/s where "
        f"{expectation.low_gbps:.4g} and more are expected"
    )[:80]


def _confidence(shortfall: Shortfall, *, noise: str | None, climbing: bool) -> Confidence:
    confidence = shortfall.expectation.confidence
    table = shortfall.facts.table
    guessed = table is not None and not table.collective_known
    if confidence is Confidence.HIGH and (noise or climbing or guessed):
        return Confidence.MEDIUM
    return confidence


def _severity(shortfall: Shortfall, confidence: Confidence) -> Severity:
    if shortfall.expectation.confidence is Confidence.LOW:
        return Severity.WARNING if shortfall.ratio < THEORY_WARN_BELOW else Severity.INFO
    is_sure = confidence is Confidence.HIGH
    return Severity.CRITICAL if is_sure and shortfall.ratio < CRITICAL_BELOW else Severity.WARNING


def _measured(shortfall: Shortfall, source: str, *, climbing: bool) -> Evidence:
    expectation = shortfall.expectation
    size = format_bytes(shortfall.row.size_bytes)
    late = f", where full speed begins at {format_bytes(expectation.from_bytes)}" if climbing else ""
    ranks = f"{shortfall.curve.num_ranks} ranks on {shortfall.num_hosts} host{'s' if shortfall.num_hosts > 1 else ''}"
    return Evidence(
        text=(
            f"{shortfall.curve.label}, {ranks}: bus bandwidth {shortfall.measured_gbps:.4g} GB/s at {size}{late}, "
            f"{shortfall.ratio:.0%} of the least that is expected"
        ),
        value=round(shortfall.measured_gbps, 3),
        unit="GB/s",
        expected=f"{expectation.low_gbps:.4g} to {expectation.high_gbps:.4g} GB/s",
        expected_source=f"{expectation.rule}. From {expectation.source}",
        source=source,
    )


def _groups(num_groups: int, slow_groups: tuple[str, ...]) -> tuple[Evidence, ...]:
    if num_groups < 2:
        return ()
    more = len(slow_groups) - MAX_NAMED_GROUPS
    named = ", ".join(slow_groups[:MAX_NAMED_GROUPS]) + (f" and {more} more" if more > 0 else "")
    return (Evidence(text=f"{len(slow_groups)} of {num_groups} such groups are slow: {named}"),)


def _weighed(hypothesis: Hypothesis) -> Evidence:
    against = f"; against it: {'; '.join(hypothesis.evidence_against)}" if hypothesis.evidence_against else ""
    return Evidence(text=f"for {hypothesis.name}: {'; '.join(hypothesis.evidence_for)}{against}")


def _explanation(shortfall: Shortfall, hypotheses: tuple[Hypothesis, ...], *, noise: str | None) -> str:
    parts = [f"The GPUs exchange data more slowly than this hardware does when it is well. {WHAT_BUSBW_IS}"]
    if shortfall.expectation.confidence is Confidence.LOW:
        parts.append("The expectation is theory: what the line carries, not what others have measured.")
    if noise:
        parts.append("Repeats differ, but even the fastest is below half of what is expected.")
    if not hypotheses:
        parts.append("No known cause fits what was seen.")
    elif hypotheses[0].is_said:
        parts.append(f"Most likely: {hypotheses[0].statement}.")
    else:
        parts.append("Only the numbers speak so far. What would fit them: ")
    rest = hypotheses[1:] if hypotheses and hypotheses[0].is_said else hypotheses
    if rest:
        also = "Also possible: " if hypotheses[0].is_said else ""
        parts.append(also + "; ".join(f"{each.name} ({each.statement})" for each in rest) + ".")
    return " ".join(part.strip() for part in parts)


def _actions(hypotheses: tuple[Hypothesis, ...]) -> tuple[Action, ...]:
    if not hypotheses:
        return (
            Action(
                team=Team.JOB_OWNER,
                text="See what NCCL uses: transports, ports, algorithms, settings",
                command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,P2P,GRAPH,TUNING … 2> nccl.log; distdoctor nccl-bench nccl.log",
            ),
        )
    return tuple(
        Action(team=each.team, text=f"{each.name}: see {each.decides}", command=each.command)
        for each in hypotheses
    )
