"""How a report was asked for, from the options that all commands share."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from distdoctor.cli.output import OutputOptions

if TYPE_CHECKING:
    from distdoctor.report.request import ReportRequest


def make_request(output: OutputOptions, *, command: str) -> ReportRequest:
    """The request of this command line. Raises UsageError for ids that are none."""
    from distdoctor.cli.known_ids import check_ids
    from distdoctor.report.request import ReportRequest
    from distdoctor.report.site import load_site

    check_ids(output.only, output.ignore)
    return ReportRequest(
        command=command,
        argv=tuple(sys.argv[1:]),
        started=datetime.now(timezone.utc),
        site=load_site(output.site, os.environ),
        ignore=output.ignore,
        only=output.only,
    )
