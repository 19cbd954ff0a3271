"""The run of `oom reproduce` in one rank: torch, the programs, and whoever reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from distdoctor.cli.measuring import (
    ProgressLine,
    emit_of_ranks,
    giving_way,
    import_quiet_torch,
    is_under_launcher,
    take_over_screen,
)
from distdoctor.cli.output import Prepared
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.ranks.identity import RankIdentity
from distdoctor.report.request import ReportRequest

if TYPE_CHECKING:
    from distdoctor.oom.facts.reproduced import ReproduceFacts


def run_live(
    identity: RankIdentity, options: ReproduceOptions, request: ReportRequest, prepared: Prepared
) -> int:
    """Run on this rank; rank 0, or whoever takes its place, reports. Raises DistdoctorError."""
    # What cannot work here is said before ranks wait for one another.
    with giving_way(identity.job_key):
        import_torch_s = import_quiet_torch(identity)
        from distdoctor.ranks.group.device import choose_backend

        backend = choose_backend(options.backend)
    from distdoctor.cli.hosts_of_ranks import look_at_host
    from distdoctor.oom.reproduction.rank.run import Callbacks, run_rank
    from distdoctor.oom.training.build import build_program
    from distdoctor.ranks.group.target import find_target

    local_rank = identity.local_rank if identity.local_rank is not None else identity.rank
    under_launcher = is_under_launcher(identity)
    callbacks = Callbacks(
        look=lambda: look_at_host(identity, timeout_s=options.timeout_s),
        object_to=lambda looks: _objection(
            looks, options, backend=backend, ranks_here=identity.local_world_size or 1
        ),
        find_target=lambda: find_target(options.backend, local_rank),
        build=build_program,
        on_progress=ProgressLine(),
        report=lambda facts: _report(facts, request, prepared, under_launcher=under_launcher),
    )
    with giving_way(identity.job_key):
        return run_rank(identity, options, callbacks, import_torch_s=import_torch_s)


def _objection(
    looks: Mapping[int, bytes], options: ReproduceOptions, *, backend: str, ranks_here: int
) -> str:
    """Why nothing should begin, or nothing: somebody else uses the GPUs, and would run out of memory by us."""
    from distdoctor.cli.hosts_of_ranks import gpus_in_use, read_all

    if options.share_gpus or backend == "gloo":
        return ""
    return gpus_in_use(read_all(looks), ranks_here=ranks_here) or ""


def _report(
    facts: ReproduceFacts, request: ReportRequest, prepared: Prepared, *, under_launcher: bool
) -> int:
    from distdoctor.oom.reproduce_build import reproduce_report

    take_over_screen()
    report = reproduce_report(request, facts)
    by_user = facts.stopped is not None and facts.stopped.by_user
    return emit_of_ranks(report, prepared, under_launcher=under_launcher, by_user=by_user)
