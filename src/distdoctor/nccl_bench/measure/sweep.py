"""Running the stages of a plan: each cell in its groups, all ranks in step between cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch.distributed as dist

from distdoctor.nccl_bench.analysis.samples import RankSamples
from distdoctor.nccl_bench.definitions import BARRIER, BY_NAME
from distdoctor.nccl_bench.dtypes import dtype_named
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, NotMeasured, Style
from distdoctor.nccl_bench.measure.buffers import WrongElements
from distdoctor.nccl_bench.measure.collectives import prepare
from distdoctor.nccl_bench.measure.computing import Computing
from distdoctor.nccl_bench.measure.prepared import Prepared
from distdoctor.nccl_bench.measure.support import PROBE_BYTES_PER_RANK, try_support
from distdoctor.nccl_bench.measure.timing import (
    Clock,
    EventClock,
    HostClock,
    Samples,
    make_barrier,
    timed_loop,
    warm_up,
)
from distdoctor.nccl_bench.memory import predicted_bytes
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.nccl_bench.plan import Cell, Stage
from distdoctor.nccl_bench.record import CellRun, Record, done_key, encode_record, record_key
from distdoctor.nccl_bench.shapes import actual_size_bytes
from distdoctor.ranks.group.device import synchronize
from distdoctor.ranks.group.joining import Joined
from distdoctor.ranks.group.target import Target
from distdoctor.ranks.progress import Progress
from distdoctor.units import GIB, KIB, MIB, format_bytes

# Iterations of one repeat when time allows: the 99th percentile needs a hundred, large messages need few. Our own choice.
_ITERS_BY_SIZE = ((MIB, 100), (64 * MIB, 50), (GIB, 20))
_ITERS_LARGEST = 10
_MIN_ITERS = 3

# Warm-up at every size: channels and registered buffers are set up on first use of a size.
_WARM_UP_SMALL, _WARM_UP_LARGE = 5, 2

# Up to here an isolated collective on a GPU is timed by the host, to see who arrives late. Our own choice.
_HOST_CLOCK_BYTES = 64 * KIB

# No cell takes longer than this share of the step's deadline: what takes longer looks like a hang.
_SHARE_OF_DEADLINE = 0.4

# What a cell needs at least is foretold from a size at most so many times smaller: below, latency says nothing of it.
_FORETELLS = 16

_GO, _NO_TIME = "go", "no time"


class Sweep:
    """Runs stages in every rank and keeps what was run."""

    def __init__(
        self,
        joined: Joined,
        options: BenchOptions,
        target: Target,
        *,
        available_bytes: int | None,
        until: float,
        on_progress: Callable[[Progress], None],
    ) -> None:
        """`available_bytes`: of the rank that has least. `until`: seconds of time.monotonic()."""
        self._joined = joined
        self._control = joined.control
        self._rank = joined.identity.rank
        self._options = options
        self._target = target
        self._finish = partial(synchronize, target.device)
        self._available = available_bytes
        self._until = until
        self._on_progress = on_progress
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self.runs: list[CellRun] = []
        self.not_measured: list[NotMeasured] = []
        self.communicators_s = 0.0
        self.first_collective_s = 0.0
        self._out_of_time: set[int] = set()
        self._last_took: dict[tuple[str, bool, Style, tuple[Group, ...]], tuple[int, float]] = {}

    # --- groups ---

    def add_group(self, group: Group, process_group: dist.ProcessGroup) -> None:
        """Take a process group that somebody else has made, as a device mesh does."""
        self._groups[group.ranks] = process_group

    def _make_groups(self, groups: Sequence[Group]) -> None:
        """Process groups of this rank's groups. A communicator is set up by its first collective, timed apart."""
        for group in groups:
            if self._rank not in group.ranks or group.ranks in self._groups:
                continue
            if group.kind is GroupKind.JOB:
                self._groups[group.ranks] = dist.group.WORLD
            else:
                # Only members call it: in a job of many hosts the others need not wait for each group.
                self._groups[group.ranks] = dist.new_group(list(group.ranks), use_local_synchronization=True)

    # --- stages ---

    def supported(self, collectives: Sequence[str]) -> tuple[str, ...]:
        """The collectives that this backend does with the dtype and op asked for; the others with torch's words."""
        everybody = tuple(range(self._joined.identity.world_size))
        kept = []
        for name in dict.fromkeys((*collectives, "all_reduce")):
            self._joined.watchdog.arrive(f"trying {name}")
            began = time.monotonic()
            refusal = self._refusal(name, everybody)
            self.first_collective_s = self.first_collective_s or time.monotonic() - began
            why = self._control.in_step(refusal)
            self._joined.watchdog.leave()
            if why:
                what = f"{name} of {self._options.dtype}"
                self.not_measured.append(NotMeasured(what=what, why=why))
            else:
                kept.append(name)
        return tuple(kept)

    def _refusal(self, name: str, everybody: tuple[int, ...]) -> str:
        size_bytes = PROBE_BYTES_PER_RANK * len(everybody) * 4
        cell = Cell(
            collective=name,
            size_bytes=size_bytes,
            in_place=self._options.places_of(name)[0],
            style=Style.ISOLATED,
        )
        return try_support(lambda: self._prepare(cell, everybody, dist.group.WORLD), self._finish) or ""

    def run_stage(self, stage: Stage) -> None:
        """Measure every cell of a stage in every turn; repeats go round all cells, so that a change over time shows.

        From small to large: on a slow network the largest are left out, and what comes after the stage has its time.
        """
        groups = [group for turn in stage.turns for group in turn]
        self._joined.watchdog.arrive(f"setting up: {stage.title}", deadline_s=self._options.timeout_s * 2)
        began = time.monotonic()
        self._make_groups(groups)
        self._control.in_step()
        self.communicators_s += time.monotonic() - began
        self._joined.watchdog.leave()
        until = time.monotonic() + max(0.0, self._until - time.monotonic()) * stage.share
        planned = self._planned(stage)
        total = len(planned) * self._options.repeats
        for repeat in range(self._options.repeats):
            for position, run in enumerate(sorted(planned, key=lambda each: each.cell.size_bytes)):
                done = repeat * len(planned) + position
                slice_s = (until - time.monotonic()) / max(1, total - done)
                self._on_progress(
                    Progress(
                        text=f"{stage.title}: {run.cell.title}",
                        done=done,
                        total=total,
                        left_s=max(0.0, self._until - time.monotonic()),
                    )
                )
                self._run_cell(run, repeat, slice_s, stage.title, until)

    def _planned(self, stage: Stage) -> list[CellRun]:
        planned = []
        for turn in stage.turns:
            for cell in stage.cells:
                if not self._fits(cell, turn):
                    continue
                run = CellRun(
                    number=len(self.runs),
                    stage=stage.name,
                    groups=turn,
                    cell=cell,
                    num_repeats=self._options.repeats,
                    computing=stage.computing,
                )
                self.runs.append(run)
                planned.append(run)
        return planned

    def _fits(self, cell: Cell, turn: Sequence[Group]) -> bool:
        if cell.collective == BARRIER:
            return True
        most = max(len(group.ranks) for group in turn)
        element_bytes = dtype_named(self._options.dtype).bytes
        if actual_size_bytes(cell.collective, cell.size_bytes, most, element_bytes) == 0:
            return self._leave_out(cell, f"less than 16 bytes for each of {most} ranks")
        if self._available is None:
            return True
        needed = predicted_bytes(cell.collective, cell.size_bytes, most, cell.in_place)
        if needed <= self._available:
            return True
        free = format_bytes(self._available)
        return self._leave_out(cell, f"needs {format_bytes(needed)} a rank, the fullest has {free}")

    def _leave_out(self, cell: Cell, why: str) -> bool:
        note = NotMeasured(what=cell.title, why=why, refused=False)
        if note not in self.not_measured:
            self.not_measured.append(note)
        return False

    # --- one cell ---

    def _run_cell(self, run: CellRun, repeat: int, slice_s: float, title: str, until: float) -> None:
        watchdog = self._joined.watchdog
        watchdog.arrive(f"{run.cell.title}, {title}")
        has_time = self._control.in_step(_GO if self._has_time(run, until) else _NO_TIME) == _GO
        if not has_time and repeat == 0:
            self._out_of_time.add(run.number)
            self._leave_out(
                run.cell, f"too little was left of the time limit of {self._options.time_limit_s:g} s"
            )
        group = next((each for each in run.groups if self._rank in each.ranks), None)
        if group is not None and has_time:
            record = self._measure(run, repeat, group, slice_s)
            self._control.put(f"{record_key(run.number, repeat, self._rank)}", encode_record(record))
            self._control.note_rank(done_key(run.number, repeat))
        self._control.in_step()
        watchdog.leave()

    def _has_time(self, run: CellRun, until: float) -> bool:
        """As rank 0 sees it: the least that this cell needs ends before `until`."""
        left_s = until - time.monotonic()
        if left_s <= 0 or run.number in self._out_of_time:
            return False
        size_bytes, took_s = self._last_took.get(_curve(run), (0, 0.0))
        factor = run.cell.size_bytes / size_bytes if size_bytes else 0.0
        operations = 1 + _WARM_UP_LARGE + _MIN_ITERS
        return factor > _FORETELLS or took_s * max(1.0, factor) * operations < left_s

    def _measure(self, run: CellRun, repeat: int, group: Group, slice_s: float) -> Record:
        cell, process_group = run.cell, self._groups[group.ranks]
        prepared = self._prepare(cell, group.ranks, process_group)
        # The last repeat's data are looked at as well: what spoils them may need warm buffers.
        validates = repeat in (0, self._options.repeats - 1) and cell.collective != BARRIER
        wrong = self._wrong_elements(prepared) if validates else None
        began = time.perf_counter()
        count = _WARM_UP_SMALL if cell.size_bytes <= MIB else _WARM_UP_LARGE
        warm_up(prepared.issue, count, self._finish)
        estimate_s = (time.perf_counter() - began) / count
        self._last_took[_curve(run)] = (cell.size_bytes, estimate_s)
        iters = self._agree(run, repeat, group, self._wanted_iters(cell, estimate_s, slice_s))
        busy = Computing(self._target.device) if run.computing else nullcontext()
        with busy:
            samples = self._time(cell, prepared, process_group, iters)
        kept = RankSamples.of(samples)
        return Record(
            size_bytes=prepared.actual_size_bytes,
            samples=kept.encode(),
            validated=validates,
            wrong_elements=wrong.count if wrong is not None else 0,
            wrong_example=wrong.example[:200] if wrong is not None else "",
        )

    def _prepare(self, cell: Cell, ranks: tuple[int, ...], process_group: dist.ProcessGroup) -> Prepared:
        definition = BY_NAME.get(cell.collective)
        return prepare(
            cell.collective,
            group=process_group,
            group_ranks=ranks,
            rank=self._rank,
            size_bytes=cell.size_bytes,
            dtype=self._options.dtype,
            op=self._options.op if definition is not None and definition.reduces else None,
            in_place=cell.in_place,
            device=self._target.device,
        )

    def _time(self, cell: Cell, prepared: Prepared, group: dist.ProcessGroup, iters: int) -> Samples:
        isolated = cell.style is Style.ISOLATED
        on_cpu = self._target.device.type == "cpu"
        clock: Clock
        if on_cpu:
            clock = HostClock()
        elif isolated and cell.size_bytes <= _HOST_CLOCK_BYTES:
            clock = HostClock(self._finish)
        else:
            clock = EventClock(self._target.device)
        barrier = make_barrier(group, self._target.device) if isolated else None
        return timed_loop(prepared.issue, barrier=barrier, iters=iters, clock=clock)

    def _wrong_elements(self, prepared: Prepared) -> WrongElements | None:
        prepared.fill()
        self._finish()
        prepared.run_sync()
        self._finish()
        return prepared.check()

    def _wanted_iters(self, cell: Cell, estimate_s: float, slice_s: float) -> int:
        if self._options.iters is not None:
            return self._options.iters
        most = next((iters for size, iters in _ITERS_BY_SIZE if cell.size_bytes < size), _ITERS_LARGEST)
        limit_s = min(max(slice_s, 0.0) * 0.8, self._options.timeout_s * _SHARE_OF_DEADLINE)
        return max(_MIN_ITERS, min(most, int(limit_s / max(estimate_s, 1e-6))))

    def _agree(self, run: CellRun, repeat: int, group: Group, wanted: int) -> int:
        """The number of iterations, as the group's first rank wants it: all must make the same number."""
        key = f"iters/{run.number}/{repeat}/{group.ranks[0]}"
        if self._rank == group.ranks[0]:
            self._control.put(key, str(wanted).encode())
            return wanted
        told = self._control.wait_for(key)
        return int(told) if told.isdigit() and len(told) < 8 else _MIN_ITERS


def _curve(run: CellRun) -> tuple[str, bool, Style, tuple[Group, ...]]:
    """Cells that differ in their size alone."""
    return run.cell.collective, run.cell.in_place, run.cell.style, run.groups
