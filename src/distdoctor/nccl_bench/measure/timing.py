"""The timed loop, written once: for each iteration this rank's own time, its wait in the barrier, the operation.

Why the last to arrive has the shortest operation time: a collective ends when the slowest rank has taken part. A
rank that hands it in early waits inside it for the others and measures that waiting as well; the one that comes
last finds everybody there and measures the transfer alone. So the shortest time among the ranks of an iteration is
the transfer, what a rank has beyond it is waiting, and whoever keeps having the shortest time holds the others up.
No clocks are compared across ranks.

The collective is handed in when the call that issues it returns. What happens in that call, or before it, is the
rank's own time: a wrapper that sleeps, a slow interpreter, a busy processor.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

import torch
import torch.distributed as dist

from distdoctor.nccl_bench.measure.prepared import Waitable

Issue = Callable[[], Waitable | None]
"""Hands a collective in; None when the call has waited by itself."""

Barrier = Callable[[], Waitable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One loop on one rank; microseconds, one element an iteration."""

    own_us: array[float]
    """From the end of the previous iteration until the collective is handed in, without waiting for others.

    On the events' clock the host's time between one hand-in and the next, which runs ahead of the device.
    """
    barrier_us: array[float]
    """Waiting in the barrier before; 0 without one."""
    operation_us: array[float]
    """From handed in to complete."""
    total_us: array[float]
    """What a bandwidth is computed from: from the barrier's end, or the previous iteration's, to complete."""
    loop_us: float
    """The whole loop on the host's clock, from its first call until the last iteration is complete."""


class Clock(Protocol):
    """A way to time iterations."""

    def time(self, issue: Issue, barrier: Barrier | None, iters: int) -> Samples:
        """Run the loop."""


def timed_loop(issue: Issue, *, barrier: Barrier | None, iters: int, clock: Clock) -> Samples:
    """Run `issue` `iters` times, a barrier before each (style isolated) or none (style streaming).

    The garbage collector rests meanwhile: a collection of ours would look like a late rank. Raises ValueError for
    fewer than one iteration.
    """
    if iters < 1:
        raise ValueError(f"a loop of {iters} iterations")
    collects = gc.isenabled()
    gc.disable()
    try:
        return clock.time(issue, barrier, iters)
    finally:
        if collects:
            gc.enable()


def warm_up(issue: Issue, count: int, finish: Callable[[], object] | None = None) -> None:
    """Issue and wait `count` times: the first calls at a size set up channels and registrations.

    `finish` waits for the device.
    """
    for _ in range(count):
        work = issue()
        if work is not None:
            work.wait()
    if finish is not None:
        finish()


def make_barrier(group: dist.ProcessGroup | None, device: torch.device) -> Barrier:
    """What stands before each isolated iteration: a barrier on the CPU, a tiny all_reduce on a device's stream.

    A barrier of NCCL would make the host wait for the device in every iteration, so that each collective would be
    measured together with its launch.
    """
    if device.type == "cpu":

        def cpu_barrier() -> Waitable:
            work: Waitable = dist.barrier(group=group, async_op=True)
            return work

        return cpu_barrier
    token = torch.zeros(1, device=device)

    def device_barrier() -> Waitable:
        work: Waitable = dist.all_reduce(token, group=group, async_op=True)
        return work

    return device_barrier


