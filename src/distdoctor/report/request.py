"""How a report was asked for, whatever the command."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from distdoctor.report.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The command line, when it started, and what counts."""

    argv: tuple[str, ...]
    started: datetime
    command: str
    """As it stands in the report: `nccl-bench`, `oom-explain`, `explain` …"""
    site: Site = field(default_factory=Site)
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
