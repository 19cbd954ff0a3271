"""Does monitoring show a GPU that is unlike the others of its job? A lead, since it holds no step times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distdoctor.report.checking import Found, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, SkipCause, Team
from distdoctor.straggler.analysis.telemetry.alike import ODD_TIME_SHARE
from distdoctor.straggler.analysis.telemetry.before_and_after import Change, changes, common_change
from distdoctor.straggler.analysis.telemetry.gone import gone_gpus
from distdoctor.straggler.analysis.telemetry.gpu_panel import OneGpu, Panel, gpus_of, panels_of
from distdoctor.straggler.analysis.telemetry.job_time import MIN_GPUS
from distdoctor.straggler.analysis.telemetry.oddity import FLOORS, CommonReason, Oddity, Sign
from distdoctor.straggler.analysis.telemetry.throttle_reasons import BY_HARDWARE, reasons_that_differ
from distdoctor.straggler.analysis.telemetry.unlike_gpus import clock_groups, enough, levels, odd_gpus
from distdoctor.straggler.checks.telemetry import words
from distdoctor.straggler.checks.telemetry.clock_groups import two_groups_finding
from distdoctor.straggler.checks.telemetry.gone import gone_findings
from distdoctor.straggler.checks.telemetry.judging import judge, lower_limit, strongest_first
from distdoctor.straggler.facts.telemetry import Metric, Telemetry
from distdoctor.units import format_seconds

CHECK_ID = "straggler-telemetry"
TITLE = "GPUs in monitoring, each beside the others of its job"

# Of a model's GPUs whose samples are missing for more than this share of the time: nothing is said of them. Our own.
MIN_SEEN = 0.5
# GPUs that are named in a sentence.
MAX_NAMED = 4
# Findings of one export; more are a kind of job that these rules do not know.
MAX_FINDINGS = 16

# What is compared, in the order in which it is told.
COMPARED = (
    Metric.SM_CLOCK,
    Metric.THROTTLE_REASONS,
    Metric.SM_ACTIVE,
    Metric.TENSOR_ACTIVE,
    Metric.POWER,
    Metric.TEMPERATURE,
)

HOW = (
    "export SM clock, power, temperature, utilisation and throttle reasons of all GPUs of the job over some minutes "
    "under load, at least one sample in 30 s (DCGM_FI_DEV_SM_CLOCK, _POWER_USAGE, _GPU_TEMP, _GPU_UTIL, "
    "_CLOCK_THROTTLE_REASONS; DCGM_FI_PROF_SM_ACTIVE tells most)"
)


def telemetry_outcomes(
    telemetry: Telemetry | Sequence[Telemetry], *, around_s: float | None = None
) -> Sequence[Outcome]:
    """GPUs unlike their peers; else that telemetry shows none, which proves nothing; else why it cannot be told.

    `around_s`: seconds since 1970 UTC; only what was recorded from then on is judged, and set beside what was before.
    """
    exports = [telemetry] if isinstance(telemetry, Telemetry) else list(telemetry)
    gpus, num_broken = gpus_of(exports)
    outcomes: list[Outcome] = []
    sliced = [one for one in gpus if _is_sliced(one)]
    if sliced:
        outcomes.append(
            _not_seen(f"{_named(sliced)}: slices of a GPU (MIG), which share its clock, power and heat")
        )
    whole = [one for one in gpus if not _is_sliced(one)]
    outcomes += _contradictions(whole)
    panels = panels_of([one for one in whole if one.recorded])
    untimed = _untimed(exports)
    if untimed:
        outcomes.append(
            _not_seen(
                f"{untimed:,} samples have no time, as what an exporter serves: nothing lasts in them, and they are not "
                "compared",
                what="samples without a time",
            )
        )
    if not panels:
        return outcomes or [_not_seen("no metric of a GPU has two sound samples")]
    source = ", ".join(dict.fromkeys(each.path for each in exports if each.path))
    num_in_small = 0
    for panel in panels:
        of_panel = _of_panel(panel, source, around_s, num_broken)
        if panel.pods is not None and len(panel.gpus) < MIN_GPUS:
            num_in_small += len(panel.gpus)
            of_panel = [each for each in of_panel if not isinstance(each, NotSeen)]
        outcomes += of_panel
    if num_in_small:
        outcomes.append(
            _not_seen(
                f"{num_in_small} GPUs of pods that by their names are jobs of fewer than {MIN_GPUS} GPUs"
            )
        )
    found = [each for each in outcomes if isinstance(each, Found)]
    others = [each for each in outcomes if not isinstance(each, Found)]
    if found:
        # Beside a finding "not shown" would be read as the answer.
        others = [each for each in others if not isinstance(each, Passed)]
    return [*found[:MAX_FINDINGS], *others]


def _untimed(exports: Sequence[Telemetry]) -> int:
    return sum(int(np.isnan(series.utc_s).sum()) for each in exports for series in each.series)


def _of_panel(panel: Panel, source: str, around_s: float | None, num_broken: int) -> list[Outcome]:
    outside = _outside(panel, around_s)
    if outside is not None:
        return [_not_seen(outside)]
    reason = enough(panel, from_s=around_s)
    oddities, common = odd_gpus(panel, from_s=around_s)
    changed = changes(panel, around_s) if around_s is not None else []
    outcomes: list[Outcome] = list(_found(panel, oddities, changed, source, around_s))
    outcomes += [
        _all_throttled(panel, each, source)
        for each in common
        if each.reason in BY_HARDWARE or "thermal" in each.reason
    ]
    groups = clock_groups(panel, around_s)
    if groups is not None:
        outcomes.append(two_groups_finding(panel, groups, source))
    outcomes += gone_findings(panel, gone_gpus(panel, from_s=around_s), source)
    if around_s is not None:
        outcomes += _fell_together(panel, around_s, source)
    if reason is not None:
        return [*outcomes, _not_seen(reason)]
    missing = [one for one, seen in zip(panel.gpus, panel.seen, strict=True) if seen < MIN_SEEN]
    if missing:
        outcomes.append(
            _not_seen(f"{_named(missing)}: samples in less than half of the time that the job ran")
        )
    if not {Metric.SM_CLOCK, Metric.THROTTLE_REASONS} & _recorded(panel):
        outcomes.append(
            _not_seen("neither SM clocks nor throttle reasons were exported", what="clocks of GPUs")
        )
    if not any(isinstance(each, Found) for each in outcomes):
        outcomes.append(Passed(detail=_nothing_shown(panel, common, num_broken, around_s)))
    return outcomes


def _found(
    panel: Panel, oddities: Sequence[Oddity], changed: Sequence[Change], source: str, around_s: float | None
) -> list[Found]:
    """One finding a GPU; GPUs of one host with the same sign are one."""
    by_row: dict[int, list[Oddity]] = {}
    for each in oddities:
        by_row.setdefault(each.row, []).append(each)
    by_row = {row: strongest_first(of_gpu, panel) for row, of_gpu in by_row.items()}
    together: dict[tuple[str | int, Sign, str | None], list[int]] = {}
    for row, of_gpu in by_row.items():
        host = panel.gpus[row].gpu.host
        key = (host if host is not None else row, of_gpu[0].sign, of_gpu[0].reason)
        together.setdefault(key, []).append(row)
    return [
        _one_finding(panel, {row: by_row[row] for row in rows}, changed, source, around_s)
        for rows in together.values()
    ]


def _one_finding(
    panel: Panel,
    by_row: dict[int, list[Oddity]],
    changed: Sequence[Change],
    source: str,
    around_s: float | None,
) -> Found:
    first_row, first = next(iter(by_row.items()))
    gpus = [panel.gpus[row].gpu for row in by_row]
    judged = [judge(each, panel) for each in by_row.values()]
    severity = Severity.WARNING if any(s is Severity.WARNING for s, _ in judged) else Severity.INFO
    rank = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]
    evidence = [words.evidence_of(each, panel, source) for of_gpu in by_row.values() for each in of_gpu]
    limit = lower_limit(panel, first_row)
    if limit is not None:
        evidence.append(
            Evidence(
                text=f"{words.name_of(gpus[:1])}: power limit {limit[0]:.0f} W, the others {limit[1]:.0f} W",
                value=limit[0],
                unit="W",
                expected=f"{limit[1]:.0f} W",
                expected_source=words.THRESHOLDS,
                source=source,
            )
        )
    own_changes = [each for each in changed if each.row in by_row]
    evidence += [words.change_evidence(each, panel, source) for each in own_changes]
    if around_s is not None and not own_changes and first[0].metric in FLOORS:
        evidence.append(
            Evidence(text="it was no different beside the others before that time", source=source)
        )
    worst = first[0]
    what = worst.reason or worst.sign.value
    return Found(
        key=f"{what}:{gpus[0].pci or gpus[0].index}" if len(gpus) == 1 else f"{what}:several",
        title=words.title(first, gpus),
        severity=severity,
        # A finding is as sure as its least sure GPU.
        confidence=min((confidence for _, confidence in judged), key=rank.index),
        evidence=tuple(evidence[:24]),
        explanation=words.explanation(first, panel),
        actions=words.actions(first, gpus),
        scope=Scope(
            hosts=tuple(dict.fromkeys(gpu.host for gpu in gpus if gpu.host is not None)), gpus=tuple(gpus)
        ),
        cause_class="gpu_unlike_peers",
        fault=Fault.UNKNOWN if worst.sign in (Sign.WORKS_MORE, Sign.WORKS_LESS, Sign.IDLE) else Fault.GPU,
    )


def _all_throttled(panel: Panel, common: CommonReason, source: str) -> Found:
    return Found(
        key=f"all:{common.reason}",
        title=f"{common.num_gpus} of {common.of} GPUs are held back alike: {common.reason}"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{common.reason} lasts on {common.num_gpus} of {common.of} GPUs under load",
                value=common.num_gpus,
                expected="0",
                expected_source="nvml.h: hardware or driver slows the clocks",
                source=source,
            ),
        ),
        explanation=(
            "The whole job is slowed, and no GPU is told from the others by it: this is no straggler. Cooling or the "
            "power of the racks is common to them."
        ),
        actions=(
            Action(team=Team.HARDWARE, text="Inlet temperature, airflow and power of the racks of this job"),
        ),
        scope=Scope(
            hosts=tuple(dict.fromkeys(one.gpu.host for one in panel.gpus if one.gpu.host is not None))
        ),
        fault=Fault.HOST,
    )


def _fell_together(panel: Panel, around_s: float, source: str) -> list[Found]:
    """The clock of all GPUs fell at that time: a change of the job or of the site, and no straggler."""
    sides = common_change(panel, around_s, Metric.SM_CLOCK)
    if sides is None or sides[1] > (1 - FLOORS[Metric.SM_CLOCK]) * sides[0]:
        return []
    before, after = sides
    return [
        Found(
            key="all:clock",
            title=f"SM clocks of all GPUs fell from {before:.0f} to {after:.0f} MHz at that time",
            severity=Severity.INFO,
            confidence=Confidence.LOW,
            evidence=(
                Evidence(
                    text=f"median SM clock under load {after:.0f} MHz after that time, {before:.0f} MHz before",
                    value=round(after),
                    unit="MHz",
                    expected=f"{before:.0f} MHz",
                    expected_source="the same GPUs before that time",
                    source=source,
                ),
            ),
            explanation="It slows the whole job and tells no GPU from the others: power, cooling, or other work.",
            actions=(
                Action(team=Team.PLATFORM, text="What changed then: power caps, cooling, the job's own work"),
            ),
        )
    ]


def _nothing_shown(
    panel: Panel, common: Sequence[CommonReason], num_broken: int, around_s: float | None
) -> str:
    num = int(np.sum(panel.belongs & (panel.seen >= MIN_SEEN)))
    seconds = float(panel.active.sum()) * panel.width_s
    alike, unlike = _alike(panel, around_s)
    parts = [
        f"not shown by telemetry: {num} {panel.model or 'GPUs of unknown model'}{_whose(panel)} "
        + (f"are alike in {', '.join(alike)}" if alike else "were compared")
        + f" over {format_seconds(seconds)} under load"
    ]
    if unlike:
        parts.append(f"they differ in {', '.join(unlike)}, and none stands out for long from all others")
    parts += [
        f"{each.reason} on {each.num_gpus} of {each.of}, normal under full load"
        for each in common
        if each.reason == "SW power cap"
    ]
    outside = int(np.sum(~panel.belongs))
    if outside:
        parts.append(
            f"{outside} more were not under load with them and are taken as not part of the job"
            if panel.job is None
            else f"{outside} more of that job were not under load with them and are not compared"
        )
    if num_broken:
        parts.append(f"{num_broken:,} broken samples were left out")
    parts.append("telemetry alone cannot prove that no rank is slow")
    return "; ".join(parts)


def _whose(panel: Panel) -> str:
    if panel.job is not None:
        return f" of {panel.job}"
    return f" of pods {panel.pods}-…" if panel.pods is not None else ""


def _alike(panel: Panel, around_s: float | None) -> tuple[list[str], list[str]]:
    """Names of metrics in which the GPUs are alike, and those in which they are not with how far they are apart."""
    found = levels(panel, around_s)
    alike, unlike = [], []
    for metric in COMPARED:
        if metric is Metric.THROTTLE_REASONS and metric in _recorded(panel):
            differ = reasons_that_differ(panel, around_s)
            if not differ:
                alike.append("throttle reasons")
            unlike += [
                f"{name} ({low:.0%} to {high:.0%} of the time)" for name, (low, high) in differ.items()
            ]
        elif metric in found:
            told, name = found[metric], words.metric_name(metric)
            if not told.is_alike:
                unlike.append(
                    f"{name} ({words.number(metric, told.low)} to {words.number(metric, told.high)})"
                )
            elif told.odd_share >= ODD_TIME_SHARE:
                who = words.name_of([panel.gpus[told.odd_row].gpu])
                unlike.append(f"{name} at times ({who} in {told.odd_share:.0%} of the time more than others)")
            else:
                alike.append(name)
    return alike, unlike


def _outside(panel: Panel, around_s: float | None) -> str | None:
    if around_s is None:
        return None
    end = panel.begin_s + panel.width_s * len(panel.active)
    if not panel.begin_s <= around_s <= end:
        return "the time asked for lies outside what was recorded"
    return None


def _recorded(panel: Panel) -> set[Metric]:
    return {metric for one in panel.gpus for metric in one.recorded}


def _is_sliced(one: OneGpu) -> bool:
    return (one.gpu.uuid or "").startswith("MIG-") or " MIG " in f"{one.gpu.model or ''} "


def _contradictions(gpus: Sequence[OneGpu]) -> list[NotSeen]:
    """GPUs of which several things are told at the same time, and in which metrics."""
    outcomes = []
    unnamed = [one for one in gpus if one.contradictory and not one.is_named]
    if unnamed:
        outcomes.append(
            _not_seen(
                f"{_named(unnamed)}: GPUs of several hosts under one index, which neither a UUID nor a host tells apart",
                how="export the labels UUID and Hostname (or node)",
            )
        )
    by_metrics: dict[tuple[str, ...], list[OneGpu]] = {}
    for one in gpus:
        names = tuple(metric.value.split(",")[0] for metric in Metric if metric in one.contradictory)
        if names and one.is_named:
            by_metrics.setdefault(names, []).append(one)
    for names, of_names in by_metrics.items():
        listed = ", ".join(names)
        reason = (
            f"{_named(of_names)}: several series of {listed} that contradict one another at the same time, as of MIG "
            "slices or of hosts of one name"
        )
        outcomes.append(_not_seen(reason, what=listed))
    return outcomes


def _named(gpus: Sequence[OneGpu]) -> str:
    names = [words.name_of([one.gpu]) for one in gpus[:MAX_NAMED]]
    more = f" and {len(gpus) - MAX_NAMED} more" if len(gpus) > MAX_NAMED else ""
    return ", ".join(names) + more


def _not_seen(reason: str, *, what: str = "", how: str = HOW) -> NotSeen:
    return NotSeen(unread=Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=reason, how=how), what=what)
