"""Why a slow rank cannot be told from this evidence, and what to record instead."""

from __future__ import annotations

import numpy as np

from distdoctor.report.names import fold_hosts
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.peers import MIN_PEERS
from distdoctor.straggler.analysis.ranks.gates import MIN_STEPS
from distdoctor.straggler.analysis.ranks.judge import MAX_UNTOLD
from distdoctor.straggler.analysis.ranks.judgement import Gate, Judgement
from distdoctor.straggler.analysis.ranks.kinds import TwoKinds
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.standout import By, Standout
from distdoctor.straggler.checks.base import RECORD
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.words import percent, place_words, ranks_words

# Parts of which at least one must be timed before it can be said that no rank is slow.
COMPUTING = (Section.FORWARD, Section.BACKWARD, Section.COMPUTE, Section.UNSPLIT)

_ALL_RANKS = "give the files of all ranks"

# From this share of the threshold on a rank is neither accused nor cleared. Our own choice.
NEAR = 0.85

# A restart repeats some steps; where more of all rows than this were replaced by later ones, steps are counted anew in each
# epoch or job, and a rank that was slow in an earlier one does not show. Our own threshold.
MAX_TOLD_AGAIN = 0.2

# Ranks that differ by so many standard errors of one rank differ by themselves, and not by noise. Our own threshold.
_MUCH_SPREAD = 3.0

# Below this a threshold says little: an effect twice as large would still be hidden. Our own bound.
MAX_USEFUL_THRESHOLD = 0.25


def why_not_judged(facts: Analysed) -> tuple[str, str]:
    """The reason and the remedy where there are no times of ranks at all."""
    reading = facts.reading
    if reading.series:
        return "one rank prints for all: a change over time can be seen, a slow rank cannot", RECORD
    if reading.telemetry:
        return "telemetry shows clocks and power, not how long ranks take", RECORD
    if any(each.high_rank is not None for each in reading.extremes):
        return (
            "only the least and the most of all ranks are printed, so the others cannot be compared",
            RECORD,
        )
    if reading.extremes:
        return "only the least and the most of all ranks are printed, not whose they are", RECORD
    if reading.claims:
        return "only what another tool says of ranks is here, not what it measured", RECORD
    if facts.collectives or reading.collectives:
        return "no collective of which more than one rank is here", "give the files of all ranks"
    return "no times of ranks in this evidence", RECORD


