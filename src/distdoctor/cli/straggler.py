"""`distdoctor straggler`: which rank is slow, since when, why, and what does it cost?"""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add `straggler` and its verbs."""
    from distdoctor.cli.straggler_analyze import analyze
    from distdoctor.cli.straggler_pack import pack
    from distdoctor.cli.straggler_record import record

    group = typer.Typer(
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Which rank is slow, since when, why, and what it costs: from timing that is already there.",
    )
    group.command("analyze")(analyze)
    group.command("pack")(pack)
    group.command("record", hidden=True)(record)
    app.add_typer(group, name="straggler")
