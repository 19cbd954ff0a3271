"""Checks of timing: the outcomes of `report.checking` over `Analysed`."""

from __future__ import annotations

from distdoctor.report import checking
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import SkipCause
from distdoctor.straggler.analysed import Analysed

__all__ = ["Found", "NotApplicable", "NotSeen", "Outcome", "Passed", "StragglerCheck", "not_seen"]

StragglerCheck = checking.Check[Analysed]

RECORD = "torchrun … -m distdoctor straggler record --record-dir DIR -- train.py"
"""The command that records what a slow rank can be told from."""


def not_seen(reason: str, *, how: str | None = None, what: str = "") -> NotSeen:
    """The outcome for something that this evidence does not hold."""
    return NotSeen(unread=Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=reason, how=how), what=what)
