"""What the timed loop counts as whose time, on a clock that moves only when the loop's callees say so."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from distdoctor.nccl_bench.measure import timing  # noqa: E402
from distdoctor.nccl_bench.measure.timing import EventClock, HostClock, timed_loop, warm_up  # noqa: E402

ITERS = 4


class Time:
    """Microseconds that pass only in calls."""

    def __init__(self) -> None:
        self.us = 0

    def now_ns(self) -> int:
        return self.us * 1000

    def passes(self, us: int) -> None:
        self.us += us


class Work:
    def __init__(self, time: Time, us: int) -> None:
        self._time, self._us = time, us

    def wait(self) -> None:
        self._time.passes(self._us)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(timing, "perf_counter_ns", found.now_ns)
    return found


def call(time: Time, *, issue_us: int, wait_us: int) -> Callable[[], Work]:
    def issue() -> Work:
        time.passes(issue_us)
        return Work(time, wait_us)

    return issue


def test_issuing_is_a_ranks_own_time_and_waiting_is_not(time: Time) -> None:
    loop = timed_loop(
        call(time, issue_us=5, wait_us=20),
        barrier=call(time, issue_us=2, wait_us=30),
        iters=ITERS,
        clock=HostClock(),
    )
    assert list(loop.own_us) == [7] * ITERS
    assert list(loop.barrier_us) == [30] * ITERS
    assert list(loop.operation_us) == [20] * ITERS
    assert list(loop.total_us) == [25] * ITERS
    assert loop.loop_us == 57 * ITERS


def test_back_to_back_there_is_no_barrier(time: Time) -> None:
    loop = timed_loop(call(time, issue_us=5, wait_us=20), barrier=None, iters=ITERS, clock=HostClock())
    assert list(loop.own_us) == [5] * ITERS
    assert list(loop.barrier_us) == [0] * ITERS
    assert list(loop.operation_us) == [20] * ITERS
    assert list(loop.total_us) == [25] * ITERS
    assert loop.loop_us == 25 * ITERS


@pytest.mark.parametrize("with_barrier", [True, False])
def test_a_call_that_waits_by_itself_is_no_time_of_its_own(time: Time, with_barrier: bool) -> None:
    def waits() -> None:
        time.passes(40)

    barrier = call(time, issue_us=2, wait_us=30) if with_barrier else None
    loop = timed_loop(waits, barrier=barrier, iters=ITERS, clock=HostClock())
    assert list(loop.own_us) == [2 if with_barrier else 0] * ITERS
    assert list(loop.operation_us) == [40] * ITERS


def test_a_device_is_waited_for_where_it_has_to_be(time: Time) -> None:
    """On a GPU a call is over before its work is: the device takes 9 µs more, after barrier and collective."""
    loop = timed_loop(
        call(time, issue_us=5, wait_us=0),
        barrier=call(time, issue_us=2, wait_us=0),
        iters=ITERS,
        clock=HostClock(finish=lambda: time.passes(9)),
    )
    assert list(loop.barrier_us) == [9] * ITERS
    assert list(loop.operation_us) == [9] * ITERS
    assert list(loop.total_us) == [14] * ITERS


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_rests_in_the_loop_and_is_left_as_it_was(time: Time, enabled: bool) -> None:
    seen = []

    def issue() -> None:
        seen.append(gc.isenabled())

    was_enabled = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        timed_loop(issue, barrier=None, iters=2, clock=HostClock())
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if was_enabled else gc.disable()
    assert seen == [False, False]


def test_a_loop_has_an_iteration(time: Time) -> None:
    with pytest.raises(ValueError, match="0 iterations"):
        timed_loop(call(time, issue_us=1, wait_us=1), barrier=None, iters=0, clock=HostClock())


def test_warming_up_waits_for_every_call_and_for_the_device_once(time: Time) -> None:
    warm_up(call(time, issue_us=1, wait_us=10), 3, finish=lambda: time.passes(100))
    assert time.us == 133


class FakeEvent:
    """A CUDA event over the fake clock: what a stream's time is when it is recorded."""

    device: Time

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self._us: int | None = None

    def record(self, stream: object) -> None:
        self._us = self.device.us

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self._us is not None
        assert later._us is not None
        return (later._us - self._us) / 1e3


def test_events_time_the_device_and_the_host_never_waits_in_the_loop(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fake events, for want of a GPU: the same columns in the same unit as the host's clock."""
    device = Time()
    monkeypatch.setattr(FakeEvent, "device", device, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: "stream")
    synchronized: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: synchronized.append(device.us))

    class StreamWork:
        def wait(self) -> None:
            """A dependency of the stream; the host goes on."""

    def issued(host_us: int, device_us: int) -> Callable[[], StreamWork]:
        def issue() -> StreamWork:
            time.passes(host_us)
            device.passes(device_us)
            return StreamWork()

        return issue

    clock = EventClock(torch.device("cuda", 0))
    loop = timed_loop(issued(3, 20), barrier=issued(2, 30), iters=ITERS, clock=clock)
    assert list(loop.own_us) == [5] * ITERS
    assert list(loop.barrier_us) == pytest.approx([30] * ITERS)
    assert list(loop.operation_us) == list(loop.total_us) == pytest.approx([20] * ITERS)
    assert synchronized == [0, 50 * ITERS]
    streaming = timed_loop(issued(3, 20), barrier=None, iters=ITERS, clock=clock)
    assert list(streaming.barrier_us) == [0] * ITERS
    assert list(streaming.total_us) == pytest.approx([20] * ITERS)
    assert streaming.loop_us == 3 * ITERS
