"""`oom fit` as a command: what it reads, what it prints on a screen, how it ends, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from distdoctor.errors import InputError
from distdoctor.oom.catalog.gpus import parse_cluster
from distdoctor.oom.megatron_details import MegatronDetails
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Adapter, DataParallel, Settings
from distdoctor.oom.settings_record import TABLE, settings_of_table, settings_table
from distdoctor.report.model import Column, Table
from warm_command import run_command

TOML = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
[activation_checkpoint]
mode = "none"
"""
OWN = (
    "step 12 loss 2.1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total "
    "capacity of 39.39 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 38.10 GiB memory "
    "in use. Of the allocated memory 36.10 GiB is allocated by PyTorch, and 410.00 MiB is reserved by PyTorch but "
    "unallocated.\n"
)
SHARED = (
    "step 12 loss 2.1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total "
    "capacity of 39.39 GiB of which 1.20 GiB is free. Process 111 has 9.50 GiB memory in use. Including non-PyTorch "
    "memory, this process has 28.60 GiB memory in use. Of the allocated memory 23.10 GiB is allocated by PyTorch, and "
    "4.10 GiB is reserved by PyTorch but unallocated.\n"
)


def run(*arguments: str, columns: int = 80, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The formulas alone, unless `--simulate` is said: each simulation takes seconds."""
    if arguments[0] == "fit" and "--simulate" not in arguments:
        arguments = (*arguments, "--no-simulate")
    environ = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    return run_command("oom", *arguments, cwd=cwd, environ=environ)


def explained(folder: Path, text: str, name: str = "x.json") -> Path:
    log = folder / "job.log"
    log.write_text(text)
    run("explain", str(log), "-o", str(folder / name))
    return folder / name


def estimated(folder: Path, *arguments: str, name: str = "e.json") -> Path:
    run("estimate", *arguments, "-o", str(folder / name))
    return folder / name


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "llama3-8b", "--on", "8xa100-40gb"),
        ("--model", "llama3-70b", "--on", "16xh100-80gb"),
        ("--model", "llama2-7b", "--on", "8x24GiB", "--strategy", "ddp"),
        ("--model", "mixtral-8x7b", "--on", "16xa100-80gb"),
        ("--model", "llama3-8b", "--on", "1xh100-80gb"),
    ],
)
def test_a_screen_holds_the_verdict_the_proposals_and_the_first_sentence(arguments: tuple[str, ...]) -> None:
    done = run("fit", *arguments)
    lines = done.stdout.splitlines()
    assert done.returncode == 11, done.stderr
    assert len(lines) <= 24
    assert max(cell_len(line) for line in lines) <= 80
    assert "does not fit" in lines[0] and "to fit" in lines[0]
    assert any(line.startswith("  What makes it fit ") for line in lines)
    assert any(line.startswith("next ") for line in lines)


def test_a_job_that_fits_says_so_with_what_would_use_the_room() -> None:
    done = run("fit", "--model", "llama3-8b", "--on", "8xh100-80gb")
    assert done.returncode == 0
    assert done.stdout.startswith("ok        fits h100-80gb already: needs ")
    assert "What would use the room" in done.stdout
    assert "What makes it fit" not in done.stdout


def test_nothing_fits_says_what_is_missing() -> None:
    done = run("fit", "--model", "deepseek-v3", "--on", "8xa100-40gb")
    assert done.returncode == 11
    first = done.stdout.splitlines()[0]
    assert "nothing known here fits it on 8 GPUs of a100-40gb" in first
    assert "short" in first
    assert "model states on one rank" in done.stdout
    assert "GPUs of this type would do" in done.stdout


@pytest.mark.parametrize(
    ("what", "word"), [("micro-batch", "largest micro-batch"), ("seq-len", "longest sequence")]
)
def test_a_limit_is_found(what: str, word: str) -> None:
    arguments = ("--model", "llama3-8b", "--on", "8xh100-80gb", "--checkpointing", "full")
    done = run("fit", *arguments, "--find-limit", what)
    assert done.returncode == 0, done.stderr
    assert word in done.stdout.splitlines()[0]


def test_a_limit_below_everything_is_critical() -> None:
    done = run("fit", "--model", "llama3-70b", "--on", "8xa100-40gb", "--find-limit", "micro-batch")
    assert done.returncode == 11
    assert "even micro-batch 1 does not surely fit" in done.stdout


def test_an_estimates_report_is_enough(tmp_path: Path) -> None:
    job = ("--model", "llama3-8b", "--on", "8xa100-40gb", "--micro-batch", "2", "--strategy", "zero3")
    report = estimated(tmp_path, *job)
    from_report, from_options = run("fit", str(report)), run("fit", *job)
    assert from_report.returncode == 11
    assert from_report.stdout == from_options.stdout


def test_options_win_over_a_report(tmp_path: Path) -> None:
    report = estimated(tmp_path, "--model", "llama3-8b", "--on", "8xa100-40gb")
    done = run("fit", str(report), "--on", "8xh100-80gb")
    assert "fits h100-80gb already" in done.stdout


def test_its_own_report_is_read_back(tmp_path: Path) -> None:
    first = tmp_path / "f.json"
    run("fit", "--model", "llama3-8b", "--on", "8xa100-40gb", "-o", str(first))
    assert run("fit", str(first)).stdout.splitlines()[0].startswith("critical  does not fit a100-40gb")


def test_sentences_name_the_file_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(TOML)
    done = run("fit", "--config", "train.toml", "--on", "8xa100-80gb", "-v", columns=120, cwd=tmp_path)
    text = " ".join(done.stdout.split())
    assert 'In train.toml set activation_checkpoint.mode = "full"' in text
    assert "training.global_batch_size = 32" in text


def test_a_failure_alone_cannot_be_searched_and_says_what_is_missing(tmp_path: Path) -> None:
    done = run("fit", str(explained(tmp_path, OWN)))
    assert done.returncode == 3
    assert "cannot search: the job's settings are not known; 1.3 GiB were missing" in done.stdout
    assert "--model NAME --on 8xTYPE" in " ".join(done.stdout.split())


def test_what_the_message_itself_shows_is_said_without_settings(tmp_path: Path) -> None:
    done = run("fit", str(explained(tmp_path, SHARED)))
    assert done.returncode == 11
    assert "other processes hold 9.5 GiB of the card" in done.stdout
    assert "expandable_segments:True" in done.stdout


def test_with_both_the_proposals_leave_room_to_others(tmp_path: Path) -> None:
    failure = explained(tmp_path, SHARED)
    report = estimated(tmp_path, "--model", "llama3-8b", "--on", "8xa100-40gb")
    done = run("fit", str(report), str(failure))
    assert "What makes it fit 29.9 GiB" in done.stdout


def test_a_failure_and_a_model_make_a_search_on_the_messages_card(tmp_path: Path) -> None:
    done = run("fit", str(explained(tmp_path, OWN)), "--model", "llama3-8b", "--gpus", "8")
    assert done.returncode == 11
    assert "does not fit a GPU of 39.4 GiB" in done.stdout


def test_a_failure_of_another_job_is_told(tmp_path: Path) -> None:
    failure = explained(tmp_path, OWN)
    done = run("fit", str(failure), "--model", "llama3-8b", "--gpus", "8", "--checkpointing", "full")
    assert done.stdout.startswith("warning   the job wanted 38.6 GiB, these settings should need ")


def test_json_holds_the_proposals_in_bytes() -> None:
    done = run("fit", "--model", "llama3-8b", "--on", "8xa100-40gb", "--format", "json")
    report = json.loads(done.stdout)
    table = next(each for each in report["tables"] if each["name"] == "oom-fit-proposals")
    names = [column["name"] for column in table["columns"]]
    row = dict(zip(names, table["rows"][0], strict=True))
    assert row["answer"] == "fits"
    assert row["need_low"] < row["need_high"] < 39.4 * 2**30
    assert row["headroom"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no model"),
        (("--model", "llama3-8b"), "which GPUs?"),
        (("--model", "llama3-8b", "--on", "8xh100-80gb", "--find-limit", "rank"), "is not known"),
        (("--on", "8xh100-80gb"), "no model"),
    ],
)
def test_what_is_missing_is_asked_for(arguments: tuple[str, ...], message: str) -> None:
    done = run("fit", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_report_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    path.write_text(
        json.dumps(
            {
                "schema_version": 1,
                "tool": {"name": "distdoctor", "version": "1", "command": "env"},
                "verdict": {"status": "ok", "title": "x", "summary": "y"},
            }
        )
    )
    done = run("fit", str(path))
    assert done.returncode == 3
    assert "holds neither the settings of a job nor a message" in done.stderr


# --- the record -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["llama3-8b", "deepseek-v3", "mixtral-8x7b"])
def test_a_record_comes_back_as_it_was(model: str) -> None:
    said = Settings(
        model=preset(model),
        dp_shard=-1,
        strategy=DataParallel.MEGATRON,
        megatron=MegatronDetails(layout=("Et*3", "t"), moment_bytes=(2, 2)),
        adapter=Adapter(rank=4),
        expert_imbalance=1.5,
        meta_init=False,
    )
    cluster = parse_cluster("2x8xh100-80gb")
    settings, found = settings_of_table(settings_table(said, cluster), "x")
    assert found == cluster
    assert settings.model is not None and said.model is not None
    assert settings.model.shape == said.model.shape
    assert settings.megatron == said.megatron and settings.adapter == said.adapter
    assert (settings.dp_shard, settings.expert_imbalance, settings.meta_init) == (-1, 1.5, False)


def record(*rows: tuple[Any, ...]) -> Table:
    base: list[tuple[Any, ...]] = [("model.name", "m"), ("model.source", "s"), ("model.stated_params", 10**9)]
    names = {row[0] for row in rows if row}
    return Table(
        name=TABLE,
        title="",
        columns=(Column(name="setting"), Column(name="value")),
        rows=tuple([row for row in base if row[0] not in names] + list(rows)),
    )


@pytest.mark.parametrize(
    "row",
    [
        ("micro_batch", 10**30),
        ("micro_batch", -1),
        ("micro_batch", "4"),
        ("micro_batch", True),
        ("micro_batch", 1.5),
        ("strategy", "__import__('os')"),
        ("strategy", 3),
        ("expert_imbalance", float("inf")),
        ("expert_imbalance", float("nan")),
        ("meta_init", "yes"),
        ("pp", 10**9),
        ("model.shape.num_layers", 10**9),
        ("model.shape.moe.every", 0),
        ("model.name", "x" * 10_000),
        ("no_such_setting", 1),
        ("model.__class__", "x"),
        ("gpu.type", "no such card"),
        ("gpu.type", 5),
        ("gpu.color", "red"),
        ("adapter.base_bits", 4),
        ("megatron.moment_bytes", "4"),
        ("megatron.moment_bytes", "4,x"),
        ("megatron.layout", ",".join("t" * 2000)),
        (5, 5),
        ("micro_batch",),
    ],
)
def test_a_hostile_record_is_refused(row: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        settings_of_table(record(row), "x")


def test_a_record_of_thousands_of_rows_is_refused() -> None:
    with pytest.raises(InputError):
        settings_of_table(record(*((f"x{number}", 1) for number in range(1000))), "x")


def test_a_setting_twice_is_refused() -> None:
    with pytest.raises(InputError):
        settings_of_table(record(("micro_batch", 1), ("micro_batch", 2)), "x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.shape.num_layers", 400),
        ("model.shape.num_heads", 0),
        ("model.shape.hidden_size", 0),
        ("micro_batch", 0),
        ("seq_len", 10**15),
        ("world_size", 10**15),
        ("tp", 7),
        ("model.shape.vocab_size", 10**15),
    ],
)
def test_sizes_of_no_job_end_as_an_error_and_not_as_a_crash(key: str, value: int, tmp_path: Path) -> None:
    report = estimated(tmp_path, "--model", "llama3-8b", "--on", "8xa100-40gb", "--mesh", "tp=2")
    content = json.loads(report.read_text())
    table = next(each for each in content["tables"] if each["name"] == TABLE)
    table["rows"] = [row for row in table["rows"] if row[0] != key] + [[key, value]]
    report.write_text(json.dumps(content))
    done = run("fit", str(report))
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2, 3, 11)


def test_the_best_proposals_are_confirmed_by_simulation(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "fit.json"
    done = run(
        "fit", "--model", "tiny", "--on", "2x2.2GiB", "--micro-batch", "512", "--simulate", "-o", str(out)
    )
    assert done.returncode == 11, done.stderr
    report = json.loads(out.read_text())
    confirmed = [
        row
        for table in report["tables"]
        if table["name"] == "oom-fit"
        for row in table["rows"]
        if any(isinstance(cell, str) and cell.endswith(", fits") for cell in row)
    ]
    assert confirmed, done.stdout
