"""`distdoctor oom`: where the memory goes, and why a job ran out of it."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add `oom estimate | explain | config | simulate | fit`."""
    from distdoctor.cli.oom_config import config
    from distdoctor.cli.oom_estimate import estimate
    from distdoctor.cli.oom_explain import explain
    from distdoctor.cli.oom_fit import fit
    from distdoctor.cli.oom_reproduce import reproduce
    from distdoctor.cli.oom_simulate import simulate

    group = typer.Typer(
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Where the memory goes under each parallel strategy, and why a job ran out of it.",
    )
    group.command("estimate")(estimate)
    group.command("explain")(explain)
    group.command("config")(config)
    group.command("simulate")(simulate)
    group.command("reproduce")(reproduce)
    group.command("fit")(fit)
    app.add_typer(group, name="oom")
