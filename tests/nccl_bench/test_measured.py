"""From the store to facts, also when a run broke off: rows so far, and what is known of the lost."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from distdoctor.nccl_bench.analysis.samples import RankSamples
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Style
from distdoctor.nccl_bench.measured import Measured, RunState, gather_measured
from distdoctor.nccl_bench.messages import Farewell
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.nccl_bench.plan import Cell
from distdoctor.nccl_bench.record import CellRun, Record, done_key, encode_record, record_key
from distdoctor.ranks.greeting import Hello, Layout, encode
from distdoctor.ranks.lost import Lost
from distdoctor.ranks.processes import Life
from distdoctor.ranks.watchdog import Absentee, Stall, Whereabouts

EVERYBODY = Group(kind=GroupKind.JOB, label="job", ranks=(0, 1), set_label="job")
CELL = Cell(collective="all_reduce", size_bytes=1024, in_place=True, style=Style.STREAMING)


@dataclass(frozen=True)
class Loop:
    """What a loop measured, without torch."""

    own_us: Sequence[float]
    barrier_us: Sequence[float]
    operation_us: Sequence[float]
    total_us: Sequence[float]
    loop_us: float


class MemoryStore:
    """A store in this process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str | bytes, /) -> None:
        self.values[key] = value.encode() if isinstance(value, str) else value

    def get(self, key: str, /) -> bytes:
        return self.values[key]

    def add(self, key: str, amount: int, /) -> int:
        self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
        return int(self.values[key])

    def append(self, key: str, value: str, /) -> None:
        self.values[key] = self.values.get(key, b"") + value.encode()

    def check(self, keys: list[str], /) -> bool:
        return all(key in self.values for key in keys)

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        return [self.values[key] for key in keys]

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        del expected
        return self.values.setdefault(key, desired.encode())


def samples(*times_us: float) -> bytes:
    column = array("d", times_us)
    nothing = array("d", [0.0] * len(column))
    loop = Loop(own_us=nothing, barrier_us=nothing, operation_us=column, total_us=column, loop_us=sum(column))
    return RankSamples.of(loop).encode()


def state() -> RunState:
    hellos = tuple(Hello(rank=rank, host="host-a", local_rank=rank) for rank in range(2))
    run = CellRun(number=0, stage="job", groups=(EVERYBODY,), cell=CELL, num_repeats=2)
    return RunState(
        options=BenchOptions(), backend="gloo", world_size=2, layout=Layout(ranks=hellos), runs=[run]
    )


def put_record(store: MemoryStore, repeat: int, rank: int, record: Record | bytes) -> None:
    data = record if isinstance(record, bytes) else encode_record(record)
    store.set("p/" + record_key(0, repeat, rank), data)
    store.append("p/" + done_key(0, repeat), f"{rank},")


def gathered(store: MemoryStore, stall: Stall | None = None) -> Measured:
    return gather_measured(state(), store, "p/", stall=stall)


def test_a_row_is_the_median_of_repeats_of_the_slowest_rank() -> None:
    store = MemoryStore()
    for repeat, times in enumerate((10.0, 30.0)):
        put_record(store, repeat, 0, Record(size_bytes=1024, samples=samples(times, times)))
        put_record(store, repeat, 1, Record(size_bytes=1024, samples=samples(times + 2, times + 2)))
    (row,) = gathered(store).facts.rows
    assert row.repeats_us == (12.0, 32.0)
    assert (row.time_us, row.num_ranks, row.size_bytes) == (22.0, 2, 1024)
    assert row.busbw_gbps == pytest.approx(1024 / 22 / 1e3)


def test_wrong_data_keep_their_rank_and_example() -> None:
    store = MemoryStore()
    put_record(store, 0, 0, Record(size_bytes=1024, samples=samples(9), validated=True))
    wrong = Record(
        size_bytes=1024, samples=samples(9), validated=True, wrong_elements=3, wrong_example="element 5"
    )
    put_record(store, 0, 1, wrong)
    (row,) = gathered(store).facts.rows
    assert row.wrong is not None
    assert (row.wrong.ranks, row.wrong.elements, row.wrong.example) == ((1,), 3, "element 5")


@pytest.mark.parametrize("junk", [b"", b"\xff" * 50, b"\x80", b"0" * 100_000])
def test_a_peer_that_sends_junk_costs_its_own_times_alone(junk: bytes) -> None:
    store = MemoryStore()
    put_record(store, 0, 0, Record(size_bytes=1024, samples=samples(9)))
    put_record(store, 0, 1, junk)
    (row,) = gathered(store).facts.rows
    assert row.time_us == 9


def test_an_empty_store_gives_an_empty_run() -> None:
    measured = gathered(MemoryStore())
    assert measured.facts.rows == () and not measured.looks


def test_farewells_tell_how_busy_each_host_was() -> None:
    store = MemoryStore()
    for rank, pressure in ((0, 10.0), (1, 60.0)):
        farewell = Farewell(
            rank=rank, seconds=10, involuntary_switches=50, cpu_pressure_pct=pressure, num_cpus=2
        )
        store.set(f"p/farewell/{rank}", encode(farewell))
        store.append("p/farewell/done", f"{rank},")
    (contention,) = gathered(store).facts.contention
    assert (contention.host, contention.cpu_pressure_pct) == ("host-a", 60.0)
    assert contention.involuntary_switches_per_s == 5.0


STALL = Stall(reason="no progress for 30 s", reporter=0, phase="all_reduce 1 KiB")


@pytest.mark.parametrize(
    ("absentee", "state_of_it"),
    [
        (Absentee(rank=1, host="h", pid=7, life=Life.EXITED, beats=False), Lost.GONE),
        (Absentee(rank=1, host="h", pid=7, life=Life.STOPPED, beats=False), Lost.STOPPED),
        (Absentee(rank=1, host="h", pid=7, beats=False), Lost.FROZEN),
        (Absentee(rank=1, host="h", pid=7, beats=True), Lost.LATE),
        (Absentee(rank=1, beats=False), Lost.UNKNOWN),
    ],
)
def test_what_is_known_of_a_lost_rank_and_no_more(absentee: Absentee, state_of_it: Lost) -> None:
    """A rank that never told its process id is not called frozen: it may never have been started."""
    stall = Stall(reason=STALL.reason, reporter=0, phase=STALL.phase, missing=(absentee,))
    stopped = gathered(MemoryStore(), stall).facts.stopped
    assert stopped is not None
    assert [(lost.rank, lost.state) for lost in stopped.lost] == [(1, state_of_it)]


def test_a_rank_that_is_elsewhere_inside_the_step_is_late() -> None:
    where = (
        Whereabouts(rank=0, file="/x/torch/distributed/distributed_c10d.py", line=1, function="wait"),
        Whereabouts(rank=1, file="/job/hooks.py", line=12, function="load"),
    )
    stall = Stall(reason="", reporter=0, phase="all_reduce", inside=(0, 1), where=where)
    stopped = gathered(MemoryStore(), stall).facts.stopped
    assert stopped is not None
    (lost,) = stopped.lost
    assert (lost.rank, lost.state, lost.doing) == (1, Lost.LATE, "hooks.py line 12, in load")
    assert stopped.inside == (0,)
