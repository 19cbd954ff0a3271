"""What was given and not read keeps a verdict from being ok, and is named."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distdoctor.report.exit_code import exit_code_for
from distdoctor.report.model import InputFile, Report, Status
from distdoctor.report.unread import name_unread
from report.builders import all_clear, slow_gpu

READ = InputFile(path="a.txt", kind="nvidia-smi")
JUNK = InputFile(path="b.bin", kind="unknown", read=False, why_not="`b.bin` is no text")
BROKEN = InputFile(path="c.json", kind="unknown", read=False, why_not="cut off")
PARTLY = InputFile(path="d.log", kind="kernel log", why_not="2 GiB were left out")


def with_inputs(report: Report, *inputs: InputFile) -> Report:
    return replace(report, inputs=inputs)


def test_all_read_changes_nothing() -> None:
    report = with_inputs(all_clear(), READ)
    assert name_unread(report) is report


@pytest.mark.parametrize(
    ("inputs", "title", "told"),
    [
        ((READ, JUNK), "cannot tell: 1 of 2 inputs could not be read", "Not read: `b.bin` is no text."),
        ((READ, BROKEN), "cannot tell: 1 of 2 inputs could not be read", "Not read: `c.json`: cut off."),
        (
            (PARTLY,),
            "cannot tell: the input was read only in part",
            "Read in part: `d.log`: 2 GiB were left out.",
        ),
        ((READ, PARTLY), "cannot tell: 1 of 2 inputs were read only in part", "Read in part: `d.log`"),
    ],
)
def test_ok_becomes_unknown(inputs: tuple[InputFile, ...], title: str, told: str) -> None:
    report = name_unread(with_inputs(all_clear(), *inputs))
    assert report.verdict.status is Status.UNKNOWN
    assert report.verdict.title == title
    assert told in report.verdict.summary
    assert exit_code_for(report) == 3


def test_a_fault_stays_a_fault_and_names_what_was_not_read() -> None:
    report = name_unread(with_inputs(slow_gpu(), JUNK))
    assert report.verdict.status is Status.CRITICAL
    assert report.verdict.title == slow_gpu().verdict.title
    assert "Not read: `b.bin` is no text." in report.verdict.summary
    assert exit_code_for(report) == 11


def test_many_are_counted() -> None:
    report = name_unread(with_inputs(all_clear(), *[JUNK] * 500))
    assert "and 498 more" in report.verdict.summary
    assert len(report.verdict.summary) < 600