class HostClock:
    """The host waits for every call. For Gloo; on a GPU with `finish`, for small sizes, to see who arrives late.

    `finish` waits for the device (torch.cuda.synchronize): without it a call on CUDA is over before its work is.
    """

    def __init__(self, finish: Callable[[], object] | None = None) -> None:
        self._finish = finish

    def time(self, issue: Issue, barrier: Barrier | None, iters: int) -> Samples:
        """Run the loop; between two readings of the clock stands nothing but the call that they time."""
        if barrier is None:
            return self._streaming(issue, iters)
        return self._isolated(issue, barrier, iters)

    def _isolated(self, issue: Issue, barrier: Barrier, iters: int) -> Samples:
        at_barrier, begun, handed, ended = ([0] * iters for _ in range(4))
        finish, now = self._finish, perf_counter_ns
        started = now()
        for index in range(iters):
            work = barrier()
            at_barrier[index] = now()
            work.wait()
            if finish is not None:
                finish()
            before = now()
            call = issue()
            after = now()
            if call is None:
                # The call has waited by itself, and how long is not known: that is no time of this rank's own.
                after = before
            else:
                call.wait()
            if finish is not None:
                finish()
            ended[index] = now()
            begun[index], handed[index] = before, after
        previous = [started, *ended[:-1]]
        return Samples(
            own_us=array(
                "d",
                (
                    (arrived - last + given - begin) / 1e3
                    for arrived, last, given, begin in zip(at_barrier, previous, handed, begun, strict=True)
                ),
            ),
            barrier_us=_differences(at_barrier, begun),
            operation_us=_differences(handed, ended),
            total_us=_differences(begun, ended),
            loop_us=(ended[-1] - started) / 1e3,
        )

    def _streaming(self, issue: Issue, iters: int) -> Samples:
        handed, ended = ([0] * iters for _ in range(2))
        finish, now = self._finish, perf_counter_ns
        started = last = now()
        for index in range(iters):
            call = issue()
            after = now()
            if call is None:
                after = last
            else:
                call.wait()
            if finish is not None:
                finish()
            ended[index] = last = now()
            handed[index] = after
        previous = [started, *ended[:-1]]
        return Samples(
            own_us=_differences(previous, handed),
            barrier_us=array("d", bytes(8 * iters)),
            operation_us=_differences(handed, ended),
            total_us=_differences(previous, ended),
            loop_us=(last - started) / 1e3,
        )


class EventClock:
    """Events on the current CUDA stream, read after the loop: the host never waits for the device inside it.

    The operation's time is from the barrier's end on the device (or the previous iteration's) to the collective's:
    a host that issues late is in it on every rank, so that only `own_us` tells which one that was. HostClock with
    `finish` tells it by the waiting as well.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def time(self, issue: Issue, barrier: Barrier | None, iters: int) -> Samples:
        """Run the loop, then wait for the device once and read the events."""
        stream = torch.cuda.current_stream(self._device)
        begins = [torch.cuda.Event(enable_timing=True) for _ in range(iters)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(iters + 1)]
        handed = [0] * iters
        now = perf_counter_ns
        torch.cuda.synchronize(self._device)
        started = now()
        ends[0].record(stream)
        for index in range(iters):
            if barrier is not None:
                barrier().wait()
                begins[index].record(stream)
            call = issue()
            handed[index] = now()
            if call is not None:
                call.wait()
            ends[index + 1].record(stream)
        torch.cuda.synchronize(self._device)
        loop_us = (now() - started) / 1e3
        # Event times are in milliseconds, with a resolution of about half a microsecond.
        if barrier is None:
            barrier_us = array("d", bytes(8 * iters))
            total_us = _elapsed(ends[:-1], ends[1:])
        else:
            barrier_us = _elapsed(ends[:-1], begins)
            total_us = _elapsed(begins, ends[1:])
        return Samples(
            own_us=_differences([started, *handed[:-1]], handed),
            barrier_us=barrier_us,
            operation_us=array("d", total_us),
            total_us=total_us,
            loop_us=loop_us,
        )


def _differences(begins: list[int], ends: list[int]) -> array[float]:
    return array("d", ((end - begin) / 1e3 for begin, end in zip(begins, ends, strict=True)))


def _elapsed(begins: list[torch.cuda.Event], ends: list[torch.cuda.Event]) -> array[float]:
    return array("d", (begin.elapsed_time(end) * 1e3 for begin, end in zip(begins, ends, strict=True)))
