"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from distdoctor.cli.output import Format, OutputOptions
from distdoctor.report.exit_code import ExitStyle, FailOn

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|)")
# No deadline of ours is that long; beyond some 292 years the system's own clocks refuse.
MAX_DURATION_S = 30 * 86_400.0
_SECONDS = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds of "10", "10s", "500ms", "2m", "1h". Raises typer.BadParameter for anything else, and for 0."""
    match = _DURATION.fullmatch(str(text).strip().lower())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds > MAX_DURATION_S:
        raise typer.BadParameter(f"`{text}` is longer than 30 days")
    if seconds <= 0:
        raise typer.BadParameter(f"`{text}` is no duration; write 10s, 500ms or 2m")
    return seconds


_OUTPUT = {
    "format": (Format, Format.TERMINAL, typer.Option("--format", help="form of the report on stdout")),
    "outputs": (
        list[str] | None,
        None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="also write it: .md .html .json .txt, or FOLDER/ for all four; %h %r %j: host, rank, job",
        ),
    ),
    "force": (bool, False, typer.Option("--force", help="replace files that exist")),
    "one_line": (bool, False, typer.Option("--one-line", help="one line of at most 80 characters on stdout")),
    "verbose": (
        bool,
        False,
        typer.Option("--verbose", "-v", help="everything: all evidence, skips and facts"),
    ),
    "fail_on": (
        FailOn | None,
        None,
        typer.Option("--fail-on", help="non-zero exit from this severity on [default: critical]"),
    ),
    "exit_style": (
        ExitStyle,
        ExitStyle.DISTDOCTOR,
        typer.Option("--exit-style", help="0/3/10/11, or nagios: 0/1/2/3"),
    ),
    "redact": (
        bool,
        False,
        typer.Option("--redact", help="pseudonyms for hosts, addresses, users, UUIDs, serials"),
    ),
    "redact_key": (
        Path | None,
        None,
        typer.Option("--redact-key", metavar="FILE", help="key that keeps pseudonyms equal between calls"),
    ),
    "redact_map": (
        Path | None,
        None,
        typer.Option("--redact-map", metavar="FILE", help="write what each pseudonym stands for (mode 0600)"),
    ),
    "ignore": (
        list[str] | None,
        None,
        typer.Option("--ignore", metavar="ID", help="a finding that does not count; repeatable"),
    ),
    "only": (
        list[str] | None,
        None,
        typer.Option("--only", metavar="ID", help="only this check; repeatable"),
    ),
    "site": (
        Path | None,
        None,
        typer.Option(
            "--site", metavar="FILE", help="site file [default: $DISTDOCTOR_SITE, /etc/distdoctor.toml]"
        ),
    ),
}
"""Parameter → (type, default, option), in the order of `--help`."""


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command all output options, handed over as one `output: OutputOptions`.

    Any: commands have parameters of their own; typer reads them from the signature made here.
    """

    def with_output(**values: Any) -> Any:
        mine = {name: values.pop(name) for name in _OUTPUT}
        for name in ("outputs", "ignore", "only"):
            mine[name] = tuple(mine[name] or ())
        return command(**values, output=OutputOptions(**mine))

    own = inspect.signature(command, eval_str=True).parameters.values()
    kept = [parameter for parameter in own if parameter.name != "output"]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )
        for name, (kind, default, option) in _OUTPUT.items()
    ]
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in kept]
    with_output.__name__ = command.__name__
    with_output.__doc__ = command.__doc__
    with_output.__annotations__ = {}
    with_output.__signature__ = inspect.Signature([*keyword, *added])  # type: ignore[attr-defined]
    return with_output


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", parser=parse_duration, metavar="TIME", help="limit of one step, e.g. importing torch"
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option("--time-limit", parser=parse_duration, metavar="TIME", help="limit of the whole command"),
]
