"""What one rank of a benchmark does, from its look at the host to its farewell.

Every rank measures; rank 0 also tells what it finds on the way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from distdoctor.nccl_bench.analysis.matrix_score import needs_confirmation
from distdoctor.nccl_bench.analysis.pairing import MatrixPlan, Pair, confirmation_rounds, plan_matrix
from distdoctor.nccl_bench.definitions import BARRIER
from distdoctor.nccl_bench.facts.rows import NotMeasured
from distdoctor.nccl_bench.measure.disturbance import Disturbance
from distdoctor.nccl_bench.measure.pairs import Pairs
from distdoctor.nccl_bench.measure.room import buffer_bytes
from distdoctor.nccl_bench.measure.sweep import Sweep
from distdoctor.nccl_bench.measured import Measured, RunState, gather_measured
from distdoctor.nccl_bench.mesh import MeshShape, check_mesh, mesh_groups
from distdoctor.nccl_bench.options import MATRIX_BYTES, BenchOptions, MatrixChoice
from distdoctor.nccl_bench.own_log import OwnLog
from distdoctor.nccl_bench.plan import make_plan
from distdoctor.ranks.greeting import Layout, encode, places_of
from distdoctor.ranks.group.running import GroupRun
from distdoctor.ranks.group.target import Target
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.progress import Progress
from distdoctor.ranks.told import tell
from distdoctor.ranks.watchdog import Stall

# Kept back from the time limit for gathering and writing the report. Our own choice.
_RESERVE_S = 4.0

# Passes over the matrix: a disturbance of one visit must not decide. Our own choice.
_MATRIX_PASSES = 3

# Of the time for pairs so much is for measuring slow ones again: without it nobody can be named. What was found slow is
# worth a little more than the time limit left for it. Our own choices: one suspect at 200 Mbit/s takes 3 s.
_FOR_CONFIRMING_S = 4.0
_MORE_FOR_CONFIRMING_S = 2.0

_GO, _ENOUGH = "go", "enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What the command does with a run."""

    look: Callable[[], bytes]
    """This host's own facts as JSON; called in one rank of each host, before any rank has touched a GPU."""
    find_target: Callable[[], Target]
    """What this rank measures on; it may make a CUDA context."""
    object_to: Callable[[Mapping[int, bytes]], str]
    """Why nothing should be measured on these hosts (their looks, by rank), or an empty text; called in rank 0."""
    on_progress: Callable[[Progress], None]
    """Called in rank 0."""
    on_stage: Callable[[Measured], None]
    """What is known after a stage; called in rank 0."""
    report: Callable[[Measured], int]
    """Write the report; its exit code."""


def run_rank(
    identity: RankIdentity,
    options: BenchOptions,
    callbacks: Callbacks,
    *,
    import_torch_s: float,
) -> int:
    """Measure and, in rank 0, report; the exit code.

    Raises DistdoctorError when the ranks cannot meet. After that a fault ends the process from the watchdog.
    """
    return _Run(identity, options, callbacks, import_torch_s).run()


