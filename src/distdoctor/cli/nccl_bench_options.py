"""From the words of the command line to what a run measures; every slip is told before anything starts."""

from __future__ import annotations

import difflib
from enum import Enum
from typing import TypeVar

from distdoctor.errors import UsageError
from distdoctor.nccl_bench.dtypes import dtype_named, op_named
from distdoctor.nccl_bench.facts.rows import Style
from distdoctor.nccl_bench.mesh import parse_mesh
from distdoctor.nccl_bench.options import (
    DEFAULT_TIME_LIMIT_S,
    BenchOptions,
    MatrixChoice,
    Placement,
    parse_collectives,
)
from distdoctor.nccl_bench.sizes import parse_sizes, size_sweep
from distdoctor.units import KIB, MIB, parse_bytes

E = TypeVar("E", bound=Enum)

_BACKENDS = ("nccl", "gloo")
_DEFAULT_SMALLEST, _DEFAULT_LARGEST = KIB, 64 * MIB


def parse_options(
    *,
    collectives: str,
    sizes: str | None,
    min_bytes: str | None,
    max_bytes: str | None,
    size_factor: float | None,
    size_step: str | None,
    dtype: str,
    op: str,
    place: str,
    style: str,
    repeats: int,
    iters: int | None,
    mesh: str | None,
    matrix: str,
    matrix_bytes: str | None,
    while_computing: bool,
    only_job: bool,
    backend: str | None,
    nccl_log: bool,
    share_gpus: bool,
    timeout_s: float,
    time_limit_s: float | None,
) -> BenchOptions:
    """Options of a run. Raises UsageError for the first word that cannot be understood."""
    if backend is not None and backend not in _BACKENDS:
        raise UsageError(f"--backend: `{backend[:40]}` is not known", hint=f"known: {', '.join(_BACKENDS)}")
    styles = (
        (Style.STREAMING, Style.ISOLATED)
        if style == "both"
        else (_choice("--style", style, Style, more=("both",)),)
    )
    return BenchOptions(
        collectives=parse_collectives(collectives),
        sizes=_sizes(sizes, min_bytes, max_bytes, size_factor, size_step),
        dtype=dtype_named(dtype).name,
        op=op_named(op),
        placement=_choice("--place", place, Placement),
        styles=styles,
        repeats=repeats,
        iters=iters,
        mesh=parse_mesh(mesh) if mesh else None,
        matrix=_choice("--matrix", matrix, MatrixChoice),
        matrix_bytes=parse_bytes(matrix_bytes) if matrix_bytes else None,
        while_computing=while_computing,
        only_job=only_job,
        backend=backend,
        nccl_log=nccl_log,
        share_gpus=share_gpus,
        timeout_s=timeout_s,
        time_limit_s=time_limit_s or DEFAULT_TIME_LIMIT_S,
    )


def _sizes(
    sizes: str | None,
    min_bytes: str | None,
    max_bytes: str | None,
    size_factor: float | None,
    size_step: str | None,
) -> tuple[int, ...] | None:
    ranged = (min_bytes, max_bytes, size_factor, size_step)
    if sizes is not None:
        if any(each is not None for each in ranged):
            raise UsageError("--sizes excludes --min-bytes, --max-bytes, --size-factor and --size-step")
        return parse_sizes(sizes)
    if all(each is None for each in ranged):
        return None
    largest = parse_bytes(max_bytes) if max_bytes else _DEFAULT_LARGEST
    smallest = parse_bytes(min_bytes) if min_bytes else min(_DEFAULT_SMALLEST, largest)
    return size_sweep(
        smallest,
        max(largest, smallest) if max_bytes is None else largest,
        factor=size_factor,
        step=parse_bytes(size_step) if size_step else None,
    )


def _choice(option: str, word: str, kind: type[E], *, more: tuple[str, ...] = ()) -> E:
    known = [str(each.value) for each in kind]
    if word in known:
        return kind(word)
    near = difflib.get_close_matches(word, [*known, *more], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join((*known, *more))}"
    raise UsageError(f"{option}: `{word[:40]}` is not known", hint=hint)
