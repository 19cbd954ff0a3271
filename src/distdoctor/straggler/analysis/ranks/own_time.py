"""Own time and waiting of each rank and step, out of whatever sections the evidence has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import StepTimings, Times

# Of a step that is told in parts, own time must be at least this share before an effect is given relative to it; a
# smaller own time (a data loader alone) is set against the step. Our own threshold.
MIN_OWN_SHARE = 0.3


class Basis(Enum):
    """Where own time comes from."""

    SECTIONS = "sum of the sections that hold no waiting"
    STEP_LESS_WAIT = "step less the time in collectives"
    WAIT_ONLY = "how much less a rank waits than its peers"
    WALL_ONLY = "wall times, which hold own work and waiting in one"


@dataclass(slots=True, kw_only=True)
class OwnTime:
    """Own time, waiting and what a whole step takes; arrays (ranks, steps) in ms, NaN: not measured.

    Not frozen: whoever analyses 16,384 ranks works in these arrays in place.
    """

    basis: Basis
    own: Times
    wait: Times | None
    """None: not measured, and not to be had from other sections."""
    wait_is_derived: bool
    """Waiting is the step less own time, and so no second witness."""
    step_ms: float | None
    """Median time of a step over ranks and steps; None: not told."""
    own_sections: tuple[Section, ...]
    own_share: float | None = None
    """Own time as a share of the step; None where the step is not told."""
    scale_ms: float | None = None
    """What an effect is relative to; None: to what the peers took. Own time that is only a small part of the step (a
    data loader alone) is set against the step, lateness against the step or the time in collectives."""


def own_time_of(timings: StepTimings) -> OwnTime | None:
    """Own time by the best basis that the sections allow; None when there is no time at all.

    Sections are read one at a time. Own parts are added where at least one is measured; a part that a row lacks
    counts as nothing in that row.
    """
    sections = timings.sections
    own_sections = tuple(section for section in sections if role_of(section) is Role.OWN)
    wait = _wait(timings)
    if own_sections:
        own = _sum(timings, own_sections)
        derived = wait is None and Section.STEP in sections
        if derived:
            wait = sections[Section.STEP] - own
        return _made(timings, Basis.SECTIONS, own, wait, is_derived=derived, own_sections=own_sections)
    if wait is not None and Section.STEP in sections:
        own = sections[Section.STEP] - wait
        return _made(timings, Basis.STEP_LESS_WAIT, own, wait, is_derived=True)
    if wait is not None:
        longest = np.fmax.reduce(wait, axis=0, keepdims=True)
        made = _made(timings, Basis.WAIT_ONLY, (longest - wait).astype(np.float32), None, is_derived=True)
        made.scale_ms = made.step_ms or (float(np.nanmean(longest)) if np.isfinite(longest).any() else None)
        return made
    return wall_time_of(timings)


def wall_time_of(timings: StepTimings) -> OwnTime | None:
    """Times that hold own work and waiting in one; None when there is none.

    Parts where there are any: a whole step is equally long on all ranks by what it is, the sum of its parts only where
    each part ends in a collective.
    """
    walls = [section for section in timings.sections if role_of(section) is Role.WALL]
    parts = tuple(section for section in walls if section is not Section.STEP)
    if not walls:
        return None
    return _made(timings, Basis.WALL_ONLY, _sum(timings, parts or (Section.STEP,)), None, is_derived=True)


def whole_own_time_of(timings: StepTimings) -> OwnTime | None:
    """All of a step that is not measured waiting: what no section holds (Python between the parts) is in it too.

    None unless steps, waiting and own parts are all measured and the parts leave something out. It complements
    `own_time_of`: collectives that nobody timed are in it, so that a victim may look slow here; its waiting decides.
    """
    sections = timings.sections
    if Section.STEP not in sections or not any(role_of(each) is Role.OWN for each in sections):
        return None
    wait = _wait(timings)
    if wait is None:
        return None
    own = np.asarray(sections[Section.STEP] - wait)
    return _made(timings, Basis.STEP_LESS_WAIT, own, wait, is_derived=False)


def _made(
    timings: StepTimings,
    basis: Basis,
    own: Times,
    wait: Times | None,
    *,
    is_derived: bool,
    own_sections: tuple[Section, ...] = (),
) -> OwnTime:
    step_ms = _step_ms(timings)
    sample = _sample(own)
    known = np.isfinite(sample).any()
    share = float(np.nanmedian(sample)) / step_ms if step_ms and known else None
    small = basis is Basis.SECTIONS and share is not None and share < MIN_OWN_SHARE
    return OwnTime(
        basis=basis,
        own=own,
        wait=wait,
        wait_is_derived=is_derived,
        step_ms=step_ms,
        own_sections=own_sections,
        own_share=share if basis is not Basis.WAIT_ONLY else None,
        scale_ms=step_ms if small else None,
    )


def _sum(timings: StepTimings, sections: tuple[Section, ...]) -> Times:
    total = np.array(timings.sections[sections[0]], dtype=np.float32)
    for section in sections[1:]:
        part = timings.sections[section]
        missing = np.isnan(total)
        if missing.any():
            total[missing] = part[missing]
            total[~missing] += np.nan_to_num(part[~missing])
        else:
            total += np.nan_to_num(part) if np.isnan(part).any() else part
    return total


def _wait(timings: StepTimings) -> Times | None:
    """Waiting, as measured; else communication with the transfer in it; else backward less its local part."""
    sections = timings.sections
    for section in (Section.WAIT, Section.COMM):
        if section in sections:
            return sections[section]
    if Section.BACKWARD_WALL in sections and Section.BACKWARD in sections:
        return np.asarray(sections[Section.BACKWARD_WALL] - sections[Section.BACKWARD])
    return None


def _step_ms(timings: StepTimings) -> float | None:
    """Median of a step, by some of the ranks."""
    if Section.STEP not in timings.sections:
        return None
    sample = _sample(timings.sections[Section.STEP])
    known = sample[np.isfinite(sample)]
    return float(np.median(known)) if len(known) else None


def _sample(times: Times, *, max_rows: int = 64) -> Times:
    """Some of the rows, evenly: a median over all would cost more than it tells."""
    return times[:: max(1, len(times) // max_rows)]
