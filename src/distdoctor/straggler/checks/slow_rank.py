"""Is one rank slower than those that do the same work: all the time, since a step, or for a stretch?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from distdoctor.report.model import Confidence, Evidence, Fault, Scope, Severity
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.blocks import Shape, pattern_of
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.judgement import Gate, Pattern, Suspect
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.checks.cause_words import FAULTS, VERBS, actions_for, why
from distdoctor.straggler.checks.monitored import monitoring_of_rows
from distdoctor.straggler.checks.own_work import is_own_work_of_first_rank
from distdoctor.straggler.checks.unjudged import why_not_judged, why_silence_says_nothing
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.words import gpu_of, ms, percent, place_words, ranks_words, when
from distdoctor.units import format_seconds

# A rank that costs the job this share of its time or more is critical. Our own threshold.
CRITICAL_COST = 0.2

# Fewer steps than this (of the usual minimum of fifty in rules of this kind) lower the confidence.
STEPS_FOR_HIGH = 50

# What is below this share of the job's time is nothing that the others wait for.
HIDDEN_COST = 0.005

# Own parts that are less than this share of what is not waiting leave out work in which a rank may be slow too.
MOSTLY_TIMED = 0.85

# Where times go up and down slowly, by so many times what noise explains, a rank may be above its peers by chance.
MAX_WANDER_FOR_HIGH = 1.5

# Accused ranks get a finding each up to here; more are told in one.
MAX_SINGLE = 8

# Ranks that crossed the threshold and failed a gate are told as leads, the first ones.
MAX_LEADS = 3


def check_slow_rank(facts: Analysed) -> Sequence[Outcome]:
    """A finding for each rank that passed every gate; a lead for some that did not."""
    if not facts.judged:
        reason, how = why_not_judged(facts)
        return [not_seen(reason, how=how)]
    outcomes: list[Outcome] = []
    for judged in facts.judged:
        outcomes += _outcomes(judged, monitoring_of_rows(facts, judged))
    return outcomes


def _outcomes(judged: Judged, monitored: Mapping[int, tuple[Evidence, ...]]) -> list[Outcome]:
    judgement = judged.judgement
    accused = [
        each
        for each in judgement.accused
        if each.pattern is not Pattern.INTERMITTENT and not is_own_work_of_first_rank(each)
    ]
    found: list[Outcome] = []
    if len(accused) <= MAX_SINGLE:
        found += [_found(judged, each, monitored.get(each.row, ())) for each in accused]
    else:
        found.append(_many(judged, accused))
    doubted = [
        each
        for each in judgement.suspects
        if not each.is_accused and each.pattern is not Pattern.INTERMITTENT
    ]
    alike = [each for each in doubted if set(each.failed) & {Gate.KIND, Gate.MATES}]
    if len(alike) > 1:
        found.append(_group_lead(judged, alike))
        doubted = [each for each in doubted if each not in alike]
    found += [_lead(judged, each) for each in doubted][:MAX_LEADS]
    if accused:
        return found
    if judgement.hosts:
        return [*found, Passed(detail="slow ranks are told with their host")]
    reason = why_silence_says_nothing(judged)
    if reason is not None:
        return [*found, not_seen(reason[0], how=reason[1])]
    return [*found, Passed(detail=nobody_words(judged))]


def nobody_words(judged: Judged) -> str:
    """ "no rank is slower than its peers by more than 3.1 %, over 190 steps of 8 ranks"."""
    limit = percent(judged.judgement.threshold.value)
    over = f"over {judged.units} of {judged.timings.num_ranks} ranks"
    if judged.judgement.basis is Basis.WAIT_ONLY:
        return f"no rank comes later than its peers by more than {limit} of the time in collectives, {over}"
    return (
        f"no rank is slower than its peers by more than {limit}{_of_step(judged)}{_in_parts(judged)}, {over}"
    )


def nobody_title(judged: Judged) -> str:
    """ "no rank is more than 3.1 % slower than its peers"."""
    limit = percent(judged.judgement.threshold.value)
    if judged.judgement.basis is Basis.WAIT_ONLY:
        return f"no rank comes late by more than {limit} of the time in collectives"
    if judged.judgement.scale_ms is not None:
        return f"no rank is slower by more than {limit}{_of_step(judged)}{_in_parts(judged)}"
    return f"no rank is more than {limit} slower than its peers{_in_parts(judged)}"


def _of_step(judged: Judged) -> str:
    return f" of a {judged.unit}" if judged.judgement.scale_ms is not None else ""


def _in_parts(judged: Judged) -> str:
    """ " in forward", where one pass was timed and the other one was not; else nothing."""
    own = judged.judgement.own_sections
    if (Section.FORWARD in own) == (Section.BACKWARD in own):
        return ""
    return f" in {' and '.join(section.value for section in own if section in (Section.FORWARD, Section.BACKWARD))}"


def _found(judged: Judged, suspect: Suspect, monitored: tuple[Evidence, ...] = ()) -> Found:
    explained = explain_suspect(suspect)
    place = judged.timings.places[suspect.row]
    cost = _cost_alone(judged, suspect)
    verb = (
        late_words(judged, suspect)
        if judged.judgement.basis is Basis.WAIT_ONLY
        else _verb(judged, suspect, explained.cause)
    )
    return Found(
        key=f"{judged.label}rank-{suspect.rank}",
        title=judged.titled(f"{place_words(place)} {verb}"),
        severity=Severity.CRITICAL if cost is not None and cost >= CRITICAL_COST else Severity.WARNING,
        confidence=confidence_of(judged, suspect),
        evidence=(*evidence_of(judged, suspect), *monitored),
        explanation=" ".join(
            part
            for part in (
                *(
                    f"{each.text[:1].upper()}{each.text[1:]}."
                    for each in _near_the_time_given(judged, suspect)
                ),
                _culprit_words(judged, suspect),
                "" if judged.judgement.basis is Basis.WAIT_ONLY else why(explained.cause),
                _stage_words(judged, suspect),
            )
            if part
        ),
        actions=actions_for(explained.cause, place),
        scope=Scope(ranks=(suspect.rank,), hosts=(place.host,) if place.host else (), gpus=gpu_of(place)),
        cause_class=f"slow_rank:{explained.cause.value}",
        fault=FAULTS[explained.cause],
    )


def _verb(judged: Judged, suspect: Suspect, cause: Cause) -> str:
    """ "computes 20 % longer than its peers", "computes 4 % of a step longer" where little of a step is own time."""
    words = VERBS[cause].format(much=effect_words(judged, suspect))
    return words.removesuffix(" than its peers") if suspect.is_of_step else words


def effect_words(judged: Judged, suspect: Suspect) -> str:
    """ "20 %", "4 % of a step", "12 % of the time in collectives": by how much, and of what unless of its peers' time."""
    if judged.judgement.basis is Basis.WAIT_ONLY:
        return f"{percent(suspect.effect)} of the time in collectives"
    return percent(suspect.effect) + (f" of a {judged.unit}" if suspect.is_of_step else "")


