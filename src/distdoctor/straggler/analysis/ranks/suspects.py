"""Ranks that crossed a threshold: over the whole run, in a stretch of it, or now and then; with all that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.analysis.ranks.bursts import bursting_rows, count_bursts, rhythm_of
from distdoctor.straggler.analysis.ranks.effects import Effects, standard_error
from distdoctor.straggler.analysis.ranks.gates import (
    MIN_SHARE_OF_STEP,
    MIN_WAIT_SHARE,
    failed_gates,
)
from distdoctor.straggler.analysis.ranks.judgement import Gate, Pattern, Suspect
from distdoctor.straggler.analysis.ranks.onset import Stretch, changed_rows, stretches_of
from distdoctor.straggler.analysis.ranks.own_time import Basis, OwnTime
from distdoctor.straggler.analysis.ranks.threshold import (
    PRIOR_SPREAD,
    PRIOR_SPREAD_OF_LATENESS,
    Threshold,
    family_error,
    threshold_for,
)
from distdoctor.straggler.analysis.ranks.witnesses import deficit, section_excess, stands_out
from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import Times

# How the error probability is divided among the ways in which a rank can be found; the rest is for hosts.
WHOLE_SHARE = 0.5
CHANGE_SHARE = 0.1
BURST_SHARE = 0.1

# A level outside the slow stretch that is below this share of the one inside counts as not slow.
_REST_SHARE = 1 / 3

# A section may speak for the whole when it holds this share of the excess. Our own threshold.
MAIN_SECTION_SHARE = 0.6

# How much more alike neighbouring steps of one rank may be than those of the median rank. Estimates over 200 steps differ
# by 0.06 among equal ranks.
MAX_MORE_ALIKE = 0.15

# Details are worked out for so many suspects; where there are more it is no matter of single ranks.
MAX_SUSPECTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What suspects are looked for in; arrays without warm-up."""

    excess: Times
    """Relative to peers, shape (ranks, steps)."""
    peer_ms: NDArray[np.float32]
    """Shape (groups, steps)."""
    ranks: tuple[int, ...]
    peers: Peers
    effects: Effects
    threshold: Threshold
    own_time: OwnTime
    wait: Times | None
    sections: Mapping[Section, Times]
    num_skipped: int
    """Columns of `sections` before the first one here."""
    rounding: float = 0.0
    """Differences up to here may come from how times are rounded."""

    def excess_ms(self, row: int, columns: NDArray[np.intp]) -> NDArray[np.float32]:
        """By how many ms a rank took longer than its peers, one value a column."""
        scale = self.own_time.scale_ms
        if scale is not None:
            return np.asarray(self.excess[row, columns] * np.float32(scale))
        return np.asarray(self.excess[row, columns] * self.peer_ms[self.peers.group_of[row], columns])


def find_suspects(scene: Scene) -> tuple[Suspect, ...]:
    """All ranks above a threshold, accused ones first, the largest excess first."""
    lasting = [_lasting(scene, row) for row in _lasting_rows(scene)]
    found = [each for each in lasting if each is not None]
    known = {each.row for each in found}
    found += _intermittent(scene, known)
    found = _with_sections(scene, found)
    return tuple(sorted(found, key=worst_first))


def prior_spread_of(own_time: OwnTime) -> float:
    """What healthy ranks are assumed to differ by, relative to what effects are relative to."""
    only_lateness = own_time.basis is Basis.WAIT_ONLY and own_time.step_ms is None
    return PRIOR_SPREAD_OF_LATENESS if only_lateness else PRIOR_SPREAD


def worst_first(suspect: Suspect) -> tuple[bool, float]:
    """Orders suspects: accused ones before others, the largest excess first."""
    return not suspect.is_accused, -suspect.effect


def _usual_autocorrelation(effects: Effects) -> NDArray[np.float32]:
    """Of each rank, but no more than a little above the median rank's: a change of level resembles itself too."""
    known = effects.autocorrelation[np.isfinite(effects.effect)]
    usual = float(np.median(known)) if len(known) else 0.0
    return np.asarray(np.minimum(effects.autocorrelation, usual + MAX_MORE_ALIKE), dtype=np.float32)


