"""The measuring run of `nccl-bench` in one rank: torch, the run, and whoever reports."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from distdoctor.cli.measuring import (
    ProgressLine,
    emit_of_ranks,
    giving_way,
    import_quiet_torch,
    is_under_launcher,
    say,
    take_over_screen,
)
from distdoctor.cli.output import Prepared
from distdoctor.nccl_bench.build import bench_report
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.measure.disturbance import Disturbance
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.ranks.identity import RankIdentity
from distdoctor.report.request import ReportRequest

if TYPE_CHECKING:
    from distdoctor.nccl_bench.measured import Measured


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
    with giving_way(identity.job_key):
        if options.mesh is not None:
            check_mesh(options.mesh, identity.world_size)
        compared = _read_baseline(baseline) if baseline else None
        import_torch_s = import_quiet_torch(identity)
        from distdoctor.ranks.group.device import choose_backend

        choose_backend(options.backend)
    from distdoctor.nccl_bench.measure.run import Callbacks, run_rank
    from distdoctor.ranks.group.target import find_target

    local_rank = identity.local_rank if identity.local_rank is not None else identity.rank
    speaker = _Speaker(
        options,
        request,
        prepared,
        compared,
        under_launcher=is_under_launcher(identity),
    )
    callbacks = Callbacks(
        look=lambda: _look(identity, options),
        find_target=lambda: find_target(options.backend, local_rank),
        object_to=lambda looks: speaker.objection(looks, ranks_here=identity.local_world_size or 1),
        on_progress=ProgressLine(),
        on_stage=speaker.tell_early,
        report=speaker.report,
    )
    with giving_way(identity.job_key):
        return run_rank(identity, options, callbacks, import_torch_s=import_torch_s)


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
        from distdoctor.cli.hosts_of_ranks import gpus_in_use, read_all

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
            say(f"{finding.severity.value}: {finding.title}")

    def report(self, measured: Measured) -> int:
        """Write the report; the exit code."""
        from distdoctor.cli.hosts_of_ranks import read_looks
        from distdoctor.cli.nccl_bench_hosts import network_report

        take_over_screen()
        places = measured.facts.places
        hosts = read_looks(measured.looks, places)
        beside = network_report(hosts, places, backend=measured.facts.backend)
        facts = self._facts(measured)
        report = bench_report(self._request, [facts], beside=beside)
        by_user = facts.stopped is not None and facts.stopped.by_user
        return emit_of_ranks(report, self._prepared, under_launcher=self._under_launcher, by_user=by_user)

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
        from distdoctor.cli.hosts_of_ranks import named_places, read_looks
        from distdoctor.cli.nccl_bench_hosts import hardware_of
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


def _look(identity: RankIdentity, options: BenchOptions) -> bytes:
    from distdoctor.cli.hosts_of_ranks import look_at_host

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
