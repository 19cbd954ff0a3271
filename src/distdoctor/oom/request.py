"""How a report was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from distdoctor.report.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class OomRequest:
    """The command line, when it started, and what counts."""

    argv: tuple[str, ...]
    started: datetime
    command: str = "oom"
    site: Site = field(default_factory=Site)
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
