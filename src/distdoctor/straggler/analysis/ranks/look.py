"""One look at ranks × steps by one kind of own time: excess, threshold, suspects, doubts, and what is shown of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import relative_excess, row_medians
from distdoctor.straggler.analysis.peers import Peers, peers_of
from distdoctor.straggler.analysis.ranks.accused_cost import cost_of_accused, in_ms, slow_columns
from distdoctor.straggler.analysis.ranks.doubts import counted_alike, doubt_groups, hosts_of, not_of_two_kinds
from distdoctor.straggler.analysis.ranks.effects import Effects, effects_of
from distdoctor.straggler.analysis.ranks.first_steps import num_warm_up
from distdoctor.straggler.analysis.ranks.heat import heat_of
from distdoctor.straggler.analysis.ranks.judgement import Judgement
from distdoctor.straggler.analysis.ranks.kinds import two_kinds
from distdoctor.straggler.analysis.ranks.own_time import (
    Basis,
    OwnTime,
)
from distdoctor.straggler.analysis.ranks.resolution import least_difference
from distdoctor.straggler.analysis.ranks.rotation import MIN_EXCESS, Rotation, rotation_of
from distdoctor.straggler.analysis.ranks.stages import heavy_groups
from distdoctor.straggler.analysis.ranks.standout import standout_of
from distdoctor.straggler.analysis.ranks.suspects import WHOLE_SHARE, Scene, find_suspects, prior_spread_of
from distdoctor.straggler.analysis.ranks.threshold import threshold_for
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings, Times

# Accused ranks whose own time over steps is kept for a picture.
MAX_CURVES = 3

# Ranks that stand for all, evenly chosen: in the mean step, and where forward is set against backward.
_SAMPLED_ROWS = 64

# For medians that only pictures and tables show, at most so many steps are looked at.
_SHOWN_STEPS = 1024


def look_at(timings: StepTimings, own_time: OwnTime) -> Judgement:
    """What this own time shows. Its array is worked in, and holds the excess afterwards."""
    peers = peers_of(timings.places)
    skipped = num_warm_up(own_time.own)
    own = own_time.own[:, skipped:]
    wait = None if own_time.wait is None else own_time.wait[:, skipped:]
    own_sample = own[:, :: _stride(own)].copy()
    excess, peer_ms = relative_excess(own, peers, scale_ms=own_time.scale_ms)
    effects = effects_of(excess)
    rounding = least_difference(own_sample, num_parts=len(own_time.own_sections), scale_ms=own_time.scale_ms)
    prior_spread = prior_spread_of(own_time)
    threshold = threshold_for(effects, peers, share=WHOLE_SHARE, prior_spread=prior_spread)
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
    kinds = two_kinds(effects, peers, _medians(own_sample), rounding=rounding, scale_ms=own_time.scale_ms)
    suspects = counted_alike(scene, find_suspects(scene))
    suspects, hosts, pattern = doubt_groups(suspects, hosts_of(timings, scene, suspects), timings, scene)
    suspects, hosts = not_of_two_kinds(kinds, suspects, hosts, timings, peers)
    shown = slow_columns(suspects, hosts, excess.shape[1])
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
        kinds=kinds,
        rounding=rounding,
        heavy=()
        if own_time.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY)
        else heavy_groups(peer_ms, peers, effects.effect, scale_ms=own_time.scale_ms),
        rotation=_rotation(timings, peers, excess, effects, skipped),
        standout=None
        if own_time.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY)
        else standout_of(
            excess,
            peer_ms,
            peers,
            scale_ms=own_time.scale_ms,
            step_ms=own_time.step_ms,
            wait=None if own_time.wait_is_derived else wait,
            least=threshold.value,
        ),
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
        cost=cost_of_accused(judgement, excess, own_time, timings),
        curves={row: in_ms(excess[row], peer_ms[peers.group_of[row]], own_time.scale_ms) for row in drawn},
    )


def _rotation(
    timings: StepTimings, peers: Peers, excess: Times, effects: Effects, skipped: int
) -> Rotation | None:
    """How the slowest rank changes; forward and backward are only looked at where it stands out."""
    rotation = rotation_of(excess, levels=effects.effect)
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
    return rotation_of(excess, forward, backward, levels=effects.effect)


def _stride(times: Times) -> int:
    num_steps: int = times.shape[1]
    return max(1, num_steps // _SHOWN_STEPS)


def _medians(times: Times) -> NDArray[np.float32]:
    return row_medians(times[:, :: _stride(times)])


def _in_sample(columns: slice, stride: int) -> slice:
    return slice(columns.start // stride, max(columns.stop // stride, columns.start // stride + 1))
