"""Point-to-point times between pairs of ranks, each direction by itself, one round of disjoint pairs after another.

The receiver says that it is ready before the clock starts, so that a rank that comes late does not make its link
look slow; the sender's clock stops when the receiver's acknowledgement is back, so that one clock is enough.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from distdoctor.nccl_bench.analysis.pairing import Round
from distdoctor.nccl_bench.pair_record import encode_pair
from distdoctor.ranks.group.joining import Joined
from distdoctor.ranks.group.target import Target

# Messages one after another in one visit of a pair; the best counts, for noise only makes things slower.
REPEATS = 3

_ENOUGH = "enough"


class Pairs:
    """One rank's side of the matrix. All ranks call `run` with the same rounds in the same order."""

    def __init__(self, joined: Joined, target: Target, *, size_bytes: int) -> None:
        self._joined = joined
        self._rank = joined.identity.rank
        self._device = target.device
        self._data = torch.ones(size_bytes, dtype=torch.uint8, device=self._device)
        self._sign = torch.ones(1, dtype=torch.uint8, device=self._device)
        self._met: set[int] = set()

    def run(self, rounds: Sequence[Round], *, until: float, confirms: bool = False) -> bool:
        """Measure the pairs of every round; what was measured is in the store when this returns.

        False when rank 0 saw `until` (seconds of time.monotonic()) pass before the last round.
        """
        watchdog, control = self._joined.watchdog, self._joined.control
        for pairs in rounds:
            words = ", ".join(f"{source} to {target}" for source, target in pairs[:4])
            watchdog.arrive(f"pairs of ranks: {words}{' …' if len(pairs) > 4 else ''}")
            for source, target in pairs:
                if self._rank == source:
                    times_us = self._send(target)
                    control.append(
                        "pairs",
                        encode_pair(
                            source,
                            target,
                            times_us,
                            confirms=confirms,
                            concurrent_pairs=len(pairs),
                        ),
                    )
                elif self._rank == target:
                    self._receive(source)
            said = control.in_step(_ENOUGH if time.monotonic() > until else "")
            watchdog.leave()
            if said == _ENOUGH:
                return False
        return True

    def _repeats_with(self, peer: int) -> int:
        """One more at the first meeting, whose connection is set up then."""
        first = peer not in self._met
        self._met.add(peer)
        return REPEATS + 1 if first else REPEATS

    def _send(self, target: int) -> list[float]:
        times_us = []
        for _ in range(self._repeats_with(target)):
            dist.recv(self._sign, target)
            self._synchronize()
            began = time.perf_counter()
            dist.send(self._data, target)
            dist.recv(self._sign, target)
            self._synchronize()
            times_us.append((time.perf_counter() - began) * 1e6)
        return times_us[-REPEATS:]

    def _receive(self, source: int) -> None:
        for _ in range(self._repeats_with(source)):
            dist.send(self._sign, source)
            dist.recv(self._data, source)
            dist.send(self._sign, source)
            self._synchronize()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
