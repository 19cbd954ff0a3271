"""One combination on one rank: build its program, step it, measure, take it down."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.reproduced import At, Outcome, OutOfMemory, PeakTold
from distdoctor.oom.job import resolve
from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.log import MemoryLog, Phase
from distdoctor.oom.memory.peaks import as_allocated, as_stored, peaks_of
from distdoctor.oom.messages.caching_allocator import requested_bytes
from distdoctor.oom.reproduction import process_memory
from distdoctor.oom.reproduction.combinations import Combination
from distdoctor.oom.reproduction.log_file import write_log
from distdoctor.oom.reproduction.new_file import create_new_file
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.oom.reproduction.rank import device_memory
from distdoctor.oom.reproduction.rank.limit import OUT_OF_MEMORY, LimitedTracker, OverLimitError
from distdoctor.oom.reproduction.rank.telling import PartTeller, at_of
from distdoctor.oom.training.base import CannotRunError, Observer, Program, World
from distdoctor.oom.training.build import made_by
from distdoctor.oom.training.device_mesh import build_device_mesh
from distdoctor.ranks.group.device import synchronize
from distdoctor.ranks.group.joining import Joined
from distdoctor.ranks.group.running import one_line
from distdoctor.ranks.group.target import Target

Builder = Callable[[World, Observer], Program]
"""`oom.training.build.build_program`, or what stands for it."""

# How torch's CPU allocator says that malloc gave nothing (c10/core/impl/alloc_cpu.cpp).
_HOST_REFUSED = "DefaultCPUAllocator"

_MAX_ERROR_CHARACTERS = 400


class CombinationRun:
    """Runs in a process group that is this combination's own."""

    def __init__(
        self,
        number: int,
        combination: Combination,
        options: ReproduceOptions,
        *,
        joined: Joined,
        target: Target,
        build: Builder,
    ) -> None:
        self._combination = combination
        self._options = options
        self._joined = joined
        self._device = target.device
        self._build = build
        self._rank = joined.identity.rank
        self._number = number
        self._teller = PartTeller(joined.control, number=number, rank=self._rank)

    def run(self) -> str:
        """Build and step, telling what is measured; why it did not come to its end, or an empty text."""
        self._begin()
        limit = self._options.memory_limit_bytes if self._device.type == "cpu" else None
        tracker = LimitedTracker(self._device.type, limit_bytes=limit, tell=self._tell_phase)
        failed = ""
        try:
            with tracker:
                self._run(tracker)
        except CannotRunError as error:
            failed = str(error)[:_MAX_ERROR_CHARACTERS]
            self._teller.change(outcome=Outcome.CANNOT_RUN, error=failed)
        except Exception as error:
            cause = cause_of(error)
            failed = one_line(cause)[:_MAX_ERROR_CHARACTERS]
            self._tell_failure(cause, failed, tracker)
        else:
            self._teller.change(outcome=Outcome.DONE)
        del tracker
        gc.collect()
        process_memory.give_back()
        return failed

    def _begin(self) -> None:
        process_memory.give_back()
        no_peak = process_memory.reset_peak()
        before, _ = process_memory.resident_bytes()
        self._teller.change(rss_before_bytes=before, no_rss=no_peak)
        device_memory.reset_device(self._device, records_history=self._options.snapshot_dir is not None)

    def _run(self, tracker: LimitedTracker) -> None:
        watchdog, name = self._joined.watchdog, self._combination.name
        watchdog.arrive(f"{name}: building the program", deadline_s=self._options.timeout_s * 2)
        world = self._world()
        # Ranks that share a sequence or a layer draw the same tokens.
        torch.manual_seed(world.coordinate("dp_replicate") * 4096 + world.coordinate("dp_shard"))
        program = self._build(world, tracker)
        self._teller.change(made_by=made_by(world))
        watchdog.leave()
        try:
            for step in range(1, self._options.steps + 1):
                watchdog.arrive(f"{name}: step {step} of {self._options.steps}")
                began = time.monotonic()
                loss = program.step(step, tracker)
                synchronize(self._device)
                self._tell_step(tracker, loss, time.monotonic() - began)
                watchdog.leave()
        finally:
            program.close()

    def _world(self) -> World:
        job = resolve(self._combination.settings)
        return World(
            job=job,
            rank=self._rank,
            device=self._device,
            mesh=build_device_mesh(job, self._device.type),
        )

    # --- telling ---

    def _tell_phase(self, phase: Phase, step: int, micro_batch: int | None) -> None:
        self._teller.change(at=At(step=step, phase=phase.value, micro_batch=micro_batch))

    def _tell_step(self, tracker: LimitedTracker, loss: float | None, seconds: float) -> None:
        part = self._teller.part
        self._teller.change(
            steps_done=part.steps_done + 1,
            losses=(*part.losses, loss),
            step_s=(*part.step_s, round(seconds, 4)),
        )
        self._tell_peaks(tracker)

    def _tell_peaks(self, tracker: LimitedTracker) -> None:
        _, resident = process_memory.resident_bytes()
        allocated, reserved = device_memory.device_peaks(self._device)
        self._teller.change(
            peak=self._peak(tracker.log),
            rss_peak_bytes=None if self._teller.part.no_rss else resident,
            allocated_peak_bytes=allocated,
            reserved_peak_bytes=reserved,
        )

    def _peak(self, log: MemoryLog) -> PeakTold | None:
        counted = as_allocated if self._device.type == "cuda" else as_stored
        peaks = peaks_of(log, categories_of(log), counted=counted)
        if peaks is None:
            return None
        most = peaks.overall
        return PeakTold(
            num_bytes=most.num_bytes,
            at=at_of(most.place),
            by_category={category.value: num_bytes for category, num_bytes in most.by_category.items()},
        )

    def _tell_failure(self, error: BaseException, words: str, tracker: LimitedTracker) -> None:
        ran_out = isinstance(error, (OUT_OF_MEMORY, MemoryError)) or _HOST_REFUSED in words
        self._tell_peaks(tracker)
        if not ran_out:
            self._teller.change(outcome=Outcome.FAILED, error=words)
            return
        categories = categories_of(tracker.log)
        snapshot, no_snapshot = self._keep_snapshot(tracker.log, categories)
        place = tracker.refused_at or tracker.now()
        self._teller.change(
            outcome=Outcome.OUT_OF_MEMORY,
            error=words,
            at=at_of(place),
            out_of_memory=OutOfMemory(
                at=at_of(place),
                message=words,
                enforced_by=self._who_refused(error),
                requested_bytes=_requested_bytes(error, words),
                live_bytes=tracker.live_bytes,
                limit_bytes=self._options.memory_limit_bytes,
                by_category=live_by_category(tracker.log, categories),
                snapshot=snapshot,
                no_snapshot=no_snapshot,
            ),
        )

    def _who_refused(self, error: BaseException) -> str:
        if isinstance(error, OverLimitError):
            return device_memory.OWN_COUNT
        if self._device.type != "cuda":
            return device_memory.HOST
        return device_memory.ALLOCATOR if self._options.memory_limit_bytes else device_memory.DEVICE

    def _keep_snapshot(self, log: MemoryLog, categories: list[Category]) -> tuple[str | None, str]:
        folder = self._options.snapshot_dir
        if folder is None:
            return None, ""
        # Ranks of several hosts may share the folder, and a run may have several combinations.
        name = f"oom-rank{self._rank}-{self._number}-{self._combination.name.replace(' ', '-')}"
        is_cuda = self._device.type == "cuda"
        try:
            path = create_new_file(folder, name, ".pickle" if is_cuda else ".json.gz")
        except OSError as error:
            return None, f"cannot write to {folder}: {error.strerror or error}"
        why = device_memory.write_device_snapshot(path) if is_cuda else _written(path, log, categories)
        if why:
            path.unlink(missing_ok=True)
            return None, why
        return str(path), ""


def _written(path: Path, log: MemoryLog, categories: list[Category]) -> str:
    """Write the log; why that failed, or an empty text."""
    try:
        write_log(path, log, categories)
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""


def cause_of(error: BaseException) -> BaseException:
    """What was raised first: torch's pipelines raise an error of their own from the one that says why."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def live_by_category(log: MemoryLog, categories: list[Category]) -> dict[str, int]:
    """Bytes that are live at the end of the log."""
    sizes: dict[int, int] = {}
    for event in log.events:
        sizes[event.storage] = event.num_bytes
    found: Counter[str] = Counter()
    for storage, num_bytes in sizes.items():
        found[categories[storage].value] += num_bytes
    return {category: num_bytes for category, num_bytes in found.most_common() if num_bytes}


def _requested_bytes(error: BaseException, words: str) -> int | None:
    if isinstance(error, OverLimitError):
        return error.requested_bytes
    return requested_bytes(words)
