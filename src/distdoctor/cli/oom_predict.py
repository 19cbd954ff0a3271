"""`distdoctor oom --model …`, without a verb: the estimate, then the simulation where torch is there."""

from __future__ import annotations

import typer

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import Configs, job_options, spelled
from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request
from distdoctor.cli.waiting import waiting


@output_options
@job_options()
def predict(*, words: Words, config: Configs = None, output: OutputOptions) -> None:
    """Say where the memory goes: by formula, and simulated beside it where this Python has torch."""
    from dataclasses import replace

    from msgspec import structs

    from distdoctor.cli.oom_settings import settings_of_words
    from distdoctor.oom.estimate import estimate
    from distdoctor.oom.estimate_build import estimate_report
    from distdoctor.oom.facts.estimated import EstimateFacts
    from distdoctor.oom.job import resolve
    from distdoctor.oom.simulation.build import simulation_report
    from distdoctor.oom.simulation.run import has_torch, simulated_facts

    prepared = prepare_outputs(output, Names(command="oom", host="job"))
    settings, cluster, inputs = settings_of_words(words, tuple(config or ()))
    job = resolve(settings)
    request = make_request(output, command="oom")
    facts = None
    if has_torch() and job.shape is not None:
        with waiting("estimated; simulating, one child for each kind of rank …"):
            facts = simulated_facts(settings, cluster)
    if facts is not None and facts.simulation.roles:
        facts = replace(facts, fit_options=spelled(words, config or ()))
        raise typer.Exit(emit(simulation_report(request, facts, inputs=inputs), prepared))
    if facts is not None:
        why = facts.simulation.failures[0].reason
    else:
        why = "this Python has no torch" if job.shape is not None else "the model's shape is not known"
    by_formula = EstimateFacts(job=job, estimate=estimate(job), cluster=cluster)
    report = estimate_report(request, by_formula, inputs=inputs)
    summary = f"By formula only; not simulated: {why}. {report.verdict.summary}"
    report = structs.replace(report, verdict=structs.replace(report.verdict, summary=summary))
    raise typer.Exit(emit(report, prepared))