def _lasting_rows(scene: Scene) -> list[int]:
    effects, threshold = scene.effects, scene.threshold
    with np.errstate(invalid="ignore"):
        whole = effects.effect > threshold.value
    num_seen = max(int(np.isfinite(effects.effect).sum()), 1)
    changed = changed_rows(
        scene.excess,
        np.nan_to_num(effects.effect),
        np.nan_to_num(effects.noise),
        _usual_autocorrelation(effects),
        row_error=family_error(num_seen) * CHANGE_SHARE / num_seen,
        wander=effects.wander,
    )
    rows = np.flatnonzero(whole | changed)
    largest = np.nan_to_num(np.nanmax(scene.effects.windows[rows], axis=1)) if len(rows) else rows
    return [int(row) for row in rows[np.argsort(-largest, kind="stable")][:MAX_SUSPECTS]]


def _lasting(scene: Scene, row: int) -> Suspect | None:
    values = scene.excess[row]
    noise = float(np.nan_to_num(scene.effects.noise[row]))
    num_steps = len(values)
    pieces = [(stretch, _level(values, stretch)) for stretch in stretches_of(values, noise)]
    slow = [(stretch, level) for stretch, level in pieces if level > _limit(scene, stretch.length)]
    if not slow:
        if not scene.effects.effect[row] > scene.threshold.value:
            return None
        slow = [(Stretch(start=0, end=num_steps), float(scene.effects.effect[row]))]
    worst = max(level for _, level in slow)
    slow = [(stretch, level) for stretch, level in slow if level >= worst * _REST_SHARE]
    start, end = slow[0][0].start, slow[-1][0].end
    stretch = Stretch(start=start, end=end)
    rest = [level for piece, level in pieces if piece.end <= start or piece.start >= end]
    if rest and max(rest) >= _level(values, stretch) * _REST_SHARE:
        # Slow outside too, if less so: since the start of the run.
        stretch = Stretch(start=0, end=num_steps)
    return _suspect(scene, row, stretch, _pattern(stretch, num_steps))


def _pattern(stretch: Stretch, num_steps: int) -> Pattern:
    if stretch.length == num_steps:
        return Pattern.PERSISTENT
    if stretch.end == num_steps:
        return Pattern.SINCE
    return Pattern.UNTIL if stretch.start == 0 else Pattern.STRETCH


def _limit(scene: Scene, length: int) -> float:
    share = length / max(scene.excess.shape[1], 1)
    if share == 1.0:
        return scene.threshold.value
    stricter = threshold_for(
        scene.effects,
        scene.peers,
        share=CHANGE_SHARE,
        steps_share=share,
        prior_spread=prior_spread_of(scene.own_time),
    )
    return max(stricter.value, scene.rounding)


def _level(values: Times, stretch: Stretch) -> float:
    part = values[stretch.start : stretch.end]
    known = part[np.isfinite(part)]
    return float(np.median(known)) if len(known) else float("-inf")


def _suspect(scene: Scene, row: int, stretch: Stretch, pattern: Pattern) -> Suspect:
    columns = np.arange(stretch.start, stretch.end)
    values = scene.excess[row, columns]
    known = values[np.isfinite(values)]
    effect = float(np.median(known)) if len(known) else 0.0
    in_ms = scene.excess_ms(row, columns)
    excess_ms = float(np.median(in_ms[np.isfinite(in_ms)])) if len(known) else 0.0
    error = _error(scene, row, len(known))
    waits_less = None if scene.wait is None else deficit(scene.wait, scene.peers, row, columns)
    group = int(scene.peers.group_of[row])
    members = scene.peers.members(group)
    return Suspect(
        row=row,
        rank=scene.ranks[row],
        pattern=pattern,
        effect=effect,
        excess_ms=excess_ms,
        stretch=stretch,
        standard_error=error,
        wait_deficit_ms=waits_less,
        wait_is_derived=scene.own_time.wait_is_derived,
        is_of_step=scene.own_time.scale_ms is not None and scene.own_time.basis is not Basis.WAIT_ONLY,
        failed=failed_gates(
            known,
            effect=effect,
            standard_error=error,
            excess_ms=excess_ms,
            wait_deficit_ms=waits_less,
            wait_is_derived=scene.own_time.wait_is_derived,
            step_ms=scene.own_time.step_ms,
            num_peers=int(np.isfinite(scene.effects.effect[members]).sum()),
            basis=scene.own_time.basis,
            threshold=scene.threshold,
            usual_error=_usual_error(scene),
        ),
    )


def _error(scene: Scene, row: int, num_values: int) -> float:
    one = slice(row, row + 1)
    count = np.array([num_values], dtype=np.int64)
    error = standard_error(scene.effects.noise[one], scene.effects.autocorrelation[one], count)
    return float(error[0]) * scene.effects.wander


