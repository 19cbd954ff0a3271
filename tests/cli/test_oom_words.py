"""Words of the command line: other names for the same, and what is said where a word is none."""

from __future__ import annotations

import pytest

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_settings import settings_of_words
from distdoctor.errors import UsageError
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Optimizer,
    Precision,
    Settings,
)


def said(**words: str) -> Settings:
    return settings_of_words(Words(**words), ())[0]  # type: ignore[arg-type]  # all of these are words


@pytest.mark.parametrize(
    ("option", "word", "value"),
    [
        ("strategy", "FSDP", DataParallel.FSDP),
        ("strategy", "zero_3", DataParallel.ZERO3),
        ("optimizer", "paged_adamw_8bit", Optimizer.ADAMW_8BIT),
        ("optimizer", "adamw_torch", Optimizer.ADAMW),
        ("checkpointing", "true", Checkpointing.FULL),
        ("attention", "flash_attention_2", Attention.FLASH),
        ("attention", "eager", Attention.UNFUSED),
        ("seq_len", "8k", 8192),
        ("seq_len", "131072", 131072),
        ("seq_len", "1M", 1 << 20),
    ],
)
def test_other_words_for_the_same(option: str, word: str, value: object) -> None:
    assert getattr(said(**{option: word}), option) == value


@pytest.mark.parametrize(
    ("strategy", "meant"), [("zero2", Precision.MASTER), ("fsdp2", Precision.MIXED), ("ddp", Precision.MIXED)]
)
def test_bf16_is_what_each_strategy_makes_of_it(strategy: str, meant: Precision) -> None:
    job = resolve(said(model="llama3-8b", on="8xh100", strategy=strategy, precision="bf16"))
    assert job.precision is meant


@pytest.mark.parametrize(
    ("option", "word", "hint"),
    [
        ("strategy", "deepspeed", "which stage"),
        ("strategy", "hsdp", "dp_replicate"),
        ("optimizer", "adamax", "known: adamw"),
        ("precision", "fp8", "known: fp32"),
        ("seq_len", "8kb", "8192"),
        ("seq_len", "-1", "8192"),
    ],
)
def test_a_word_that_is_none_gets_the_words_that_are(option: str, word: str, hint: str) -> None:
    with pytest.raises(UsageError) as told:
        said(**{option: word})
    assert hint in (told.value.hint or "")
