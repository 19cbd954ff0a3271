"""`distdoctor straggler pack PATH… --to FOLDER`: raw timing of many ranks as one Parquet file a host."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from distdoctor.cli.straggler_options import parse_steps, parse_unit, progress_to_stderr


def pack(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="recordings and tables of any ranks; folders")
    ],
    *,
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help="where the packed files go")],
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="A:B", help="only these steps: 1000:3000, 500:, :2000")
    ] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="of columns whose names tell none: ns, us, ms or s")
    ] = None,
) -> None:
    """Write one Parquet file for each host: smaller than the raw files, and read back a section at a time."""
    from distdoctor.report.escape import visible
    from distdoctor.straggler.pack import pack as pack_files
    from distdoctor.straggler.readers.base import ReadOptions

    first, last = parse_steps(steps)
    options = ReadOptions(
        first_step=first, last_step=last, unit=parse_unit(unit), progress=progress_to_stderr
    )
    result = pack_files(paths, to, options)
    for note in result.notes:
        print(f"note: {note.kind.value}: {visible(note.text)}", file=sys.stderr)
    for file in result.inputs:
        if not file.read:
            print(f"not packed: {visible(file.path)}: {visible(file.why_not or '')}", file=sys.stderr)
    for path in result.written:
        print(path)
    raise typer.Exit(0)
