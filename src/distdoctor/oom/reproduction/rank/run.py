"""What one rank of `oom reproduce` does: one combination of strategies after the other, each in a group of its own."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch.distributed as dist

from distdoctor.errors import DistdoctorError
from distdoctor.oom.facts.reproduced import ReproduceFacts
from distdoctor.oom.reproduction.combinations import Combination
from distdoctor.oom.reproduction.gathered import RunState, gather_facts
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.oom.reproduction.rank.device_memory import limit_device
from distdoctor.oom.reproduction.rank.one import Builder, CombinationRun
from distdoctor.oom.reproduction.room import why_no_room
from distdoctor.oom.reproduction.told_options import told_options
from distdoctor.ranks.group.device import available_bytes
from distdoctor.ranks.group.running import GroupRun
from distdoctor.ranks.group.target import Target
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.progress import Progress
from distdoctor.ranks.watchdog import Stall
from distdoctor.torch_private.distributed import forget_device_meshes

# Kept back from the time limit for gathering and writing the report. Our own choice.
_RESERVE_S = 4.0

# Less than this begins nothing: ranks that start at once may be seconds apart. Our own choice.
_MIN_S = 5.0

# A rank that could not go on waits so long for the others, which may have met the same or hear that it left the group,
# before it gives up for all. Our own choice: Gloo tells within a second, on a busy host within some.
_GRACE_S = 10.0
_POLL_S = 0.05

_GO, _ENOUGH = "go", "enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What the command does with a run."""

    look: Callable[[], bytes]
    """This host's own facts as JSON; called in one rank of each host, before any rank has touched a GPU."""
    object_to: Callable[[Mapping[int, bytes]], str]
    """Why nothing should be run on these hosts (their looks, by rank), or an empty text; called in rank 0."""
    find_target: Callable[[], Target]
    """What this rank works on; it may make a CUDA context."""
    build: Builder
    on_progress: Callable[[Progress], None]
    """Called in rank 0."""
    report: Callable[[ReproduceFacts], int]
    """Write the report; its exit code."""


class CannotGoOnError(DistdoctorError):
    """This rank's program failed, and the others do not come out of theirs."""


def run_rank(
    identity: RankIdentity, options: ReproduceOptions, callbacks: Callbacks, *, import_torch_s: float
) -> int:
    """Run every combination and, in rank 0, report; the exit code.

    Raises DistdoctorError when the ranks cannot meet. After that a fault ends the process from the watchdog.
    """
    return _Run(identity, options, callbacks, import_torch_s).run()


class _Run:
    def __init__(
        self,
        identity: RankIdentity,
        options: ReproduceOptions,
        callbacks: Callbacks,
        import_torch_s: float,
    ) -> None:
        self._until = time.monotonic() + max(_MIN_S, options.time_limit_s - _RESERVE_S)
        self._identity = identity
        self._options = options
        self._callbacks = callbacks
        self._state = RunState(options=options, world_size=identity.world_size)
        self._group_run = GroupRun(
            identity,
            room="reproduce",
            timeout_s=options.timeout_s,
            import_torch_s=import_torch_s,
            report=self._report,
            before_end=_nothing_to_remove,
            join_limit_s=max(_MIN_S, options.time_limit_s),
        )
        self._joined = self._group_run.joined

    def run(self) -> int:
        # What torch has to say about its own corners is of no use to whoever reads a report.
        warnings.simplefilter("ignore")
        return self._group_run.run(self._work)

    def _work(self) -> None:
        self._group_run.agree_on(told_options(self._options))
        hint = "free them, or run all the same with --share-gpus: the report is labelled so"
        self._group_run.look_at_hosts(self._callbacks.look, self._callbacks.object_to, hint=hint)
        target = self._callbacks.find_target()
        self._state.backend = target.backend
        self._state.layout = self._joined.greet(target, memory_bytes=available_bytes(target.device))
        if target.device.type == "cuda" and self._options.memory_limit_bytes is not None:
            limit_device(target.device, self._options.memory_limit_bytes)
        for number, combination in enumerate(self._options.combinations):
            why = self._why_not(combination)
            if why:
                self._state.not_begun[number] = why
                continue
            self._progress(combination, number)
            self._joined.form_group(target)
            failed = CombinationRun(
                number,
                combination,
                self._options,
                joined=self._joined,
                target=target,
                build=self._callbacks.build,
            ).run()
            self._end(number, combination, failed)

    def _why_not(self, combination: Combination) -> str:
        """Why a combination is left out, the same on all ranks."""
        is_time = self._joined.control.in_step(_GO if time.monotonic() < self._until else _ENOUGH) == _GO
        if not is_time:
            return f"the time limit of {self._options.time_limit_s:g} s came first"
        layout = self._state.layout
        return why_no_room(combination, layout.ranks, self._options) if layout is not None else ""

    def _end(self, number: int, combination: Combination, failed: str) -> None:
        """All ranks leave the combination together, those that failed in it too, and its group is destroyed."""
        control, watchdog = self._joined.control, self._joined.watchdog
        key = f"ended/{number}"
        num_ended = control.count(key, 1)
        if failed:
            # Peers that wait in a collective of Gloo hear of it: their connections close.
            _destroy_group()
            until = time.monotonic() + _GRACE_S
            while num_ended < self._identity.world_size:
                if time.monotonic() > until:
                    raise CannotGoOnError(failed)
                time.sleep(_POLL_S)
                num_ended = control.count(key, 0)
        watchdog.arrive(f"{combination.name}: ending")
        control.in_step()
        _destroy_group()
        watchdog.leave()

    def _progress(self, combination: Combination, number: int) -> None:
        if self._identity.rank == 0:
            left_s = max(0.0, self._until - time.monotonic())
            total = len(self._options.combinations)
            self._callbacks.on_progress(
                Progress(text=combination.name, done=number, total=total, left_s=left_s)
            )

    def _report(self, stall: Stall | None) -> int:
        prefix = self._joined.room_prefix
        return self._callbacks.report(gather_facts(self._state, self._joined.records, prefix, stall=stall))


def _destroy_group() -> None:
    """The default group and all that were made of it; what still holds one of them is let go first."""
    forget_device_meshes()
    gc.collect()
    if dist.is_initialized():
        # What is in flight may fail as its connections close: nobody waits for it any more.
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()
    gc.collect()


def _nothing_to_remove() -> None:
    """Snapshots are meant to stay."""