def _many(judged: Judged, accused: Sequence[Suspect]) -> Found:
    ranks = tuple(sorted(each.rank for each in accused))
    places = [judged.timings.places[each.row] for each in accused]
    worst = max(accused, key=lambda each: each.effect)
    causes = [explain_suspect(each).cause for each in accused]
    cause = max(set(causes), key=causes.count)
    together = judged.judgement.cost.together if judged.judgement.cost is not None else None
    return Found(
        key=f"{judged.label}many",
        title=judged.titled(f"{ranks_words(ranks, max_characters=24)} are slower than their peers"),
        severity=Severity.CRITICAL
        if together is not None and together >= CRITICAL_COST
        else Severity.WARNING,
        confidence=min((confidence_of(judged, each) for each in accused), key=[*Confidence].index),
        evidence=(
            Evidence(
                text=f"{len(ranks)} ranks: {ranks_words(ranks, max_characters=300)}",
                source=judged.source,
            ),
            *evidence_of(judged, worst),
        ),
        explanation=f"{_culprit_words(judged, worst)} {why(cause)}",
        actions=actions_for(cause, None),
        scope=Scope(ranks=ranks, hosts=tuple(dict.fromkeys(each.host for each in places if each.host))),
        cause_class=f"slow_rank:{cause.value}",
        fault=FAULTS[cause],
    )


