"""Which ranks are slow, by how much, and is it sure? From ranks × steps × sections to a judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import relative_excess, row_medians
from distdoctor.straggler.analysis.peers import Peers, peers_of
from distdoctor.straggler.analysis.ranks.blocks import RankPattern, Shape, pattern_of
from distdoctor.straggler.analysis.ranks.cost import Cost, cost_of
from distdoctor.straggler.analysis.ranks.effects import effects_of
from distdoctor.straggler.analysis.ranks.first_steps import num_warm_up
from distdoctor.straggler.analysis.ranks.gates import FEW_STEPS
from distdoctor.straggler.analysis.ranks.heat import heat_of
from distdoctor.straggler.analysis.ranks.hosts import (
    MIN_SHARE,
    AccusedRank,
    SlowHost,
    rows_by_host,
    slow_hosts,
)
from distdoctor.straggler.analysis.ranks.judgement import Gate, Judgement, Pattern, Suspect
from distdoctor.straggler.analysis.ranks.kinds import two_kinds
from distdoctor.straggler.analysis.ranks.numbering import steps_off
from distdoctor.straggler.analysis.ranks.own_time import (
    MIN_OWN_SHARE,
    Basis,
    OwnTime,
    own_time_of,
    wall_time_of,
    whole_own_time_of,
)
from distdoctor.straggler.analysis.ranks.resolution import least_difference
from distdoctor.straggler.analysis.ranks.rotation import MIN_EXCESS, Rotation, rotation_of
from distdoctor.straggler.analysis.ranks.stages import heavy_groups
from distdoctor.straggler.analysis.ranks.suspects import WHOLE_SHARE, Scene, find_suspects, worst_first
from distdoctor.straggler.analysis.ranks.threshold import FAMILY_ERROR, FLOOR, threshold_for
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import StepTimings, Times

# The part of the error probability that is for hosts; the rest is in `suspects`.
HOST_SHARE = 0.2

# What parts and waiting leave open of a step, at most, before the whole step less waiting is taken for own time. Our
# own threshold: data, forward, backward, waiting and optimizer of plain loops leave 2 to 5 %.
MAX_UNTOLD = 0.15

# A rank that is accused by its parts is told by the whole step instead where that shows so many times as much.
MUCH_MORE = 1.5

# A rank that shares so much of an accused rank's effect may be slow for the same reason. Our own threshold, as for hosts.
COMPANION_SHARE = 0.5

# Ranks that differ in these coordinates alone wait for one another inside of forward and backward.
MATE_DIMENSIONS = frozenset({"tp", "etp", "cp", "sp", "dsp"})

# Accused ranks whose own time over steps is kept for a picture.
MAX_CURVES = 3

# Ranks that stand for all, evenly chosen: in the mean step, and where forward is set against backward.
_SAMPLED_ROWS = 64

# For medians that only pictures and tables show, at most so many steps are looked at.
_SHOWN_STEPS = 1024


def judge(timings: StepTimings) -> Judgement | None:
    """The judgement; None when there is no time of any kind. Reads sections one at a time."""
    own_time = own_time_of(timings) if timings.num_steps else None
    if own_time is None:
        return None
    untold = _untold_share(timings, own_time)
    first = replace(_judge(timings, own_time), untold=untold)
    whole = whole_own_time_of(timings) if untold is not None and untold < MAX_UNTOLD else None
    if whole is None:
        return _by_walls(timings, first)
    second = _judge(timings, whole)
    known = {each.row: each.excess_ms for each in first.suspects if each.is_accused}
    # What only the whole step shows is slow outside of all parts; its waiting must say so too.
    more = [
        _outside(each)
        for each in second.suspects
        if each.is_accused and each.excess_ms > MUCH_MORE * known.get(each.row, 0.0)
    ]
    if not more:
        return first
    if not known:
        return replace(second, suspects=tuple(more), own_sections=first.own_sections)
    return _joined(first, second, more)


def _by_walls(timings: StepTimings, first: Judgement) -> Judgement:
    """By wall times of parts where hardly any own work is timed and accuses nobody.

    Walls that differ in the long run end in no collective, and so show own work; walls that are equal show nothing.
    """
    few = first.own_share is not None and first.own_share < MIN_OWN_SHARE
    has_parts = Section.FORWARD_WALL in timings.sections or Section.BACKWARD_WALL in timings.sections
    if first.accused or first.hosts or not few or not has_parts:
        return first
    walls = wall_time_of(timings)
    if walls is None:
        return first
    second = _judge(timings, walls)
    return replace(second, untold=first.untold) if second.accused else first


def _joined(first: Judgement, second: Judgement, more: list[Suspect]) -> Judgement:
    """The first look with those whom only the second one accuses, each rank once."""
    rows = {each.row for each in more}
    suspects = [*(each for each in first.suspects if each.row not in rows), *more]
    accused = {each.row for each in suspects if each.is_accused}
    costs_all = second.cost is not None and accused <= second.cost.alone.keys()
    return replace(
        first,
        suspects=tuple(sorted(suspects, key=worst_first)),
        cost=second.cost if costs_all else first.cost,
    )


def _untold_share(timings: StepTimings, own_time: OwnTime) -> float | None:
    """What own parts, waiting, transfers and idle time leave open of a step; None where it cannot be told.

    A pipeline has bubbles that nobody times.
    """
    stages = {place.coords.get("pp", 0) for place in timings.places}
    if own_time.wait is None or own_time.own_share is None or not own_time.step_ms or len(stages) > 1:
        return None
    told = own_time.own_share + _median_of_some(own_time.wait) / own_time.step_ms
    # Beside work of the device idle time lies in no other part; beside a CPU's it does.
    more = (Section.TRANSFER, Section.IDLE) if Section.COMPUTE in timings.sections else (Section.TRANSFER,)
    for section in more:
        if section in timings.sections:
            told += np.nan_to_num(_median_of_some(timings.sections[section])) / own_time.step_ms
    return float(1 - told)


def _median_of_some(times: Times) -> float:
    sample = times[:: max(1, len(times) // 64)]
    return float(np.nanmedian(sample)) if np.isfinite(sample).any() else float("nan")


def _judge(timings: StepTimings, own_time: OwnTime) -> Judgement:
    peers = peers_of(timings.places)
    skipped = num_warm_up(own_time.own)
    own = own_time.own[:, skipped:]
    wait = None if own_time.wait is None else own_time.wait[:, skipped:]
    own_sample = own[:, :: _stride(own)].copy()
    excess, peer_ms = relative_excess(own, peers, scale_ms=own_time.scale_ms)
    effects = effects_of(excess)
    rounding = least_difference(own_sample, num_parts=len(own_time.own_sections), scale_ms=own_time.scale_ms)
    threshold = threshold_for(effects, peers, share=WHOLE_SHARE)
    threshold = replace(threshold, value=max(threshold.value, rounding))
    scene = Scene(
        excess=excess,
        peer_ms=peer_ms,
        ranks=timings.ranks,
        peers=peers,
        effects=effects,
        threshold=threshold,
        own_time=own_time,
        wait=wait,
        sections=timings.sections,
        num_skipped=skipped,
        rounding=rounding,
    )
    suspects = _counted_alike(scene, find_suspects(scene))
    suspects, hosts, pattern = _doubt_groups(suspects, _hosts(timings, scene, suspects), timings, scene)
    shown = _shown_columns(suspects, hosts, excess.shape[1])
    heat, heat_rows, heat_edges = heat_of(excess, [each.row for each in suspects])
    judgement = Judgement(
        basis=own_time.basis,
        steps=timings.steps[skipped:],
        started_s=None if timings.started_s is None else timings.started_s[skipped:],
        num_warm_up=skipped,
        peers=peers,
        effects=effects,
        threshold=threshold,
        peer_ms=peer_ms,
        suspects=suspects,
        hosts=hosts,
        pattern=pattern,
        kinds=two_kinds(effects, peers, _medians(own_sample), rounding=rounding, scale_ms=own_time.scale_ms),
        rounding=rounding,
        heavy=()
        if own_time.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY)
        else heavy_groups(peer_ms, peers, effects.effect, scale_ms=own_time.scale_ms),
        rotation=_rotation(timings, peers, excess, skipped),
        own_share=own_time.own_share,
        scale_ms=own_time.scale_ms,
        wait_ms=None if wait is None else _medians(wait[:, shown]),
        own_ms=_medians(own_sample[:, _in_sample(shown, _stride(own))]),
        wait_is_derived=own_time.wait_is_derived,
        step_ms=own_time.step_ms,
        own_sections=own_time.own_sections,
        heat=heat,
        heat_rows=heat_rows,
        heat_edges=heat_edges,
    )
    drawn = [each.row for each in judgement.suspects if each.is_accused][:MAX_CURVES]
    return replace(
        judgement,
        cost=_cost(judgement, excess, own_time, timings),
        curves={row: _in_ms(excess[row], peer_ms[peers.group_of[row]], own_time.scale_ms) for row in drawn},
    )


def _rotation(timings: StepTimings, peers: Peers, excess: Times, skipped: int) -> Rotation | None:
    """How the slowest rank changes; forward and backward are only looked at where it stands out."""
    rotation = rotation_of(excess)
    sections = timings.sections
    if rotation is None or rotation.excess < MIN_EXCESS:
        return rotation
    if Section.FORWARD not in sections or Section.BACKWARD not in sections:
        return rotation
    rows = np.arange(0, len(excess), max(1, len(excess) // _SAMPLED_ROWS))
    groups, group_of = np.unique(peers.group_of[rows], return_inverse=True)
    chosen = Peers(
        group_of=group_of.astype(np.int32),
        keys=tuple(peers.keys[group] for group in groups),
        known=peers.known,
    )
    forward, backward = (
        relative_excess(np.array(sections[section][rows, skipped:]), chosen)[0]
        for section in (Section.FORWARD, Section.BACKWARD)
    )
    return rotation_of(excess, forward, backward)


def _counted_alike(scene: Scene, suspects: tuple[Suspect, ...]) -> tuple[Suspect, ...]:
    """Accuses nobody whose times are set against other steps of its peers."""
    checked = []
    for each in suspects:
        if each.is_accused:
            peer = scene.peer_ms[scene.peers.group_of[each.row]]
            own = _in_ms(scene.excess[each.row], peer, scene.own_time.scale_ms)
            if steps_off(own, peer):
                each = replace(each, failed=(Gate.NUMBERING,))  # noqa: PLW2901 - the same suspect, doubted
        checked.append(each)
    return tuple(sorted(checked, key=worst_first))


def _outside(suspect: Suspect) -> Suspect:
    """With what its sections leave unexplained, as a section of its own."""
    told = sum(ms for section, ms in suspect.sections.items() if role_of(section) is Role.OWN)
    rest = suspect.excess_ms - told
    return replace(suspect, sections={**suspect.sections, Section.OTHER: rest}) if rest > 0 else suspect


def _stride(times: Times) -> int:
    num_steps: int = times.shape[1]
    return max(1, num_steps // _SHOWN_STEPS)


def _medians(times: Times) -> NDArray[np.float32]:
    return row_medians(times[:, :: _stride(times)])


def _shown_columns(suspects: tuple[Suspect, ...], hosts: tuple[SlowHost, ...], num_steps: int) -> slice:
    """The steps whose medians are shown: those in which the accused are slow, else all."""
    spans = [(each.stretch.start, each.stretch.end) for each in suspects if each.is_accused]
    spans += [(host.start, host.end) for host in hosts]
    if not spans:
        return slice(0, num_steps)
    return slice(min(a for a, _ in spans), max(b for _, b in spans))


def _in_sample(columns: slice, stride: int) -> slice:
    return slice(columns.start // stride, max(columns.stop // stride, columns.start // stride + 1))


def _doubt_groups(
    suspects: tuple[Suspect, ...], hosts: tuple[SlowHost, ...], timings: StepTimings, scene: Scene
) -> tuple[tuple[Suspect, ...], tuple[SlowHost, ...], RankPattern | None]:
    """Without coordinates a block of slow ranks may be a pipeline stage: then nobody in it is accused.

    Returns the pattern that made the doubt, None when there is none.
    """
    if scene.peers.known:
        return _doubt_mates(suspects, hosts, timings.places), hosts, None
    lasting = {each.row for each in suspects if each.is_accused and each.pattern is not Pattern.INTERMITTENT}
    rows = lasting | {row for host in hosts for row in host.rows}
    num_ranks = timings.world_size or timings.num_ranks
    pattern = pattern_of([timings.ranks[row] for row in rows], num_ranks)
    if pattern.shape is Shape.SCATTERED and rows:
        # Of a stage that is a little heavier only the slowest ranks cross the threshold.
        wider = pattern_of(
            [timings.ranks[row] for row in rows | _companions(scene, suspects, rows)], num_ranks
        )
        pattern = wider if wider.shape in (Shape.BLOCK, Shape.STRIDED) else pattern
    if pattern.shape is Shape.SCATTERED or _is_one_host(rows, timings, pattern):
        return suspects, hosts, None
    doubted = tuple(
        replace(each, failed=(*each.failed, Gate.KIND)) if each.row in lasting else each for each in suspects
    )
    return doubted, (), pattern


def _doubt_mates(
    suspects: tuple[Suspect, ...], hosts: tuple[SlowHost, ...], places: Sequence[Place]
) -> tuple[Suspect, ...]:
    """Accuses no tensor or context parallel group as a whole: its ranks wait for one another inside of every layer.

    Where that waiting is in their own time, all of them look as slow as the one that is. A slow host stays accused.
    """
    mates: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for row, place in enumerate(places):
        if MATE_DIMENSIONS & place.coords.keys():
            rest = tuple(
                sorted((name, at) for name, at in place.coords.items() if name not in MATE_DIMENSIONS)
            )
            mates.setdefault(rest, []).append(row)
    folded = {row for host in hosts for row in host.rows}
    accused = {each.row for each in suspects if each.is_accused and each.row not in folded}
    doubted = {
        row
        for rows in mates.values()
        if len(rows) > 1 and len(accused & set(rows)) >= max(2, MIN_SHARE * len(rows))
        for row in rows
    }
    return tuple(
        replace(each, failed=(Gate.MATES,)) if each.is_accused and each.row in doubted else each
        for each in suspects
    )


def _companions(scene: Scene, suspects: tuple[Suspect, ...], rows: set[int]) -> set[int]:
    """Ranks that share at least COMPANION_SHARE of the least effect of the accused, in the steps of the first one."""
    accused = [each for each in suspects if each.row in rows]
    if not accused:
        return set()
    stretch = accused[0].stretch
    levels = row_medians(scene.excess[:, stretch.start : stretch.end])
    with np.errstate(invalid="ignore"):
        shared = levels >= COMPANION_SHARE * min(each.effect for each in accused)
    return {int(row) for row in np.flatnonzero(shared)}


def _is_one_host(rows: set[int], timings: StepTimings, pattern: RankPattern) -> bool:
    """Most ranks of one host out of at least four, in the middle of the job: no stage is there alone by habit."""
    hosts = {timings.places[row].host for row in rows}
    by_host = rows_by_host(timings.places)
    return (
        None not in hosts
        and len(hosts) == 1
        and len(by_host) >= 4
        and all(len(rows) >= MIN_SHARE * len(by_host[host]) for host in hosts if host is not None)
        and not pattern.at_end
    )


def _hosts(timings: StepTimings, scene: Scene, suspects: tuple[Suspect, ...]) -> tuple[SlowHost, ...]:
    """Slow hosts, unless a gate speaks against one of their ranks that a rank can fail for itself."""
    effects = scene.effects
    if scene.own_time.basis is Basis.WALL_ONLY or np.median(effects.num_steps) < FEW_STEPS:
        return ()
    doubted = {each.row for each in suspects if set(each.failed) & {Gate.WAIT, Gate.PEERS}}
    lasting = [each for each in suspects if each.is_accused and each.pattern is not Pattern.INTERMITTENT]
    found = slow_hosts(
        scene.excess,
        effects.effect,
        timings.places,
        accused=[
            AccusedRank(row=each.row, effect=each.effect, start=each.stretch.start, end=each.stretch.end)
            for each in lasting
        ],
        rank_threshold=scene.threshold.value,
        rank_scale=scene.threshold.scale,
        floor=FLOOR,
        error=FAMILY_ERROR * HOST_SHARE,
    )
    return tuple(each for each in found if not doubted & set(each.rows))


def _cost(judgement: Judgement, excess: Times, own_time: OwnTime, timings: StepTimings) -> Cost | None:
    """What the accused ranks and hosts cost, in the steps since the first of them is slow.

    None when nobody is accused or own time is not in ms.
    """
    accused = [each for each in judgement.suspects if each.is_accused]
    rows = sorted({each.row for each in accused} | {row for host in judgement.hosts for row in host.rows})
    if not rows or own_time.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY):
        return None
    columns = _shown_columns(judgement.suspects, judgement.hosts, excess.shape[1])
    excess, peer_ms = excess[:, columns], judgement.peer_ms[:, columns]
    peers, scale = judgement.peers, own_time.scale_ms
    slowest = np.zeros(excess.shape[1], dtype=np.float32)
    for group in range(peers.num_groups):
        members = np.setdiff1d(peers.members(group), rows)
        if len(members):
            highest = np.fmax.reduce(excess[members], axis=0)
            slowest = np.fmax(slowest, _in_ms(highest, peer_ms[group], scale))
    times = {row: _in_ms(excess[row], peer_ms[peers.group_of[row]], scale) for row in rows}
    return cost_of(
        {row: np.nan_to_num(each) for row, each in times.items()},
        {row: peer_ms[peers.group_of[row]] for row in rows},
        slowest,
        step_ms=_mean_step_ms(
            timings, columns.start + judgement.num_warm_up, columns.stop + judgement.num_warm_up
        ),
    )


def _mean_step_ms(timings: StepTimings, start: int, stop: int) -> float | None:
    """Of the steps that are judged, by some of the ranks; None: not told."""
    if Section.STEP not in timings.sections:
        return None
    sample = timings.sections[Section.STEP][:: max(1, timings.num_ranks // _SAMPLED_ROWS), start:stop]
    known = sample[np.isfinite(sample)]
    return float(np.mean(known)) if len(known) else None


def _in_ms(
    excess: NDArray[np.float32], peer_ms: NDArray[np.float32], scale: float | None
) -> NDArray[np.float32]:
    if scale is None:
        return np.asarray(peer_ms * (1 + excess))
    return np.asarray(peer_ms + excess * np.float32(scale))