def why_silence_says_nothing(judged: Judged) -> tuple[str, str | None] | None:
    """Why nobody could have been accused here; None when a slow rank would have been seen."""
    judgement, timings = judged.judgement, judged.timings
    if judgement.basis is Basis.WALL_ONLY:
        return (
            "whole-step times are equal on all ranks, whoever is slow",
            RECORD,
        )
    alike = _most_alike(judged)
    untold = _without_own_work(judged)
    if alike < MIN_PEERS and 0 < untold < timings.num_ranks and timings.num_ranks >= MIN_PEERS:
        return (
            f"of {untold} of {timings.num_ranks} ranks only waiting is told, no own work apart from it",
            f"time what lies between collectives: {RECORD}",
        )
    if alike < MIN_PEERS:
        who = (
            "one rank only"
            if timings.num_ranks == 1
            else f"{alike or 'no'} rank{'s' if alike != 1 else ''} of one kind"
        )
        complete = timings.world_size is not None and timings.num_ranks >= timings.world_size > 1
        how = "set an earlier run beside it: `distdoctor compare`" if complete else _ALL_RANKS
        return f"{who}; at least {MIN_PEERS} are needed to name one", how
    if judgement.num_steps < MIN_STEPS:
        return (
            f"{judged.units}; at least {MIN_STEPS} are needed to name a rank",
            f"record more of them: {RECORD}",
        )
    if judgement.pattern is not None:
        return (
            f"a group of {len(judgement.pattern.ranks)} ranks takes longer ({judgement.pattern.shape.value}): a "
            "pipeline stage, another kind of GPU, or slow hosts",
            tell_mesh(judged),
        )
    partial = _partial(judgement)
    if partial is not None and not judgement.accused and not judgement.hosts:
        return partial, f"time the other parts too: {RECORD}"
    if judgement.kinds is not None and not judgement.accused and not judgement.hosts:
        return _two_kinds(judged, judgement.kinds)
    if judgement.threshold.value > MAX_USEFUL_THRESHOLD:
        return _too_coarse(judged)
    mates = [each for each in judgement.suspects if Gate.MATES in each.failed]
    if mates and not judgement.accused and not judgement.hosts:
        return (
            f"{ranks_words([each.rank for each in mates], max_characters=24)} take {percent(mates[0].effect)} longer "
            "together: one tensor or context parallel group, whose ranks may wait for one of them in their own time",
            "time collectives inside of forward and backward: profiler traces of all ranks",
        )
    lead = next((each for each in judgement.suspects if set(each.failed) - {Gate.SHARE}), None)
    if lead is not None and not judgement.accused and not judgement.hosts:
        return (
            f"rank {lead.rank} may be slow ({percent(lead.effect)}), but {lead.failed[0].value}",
            "number the steps of all ranks alike"
            if Gate.NUMBERING in lead.failed
            else f"record more steps: {RECORD}",
        )
    if judgement.standout is not None and not judgement.accused and not judgement.hosts:
        return _standing_out(judged, judgement.standout)
    if timings.told_again > MAX_TOLD_AGAIN and not judgement.accused and not judgement.hosts:
        return (
            f"{percent(timings.told_again)} of the rows were told again with the same {judged.unit}s, and only the last count",
            f"count {judged.unit}s on over epochs and jobs, or give one of them",
        )
    near = _near(judged)
    if near is not None and not judgement.accused and not judgement.hosts:
        return near, f"record more steps: {RECORD}"
    world_size = max(timings.world_size or 0, timings.num_ranks)
    compared = int(np.sum(judgement.effects.num_steps >= MIN_STEPS))
    if compared < world_size and not judgement.accused and not judgement.hosts:
        return (
            f"{world_size - compared} of {world_size} ranks have no times here that could be compared, and the slow "
            "one may be among them",
            _ALL_RANKS,
        )
    return None


def _standing_out(judged: Judged, standout: Standout) -> tuple[str, str]:
    who = place_words(judged.timings.places[standout.row])
    much = percent(standout.share)
    if standout.by is By.OWN_WORK:
        return (
            f"{who} alone costs {much} of the time, in too few {judged.unit}s to tell it from chance",
            f"record more {judged.unit}s: {RECORD}",
        )
    return (
        f"{who} waits less than all others, by {much} of a {judged.unit}, and no timed part of its own is longer",
        f"time what lies between collectives: {RECORD}",
    )


def _near(judged: Judged) -> str | None:
    """A rank that stays a little below the threshold: not enough to accuse it, and too much to clear everybody."""
    judgement = judged.judgement
    effect = np.nan_to_num(judgement.effects.effect, nan=-np.inf)
    if not len(effect) or effect.max() < NEAR * judgement.threshold.value:
        return None
    rank = judged.timings.ranks[int(np.argmax(effect))]
    return (
        f"rank {rank} takes {percent(float(effect.max()))} longer, a little below the "
        f"{percent(judgement.threshold.value)} that would be beyond doubt"
    )


def tell_mesh(judged: Judged) -> str:
    """How to tell parallel coordinates, in words that nobody can paste unread."""
    num_ranks = max(judged.timings.world_size or 0, judged.timings.num_ranks)
    return f"tell the mesh, outermost dimension first: `--mesh pp=P,dp=D,tp=T` with P × D × T = {num_ranks}"