def _usual_error(scene: Scene) -> float:
    errors = scene.effects.standard_error
    known = errors[np.isfinite(errors)]
    return float(np.median(known)) if len(known) else 0.0


def _intermittent(scene: Scene, known: set[int]) -> list[Suspect]:
    num_steps = scene.excess.shape[1]
    bursts = count_bursts(scene.excess, scene.threshold.noise)
    num_seen = max(int(np.isfinite(scene.effects.effect).sum()), 1)
    rows = bursting_rows(bursts, num_steps, rank_error=family_error(num_seen) * BURST_SHARE / num_seen)
    found = []
    for row in rows[np.argsort(-bursts.steps[rows], kind="stable")][:MAX_SUSPECTS]:
        if int(row) in known:
            continue
        with np.errstate(invalid="ignore"):
            columns = np.flatnonzero(scene.excess[row] > bursts.limit)
        suspect = _suspect(scene, int(row), Stretch(start=0, end=num_steps), Pattern.INTERMITTENT)
        found.append(_as_bursts(scene, suspect, columns, int(bursts.onsets[row])))
    return found


def _as_bursts(scene: Scene, suspect: Suspect, columns: NDArray[np.intp], num_bursts: int) -> Suspect:
    """The same rank, judged by its bursts alone."""
    in_ms = scene.excess_ms(suspect.row, columns)
    excess_ms = float(np.median(in_ms))
    num_steps = scene.excess.shape[1]
    waits_less = (
        None if scene.wait is None else _waits_less_after(scene.wait, scene.peers, suspect.row, columns)
    )
    failed: list[Gate] = [gate for gate in suspect.failed if gate is Gate.PEERS]
    middle = num_steps // 2
    rhythm = rhythm_of(columns, num_steps)
    if rhythm is None and not (np.any(columns < middle) and np.any(columns >= middle)):
        failed.append(Gate.LASTING)
    measured = waits_less is not None and not scene.own_time.wait_is_derived
    if measured and waits_less is not None and waits_less < MIN_WAIT_SHARE * excess_ms:
        failed.append(Gate.WAIT)
    usual = scene.own_time.step_ms or float(np.nanmedian(scene.peer_ms))
    if float(np.sum(in_ms)) / num_steps < MIN_SHARE_OF_STEP * usual:
        failed.append(Gate.SHARE)
    return replace(
        suspect,
        effect=float(np.median(scene.excess[suspect.row, columns])),
        excess_ms=excess_ms,
        wait_deficit_ms=waits_less,
        rhythm=rhythm,
        num_bursts=num_bursts,
        burst_columns=tuple(int(column) for column in columns),
        failed=tuple(failed),
    )


def _waits_less_after(wait: Times, peers: Peers, row: int, columns: NDArray[np.intp]) -> float | None:
    """In the steps of the bursts, or in those that follow: there peers wait for work after the last collective."""
    following = columns[columns + 1 < wait.shape[1]] + 1
    told = [deficit(wait, peers, row, each) for each in (columns, following)]
    return max((each for each in told if each is not None), default=None)


def _with_sections(scene: Scene, suspects: list[Suspect]) -> list[Suspect]:
    columns = {
        each.row: np.asarray(each.burst_columns or range(each.stretch.start, each.stretch.end), dtype=np.intp)
        + scene.num_skipped
        for each in suspects
    }
    excess = section_excess(scene.sections, scene.peers, columns)
    return [
        _second_chance(scene, replace(each, sections=excess.get(each.row, {})), columns[each.row])
        for each in suspects
    ]


def _second_chance(scene: Scene, suspect: Suspect, columns: NDArray[np.intp]) -> Suspect:
    """Without the doubt by noise, where most of the excess lies in one section and is beyond doubt there."""
    if suspect.failed != (Gate.NOISE,) or suspect.pattern is Pattern.INTERMITTENT:
        return suspect
    own = {section: ms for section, ms in suspect.sections.items() if role_of(section) is Role.OWN}
    section = max(own, key=lambda each: own[each], default=None)
    if section is None or len(own) < 2 or own[section] < MAIN_SECTION_SHARE * suspect.excess_ms:
        return suspect
    clear = stands_out(scene.sections[section], scene.peers, suspect.row, columns)
    return replace(suspect, failed=()) if clear else suspect
