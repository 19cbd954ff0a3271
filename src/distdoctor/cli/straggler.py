"""`distdoctor straggler`: which rank is slow, since when, why, and what does it cost?"""

from __future__ import annotations

import os
from typing import Any

import typer
from typer.core import TyperGroup


class _AnalyzesByDefault(TyperGroup):
    """A path without a verb is evidence to analyze."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Any: typer and click name their context by different types."""
        if args and args[0] not in self.commands and (args[0] == "-" or os.path.exists(args[0])):  # noqa: PTH110 - False, not an error, where we may not look
            args = ["analyze", *args]
        return super().resolve_command(ctx, args)


def register(app: typer.Typer) -> None:
    """Add `straggler` and its verbs."""
    from distdoctor.cli.straggler_analyze import analyze
    from distdoctor.cli.straggler_pack import pack
    from distdoctor.cli.straggler_record import record

    group = typer.Typer(
        cls=_AnalyzesByDefault,
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Which rank is slow, since when, why, and what it costs: from timing that is already there.",
    )
    group.command("analyze")(analyze)
    group.command("pack")(pack)
    group.command("record", hidden=True)(record)
    app.add_typer(group, name="straggler")