def confidence_of(judged: Judged, suspect: Suspect) -> Confidence:
    """High: own time and waiting, both measured, agree over enough steps among ranks known to do the same work."""
    judgement = judged.judgement
    if judgement.basis is Basis.WALL_ONLY:
        return Confidence.MEDIUM
    measured = suspect.wait_deficit_ms is not None and not suspect.wait_is_derived
    steady = judgement.effects.wander < MAX_WANDER_FOR_HIGH
    if measured and steady and _sure_of_peers(judged) and suspect.stretch.length >= STEPS_FOR_HIGH:
        return Confidence.HIGH
    return Confidence.MEDIUM


def _sure_of_peers(judged: Judged) -> bool:
    """Coordinates are told, and the accused form no pattern that a mesh in another order would explain."""
    judgement, timings = judged.judgement, judged.timings
    if not judgement.peers.known or judgement.peers.given_up or not judgement.peers.is_whole:
        return False
    accused = [each.rank for each in judgement.accused]
    return pattern_of(accused, timings.world_size or timings.num_ranks).shape is Shape.SCATTERED


def evidence_of(judged: Judged, suspect: Suspect) -> tuple[Evidence, ...]:
    """Own time, waiting, sections, cost; each a number with what it is set against."""
    judgement, source = judged.judgement, judged.source
    peers = judgement.peers.words()
    lines = [
        Evidence(
            text=f"{_excess_words(judged, suspect)} {peers}, {effect_words(judged, suspect)}, {when(judged, suspect)}",
            value=round(suspect.excess_ms, 3),
            unit="ms",
            expected=f"at most {percent(judgement.threshold.value)} among {judged.timings.num_ranks} ranks like these",
            expected_source="threshold for this number of ranks, their spread and their noise",
            source=source,
        )
    ]
    if suspect.wait_deficit_ms is not None and not suspect.wait_is_derived:
        lines.append(
            Evidence(
                text=f"it waits {ms(suspect.wait_deficit_ms)} a {judged.unit} less in collectives than its peers: "
                "the others wait for it",
                value=round(suspect.wait_deficit_ms, 3),
                unit="ms",
                source=source,
            )
        )
    parts = explain_suspect(suspect).sections
    if parts:
        text = ", ".join(f"{section.value} {ms(value)}" for section, value in parts[:4])
        lines.append(Evidence(text=f"longer than its peers in: {text}", source=source))
    cost = _cost_alone(judged, suspect)
    if cost is not None and judgement.cost is not None:
        of = "measured" if judgement.cost.step_is_measured else "the slowest rank's own time"
        text = f"estimated{', at least' if is_partly_timed(judged) else ''}: the job would take {percent(cost)} less time if this rank were like its peers"
        others = len(judgement.cost.alone) - 1
        if others:
            text += f", {percent(judgement.cost.together)} with the other {others} accused"
        lines.append(Evidence(text=f"{text} (of {ms(judgement.cost.step_ms)} a step, {of})", source=source))
    return tuple(lines)


def is_partly_timed(judged: Judged) -> bool:
    """Own work is also where it was not timed apart from waiting, so that the cost may be higher than what shows."""
    untold = judged.judgement.untold
    return untold is not None and untold > 1 - MOSTLY_TIMED


def _near_the_time_given(judged: Judged, suspect: Suspect) -> list[Evidence]:
    """How far the onset is from when somebody noticed it."""
    started, column = judged.judgement.started_s, suspect.stretch.start
    if judged.around_s is None or started is None or suspect.pattern is Pattern.INTERMITTENT:
        return []
    if column == 0:
        return [Evidence(text="it was slow before the time given, from the first step that was judged on")]
    if not math.isfinite(started[column]):
        return []
    apart = float(started[column]) - judged.around_s
    text = f"it became slow {format_seconds(abs(apart))} {'after' if apart > 0 else 'before'} the time given"
    return [Evidence(text=text, source=judged.source)]


def late_words(judged: Judged, suspect: Suspect) -> str:
    """ "comes 12 ms a step later than its peers": where only waiting is told."""
    return f"comes {ms(suspect.excess_ms)} a {judged.unit} later than its peers"


