"""The command table: which word runs which command. Commands are imported when they are asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from distdoctor.errors import UsageError

COMMANDS: dict[str, tuple[str, str]] = {
    "checkup": ("distdoctor.cli.checkup", "may a job start on this host? (prolog, init container)"),
    "env": ("distdoctor.cli.env", "is this host, or this job, set up right? which host differs?"),
    "nccl-bench": (
        "distdoctor.cli.nccl_bench",
        "is the network what was paid for? which host or link is slow?",
    ),
    "oom": ("distdoctor.cli.oom", "will it fit? why is it out of memory, and whose is it?"),
    "straggler": ("distdoctor.cli.straggler", "it got slow: which rank, since when, why, what does it cost?"),
    "explain": ("distdoctor.cli.explain", "here is what was pasted into the ticket: what does it say?"),
    "compare": ("distdoctor.cli.compare", "what differs between these two (or more)?"),
    "report": ("distdoctor.cli.report", "show a report again in another form, merge several, redact one"),
}
"""Word → (module with `register(app)`, one line of help), in the order of the table that people see."""

EXAMPLES = (
    "distdoctor env                                  this host, in a few seconds",
    "torchrun --nproc-per-node 8 -m distdoctor env   ranks of a job: who differs?",
    "distdoctor explain ticket.txt                   what somebody pasted",
)


def run_app(argv: Sequence[str]) -> int:
    """Run one command line; its exit code. Raises DistdoctorError for what the user can mend."""
    arguments = list(argv)
    if not arguments:
        print(overview())
        return 0
    if _is_evidence(arguments[0]):
        arguments.insert(0, "explain")
    return _run_typer(arguments)


def overview() -> str:
    """What plain `distdoctor` prints: the commands, where it stands, three examples."""
    width = max(map(len, COMMANDS))
    lines = ["distdoctor: distributed PyTorch training, a verdict, its evidence, the next step", ""]
    lines += [f"  {word:<{width}}  {text}" for word, (_, text) in COMMANDS.items()]
    lines += ["", f"here: {_standing()}", "", "examples:", *(f"  {line}" for line in EXAMPLES)]
    lines += ["", "`distdoctor COMMAND --help` lists a command's options"]
    return "\n".join(lines)


def _standing() -> str:
    """One line: job, host, GPUs; cheap, from variables and device files only."""
    host = os.uname().nodename.partition(".")[0]
    num_gpus = sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia[0-9]*"))
    parts = [
        f"host {host}",
        f"{num_gpus} NVIDIA GPU{'s' if num_gpus != 1 else ''}" if num_gpus else "no GPU here",
    ]
    if os.environ.get("SLURM_JOB_ID"):
        parts.append(f"Slurm job {os.environ['SLURM_JOB_ID']}")
    elif os.environ.get("KUBERNETES_SERVICE_HOST"):
        parts.append("in a Kubernetes pod")
    elif os.environ.get("TORCHELASTIC_RUN_ID"):
        parts.append("under torchrun")
    return ", ".join(parts)


def _is_evidence(word: str) -> bool:
    """`distdoctor FILE` explains the file; a command's word wins over a file of that name."""
    if word in COMMANDS or (word.startswith("-") and word != "-"):
        return False
    return word == "-" or "/" in word or os.path.exists(word)  # noqa: PTH110 - False, not an error, where we may not look


def _run_typer(arguments: list[str]) -> int:
    import typer

    app = typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Diagnostics for distributed PyTorch training: a verdict, its evidence and the next step.",
    )
    wanted = [arguments[0]] if arguments[0] in COMMANDS else list(COMMANDS)
    for word in wanted:
        module = import_module(COMMANDS[word][0])
        module.register(app)
    if len(wanted) == 1:
        # With one command registered typer would drop its word; a callback keeps it a group.
        app.callback()(_keep_group)
    return _exit_code(lambda: app(args=arguments, prog_name="distdoctor", standalone_mode=True), arguments)


def _keep_group() -> None:
    """Diagnostics for distributed PyTorch training."""


def _exit_code(
    call: Any, arguments: Sequence[str]
) -> int:  # Any: typer.Typer is not imported at module level
    try:
        call()
    except SystemExit as stop:
        # A usage error has been shown; whoever parses stdout gets it as a report.
        describe = getattr(stop.__context__, "format_message", None)
        if describe is not None:
            from distdoctor.cli.failure import report_as_json

            report_as_json(arguments, UsageError(str(describe()).rstrip(".")))
        if isinstance(stop.code, int):
            return stop.code
        if stop.code is not None:
            print(stop.code, file=sys.stderr)
            return 1
    return 0
