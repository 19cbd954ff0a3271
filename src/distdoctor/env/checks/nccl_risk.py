"""What a rule about one variable's value says, and small helpers that the rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distdoctor.env.checks.nccl_view import NcclView, nccl_number
from distdoctor.report.model import Confidence, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """Why a value is a risk here."""

    severity: Severity
    title: str
    why: str
    source: str
    confidence: Confidence = Confidence.HIGH
    advice: str | None = None
    """The action's sentence; None: remove the setting."""
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One variable (or several that mean the same) and the judgement on its value in this context."""

    names: tuple[str, ...]
    judge: Callable[[NcclView, str], Risk | None]


def is_on(value: str) -> bool:
    """True when NCCL takes the value as a set flag: a number other than 0."""
    return bool(value) and nccl_number(value) != 0


def is_off(value: str) -> bool:
    """True when NCCL takes the value as 0. An empty value counts as unset for NCCL."""
    return bool(value) and nccl_number(value) == 0


def worse(known: bool | None) -> Severity:
    """Critical when the thing is known to be so, a warning when it is not known."""
    return Severity.CRITICAL if known else Severity.WARNING


def sure(known: bool | None) -> Confidence:
    """High when the context was seen, medium when it was not."""
    return Confidence.MEDIUM if known is None else Confidence.HIGH
