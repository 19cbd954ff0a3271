"""Nothing leaves unsealed: secrets out, unseen characters shown, lengths bounded; sealing twice changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec import Struct
from msgspec.structs import replace

from distdoctor.report.model import (
    Column,
    Evidence,
    Fact,
    Finding,
    Impact,
    Report,
    Table,
    Tool,
    Verdict,
)
from distdoctor.report.seal import MAX_LINE_CHARS, MAX_TEXT_CHARS, seal
from report.builders import all_clear, hostile, slow_gpu
from report.generated import reports


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports)
@pytest.mark.once
def test_sealing_twice_changes_nothing(report: Report) -> None:
    once = seal(report)
    assert seal(once) == once


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports)
@pytest.mark.once
def test_no_unseen_character_is_left_in_any_string(report: Report) -> None:
    for text in strings(seal(report)):
        assert text.replace("\n", "").isprintable()


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from strings(each)
    elif isinstance(value, dict):
        yield from value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from strings(getattr(value, name))


def sealed_summary(text: str) -> str:
    return seal(replace(all_clear(), verdict=replace(all_clear().verdict, summary=text))).verdict.summary


def sealed_title(text: str) -> str:
    return seal(replace(all_clear(), verdict=replace(all_clear().verdict, title=text))).verdict.title


def test_escapes_are_shown() -> None:
    assert (
        sealed_title("\x1b[31mred\x1b[0m \u202egpj \u200b\x9b\ud800")
        == r"\x1b[31mred\x1b[0m \u202egpj \u200b\x9b\ud800"
    )


def test_a_newline_in_a_single_line_field_is_a_sign_and_stays_in_a_paragraph() -> None:
    assert sealed_title("one\r\ntwo\n") == "one ⏎ two"
    assert sealed_summary("one\r\ntwo\n") == "one\ntwo"


def test_odd_spaces_become_spaces() -> None:
    assert sealed_title("a\tb\u00a0c\u3000d") == "a b c d"


def test_lengths_are_bounded_and_the_cut_is_shown() -> None:
    assert len(sealed_summary("word " * 100_000)) <= MAX_TEXT_CHARS
    report = replace(all_clear(), facts=(Fact(key="a.b", value="x" * 10_000),))
    value = seal(report).facts[0].value
    assert isinstance(value, str)
    assert len(value) <= MAX_LINE_CHARS
    assert value.endswith("… (cut)")


def test_a_secret_across_the_cut_does_not_leak_its_half() -> None:
    secret = "hf_abcdefGHIJ0123456789"
    for shift in range(0, 60, 3):
        text = "x" * (MAX_TEXT_CHARS - 40 + shift) + " " + secret + " tail" * 10
        assert "hf_" not in sealed_summary(text)


def test_numbers_that_json_cannot_hold_are_none_or_text() -> None:
    report = replace(
        all_clear(), duration_s=math.nan, timings={"a": math.inf, "b": 1.0}, facts=(Fact(key="a.b", value=1 << 80),),
        impact=Impact(slowdown_pct=-math.inf),
    )  # fmt: skip
    sealed = seal(report)
    assert sealed.duration_s is None
    assert sealed.timings == {"b": 1.0}
    assert sealed.facts[0].value == str(1 << 80)
    assert sealed.impact is not None
    assert sealed.impact.slowdown_pct is None


def test_masked_things_are_counted_on_top_of_those_of_before() -> None:
    report = replace(
        all_clear(), verdict=replace(all_clear().verdict, summary="HF_TOKEN=abc /home/bob/x a@b.example")
    )
    sealed = seal(report)
    assert sealed.redaction.secrets_masked == 3
    more = replace(sealed, verdict=replace(sealed.verdict, summary="API_KEY=abc"))
    assert seal(more).redaction.secrets_masked == 4


def test_a_fact_is_masked_by_its_key() -> None:
    facts = (
        Fact(key="env.WANDB_API_KEY", value="0123abc"),
        Fact(key="env.NCCL_DEBUG", value="INFO"),
        Fact(key="env.HF_TOKEN", value=None, why="not set"),
        Fact(key="train.num_tokens", value=4096),
    )
    assert [fact.value for fact in seal(replace(all_clear(), facts=facts)).facts] == [
        "[secret]",
        "INFO",
        None,
        4096,
    ]


def test_a_table_is_masked_by_column_and_by_the_name_in_the_first_cell() -> None:
    by_row = Table(
        name="v", title="v", columns=(Column(name="variable"), Column(name="value")), rows=(("HF_TOKEN", "abc"), ("NCCL_DEBUG", "INFO"))
    )  # fmt: skip
    by_column = Table(
        name="u", title="u", columns=(Column(name="user"), Column(name="password")), rows=(("x", "abc"),)
    )
    sealed = seal(replace(all_clear(), tables=(by_row, by_column)))
    assert sealed.tables[0].rows == (("HF_TOKEN", "[secret]"), ("NCCL_DEBUG", "INFO"))
    assert sealed.tables[1].rows == (("x", "[secret]"),)


def test_the_command_line_is_masked_across_its_words() -> None:
    tool = Tool(
        name="distdoctor",
        version="1",
        command="env",
        argv=("env", "--hf-token", "abc", "--api-key=abc", "--pid", "7"),
    )
    assert seal(replace(all_clear(), tool=tool)).tool.argv == (
        "env",
        "--hf-token",
        "[secret]",
        "--api-key=[secret]",
        "--pid",
        "7",
    )


def test_a_secret_seen_beside_its_name_is_masked_where_it_stands_alone() -> None:
    evidence = Evidence(text="DB_PASSWORD=hunter2hunter2 is in the environment", value="hunter2hunter2")
    finding = replace(slow_gpu().findings[0], evidence=(evidence,), explanation="saw hunter2hunter2 twice")
    sealed = seal(replace(all_clear(), findings=(finding,)))
    assert "hunter2" not in str(sealed)


SECRET_VALUES = (
    "hf_planted0123456789AB",
    "AKIAPLANTED123456789",
    "postgres://u:planted99@db/x",
    "PASSWORD=planted99",
    "planted@mail.example",
)


@pytest.mark.parametrize("secret", SECRET_VALUES)
def test_a_secret_in_any_field_is_masked(secret: str) -> None:
    planted = plant(hostile(), f"a {secret} b")
    assert "planted" not in str(seal(planted)).lower()


def plant(value: Any, text: str) -> Any:
    """`value` with every free string replaced by `text`."""
    if isinstance(value, str):
        return (
            text
            if type(value) is str
            and value not in {"culprit", "yes", "estimated", "bars", "lines", "heat", "left"}
            else value
        )
    if isinstance(value, tuple):
        return tuple(plant(each, text) for each in value)
    if isinstance(value, dict):
        return dict.fromkeys([text], 1.0)
    if isinstance(value, Struct):
        return replace(value, **{name: plant(getattr(value, name), text) for name in value.__struct_fields__})
    return value


def test_enums_and_numbers_pass_untouched() -> None:
    report = slow_gpu()
    assert seal(report) == report
    assert isinstance(seal(report).findings[0], Finding)
    assert isinstance(seal(report).verdict, Verdict)
