"""`distdoctor straggler record`: says what to do until recording is built."""

from __future__ import annotations

from typing import Annotated

import typer

from distdoctor.errors import UsageError

_UNTIL_THEN = (
    "until then profile some 20 steps on every rank with torch.profiler (on_trace_ready=tensorboard_trace_handler(DIR)) "
    "and run `distdoctor straggler analyze DIR`, or write a CSV with step, rank, host, data_ms, forward_ms, backward_ms "
    "(without communication) and wait_ms"
)


def record(
    script: Annotated[list[str] | None, typer.Argument(metavar="-- SCRIPT [ARGS]...")] = None,
    *,
    record_dir: Annotated[str | None, typer.Option("--record-dir", metavar="DIR")] = None,
) -> None:
    """Time an unchanged training script on every rank (to come)."""
    del script, record_dir
    raise UsageError("`straggler record` is not built yet", hint=_UNTIL_THEN)