def _excess_words(judged: Judged, suspect: Suspect) -> str:
    much = f"{ms(suspect.excess_ms)} a {judged.unit}"
    match judged.judgement.basis:
        case Basis.SECTIONS:
            return f"own work: {much} more than the median of"
        case Basis.STEP_LESS_WAIT:
            return f"own work (step less waiting): {much} more than the median of"
        case Basis.WAIT_ONLY:
            return f"waits {much} less in collectives than the median of"
        case Basis.WALL_ONLY:
            return f"step time: {much} more than the median of"


def _culprit_words(judged: Judged, suspect: Suspect) -> str:
    if judged.judgement.basis is Basis.WALL_ONLY:
        return (
            "Steps of a synchronous job are equally long on all ranks. This one's are not, so its timer leaves the "
            "waiting out, and shows its own time."
        )
    if judged.judgement.basis is Basis.WAIT_ONLY:
        return (
            "It comes last and waits least; the others wait for it. What it does meanwhile was not measured."
        )
    if suspect.wait_deficit_ms is not None and not suspect.wait_is_derived:
        cost = _cost_alone(judged, suspect)
        if cost is not None and cost < HIDDEN_COST:
            return "It works longer and waits less than its peers; other work that is longer still hides it."
        return "It works longer and waits less than its peers, who wait for it."
    return "It works longer than its peers. Waiting was not measured, so that nothing else confirms it."


def _stage_words(judged: Judged, suspect: Suspect) -> str:
    """The doubt that is left about the first and the last rank where nothing tells stages of a pipeline."""
    at_end = suspect.rank in (judged.timings.ranks[0], judged.timings.ranks[-1])
    if judged.judgement.peers.known or not at_end or suspect.pattern is not Pattern.PERSISTENT:
        return ""
    return (
        "If the job is a pipeline with a rank a stage, this may be a stage that has more work: tell the mesh "
        f"(--mesh pp={judged.timings.world_size or judged.timings.num_ranks})."
    )


def _cost_alone(judged: Judged, suspect: Suspect) -> float | None:
    cost = judged.judgement.cost
    return cost.alone.get(suspect.row) if cost is not None else None


def _lead(judged: Judged, suspect: Suspect) -> Found:
    """Above the threshold, but not accused: which gate it failed."""
    place = judged.timings.places[suspect.row]
    minor = suspect.failed == (Gate.SHARE,)
    reasons = "; ".join(gate.value for gate in suspect.failed)
    what = "minor" if minor else "not accused"
    longer = (
        late_words(judged, suspect)
        if judged.judgement.basis is Basis.WAIT_ONLY
        else f"takes {effect_words(judged, suspect)} longer"
    )
    explained = explain_suspect(suspect)
    return Found(
        key=f"{judged.label}lead-{suspect.rank}",
        title=judged.titled(f"{what}: {place_words(place)} {longer}"),
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=(*evidence_of(judged, suspect), Evidence(text=f"not accused: {reasons}")),
        explanation=f"It crossed the threshold, but nobody is accused on this: {reasons}.",
        actions=(),
        scope=Scope(ranks=(suspect.rank,), hosts=(place.host,) if place.host else ()),
        cause_class=f"slow_rank:{explained.cause.value}"
        if explained.cause is not Cause.UNKNOWN
        else "slow_rank",
        fault=Fault.UNKNOWN,
    )


def _group_lead(judged: Judged, suspects: Sequence[Suspect]) -> Found:
    """Ranks that are slow together and may be of another kind."""
    ranks = tuple(sorted(each.rank for each in suspects))
    worst = max(suspects, key=lambda each: each.effect)
    reasons = "; ".join(gate.value for gate in worst.failed)
    return Found(
        key=f"{judged.label}group",
        title=judged.titled(
            f"not accused: {ranks_words(ranks, max_characters=24)} take up to {effect_words(judged, worst)} longer"
        ),
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"{len(ranks)} ranks: {ranks_words(ranks, max_characters=300)}", source=judged.source
            ),
            *evidence_of(judged, worst),
        ),
        explanation=f"They take longer together, so it is no matter of one rank: {reasons}.",
        actions=(),
        cause_class="slow_rank",
        fault=Fault.UNKNOWN,
    )


CHECK = StragglerCheck(
    id="straggler-slow-rank",
    title="ranks that are slower than their peers",
    run=check_slow_rank,
    essential=True,
)
