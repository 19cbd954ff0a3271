"""Step times from clocks that count whole seconds: progress bars, LLaMA-Factory's `elapsed_time`."""

from __future__ import annotations

from dataclasses import dataclass

# Whole seconds err by up to one: over 20 s that is 5 %. Our own threshold.
LEAST_WINDOW_S = 20.0


@dataclass(slots=True)
class SecondsClock:
    """A time per step whenever `LEAST_WINDOW_S` have passed since the last one."""

    step: int = -1
    elapsed_s: float = 0.0

    def tell(self, step: int, elapsed_s: float) -> float | None:
        """Milliseconds per step since the last answer; None while too little time has passed."""
        if self.step < 0 or step < self.step or elapsed_s < self.elapsed_s:
            self.step, self.elapsed_s = step, elapsed_s
            return None
        steps, passed = step - self.step, elapsed_s - self.elapsed_s
        if not steps or passed < LEAST_WINDOW_S:
            return None
        self.step, self.elapsed_s = step, elapsed_s
        return passed * 1000 / steps
