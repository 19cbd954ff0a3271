"""`distdoctor oom simulate`: torch's own code under fake tensors, one child for each kind of rank, no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import Configs, job_options, spelled
from distdoctor.cli.options import output_options, parse_duration
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request
from distdoctor.cli.waiting import waiting
from distdoctor.errors import DistdoctorError, UsageError

if TYPE_CHECKING:
    from distdoctor.oom.simulation.facts import SimulationFacts
    from distdoctor.report.model import InputFile, Table


class How(TypedDict):
    """How to simulate a job, whoever's model it is."""

    timeout_s: float
    all_stages: bool
    fold: bool
    expandable_segments: bool


_DEFAULT_TIMEOUT_S = 300.0


@output_options
@job_options()
def simulate(
    *,
    words: Words,
    config: Configs = None,
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            metavar="PKG.MOD:FUNC",
            help="your own: a function that returns an nn.Module, and perhaps its inputs; its code is run",
        ),
    ] = None,
    torchtitan: Annotated[
        str | None,
        typer.Option(
            "--torchtitan",
            metavar="FAMILY:FLAVOR",
            help="TorchTitan's own model and parallelisms, llama3:8B, where it is installed",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--inputs", metavar="SHAPE:DTYPE", help="inputs of --module: 8x1024:int64; repeatable"),
    ] = None,
    all_stages: Annotated[
        bool, typer.Option("--all-stages", help="every pipeline stage, not only first, worst and last")
    ] = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="every layer, though a few stand for all; slower, the same numbers"),
    ] = False,
    expandable_segments: Annotated[
        bool, typer.Option("--expandable-segments", help="judge with this setting of the allocator")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", parser=parse_duration, metavar="TIME", help="for each kind of rank")
    ] = _DEFAULT_TIMEOUT_S,
    output: OutputOptions,
) -> None:
    """Say exactly what torch would allocate, by running its own code of each strategy without memory behind tensors.

    Peak by category, with the op, the module and the phase; reserved memory by a replay of the caching allocator.
    """
    from dataclasses import replace

    from distdoctor.cli.oom_settings import settings_of_words
    from distdoctor.oom.job import resolve
    from distdoctor.oom.simulation.build import simulation_report
    from distdoctor.oom.simulation.run import simulated_facts
    from distdoctor.oom.simulation.titan_facts import titan_facts
    from distdoctor.oom.simulation.torchtitan import parse_titan, require_torchtitan, titan_settings

    prepared = prepare_outputs(output, Names(command="oom-simulate", host="job"))
    request = make_request(output, command="oom-simulate")
    if module is not None and torchtitan is not None:
        raise UsageError("--module and --torchtitan exclude one another", hint="give one or the other")
    tables: tuple[Table, ...] = ()
    if module is not None:
        facts, files = _of_module(
            words,
            tuple(config or ()),
            module,
            tuple(inputs or ()),
            timeout_s=timeout,
            expandable_segments=expandable_segments,
        )
    else:
        if inputs:
            raise UsageError("--inputs belongs to --module", hint="a known model draws its own tokens")
        settings, cluster, files = settings_of_words(words, tuple(config or ()))
        model = parse_titan(torchtitan) if torchtitan is not None else None
        resolve(settings if model is None else titan_settings(model, settings))
        require_torch()
        how: How = {
            "timeout_s": timeout,
            "all_stages": all_stages,
            "fold": not whole,
            "expandable_segments": expandable_segments,
        }
        if model is None:
            with waiting(meanwhile(timeout)):
                facts = simulated_facts(settings, cluster, **how)
            facts = replace(facts, fit_options=spelled(words, config or ()))
        else:
            require_torchtitan()
            with waiting(meanwhile(timeout)):
                facts, beside = titan_facts(model, settings, cluster, **how)
            tables = (beside,) if beside is not None else ()
    report = simulation_report(request, facts, inputs=files, more_tables=tables)
    raise typer.Exit(emit(report, prepared))


def meanwhile(timeout_s: float) -> str:
    """What a terminal shows until the children are done."""
    return f"simulating, one child for each kind of rank, at most {timeout_s:g} s each …"


def require_torch() -> None:
    """Raises DistdoctorError where this interpreter has no torch to run."""
    from distdoctor.oom.simulation.run import has_torch

    if not has_torch():
        raise DistdoctorError(
            "no torch in this Python, and a simulation runs torch's own code",
            hint="run it in the job's environment, or take `distdoctor oom estimate`, which needs none",
        )


def _of_module(
    words: Words,
    configs: tuple[str, ...],
    module: str,
    inputs: tuple[str, ...],
    *,
    timeout_s: float,
    expandable_segments: bool,
) -> tuple[SimulationFacts, tuple[InputFile, ...]]:
    from distdoctor.cli.oom_settings import settings_of_words
    from distdoctor.oom.estimate import estimate
    from distdoctor.oom.simulation.children import simulate_module
    from distdoctor.oom.simulation.facts import SimulationFacts, capacities_of
    from distdoctor.oom.simulation.own_job import job_of_module, own_module_of

    settings, cluster, files = settings_of_words(words, configs)
    own = own_module_of(module, inputs, settings=settings)
    require_torch()
    # Of its shape nothing is known; what the strategy is called, and what lies outside the allocator, is.
    estimated = estimate(job_of_module(own))
    outside = (
        sum(each.low_bytes for each in estimated.outside),
        sum(each.high_bytes for each in estimated.outside),
    )
    with waiting(meanwhile(timeout_s)):
        simulation = simulate_module(
            own,
            timeout_s=timeout_s,
            capacities_bytes=capacities_of(cluster, outside) if cluster is not None else (),
        )
    return (
        SimulationFacts(
            simulation=simulation,
            title=estimated.title,
            model=module,
            cluster=cluster,
            outside=estimated.outside,
            expandable_segments=expandable_segments,
        ),
        files,
    )
