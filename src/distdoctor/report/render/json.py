"""A report as JSON: the model itself."""

from __future__ import annotations

from distdoctor.report.codec import encode
from distdoctor.report.model import Report


def render_json(report: Report) -> str:
    """`report`, sealed by the caller, as indented JSON; report.schema.json describes it."""
    return encode(report).decode()
