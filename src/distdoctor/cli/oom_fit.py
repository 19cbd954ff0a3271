"""`distdoctor oom fit`: which changes make a job fit, what each costs, and how small it can get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import Configs, job_options
from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request
from distdoctor.cli.waiting import waiting

if TYPE_CHECKING:
    from distdoctor.oom.facts.launch import LaunchConfig
    from distdoctor.oom.settings import Settings


@output_options
@job_options()
def fit(
    reports: Annotated[
        list[str] | None,
        typer.Argument(metavar="[REPORT]...", help="JSON of `oom estimate` or `oom explain`, or both"),
    ] = None,
    *,
    words: Words,
    config: Configs = None,
    find_limit: Annotated[
        str | None,
        typer.Option("--find-limit", metavar="WHAT", help="the largest that fits: micro-batch or seq-len"),
    ] = None,
    simulates: Annotated[
        bool,
        typer.Option("--simulate/--no-simulate", help="confirm the best three by simulation, where torch is"),
    ] = True,
    output: OutputOptions,
) -> None:
    """Search for what makes a job fit: changes of its settings, alone and together, the nearest to today's first.

    Each with its need, what it costs, and a sentence for the job's owner. Where nothing fits: what is missing, and why.
    """
    from distdoctor.cli.oom_settings import over, settings_of_words
    from distdoctor.oom.search.build import fit_report
    from distdoctor.oom.search.facts import facts_of
    from distdoctor.oom.search.limits import limited_of
    from distdoctor.oom.search.reports import read_reports
    from distdoctor.oom.simulation.confirming import confirm_by_simulation
    from distdoctor.oom.simulation.run import has_torch

    prepared = prepare_outputs(output, Names(command="oom-fit", host="job"))
    limited = limited_of(find_limit) if find_limit is not None else None
    handed = read_reports(tuple(reports or ()))
    settings, cluster, inputs = settings_of_words(words, tuple(config or ()))
    if handed.settings is not None:
        settings = over(settings, handed.settings)
    confirm = confirm_by_simulation if simulates and has_torch() else None
    with waiting("searching" + (", then simulating the best …" if confirm is not None else " …")):
        facts = facts_of(
            settings,
            cluster or handed.cluster,
            failure=handed.failure,
            limited=limited,
            configs=_configs(config) if config else (),
            doubts=_doubts(config, settings) if config else (),
            confirm=confirm,
        )
    request = make_request(output, command="oom-fit")
    report = fit_report(request, facts, inputs=(*handed.inputs, *inputs))
    raise typer.Exit(emit(report, prepared))


def _configs(paths: list[str]) -> tuple[LaunchConfig, ...]:
    from distdoctor.oom.configs.files import read_configs

    return tuple(read_configs(paths)[0])


def _doubts(configs: list[str], settings: Settings) -> tuple[str, ...]:
    from distdoctor.oom.configs.files import doubts_of

    return doubts_of(configs, settings)