class _Run:
    def __init__(
        self,
        identity: RankIdentity,
        options: BenchOptions,
        callbacks: Callbacks,
        import_torch_s: float,
    ) -> None:
        self._began = time.monotonic()
        self._until = self._began + max(5.0, options.time_limit_s - _RESERVE_S)
        self._identity = identity
        self._options = options
        self._callbacks = callbacks
        self._is_first = identity.rank == 0
        self._disturbance = Disturbance()
        if options.mesh is not None:
            check_mesh(options.mesh, identity.world_size)
        self._log: OwnLog | None = None
        self._state = RunState(options=options, world_size=identity.world_size)
        self._group_run = GroupRun(
            identity,
            room="bench",
            timeout_s=options.timeout_s,
            import_torch_s=import_torch_s,
            report=self._report,
            before_end=self._remove_log,
        )
        self._joined = self._group_run.joined

    def run(self) -> int:
        return self._group_run.run(self._work)

    def _work(self) -> None:
        hint = "free them, or measure all the same with --share-gpus: the report is labelled so"
        self._group_run.look_at_hosts(self._callbacks.look, self._callbacks.object_to, hint=hint)
        # Before NCCL starts, and after the look, which tells the variables that the user has set.
        self._log = OwnLog(os.environ) if self._options.nccl_log else None
        target = self._callbacks.find_target()
        self._state.backend = target.backend
        self._joined.form_group(target)
        ranks_here = self._identity.local_world_size or self._identity.world_size
        layout = self._joined.greet(target, memory_bytes=buffer_bytes(target, ranks_here=ranks_here))
        self._measure(target, layout)
        self._say_farewell()

    def _remove_log(self) -> None:
        if self._log is not None:
            self._log.remove()

    # --- measuring ---

    def _measure(self, target: Target, layout: Layout) -> None:
        options, joined, state = self._options, self._joined, self._state
        state.layout = layout
        available = [each.memory_bytes for each in layout.ranks if each.memory_bytes is not None]
        sweep = Sweep(
            joined,
            options,
            target,
            available_bytes=min(available, default=None),
            until=self._until,
            on_progress=self._callbacks.on_progress if self._is_first else _keep_silent,
        )
        self._sweep = sweep
        state.runs, state.not_measured = sweep.runs, sweep.not_measured
        supported = sweep.supported((*options.collectives, BARRIER))
        if options.mesh is not None:
            self._make_mesh(options.mesh, target, sweep)
        for stage in make_plan(places_of(layout), options, target.backend, supported=supported):
            if joined.control.in_step(_GO if time.monotonic() < self._until else _ENOUGH) != _GO:
                why = f"the time limit of {options.time_limit_s:g} s came first"
                state.not_measured.append(NotMeasured(what=stage.title, why=why, refused=False))
                continue
            sweep.run_stage(stage)
            self._tell_stage()
        self._send_log()
        if options.matrix is not MatrixChoice.OFF and self._identity.world_size > 1:
            all_ranks = options.matrix is MatrixChoice.ALL
            self._measure_matrix(target, plan_matrix(places_of(layout), all_ranks=all_ranks))

    def _make_mesh(self, mesh: MeshShape, target: Target, sweep: Sweep) -> None:
        self._joined.watchdog.arrive("making the device mesh", deadline_s=self._options.timeout_s * 2)
        device_mesh = init_device_mesh(target.device.type, mesh.sizes, mesh_dim_names=mesh.names)
        for dimension, name in enumerate(mesh.names):
            group = device_mesh.get_group(name)
            mine = tuple(dist.get_process_group_ranks(group))
            ours = next(each for each in mesh_groups(mesh, dimension) if self._identity.rank in each.ranks)
            if mine != ours.ranks:
                raise RuntimeError(f"torch's mesh dimension {name} has ranks {mine}, not {ours.ranks}")
            sweep.add_group(ours, group)
        self._joined.control.in_step()
        self._joined.watchdog.leave()

    def _measure_matrix(self, target: Target, plan: MatrixPlan) -> None:
        state, control = self._state, self._joined.control
        state.matrix_bytes = self._options.matrix_bytes or MATRIX_BYTES[target.backend]
        state.matrix_ranks, state.matrix_rounds = plan.ranks, plan.rounds
        state.matrix_sampled = plan.is_sampled
        pairs = Pairs(self._joined, target, size_bytes=state.matrix_bytes)
        for number in range(_MATRIX_PASSES):
            self._progress("pairs of ranks", number, _MATRIX_PASSES)
            until = self._until if number == 0 else self._until - _FOR_CONFIRMING_S
            # The other way round each time, so that no pair is always the first after a pause.
            rounds = plan.rounds if number % 2 == 0 else plan.rounds[::-1]
            begins = control.in_step(_GO if time.monotonic() < until else _ENOUGH) == _GO
            if not begins or not pairs.run(rounds, until=until):
                self._leave_out_pairs(number)
                if number == 0:
                    return
                break
        self._confirm(pairs)

    def _leave_out_pairs(self, number: int) -> None:
        why = f"the time limit of {self._options.time_limit_s:g} s came first"
        what = f"pass {number + 1} of {_MATRIX_PASSES} over the pairs of ranks"
        self._state.not_measured.append(NotMeasured(what=what, why=why, refused=False))

    def _confirm(self, pairs: Pairs) -> None:
        """Pairs that look slow are measured again beside others, more often: only what stays slow is named."""
        told = ""
        if self._is_first:
            self._progress("slow pairs once more", 0, 1)
            facts = self._measured_so_far().facts
            if facts.matrix is not None:
                asked = needs_confirmation(facts.matrix, facts.places)
                told = _words((asked.suspects, asked.controls))
        suspects, controls = _pairs(self._joined.control.in_step(told), self._identity.world_size)
        pairs.run(
            confirmation_rounds(suspects, controls), until=self._until + _MORE_FOR_CONFIRMING_S, confirms=True
        )

    # --- telling ---

    def _tell(self, name: str, value: bytes) -> None:
        tell(self._joined.control, name, self._identity.rank, value)

    def _send_log(self) -> None:
        """NCCL's log of the first rank of each host is enough: the others' lines say the same."""
        if self._log is not None and self._identity.local_rank in (0, None):
            self._tell("log", self._log.packed())

    def _say_farewell(self) -> None:
        sweep = self._sweep
        farewell = self._disturbance.farewell(
            self._identity.rank,
            communicators_s=sweep.communicators_s,
            first_collective_s=sweep.first_collective_s,
        )
        self._joined.watchdog.arrive("the end")
        self._tell("farewell", encode(farewell))
        self._joined.control.in_step()
        self._joined.watchdog.leave()

    def _progress(self, text: str, done: int, total: int) -> None:
        if self._is_first:
            left_s = max(0.0, self._until - time.monotonic())
            self._callbacks.on_progress(Progress(text=text, done=done, total=total, left_s=left_s))

    def _tell_stage(self) -> None:
        if self._is_first:
            self._callbacks.on_stage(self._measured_so_far())

    def _measured_so_far(self) -> Measured:
        return gather_measured(self._state, self._joined.records, self._joined.room_prefix)

    # --- reporting ---

    def _report(self, stall: Stall | None) -> int:
        prefix = self._joined.room_prefix
        measured = gather_measured(self._state, self._joined.records, prefix, stall=stall)
        return self._callbacks.report(measured)


def _words(parts: tuple[tuple[Pair, ...], tuple[Pair, ...]]) -> str:
    return ";".join(",".join(f"{source}>{target}" for source, target in pairs) for pairs in parts)


def _pairs(words: str, world_size: int) -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """Back from `_words`; what is no pair of two ranks is left out."""
    suspects, _, controls = words.partition(";")
    return _pairs_of(suspects, world_size), _pairs_of(controls, world_size)


def _pairs_of(words: str, world_size: int) -> tuple[Pair, ...]:
    halves = (word.partition(">")[::2] for word in words.split(","))
    pairs = ((int(one), int(two)) for one, two in halves if one.isdecimal() and two.isdecimal())
    return tuple(pair for pair in pairs if pair[0] != pair[1] and max(pair) < world_size)


def _keep_silent(progress: Progress) -> None:
    """Rank 0 tells for all."""
    del progress