def _partial(judgement: Judgement) -> str | None:
    """What was not timed, where that is too much for a slow rank to be ruled out."""
    if judgement.basis is not Basis.SECTIONS:
        return None
    if judgement.parts_even_out:
        return "parts add up to the same on all ranks: one of them holds waiting"
    if not set(judgement.own_sections) & set(COMPUTING):
        timed = " and ".join(section.value for section in judgement.own_sections)
        were = "were" if len(judgement.own_sections) > 1 else "was"
        return f"of own work only {timed} {were} timed: a rank that computes longer would not show"
    if judgement.untold is not None and judgement.untold > MAX_UNTOLD:
        return f"{percent(judgement.untold)} of a step is in no timed part: a rank that is slow in it would not show"
    if judgement.untold is None and _times_one_pass(judgement):
        timed, other = (
            ("forward", "backward") if Section.FORWARD in judgement.own_sections else ("backward", "forward")
        )
        return f"only {timed} was timed apart from waiting: a rank that is slow in {other} would not show"
    return None


def _times_one_pass(judgement: Judgement) -> bool:
    """Own work of one pass, and neither waiting nor a time of all computing."""
    own = set(judgement.own_sections)
    measured = judgement.wait_ms is not None and not judgement.wait_is_derived
    passes = own & {Section.FORWARD, Section.BACKWARD}
    return not measured and len(passes) == 1 and not own & {Section.COMPUTE, Section.UNSPLIT}


def _two_kinds(judged: Judged, kinds: TwoKinds) -> tuple[str, str]:
    ranks = ranks_words([judged.timings.places[row].rank for row in kinds.longer], max_characters=24)
    much = percent(kinds.apart)
    late = judged.judgement.basis is Basis.WAIT_ONLY
    longer = f"come later by {much} of the time in collectives" if late else f"take {much} longer"
    takes = f"{ranks}{_host_of(judged, kinds)} of {kinds.num_ranks} that should be alike {longer}"
    if judged.judgement.peers.known:
        return (
            f"{takes}: two kinds of GPU, or a slowdown that they share",
            "compare models, clocks and power limits of the GPUs of both kinds",
        )
    return f"{takes}: pipeline stages, two kinds of GPU, or a slowdown that they share", tell_mesh(judged)


def _host_of(judged: Judged, kinds: TwoKinds) -> str:
    """ " (all of node-b)" where they are all the ranks of some hosts, and nobody else is there."""
    places = judged.timings.places
    hosts = {places[row].host for row in kinds.longer}
    others = {place.host for row, place in enumerate(places) if row not in set(kinds.longer)}
    if None in hosts or hosts & others:
        return ""
    return f" (all of {fold_hosts(sorted(str(host) for host in hosts), max_groups=2)})"


def _too_coarse(judged: Judged) -> tuple[str, str]:
    """What made the threshold so high that silence says nothing."""
    judgement = judged.judgement
    limit = f"{percent(judgement.threshold.value)} slower"
    if judgement.basis is Basis.WAIT_ONLY:
        limit = f"late by {percent(judgement.threshold.value)} of the time in collectives"
    if judgement.rounding >= judgement.threshold.value:
        return (
            f"times are rounded too coarsely: only a rank that is {limit} could be told",
            "write times with more digits",
        )
    errors = judgement.effects.standard_error
    error = float(np.median(errors[np.isfinite(errors)])) if np.isfinite(errors).any() else 0.0
    if judgement.threshold.spread > _MUCH_SPREAD * error:
        return (
            f"ranks differ too much from one another: only one that is {limit} could be told",
            "compare only ranks that do the same work" if judgement.peers.known else tell_mesh(judged),
        )
    return f"too noisy: only a rank that is {limit} could be told", f"record more steps: {RECORD}"


def _without_own_work(judged: Judged) -> int:
    """Ranks that are here with their waiting alone."""
    own_ms, wait_ms = judged.judgement.own_ms, judged.judgement.wait_ms
    return (
        0 if own_ms is None or wait_ms is None else int(np.sum(~np.isfinite(own_ms) & np.isfinite(wait_ms)))
    )


def _most_alike(judged: Judged) -> int:
    """Ranks with times in the largest group of one kind: a rank without times is nobody's peer."""
    judgement = judged.judgement
    own_ms = judgement.own_ms
    measured = np.ones(judged.timings.num_ranks, dtype=bool) if own_ms is None else np.isfinite(own_ms)
    return int(np.bincount(judgement.peers.group_of[measured], minlength=1).max())
