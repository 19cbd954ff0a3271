"""`distdoctor oom reproduce`: train each strategy for some steps on real ranks, and measure what it takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import Configs, job_options
from distdoctor.cli.options import TimeLimit, Timeout, output_options
from distdoctor.cli.output import OutputOptions, prepare_outputs
from distdoctor.cli.request import make_request

if TYPE_CHECKING:
    from distdoctor.oom.reproduction.options import ReproduceOptions


# The number of ranks is that of the launch, and a program needs a shape, of a model that is trained as a whole.
_NOT_OF_PROGRAMS = ("params", "on", "gpus", "gpus_per_node", "strategy", "lora_rank", "base_bits")


@output_options
@job_options(without=_NOT_OF_PROGRAMS)
def reproduce(
    *,
    words: Words,
    config: Configs = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="ddp, zero-redundancy, zero1-3, fsdp2, hsdp, tp, fsdp2-tp, pp-1f1b, cp, ep …, several by commas, "
            "or `all` that these ranks can run [fsdp2; single on one rank]",
        ),
    ] = None,
    launch: Annotated[
        int | None,
        typer.Option(
            "--launch", metavar="N", min=1, max=256, help="run on N ranks of this host, by torchrun"
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option("--steps", min=1, max=1000, help="optimizer steps of each strategy")
    ] = 2,
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", metavar="SIZE", help="of each rank, to see it run out: 2GiB, 500M"),
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot", metavar="DIR", help="a rank that runs out of memory leaves what it held there"
        ),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", help="nccl or gloo [nccl where there are GPUs]")
    ] = None,
    share_gpus: Annotated[
        bool, typer.Option("--share-gpus", help="run although another job uses the GPUs; labelled so")
    ] = False,
    timeout: Timeout = 60.0,
    time_limit: TimeLimit = None,
    output: OutputOptions,
) -> None:
    """Train each strategy for some steps with real tensors and collectives; bytes by category on every rank.

    Run it under torchrun, srun or mpirun, or with --launch N on this host alone. A rank that runs out of memory, is
    lost or raises is named, and what was measured until then is kept.
    """
    from distdoctor.cli.env import names_of, without_launch
    from distdoctor.cli.measuring import giving_way
    from distdoctor.cli.oom_reproduce_live import run_live
    from distdoctor.ranks.identity import detect_identity, single_identity

    identity = single_identity() if launch else detect_identity(os.environ)
    # Under a launcher this rank alone may have been told something that cannot be.
    with giving_way(identity.job_key):
        options = _options(
            words,
            tuple(config or ()),
            names=_names(strategy),
            num_ranks=launch or identity.world_size,
            steps=steps,
            memory_limit=memory_limit,
            snapshot=snapshot,
            backend=backend,
            share_gpus=share_gpus,
            timeout_s=timeout,
            time_limit_s=time_limit,
        )
    prepared = prepare_outputs(output, names_of("oom-reproduce", identity))
    if launch:
        from distdoctor.ranks.launch import launch as launch_ranks

        argv = without_launch(sys.argv[1:])
        # Each rank watches itself, from when torch was imported on; before that nobody but us does.
        deadline_s = options.time_limit_s + 2 * options.timeout_s
        raise typer.Exit(launch_ranks(launch, argv, env=os.environ, needs_torch=True, deadline_s=deadline_s))
    raise typer.Exit(run_live(identity, options, make_request(output, command="oom-reproduce"), prepared))


def _names(strategy: list[str] | None) -> tuple[str, ...]:
    """Names of strategies, by commas or repeated."""
    words = [name.strip().lower() for each in strategy or () for name in each.split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


def _options(
    words: Words,
    configs: tuple[str, ...],
    *,
    names: tuple[str, ...],
    num_ranks: int,
    steps: int,
    memory_limit: str | None,
    snapshot: Path | None,
    backend: str | None,
    share_gpus: bool,
    timeout_s: float,
    time_limit_s: float | None,
) -> ReproduceOptions:
    """The options in one value. Raises UsageError and InputError."""
    from distdoctor.cli.oom_settings import settings_of_words
    from distdoctor.errors import UsageError
    from distdoctor.oom.reproduction.combinations import choose
    from distdoctor.oom.reproduction.options import DEFAULT_TIME_LIMIT_S, ReproduceOptions
    from distdoctor.units import parse_bytes

    said, _, _ = settings_of_words(words, configs)
    chosen = choose(names, num_ranks=num_ranks, said=said)
    if snapshot is not None:
        try:
            snapshot.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--snapshot `{snapshot}`: {error.strerror or error}") from error
    return ReproduceOptions(
        combinations=chosen,
        steps=steps,
        memory_limit_bytes=parse_bytes(memory_limit, option="--memory-limit")
        if memory_limit is not None
        else None,
        backend=backend,
        timeout_s=timeout_s,
        time_limit_s=time_limit_s or DEFAULT_TIME_LIMIT_S,
        snapshot_dir=snapshot,
        share_gpus=share_gpus,
    )
