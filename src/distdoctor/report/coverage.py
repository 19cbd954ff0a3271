"""How much was seen? `21 of 33 checks; kernel log not seen`. A report says this beside every verdict."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.report.model import CheckState, Report, SkipCause, Skipped

# The names of skipped checks that fit on one line beside the count.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Checks by how they ended, each id counted once however many hosts it ran on."""

    num_done: int
    """Found something or passed, on every host that was asked."""
    num_total: int
    """All checks but those that do not apply here."""
    num_not_applicable: int


def coverage_of(report: Report) -> Coverage:
    """Counts check ids; one that was skipped anywhere is not done, one that applies nowhere is left out."""
    states: dict[str, set[CheckState]] = {}
    for check in report.checks:
        states.setdefault(check.id, set()).add(check.state)
    absent = sum(1 for each in states.values() if each == {CheckState.NOT_APPLICABLE})
    skipped = sum(1 for each in states.values() if CheckState.SKIPPED in each)
    total = len(states) - absent
    return Coverage(num_done=total - skipped, num_total=total, num_not_applicable=absent)


def coverage_phrase(report: Report) -> str:
    """`21 of 33 checks`; empty when the command has no checks."""
    coverage = coverage_of(report)
    return f"{coverage.num_done} of {coverage.num_total} checks" if coverage.num_total else ""


def not_seen_phrase(report: Report) -> str:
    """`kernel log, PCIe link and 4 more not seen`, what the verdict hangs on first; empty when all was seen."""
    ordered = sorted(report.skipped, key=lambda skip: not skip.essential)
    names = list(dict.fromkeys(skip.what for skip in ordered))
    if not names:
        return ""
    rest = len(names) - MAX_NAMED
    if rest > 0:
        return f"{', '.join(names[:MAX_NAMED])} and {rest} more not seen"
    return f"{' and '.join((', '.join(names[:-1]), names[-1])) if len(names) > 1 else names[0]} not seen"


def coverage_line(report: Report) -> str:
    """`21 of 33 checks; kernel log not seen`, either part alone, or nothing."""
    return "; ".join(each for each in (coverage_phrase(report), not_seen_phrase(report)) if each)


def unsaid_coverage(report: Report, shown: str) -> str:
    """The coverage line, unless `shown` (what is already read of title and summary) tells it."""
    phrase = coverage_phrase(report)
    return "" if phrase and phrase in shown else coverage_line(report)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipFold:
    """Skips that have one cause, told together."""

    cause: SkipCause
    names: tuple[str, ...]
    """What was not looked at, each once."""
    hows: tuple[str, ...]
    """How to get it done, each once."""
    skips: tuple[Skipped, ...]

    @property
    def phrase(self) -> str:
        """`9 need root or the host`, `1 needs a tool that is not installed`."""
        count = len(self.names)
        cause = self.cause.value
        return f"{count} {cause.replace('need ', 'needs ', 1) if count == 1 else cause}"


def fold_skips(report: Report) -> list[SkipFold]:
    """Skips by cause, the largest group first."""
    by_cause: dict[SkipCause, list[Skipped]] = {}
    for skip in report.skipped:
        by_cause.setdefault(skip.cause, []).append(skip)
    folds = [
        SkipFold(
            cause=cause,
            names=tuple(dict.fromkeys(skip.what for skip in skips)),
            hows=tuple(dict.fromkeys(skip.how for skip in skips if skip.how)),
            skips=tuple(skips),
        )
        for cause, skips in by_cause.items()
    ]
    return sorted(folds, key=lambda fold: -len(fold.names))
