"""What a reader is: it knows one kind of evidence by sight and turns all files of that kind into facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the command line says about reading."""

    first_step: int | None = None
    """Rows of earlier steps are not kept."""
    last_step: int | None = None
    unit: str | None = None
    """Of columns whose names tell none: "ns", "us", "ms", "s"."""
    progress: Callable[[str], None] | None = None
    """Told one line now and then while large evidence is read."""

    def wants(self, step: int) -> bool:
        """Whether a row of this step is kept."""
        return (self.first_step is None or step >= self.first_step) and (
            self.last_step is None or step <= self.last_step
        )

    def wants_each(self, steps: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.bool_]:
        """As `wants` for each of `steps`, shape (rows,)."""
        wanted = np.ones(len(steps), dtype=bool)
        if self.first_step is not None:
            wanted &= steps >= self.first_step
        if self.last_step is not None:
            wanted &= steps <= self.last_step
        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One kind of evidence.

    sniff: path and first bytes (unpacked when gzip) → how sure, from 0 to 1; the surest reader gets the file.
    read: all files of the kind at once, since ranks often have a file each. It never raises for one bad file: that
    file becomes an `InputFile(read=False, why_not=…)` in `Reading.inputs`; every path is in `inputs` exactly once.
    """

    name: str
    """In words, for reports: "Kineto traces"."""
    sniff: Callable[[str, bytes], float]
    read: Callable[[Sequence[str], ReadOptions], Reading]
