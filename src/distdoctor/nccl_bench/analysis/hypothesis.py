"""What a hypothesis about a slow collective is, and how the evidence for and against it is weighed."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.nccl_bench.analysis.shortfall import Shortfall
from distdoctor.report.model import Fault, Team

# Points for a hypothesis: a line of a log or a setting that says so, and a share that fits.
SAID = 3
FITS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One possible cause."""

    name: str
    """Two or three words: "idle ports", "NVLink SHARP off"."""
    statement: str
    """A sentence for people who never saw NCCL."""
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...] = ()
    decides: str
    """What the command tells."""
    command: str | None
    team: Team
    fault: Fault
    cause_class: str
    points: int

    @property
    def is_said(self) -> bool:
        """A log or a setting says so; otherwise only the numbers fit."""
        return self.points >= SAID and not self.evidence_against


def hypothesis(
    name: str,
    statement: str,
    pro: list[tuple[str, int]],
    contra: list[str],
    *,
    decides: str,
    command: str | None,
    team: Team,
    fault: Fault,
    cause_class: str,
) -> Hypothesis | None:
    """A hypothesis from (text, points) for and texts against it; None when nothing speaks for it."""
    if not pro:
        return None
    return Hypothesis(
        name=name,
        statement=statement,
        evidence_for=tuple(text for text, _ in pro),
        evidence_against=tuple(contra),
        decides=decides,
        command=command,
        team=team,
        fault=fault,
        cause_class=cause_class,
        points=sum(points for _, points in pro) - SAID * len(contra),
    )


def share_left(shortfall: Shortfall) -> str:
    """ "49 % of the expected bandwidth is left"."""
    return f"{shortfall.ratio:.0%} of the expected bandwidth is left"
