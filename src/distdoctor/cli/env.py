"""`distdoctor env`: what is on this host and in this job, what is wrong with it, which rank or host differs."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.options import TimeLimit, Timeout, output_options
from distdoctor.cli.output import Names, OutputOptions, Prepared, emit, prepare_outputs
from distdoctor.errors import UsageError

if TYPE_CHECKING:
    from distdoctor.env.build import Request
    from distdoctor.env.facts.all import EnvFacts
    from distdoctor.env.live import LiveOptions
    from distdoctor.ranks.identity import RankIdentity


def register(app: typer.Typer) -> None:
    """Add the command to the command table."""
    app.command("env")(env)


@output_options
def env(
    *,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...", help="read these instead: collect_env, nvidia-smi, ibstat, dmesg; `-`: stdin"
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="the interpreter that the job uses")
    ] = None,
    no_torch: Annotated[
        bool, typer.Option("--no-torch", help="do not import torch, not even in a child")
    ] = False,
    pid: Annotated[
        str | None,
        typer.Option(
            "--pid", metavar="PID", help="a live process of the job, or `auto`; torch is not imported"
        ),
    ] = None,
    gather: Annotated[
        Path | None,
        typer.Option("--gather", metavar="DIR", help="shared folder where the hosts of a job meet"),
    ] = None,
    launch: Annotated[
        int | None, typer.Option("--launch", metavar="N", min=1, max=256, help="run on N ranks on this host")
    ] = None,
    timeout: Timeout = 60.0,
    time_limit: TimeLimit = None,
    output: OutputOptions,
) -> None:
    """What is on this host and in this job, what is wrong with it, and which rank or host differs.

    Alone it looks at this host; under torchrun, srun or mpirun at all ranks; given files, at nothing else.
    """
    from distdoctor.env.live import LiveOptions

    if sum(bool(each) for each in (files, pid, launch)) > 1:
        raise UsageError("files, --pid and --launch exclude one another")
    options = LiveOptions(
        python=python, timeout_s=timeout, time_limit_s=time_limit, torch=not no_torch, gather=gather
    )
    if launch:
        raise typer.Exit(_launch(launch))
    if files:
        raise typer.Exit(_from_files(files, output))
    raise typer.Exit(_live(options, output, pid))


def make_request(command: str, output: OutputOptions) -> Request:
    """How the report was asked for: checks, site file, what is ignored."""
    from distdoctor.cli.known_ids import check_ids
    from distdoctor.env.build import Request
    from distdoctor.env.checks.all import ENV_CHECKS
    from distdoctor.report.site import load_site

    check_ids(output.only, output.ignore)
    return Request(
        command=command,
        argv=tuple(sys.argv[1:]),
        checks=ENV_CHECKS,
        started=datetime.now(timezone.utc),
        site=load_site(output.site, os.environ),
        ignore=output.ignore,
        only=output.only,
    )


def _from_files(files: list[str], output: OutputOptions) -> int:
    from distdoctor.env.build import env_report
    from distdoctor.env.from_text import facts_from_files, members_of
    from distdoctor.report.unread import name_unread

    prepared = prepare_outputs(output, Names(command="env", host="files"))
    request = make_request("env", output)
    facts, inputs = facts_from_files(files)
    return emit(name_unread(env_report(request, members_of(facts), inputs=inputs)), prepared)


def _live(options: LiveOptions, output: OutputOptions, pid: str | None) -> int:
    from distdoctor.env.build import env_report
    from distdoctor.env.live import collect_here, collect_process_of_job
    from distdoctor.ranks.identity import detect_identity

    identity = detect_identity(os.environ)
    prepared = prepare_outputs(output, names_of("env", identity))
    request = make_request("env", output)
    if identity.world_size > 1 and pid is None:
        return _on_ranks(identity, options, request, prepared)
    early = _Early(request, awaits_torch=options.torch and pid is None, silent=prepared.key is not None)
    if pid is not None:
        collected = collect_process_of_job(pid, identity, options, early)
    else:
        collected = collect_here(identity, options, early)
    return emit(env_report(request, collected.members, timings=collected.timings), prepared)


def _on_ranks(identity: RankIdentity, options: LiveOptions, request: Request, prepared: Prepared) -> int:
    from distdoctor.cli.speaking import run_as_rank, speak
    from distdoctor.env.build import env_report
    from distdoctor.env.live import RankCollection
    from distdoctor.ranks.status import is_launched_by_us

    collection = RankCollection(identity, options)
    early = _Early(request, awaits_torch=options.torch, silent=prepared.key is not None)

    def report() -> int | None:
        collected = collection.conclude()
        if collected is None:
            return None
        speak()
        result = env_report(request, collected.members, absent=collected.absent, timings=collected.timings)
        # Our own `--launch` hands the code on; torchrun would make 1 and a page of noise of it.
        return emit(result, prepared, under_launcher=not is_launched_by_us(os.environ))

    return run_as_rank(collection, lambda: collection.collect(early), report)


def _launch(num_ranks: int) -> int:
    from distdoctor.ranks.launch import launch

    return launch(num_ranks, without_launch(sys.argv[1:]), env=os.environ)


def without_launch(argv: list[str]) -> list[str]:
    """The command line that each rank gets: ours without `--launch N`."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--launch":
            next(words, None)
        elif not word.startswith("--launch="):
            kept.append(word)
    return kept


def names_of(command: str, identity: RankIdentity) -> Names:
    """Names for output files, by this process' place."""
    job = dict(identity.job_variables).get("SLURM_JOB_ID")
    return Names(command=command, host=identity.host, rank=identity.rank, job=job)


class _Early:
    """Says what is known before torch is back: two lines at most, on stderr. Silent where names are replaced."""

    def __init__(self, request: Request, *, awaits_torch: bool, silent: bool) -> None:
        self._request = request
        self._awaits_torch = awaits_torch
        self._silent = silent

    def __call__(self, facts: EnvFacts) -> None:
        if self._silent:
            return
        from distdoctor.env.early import early_lines
        from distdoctor.report.mask import mask_text
        from distdoctor.report.seal import visible

        for line in early_lines(self._request.checks, facts, awaits_torch=self._awaits_torch):
            print(mask_text(visible(line))[0], file=sys.stderr, flush=True)
