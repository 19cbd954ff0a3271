"""Why is a rank slow, as far as the sections tell? The section that holds most of the excess points to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.straggler.analysis.ranks.judgement import Suspect
from distdoctor.straggler.facts.sections import Role, Section, role_of

# A section that holds this share of the excess is the cause; below it several parts are slow. Our own threshold.
MAIN_SHARE = 0.6

# Sections that are work of the GPU.
_COMPUTE = (Section.FORWARD, Section.BACKWARD, Section.COMPUTE, Section.OPTIMIZER)


class Cause(Enum):
    """What the excess consists of; the value is the detail of the cause class."""

    COMPUTE = "compute"
    DATA = "data_loader"
    GC = "garbage_collector"
    H2D = "host_to_device_copies"
    CHECKPOINT = "checkpoint_io"
    HOST = "host_cpu"
    OUTSIDE = "outside_of_timed_parts"
    MIXED = "several_parts"
    UNKNOWN = "unknown"


_OF_SECTION = {
    Section.DATA: Cause.DATA,
    Section.H2D: Cause.H2D,
    Section.CHECKPOINT: Cause.CHECKPOINT,
    Section.OTHER: Cause.OUTSIDE,
    Section.GC: Cause.GC,
    Section.IDLE: Cause.HOST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The cause, and the sections that show it, in ms a step."""

    cause: Cause
    sections: tuple[tuple[Section, float], ...]
    """Those that are longer than the peers', most first."""


def explain_suspect(suspect: Suspect) -> Explained:
    """The cause of a suspect's excess. Collections and idle time lie inside other sections and win over them."""
    longer = sorted(
        ((section, ms) for section, ms in suspect.sections.items() if ms > 0.05 * suspect.excess_ms),
        key=lambda each: -each[1],
    )
    shown = tuple(longer)
    for inside in (Section.GC, Section.IDLE):
        if suspect.sections.get(inside, 0.0) >= 0.5 * suspect.excess_ms > 0:
            return Explained(cause=_OF_SECTION[inside], sections=shown)
    own = [(section, ms) for section, ms in longer if role_of(section) is Role.OWN]
    if not own:
        return Explained(cause=Cause.UNKNOWN, sections=shown)
    total = sum(ms for _, ms in own)
    compute = sum(ms for section, ms in own if section in _COMPUTE)
    if compute >= MAIN_SHARE * total:
        return Explained(cause=Cause.COMPUTE, sections=shown)
    section, ms = own[0]
    if (
        section is Section.UNSPLIT
        and suspect.sections.get(Section.DATA, 0.0) < MAIN_SHARE * suspect.excess_ms
    ):
        return Explained(cause=Cause.UNKNOWN, sections=shown)
    if ms >= MAIN_SHARE * total:
        return Explained(cause=_OF_SECTION.get(section, Cause.MIXED), sections=shown)
    return Explained(cause=Cause.MIXED, sections=shown)
