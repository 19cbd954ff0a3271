"""A tracker that lets a rank run out of memory where the device would not: by our own count of live bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from distdoctor.oom.memory.log import Phase, Place
from distdoctor.oom.tracking.foreseeing import foreseen_bytes
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.torch_private.fake_tensors import active_fake_mode
from distdoctor.units import format_bytes

# A class of its own since torch 2.5; before, the one of CUDA.
OUT_OF_MEMORY: type[RuntimeError] = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)


class OverLimitError(OUT_OF_MEMORY):  # type: ignore[valid-type, misc]  # chosen by torch's version
    """The limit of live bytes was passed."""

    def __init__(self, requested_bytes: int, live_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"distdoctor's limit of {format_bytes(limit_bytes)}: {format_bytes(live_bytes)} are live, "
            f"and an op asked for {format_bytes(requested_bytes)} more"
        )
        self.requested_bytes = requested_bytes


class LimitedTracker(Tracker):
    """Refuses the op that would pass the limit before it runs, by the error that CUDA's allocator raises. Where shapes
    do not tell what an op will give, it runs, and its result is dropped if it is too much."""

    def __init__(
        self, device_type: str, *, limit_bytes: int | None, tell: Callable[[Phase, int, int | None], None]
    ) -> None:
        """`tell`: called with phase, step and micro-batch whenever the program begins a phase."""
        super().__init__(device_type)
        self._tell = tell
        self.limit_bytes = limit_bytes
        self.refused_at: Place | None = None
        self.last_op = ""

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one op and refuse what is too much."""
        self.last_op = str(func)
        if self.limit_bytes is None or active_fake_mode() is not None:
            # DTensor reasons about shapes of whole tensors under fake ones.
            return func(*args, **kwargs)
        foreseen = foreseen_bytes(func, args, kwargs)
        self._refuse(foreseen or 0, self.limit_bytes)
        result = func(*args, **kwargs)
        if foreseen is None:
            self._refuse(self._new_bytes(result), self.limit_bytes)
        return result

    def _refuse(self, requested: int, limit_bytes: int) -> None:
        """Raise where so many more would be too many."""
        if requested and self.live_bytes + requested > limit_bytes:
            self.refused_at = self._where.now(self.last_op)
            raise OverLimitError(requested, self.live_bytes, limit_bytes)

    def at(self, phase: Phase, *, step: int, micro_batch: int | None = None) -> None:
        """The program begins `phase`."""
        super().at(phase, step=step, micro_batch=micro_batch)
        self._tell(phase, step, micro_batch)

    def now(self) -> Place:
        """Where the program is, at the op that ran last."""
        return self._where.now(self.last_op)

    def _new_bytes(self, result: Any) -> int:
        """Bytes of storages that were not there before this op."""
        found = {}
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                for storage in self._storages(leaf):
                    if storage._cdata not in self._index:
                        found[storage._cdata] = storage.nbytes()
        return sum(found.values())
