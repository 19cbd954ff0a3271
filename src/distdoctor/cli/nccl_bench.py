"""`distdoctor nccl-bench`: is the network what was paid for, and which rank, host or link is slow?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.options import TimeLimit, Timeout, output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request
from distdoctor.errors import UsageError

if TYPE_CHECKING:
    from distdoctor.nccl_bench.options import BenchOptions


def register(app: typer.Typer) -> None:
    """Add the command to the command table."""
    app.command("nccl-bench")(nccl_bench)


@output_options
def nccl_bench(
    *,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...", help="judge these instead: tables of nccl-tests, NCCL_DEBUG logs; `-`: stdin"
        ),
    ] = None,
    launch: Annotated[
        int | None,
        typer.Option(
            "--launch", metavar="N", min=1, max=256, help="run on N ranks of this host, by torchrun"
        ),
    ] = None,
    collectives: Annotated[
        str, typer.Option("--collectives", metavar="LIST", help="all_reduce,all_gather,…, or `all`")
    ] = "all_reduce,all_gather,reduce_scatter,all_to_all",
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="LIST", help="sizes of messages: 1K,1M,64M")
    ] = None,
    min_bytes: Annotated[
        str | None, typer.Option("--min-bytes", metavar="SIZE", help="smallest size of a sweep [1K]")
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-bytes",
            metavar="SIZE",
            help="largest size of a sweep [64M; of the default sweep 16M over Gloo, 1G over NCCL]",
        ),
    ] = None,
    size_factor: Annotated[
        float | None, typer.Option("--size-factor", help="each size is so many times the one before [4]")
    ] = None,
    size_step: Annotated[
        str | None, typer.Option("--size-step", metavar="SIZE", help="each size is so many bytes larger")
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="element type: float32, bfloat16, int8 …")
    ] = "float32",
    op: Annotated[str, typer.Option("--op", help="reduction: sum, avg, min, max …")] = "sum",
    place: Annotated[
        str, typer.Option("--place", help="out (of place), in, both, auto: as torch programs call it")
    ] = "auto",
    style: Annotated[
        str, typer.Option("--style", help="streaming (back to back), isolated (barrier first) or both")
    ] = "streaming",
    repeats: Annotated[int, typer.Option("--repeats", min=1, max=100, help="rounds over all sizes")] = 3,
    iters: Annotated[
        int | None,
        typer.Option("--iters", min=1, max=100_000, help="iterations of each [as the time limit allows]"),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option("--mesh", metavar="DIMS", help="also along each dimension of a mesh: dp=2,tp=4"),
    ] = None,
    matrix: Annotated[
        str, typer.Option("--matrix", help="pairs of ranks: auto (sampled beyond 16), all or off")
    ] = "auto",
    matrix_bytes: Annotated[
        str | None,
        typer.Option(
            "--matrix-bytes",
            metavar="SIZE",
            help="size of a message between two ranks [2M over Gloo, 64M over NCCL]",
        ),
    ] = None,
    while_computing: Annotated[
        bool, typer.Option("--while-computing", help="also measure while the devices multiply matrices")
    ] = False,
    only_job: Annotated[
        bool, typer.Option("--only-job", help="no stages of single hosts and rails before the whole job")
    ] = False,
    backend: Annotated[
        str | None, typer.Option("--backend", help="nccl or gloo [nccl where there are GPUs]")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="FILE", help="compare with this report or nccl-tests table"),
    ] = None,
    save_baseline: Annotated[
        Path | None,
        typer.Option("--save-baseline", metavar="FILE", help="keep the report as .json for --baseline"),
    ] = None,
    no_nccl_log: Annotated[bool, typer.Option("--no-nccl-log", help="do not ask NCCL for its log")] = False,
    share_gpus: Annotated[
        bool, typer.Option("--share-gpus", help="measure although another job uses the GPUs; labelled so")
    ] = False,
    timeout: Timeout = 30.0,
    time_limit: TimeLimit = None,
    output: OutputOptions,
) -> None:
    """Sweep collectives by nccl-tests' definitions, find the slow rank, host or link, and judge it.

    Run it under torchrun, srun or mpirun, or with --launch N on this host alone; given files, it judges those.
    """
    from distdoctor.cli.nccl_bench_options import parse_options

    if files and launch:
        raise UsageError("files and --launch exclude one another")
    if [*(files or []), baseline].count("-") > 1:
        # The second reading would judge the first by itself.
        raise UsageError("standard input (`-`) can be read once", hint="give the other as a file")
    options = parse_options(
        collectives=collectives,
        sizes=sizes,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        size_factor=size_factor,
        size_step=size_step,
        dtype=dtype,
        op=op,
        place=place,
        style=style,
        repeats=repeats,
        iters=iters,
        mesh=mesh,
        matrix=matrix,
        matrix_bytes=matrix_bytes,
        while_computing=while_computing,
        only_job=only_job,
        backend=backend,
        nccl_log=not no_nccl_log,
        share_gpus=share_gpus,
        timeout_s=timeout,
        time_limit_s=time_limit,
    )
    output = _with_saved_baseline(output, save_baseline)
    if files:
        raise typer.Exit(_from_files(files, baseline, output))
    if launch:
        raise typer.Exit(_launch(launch, options, baseline, output))
    raise typer.Exit(_live(options, baseline, output))


def _from_files(files: list[str], baseline: str | None, output: OutputOptions) -> int:
    from distdoctor.nccl_bench.from_files import report_of_files
    from distdoctor.report.unread import name_unread

    prepared = prepare_outputs(output, Names(command="nccl-bench", host="files"))
    request = make_request(output, command="nccl-bench")
    report = report_of_files(request, files, baseline=baseline)
    return emit(name_unread(report), prepared)


def _launch(num_ranks: int, options: BenchOptions, baseline: str | None, output: OutputOptions) -> int:
    from distdoctor.cli.env import names_of, without_launch
    from distdoctor.nccl_bench.mesh import check_mesh
    from distdoctor.ranks.identity import single_identity
    from distdoctor.ranks.launch import launch

    if options.mesh is not None:
        check_mesh(options.mesh, num_ranks)
    if baseline is not None:
        from distdoctor.nccl_bench.from_files import read_baseline

        read_baseline(baseline)
    # What is wrong with the outputs is said once and at once, not after torch is imported.
    prepare_outputs(output, names_of("nccl-bench", single_identity()))
    return launch(num_ranks, without_launch(sys.argv[1:]), env=os.environ, needs_torch=True)


def _live(options: BenchOptions, baseline: str | None, output: OutputOptions) -> int:
    from distdoctor.cli.env import names_of
    from distdoctor.cli.nccl_bench_live import run_live
    from distdoctor.ranks.identity import detect_identity

    identity = detect_identity(os.environ)
    prepared = prepare_outputs(output, names_of("nccl-bench", identity))
    return run_live(
        identity, options, make_request(output, command="nccl-bench"), prepared, baseline=baseline
    )


def _with_saved_baseline(output: OutputOptions, path: Path | None) -> OutputOptions:
    """A baseline is the report as JSON: one more output."""
    from dataclasses import replace

    if path is None:
        return output
    if path.suffix != ".json":
        raise UsageError(f"--save-baseline `{path}`: end it in .json")
    return replace(output, outputs=(*output.outputs, str(path)))
