"""How long is left? One object handed down, so that nested waits share one limit."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock after which nobody waits any longer."""

    at: float
    """Seconds of `time.monotonic()`."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment `seconds` from now; at once when negative."""
        return cls(time.monotonic() + max(0.0, seconds))

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative: fit to be passed as a timeout."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self.at

    def sooner(self, seconds: float) -> Deadline:
        """This deadline, or the one `seconds` from now when that comes first."""
        return min(self, Deadline.after(seconds), key=lambda deadline: deadline.at)
