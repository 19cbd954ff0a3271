"""A report as plain text that pastes anywhere: 80 columns, no colour, everything in it."""

from __future__ import annotations

from distdoctor.report.model import Report
from distdoctor.report.render.terminal import render_terminal

WIDTH = 80


def render_text(report: Report) -> str:
    """`report`, sealed by the caller, in full."""
    return render_terminal(report, width=WIDTH, color=False, verbose=True)
