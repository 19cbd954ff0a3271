"""What a terminal shows while something takes its time."""

from __future__ import annotations

import io
import sys

import pytest

from distdoctor.cli.waiting import START_OF_LINE, waiting


class Terminal(io.StringIO):
    """A stream that people watch."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_and_cleared_also_behind_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(ValueError, match="broken"), waiting("simulating, and this may take long"):
        raise ValueError("broken")
    assert stream.getvalue() == "simulating, and thi" + START_OF_LINE


def test_a_pipe_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with waiting("simulating"):
        pass
    assert stream.getvalue() == ""
