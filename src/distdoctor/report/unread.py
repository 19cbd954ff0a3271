"""Evidence that was given and not read, or not wholly, is named in the verdict and keeps it from being ok."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.report.model import Confidence, InputFile, Report, Status

# More names than this are counted, and longer reasons cut: the sentence stands before the summary, which a first
# screen shows only the beginning of.
MAX_NAMED = 2
MAX_REASON_CHARS = 160


def name_unread(report: Report) -> Report:
    """`report` with the inputs that were not read, or only in part, in the summary; ok becomes unknown.

    A verdict that is unknown for a reason of its own keeps its title.
    """
    unread = [each for each in report.inputs if not each.read]
    partly = [each for each in report.inputs if each.read and each.why_not]
    if not unread and not partly:
        return report
    told = [
        f"Not read: {_reasons(unread)}." if unread else "",
        f"Read in part: {_reasons(partly)}." if partly else "",
    ]
    verdict = report.verdict
    absent = report.subject.missing_ranks or report.subject.missing_hosts
    has_reason = bool(absent) or any(skip.essential for skip in report.skipped)
    title, confidence = verdict.title, verdict.confidence
    if verdict.status is Status.OK or (verdict.status is Status.UNKNOWN and not has_reason):
        title, confidence = f"cannot tell: {_counted(report.inputs, unread, partly)}", Confidence.HIGH
    return replace(
        report,
        verdict=replace(
            verdict,
            status=Status.UNKNOWN if verdict.status is Status.OK else verdict.status,
            title=title,
            confidence=confidence,
            summary=" ".join(part for part in (*told, verdict.summary) if part),
        ),
    )


def _counted(inputs: Sequence[InputFile], unread: Sequence[InputFile], partly: Sequence[InputFile]) -> str:
    if unread:
        return f"{len(unread)} of {len(inputs)} inputs could not be read"
    return (
        f"{len(partly)} of {len(inputs)} inputs were read only in part"
        if len(inputs) > 1
        else ("the input was read only in part")
    )


def _reasons(inputs: Sequence[InputFile]) -> str:
    told = []
    for each in inputs[:MAX_NAMED]:
        why = each.why_not or "no reason known"
        text = why if each.path in why else f"`{each.path}`: {why}"
        told.append(text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…")
    rest = len(inputs) - MAX_NAMED
    return "; ".join(told) + (f"; and {rest} more" if rest > 0 else "")
