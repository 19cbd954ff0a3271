"""`distdoctor oom`: where the memory goes, and why a job ran out of it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

_WITHOUT_VERB = "predict"


class _PredictsByDefault(TyperGroup):
    """Options without a verb are those of `predict`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Any: typer and click name their context by different types."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [_WITHOUT_VERB, *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add `oom` and its verbs."""
    from distdoctor.cli.oom_config import config
    from distdoctor.cli.oom_estimate import estimate
    from distdoctor.cli.oom_explain import explain
    from distdoctor.cli.oom_fit import fit
    from distdoctor.cli.oom_predict import predict
    from distdoctor.cli.oom_reproduce import reproduce
    from distdoctor.cli.oom_simulate import simulate

    group = typer.Typer(
        cls=_PredictsByDefault,
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Where the memory goes under each parallel strategy, and why a job ran out of it. "
        "Without a verb: estimate and simulation side by side.",
    )
    group.command("estimate")(estimate)
    group.command("simulate")(simulate)
    group.command("reproduce")(reproduce)
    group.command("fit")(fit)
    group.command("explain")(explain)
    group.command("config")(config)
    group.command(_WITHOUT_VERB, hidden=True)(predict)
    app.add_typer(group, name="oom")
