"""TorchTitan's structured logs, in the flat layout of 0.3 and in the four columns before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from distdoctor.straggler.readers.torchtitan import TORCHTITAN_LOGS
from straggler.readers.row_builders import notes_of, only, read, sniffed, why_not, write

BEGAN_US = 1_796_072_326_460_612


class Log:
    """Lines as the logger writes them: a record when a span begins, and one with its milliseconds when it ends."""

    def __init__(self, rank: int, source: str = "training") -> None:
        self.lines: list[dict[str, object]] = []
        self.now_us = BEGAN_US
        self.rank, self.source = rank, source

    def record(self, name: str, step: int | None, **more: object) -> None:
        line: dict[str, object] = {
            "delta_ms": 0.1, "tid": 11, "rank": self.rank, "global_rank": self.rank, "local_rank": self.rank % 8,
            "source": self.source, "host_name": f"node-{self.rank // 8}", "pid": 11, "step": step, "relative_step": step,
            "time": self.now_us // 1_000_000, "time_ms": self.now_us // 1000, "time_us": self.now_us, "log_type": "event",
            "log_type_name": name, "event_name": None, "caller": "torchtitan/trainer.py:888:train_step",
            "seq_id": len(self.lines), "message": f"[step {step}] {name}", **more,
        }  # fmt: skip
        self.lines.append(
            {key: value for key, value in line.items() if value is not None or key == "event_name"}
        )

    def span(
        self,
        name: str,
        step: int | None,
        ms: float,
        *,
        inside: tuple[tuple[str, float], ...] = (),
        **more: object,
    ) -> None:
        self.record(f"{name}_start", step, **more)
        for inner, inner_ms in inside:
            self.span(inner, step, inner_ms, **more)
        self.now_us += int((ms - sum(inner_ms for _, inner_ms in inside)) * 1000)
        self.record(f"{name}_end", step, value=ms, **more)

    def flat(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def four_columns(self) -> str:
        def split(line: dict[str, object]) -> dict[str, object]:
            return {
                "int": {k: v for k, v in line.items() if isinstance(v, int)},
                "normal": {k: v for k, v in line.items() if isinstance(v, str)},
                "double": {k: v for k, v in line.items() if isinstance(v, float)},
                "normvector": {k: v for k, v in line.items() if isinstance(v, list)},
            }

        return "".join(json.dumps(split(line)) + "\n" for line in self.lines)


def trained(rank: int, *, first: int = 1, steps: int = 3, data_ms: float = 2.0) -> Log:
    log = Log(rank)
    log.record("training_start", None, log_type="instant")
    log.span("checkpoint_load", None, 900.0)
    for step in range(first, first + steps):
        tags = {"step_tags": ["gc"]} if step % 2 == 0 else {}
        parts = (("gc_collect", 7.0 if tags else 0.01), ("fetching_batch", data_ms), ("fetching_batch", data_ms),
                 ("fwd_bwd", 100.0), ("optim", 20.0))  # fmt: skip
        log.span("step", step, 150.0, inside=parts, **tags)
        log.record("metric_value", step, value=3.0, event_name="loss", log_type="instant")
    return log


def name_of(rank: int, stamp: str = "20261130-205846-4P8JUN") -> str:
    return f"structured_logs/training.global_rank_{rank}.{stamp}.jsonl"


@pytest.mark.parametrize("layout", [Log.flat, Log.four_columns])
def test_spans_become_sections_and_micro_batches_add_up(tmp_path: Path, layout) -> None:
    paths = [write(tmp_path, name_of(rank), layout(trained(rank, data_ms=2.0 + rank))) for rank in range(2)]
    assert sniffed(TORCHTITAN_LOGS, paths[0]) > 0.9 and sniffed(JSON_ROWS, paths[0]) == 0
    reading = read(TORCHTITAN_LOGS, *paths)
    timings = only(reading)
    assert timings.steps.tolist() == [1, 2, 3]
    assert timings.sections[Section.DATA][:, 0].tolist() == [4, 6]
    assert timings.sections[Section.STEP][0].tolist() == [150, 150, 150]
    assert timings.sections[Section.GC][0, 1] == 7
    assert timings.places[1].host == "node-0"
    assert timings.started_s is not None and abs(timings.started_s[0] - BEGAN_US / 1e6) < 1


def test_forward_and_backward_hold_collectives_and_are_no_own_time(tmp_path: Path) -> None:
    reading = read(TORCHTITAN_LOGS, write(tmp_path, name_of(0), trained(0).flat()))
    sections = only(reading).sections
    assert sections[Section.BACKWARD_WALL][0, 0] == 100
    assert not {Section.FORWARD, Section.BACKWARD, Section.COMPUTE, Section.OPTIMIZER} & set(sections)
    assert any("fwd_bwd" in text for text in notes_of(reading, NoteKind.LIMITED))
    assert notes_of(reading, NoteKind.DROPPED_VALUES) == [
        "spans optim hold collectives beside own work and are not used"
    ]


def test_a_restarted_rank_has_two_files_and_the_later_counts(tmp_path: Path) -> None:
    again = trained(0, first=3, steps=4, data_ms=9.0)
    for line in again.lines:
        line["time_us"] = int(str(line["time_us"])) + 60_000_000
    paths = [
        write(tmp_path, name_of(0, "20261130-205946-AAAAAA"), again.flat()),
        write(tmp_path, name_of(0, "20261130-205846-ZZZZZZ"), trained(0, steps=4).flat()),
    ]
    reading = read(TORCHTITAN_LOGS, *paths)
    assert only(reading).sections[Section.DATA].tolist() == [[4, 4, 18, 18, 18, 18]]
    assert notes_of(reading, NoteKind.RESTARTED)


def test_sources_with_ranks_of_their_own_are_kept_apart(tmp_path: Path) -> None:
    generator = Log(0, "generator")
    generator.span("fetching_batch", 1, 5.0)
    reading = read(
        TORCHTITAN_LOGS,
        write(tmp_path, name_of(0), trained(0).flat()),
        write(tmp_path, "structured_logs/generator.global_rank_0.x.jsonl", generator.flat()),
    )
    assert sorted(timings.source for timings in reading.steps) == [
        "TorchTitan structured logs (generator)",
        "TorchTitan structured logs (training)",
    ]


def test_a_span_that_did_not_end_is_not_measured(tmp_path: Path) -> None:
    text = trained(0).flat()
    cut = text[: text.rindex('"log_type_name": "fwd_bwd_end"')]
    timings = only(read(TORCHTITAN_LOGS, write(tmp_path, name_of(0), cut)))
    assert timings.steps.tolist() == [1, 2, 3]
    assert str(timings.sections[Section.STEP][0, 2]) == "nan" and timings.sections[Section.DATA][0, 2] == 4


def test_a_log_without_spans_is_refused_in_words(tmp_path: Path) -> None:
    log = Log(0)
    log.record("training_start", None)
    text = log.flat().replace("training_start", "structured_logger_started")
    assert why_not(read(TORCHTITAN_LOGS, write(tmp_path, name_of(0), text))) == "it holds no spans"


@pytest.mark.parametrize(
    "junk",
    [
        '{"log_type_name": "step_end", "step": "x"}',
        '{"log_type_name": "step_end", "step": -1, "value": 1e999}',
        '"_end"' + "[" * 50_000,
    ],
)
def test_broken_lines_are_left_out(tmp_path: Path, junk: str) -> None:
    reading = read(TORCHTITAN_LOGS, write(tmp_path, name_of(0), trained(0).flat() + junk + "\n"))
    assert only(reading).num_steps == 3
