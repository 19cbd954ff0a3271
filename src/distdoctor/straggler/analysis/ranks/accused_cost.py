"""What the accused ranks and hosts of a judgement cost, in the steps since the first of them is slow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.ranks.cost import Cost, cost_of
from distdoctor.straggler.analysis.ranks.hosts import (
    SlowHost,
)
from distdoctor.straggler.analysis.ranks.judgement import Judgement, Suspect
from distdoctor.straggler.analysis.ranks.own_time import (
    Basis,
    OwnTime,
)
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings, Times

# Ranks that stand for all, evenly chosen: in the mean step, and where forward is set against backward.
_SAMPLED_ROWS = 64


def slow_columns(suspects: tuple[Suspect, ...], hosts: tuple[SlowHost, ...], num_steps: int) -> slice:
    """The steps whose medians are shown: those in which the accused are slow, else all."""
    spans = [(each.stretch.start, each.stretch.end) for each in suspects if each.is_accused]
    spans += [(host.start, host.end) for host in hosts]
    if not spans:
        return slice(0, num_steps)
    return slice(min(a for a, _ in spans), max(b for _, b in spans))


def cost_of_accused(
    judgement: Judgement, excess: Times, own_time: OwnTime, timings: StepTimings
) -> Cost | None:
    """What the accused ranks and hosts cost, in the steps since the first of them is slow.

    None when nobody is accused or own time is not in ms.
    """
    accused = [each for each in judgement.suspects if each.is_accused]
    rows = sorted({each.row for each in accused} | {row for host in judgement.hosts for row in host.rows})
    if not rows or own_time.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY):
        return None
    columns = slow_columns(judgement.suspects, judgement.hosts, excess.shape[1])
    excess, peer_ms = excess[:, columns], judgement.peer_ms[:, columns]
    peers, scale = judgement.peers, own_time.scale_ms
    slowest = np.zeros(excess.shape[1], dtype=np.float32)
    for group in range(peers.num_groups):
        members = np.setdiff1d(peers.members(group), rows)
        if len(members):
            highest = np.fmax.reduce(excess[members], axis=0)
            slowest = np.fmax(slowest, in_ms(highest, peer_ms[group], scale))
    times = {row: in_ms(excess[row], peer_ms[peers.group_of[row]], scale) for row in rows}
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


def in_ms(
    excess: NDArray[np.float32], peer_ms: NDArray[np.float32], scale: float | None
) -> NDArray[np.float32]:
    """Own time of a rank, from its excess and what its peers took; both of shape (steps,). None: relative to the peers."""
    if scale is None:
        return np.asarray(peer_ms * (1 + excess))
    return np.asarray(peer_ms + excess * np.float32(scale))
