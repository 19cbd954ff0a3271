"""The options of a job, spelled again for a command that a report tells to run."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import Configs, job_options, spelled

CASES = [
    ["--model", "llama3-8b", "--on", "8xa100-40gb"],
    ["--model", "my model/config.json", "--config", "a b.yaml", "--config", "c.toml"],
    ["--layers", "4", "--hidden", "64", "--heads", "4", "--vocab", "100", "--plain-mlp", "--tied"],
    ["--batch-size", "3", "--seq-len", "8k", "--no-sequence-parallel", "--fused-loss", "--keep-gathered"],
    ["--mesh", "pp=2,tp=4", "--expert-imbalance", "1.25", "--params", "7.5e9", "--no-loss-parallel"],
    [],
]


def _words_of(argv: list[str]) -> tuple[Words, tuple[str, ...]]:
    """What a command with these options is handed."""
    got: list[tuple[Words, tuple[str, ...]]] = []
    app = typer.Typer()

    @app.command()
    @job_options()
    def command(*, words: Words, config: Configs = None) -> None:
        got.append((words, tuple(config or ())))

    result: Any = CliRunner().invoke(app, argv)
    assert result.exit_code == 0, result.output
    return got[0]


@pytest.mark.parametrize("argv", CASES, ids=lambda argv: " ".join(argv) or "nothing")
def test_what_is_spelled_says_the_same(argv: list[str]) -> None:
    words, configs = _words_of(argv)
    again = shlex.split(spelled(words, configs))
    assert _words_of(again) == (words, configs)


def test_what_was_typed_is_spelled_as_it_was() -> None:
    words, configs = _words_of(CASES[0])
    assert spelled(words, configs) == "--model llama3-8b --on 8xa100-40gb"
