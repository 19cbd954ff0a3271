"""The measuring run of `nccl-bench` in one rank: torch, the run, and whoever reports."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from distdoctor.cli.output import Prepared, emit
from distdoctor.cli.speaking import speak, speak_for_host
from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode
from distdoctor.nccl_bench.build import bench_report
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.measure.disturbance import Disturbance
from distdoctor.nccl_bench.options import JOIN_TIMEOUT_S, BenchOptions
from distdoctor.ranks.agent_noise import STDERR_IS_TERMINAL
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.quiet import should_speak
from distdoctor.ranks.status import is_launched_by_us, write_status
from distdoctor.report.request import ReportRequest

if TYPE_CHECKING:
    from distdoctor.nccl_bench.measure.sweep import Progress
    from distdoctor.nccl_bench.measured import Measured

# Lines of torch that are of no use to anybody here: warnings about names that do not resolve, and stack frames.
_QUIET = {"TORCH_CPP_LOG_LEVEL": "FATAL", "TORCH_SHOW_CPP_STACKTRACES": "0"}

# How long a rank that is silent holds its failure back, for the one that speaks. A launcher cuts it short. Our own.
_GIVE_WAY_S = 5.0


def run_live(
    identity: RankIdentity,
    options: BenchOptions,
    request: ReportRequest,
    prepared: Prepared,
    *,
    baseline: str | None,
) -> int:
    """Measure on this rank; rank 0, or whoever takes its place, reports. Raises DistdoctorError."""
    from distdoctor.nccl_bench.mesh import check_mesh

    # What cannot work here is said before ranks wait for one another.
    with _giving_way(identity.job_key):
        if options.mesh is not None:
            check_mesh(options.mesh, identity.world_size)
        compared = _read_baseline(baseline) if baseline else None
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        from distdoctor.nccl_bench.measure.importing import import_torch

        import_torch_s = import_torch(identity, limit_s=JOIN_TIMEOUT_S, speak=speak)
        from distdoctor.nccl_bench.measure.device import choose_backend

        choose_backend(options.backend)
    from distdoctor.nccl_bench.measure.run import Callbacks, run_rank
    from distdoctor.nccl_bench.measure.target import find_target

    local_rank = identity.local_rank if identity.local_rank is not None else identity.rank
    speaker = _Speaker(
        options,
        request,
        prepared,
        compared,
        under_launcher=not is_launched_by_us(os.environ) and identity.world_size > 1,
    )
    callbacks = Callbacks(
        look=lambda: _look(identity, options),
        find_target=lambda: find_target(options.backend, local_rank),
        object_to=lambda looks: speaker.objection(looks, ranks_here=identity.local_world_size or 1),
        on_progress=_ProgressLine(),
        on_stage=speaker.tell_early,
        report=speaker.report,
    )
    with _giving_way(identity.job_key):
        return run_rank(identity, options, callbacks, import_torch_s=import_torch_s)


@contextmanager
def _giving_way(launch: str) -> Iterator[None]:
    """All ranks meet the same obstacle, one tells it: a launcher ends that one as soon as another has failed."""
    try:
        yield
    except DistdoctorError:
        if not should_speak(os.environ):
            time.sleep(_GIVE_WAY_S)
            # Still alive: the obstacle may be this host's alone, and nobody else would tell of it.
            speak_for_host(launch)
        raise


_START_OF_LINE = "\r\033[K"


class _Speaker:
    """Turns what was measured into what is said."""

    def __init__(
        self,
        options: BenchOptions,
        request: ReportRequest,
        prepared: Prepared,
        baseline: BenchFacts | None,
        *,
        under_launcher: bool,
    ) -> None:
        self._options = options
        self._request = request
        self._prepared = prepared
        self._baseline = baseline
        self._under_launcher = under_launcher
        self._told: set[str] = set()
        self._disturbance = Disturbance()

    def objection(self, looks: Mapping[int, bytes], *, ranks_here: int) -> str:
        """Why measuring should not begin, or nothing: somebody else uses the GPUs."""
        from distdoctor.cli.nccl_bench_hosts import gpus_in_use, read_all

        if self._options.share_gpus or self._options.backend == "gloo":
            return ""
        return gpus_in_use(read_all(looks), ranks_here=ranks_here) or ""

    def tell_early(self, measured: Measured) -> None:
        """A fault that shows after a stage is told at once, on stderr; what a busy host explains is not."""
        facts = self._facts(measured)
        report = bench_report(self._request, [replace(facts, contention=self._contention(facts))])
        for finding in report.findings:
            if finding.severity.value == "info" or finding.fingerprint in self._told:
                continue
            self._told.add(finding.fingerprint)
            _say(f"{finding.severity.value}: {finding.title}")

    def report(self, measured: Measured) -> int:
        """Write the report; the exit code."""
        from distdoctor.cli.nccl_bench_hosts import network_report, read_looks

        speak()
        _clear_progress()
        places = measured.facts.places
        hosts = read_looks(measured.looks, places)
        beside = network_report(hosts, places, backend=measured.facts.backend)
        facts = self._facts(measured)
        report = bench_report(self._request, [facts], beside=beside)
        code = emit(report, self._prepared, under_launcher=self._under_launcher)
        stopped = facts.stopped
        if stopped is not None and stopped.by_user and code in (ExitCode.OK, ExitCode.UNANSWERED):
            code = int(ExitCode.INTERRUPTED)
        write_status(code, os.environ)
        # Told by file: as a rank's own exit code torchrun would take it for a crash.
        return 0 if is_launched_by_us(os.environ) else code

    def _contention(self, facts: BenchFacts) -> tuple[Contention, ...]:
        """How busy this host is so far; what ranks saw of the others comes with their farewells only."""
        if facts.contention:
            return facts.contention
        so_far = self._disturbance.farewell(0, communicators_s=0.0, first_collective_s=0.0)
        return (
            Contention(
                host=platform.node(),
                load_1min=so_far.load_1min,
                num_cpus=so_far.num_cpus,
                involuntary_switches_per_s=so_far.involuntary_switches / so_far.seconds,
                cpu_pressure_pct=so_far.cpu_pressure_pct,
            ),
        )

    def _facts(self, measured: Measured) -> BenchFacts:
        from distdoctor.cli.nccl_bench_hosts import hardware_of, named_places, read_looks
        from distdoctor.nccl_bench.measured import with_log

        hosts = read_looks(measured.looks, measured.facts.places)
        facts = replace(
            measured.facts,
            hardware=hardware_of(hosts),
            places=named_places(measured.facts.places, hosts),
            baseline=self._baseline,
            overrides=_overrides(),
            shares_gpus=measured.facts.shares_gpus or self._options.share_gpus,
        )
        return with_log(facts, measured.logs)


class _ProgressLine:
    """One line on a terminal, written over; off a terminal a line for each new text."""

    def __init__(self) -> None:
        self._last = ""
        self._is_terminal = _people_watch()

    def __call__(self, progress: Progress) -> None:
        line = f"[{progress.done + 1}/{progress.total}] {progress.text}, at most {progress.left_s:.0f} s left"
        if self._is_terminal:
            # A line that the terminal breaks cannot be written over.
            columns = shutil.get_terminal_size(fallback=(80, 24)).columns
            print(f"{_START_OF_LINE}{line[: columns - 1]}", end="", file=sys.stderr, flush=True)
        elif progress.text.partition(":")[0] != self._last:
            self._last = progress.text.partition(":")[0]
            print(line, file=sys.stderr, flush=True)


def _people_watch() -> bool:
    return sys.stderr.isatty() or bool(os.environ.get(STDERR_IS_TERMINAL))


def _clear_progress() -> None:
    """The report begins on a line of its own, whichever stream it goes to."""
    if _people_watch():
        print(_START_OF_LINE, end="", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    from distdoctor.report.mask import mask_text
    from distdoctor.report.seal import visible

    start = _START_OF_LINE if _people_watch() else ""
    print(f"{start}{mask_text(visible(text))[0]}", file=sys.stderr, flush=True)


def _look(identity: RankIdentity, options: BenchOptions) -> bytes:
    from distdoctor.cli.nccl_bench_hosts import look_at_host

    return look_at_host(identity, timeout_s=options.timeout_s)


def _overrides() -> tuple[tuple[str, str], ...]:
    ours = ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS")
    return tuple(
        (name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith("NCCL_") and name not in ours
    )


def _read_baseline(path: str) -> BenchFacts:
    from distdoctor.nccl_bench.from_files import read_baseline

    return read_baseline(path)
