"""Words, configurations and reports that say nothing usable: named, never taken in silence."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_settings import settings_of_words
from distdoctor.errors import InputError, UsageError
from distdoctor.oom.configs.files import doubts_of
from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.facts.events import Phase
from distdoctor.oom.failed import read_failure
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import DataParallel, Settings
from distdoctor.report.codec import encode
from distdoctor.report.model import Column, Report, Status, Table, Tool, Verdict


@pytest.mark.parametrize("words", [{"on": ""}, {"mesh": ""}, {"mesh": " "}])
def test_an_empty_word_is_not_taken_for_none(words: dict[str, str]) -> None:
    """A script's variable that is empty must not turn a verdict into none."""
    with pytest.raises(UsageError):
        settings_of_words(Words(**words), ())  # type: ignore[arg-type]  # both are words


def test_no_gpus_on_a_node_is_refused() -> None:
    said, _, _ = settings_of_words(Words(model="llama3-8b", on="2x8xh100-80gb", gpus_per_node=0), ())
    with pytest.raises(UsageError, match="gpus per node"):
        resolve(said)


def test_a_number_of_thousands_of_digits_is_no_toml() -> None:
    with pytest.raises(InputError, match="not valid TOML"):
        read_config_text(
            "job.toml",
            f"[training]\nlocal_batch_size = {'9' * 5000}\n[parallelism]\ntensor_parallel_degree = 2\n",
        )


def test_values_that_were_not_used_are_doubts(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": "three"}, "train_micro_batch_size_per_gpu": "auto"}')
    doubts = doubts_of([str(path)], Settings())
    assert any("stage" in each for each in doubts)
    assert any("micro" in each for each in doubts)


def test_what_is_settled_elsewhere_is_no_doubt(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}')
    merged = Settings(micro_batch=2, strategy=DataParallel.ZERO3)
    assert not any("train_micro_batch" in each for each in doubts_of([str(path)], merged))


def failure_report(**cells: object) -> bytes:
    values = {
        "rank": 0,
        "total": 1 << 36,
        "allocated": 1 << 35,
        "requested": 1 << 30,
        "phase": "forward",
        **cells,
    }
    table = Table(
        name="oom-events",
        title="",
        columns=tuple(Column(name=name) for name in values),
        rows=(tuple(values.values()),),  # type: ignore[arg-type]  # hostile on purpose
    )
    report = Report(
        tool=Tool(name="distdoctor", version="0", command="oom-explain"),
        verdict=Verdict(status=Status.OK, title="", summary=""),
        started_utc="2026-01-01T00:00:00Z",
        tables=(table,),
    )
    return encode(report)


@pytest.mark.parametrize("phase", ["<b>nan</b>", 1 << 62, "9" * 1000, None, 1.5])
def test_a_phase_that_nobody_knows_is_unknown(phase: object, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(failure_report(phase=phase))
    assert read_failure(str(path)).phase == Phase.UNKNOWN.value


@pytest.mark.parametrize("allocated", [-1, 1.5, "x", None, True, 1 << 62])
def test_bytes_that_cannot_be_are_no_failure(allocated: object, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(failure_report(allocated=allocated))
    with pytest.raises(InputError, match="no message with its numbers"):
        read_failure(str(path))


def test_the_report_of_this_test_is_one(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(failure_report())
    assert json.loads(path.read_text())["tool"]["command"] == "oom-explain"
    assert read_failure(str(path)).wanted_bytes == (1 << 35) + (1 << 30)
    assert msgspec.json.decode(path.read_bytes())


def test_a_configuration_that_decides_nothing_is_a_doubt(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("if true; then\ntorchrun --nproc_per_node 8 train.py\n")
    assert doubts_of([str(path)], Settings(world_size=8))
