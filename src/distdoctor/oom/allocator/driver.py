"""The device's memory as the CUDA driver lends it: how much torch holds, and whether there is more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Driver:
    """Sizes are bytes."""

    capacity: int | None
    """What it can lend to torch; None: without end."""
    reserved: int = 0
    """What torch holds."""

    def lend(self, num_bytes: int) -> bool:
        """Lend `num_bytes` more; False, and nothing is lent, where less is left."""
        if self.capacity is not None and self.reserved + num_bytes > self.capacity:
            return False
        self.reserved += num_bytes
        return True

    def take_back(self, num_bytes: int) -> None:
        """Torch gives `num_bytes` back."""
        self.reserved -= num_bytes
