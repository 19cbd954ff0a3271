"""One report per host of pasted text, so that text is compared like reports are. Pure but for reading the files."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.build import Request, env_report
from distdoctor.env.from_text import facts_from_files, members_of
from distdoctor.report.model import InputFile, Report


def reports_from_text(
    request: Request, paths: Sequence[str]
) -> tuple[list[tuple[str, Report]], list[InputFile]]:
    """(host or file, its report) for each host that the files speak of, and what became of each file.

    Raises InputError when no file can be read.
    """
    facts, inputs = facts_from_files(paths)
    return [(member.host, env_report(request, [member])) for member in members_of(facts)], inputs


def report_from_text(request: Request, paths: Sequence[str]) -> Report:
    """One report over everything that the files say. Raises InputError when no file can be read."""
    facts, inputs = facts_from_files(paths)
    return env_report(request, members_of(facts), inputs=inputs)
