"""The verdict where nothing is wrong: what was reached, beside what was expected, and what was not judged."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.nccl_bench.analysis.expectation import Expectation, expectation_of
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.nccl_bench.tables import main_rows
from distdoctor.report.assemble import MAX_TITLE
from distdoctor.report.model import CheckState, Confidence, Report, Severity, SkipCause, Status, Verdict
from distdoctor.units import format_bytes

PAIRS = "pass 1 "
"""How a pass over the pairs of ranks is named where it was left out (`measure/run.py`)."""

NOISY_ID = "bench-noisy"
BASELINE_ID = "bench-regression"


def bench_verdict(report: Report, all_facts: Sequence[BenchFacts]) -> Verdict:
    """The report's verdict; where no finding speaks, in this command's words."""
    verdict = _verdict(report, all_facts)
    refused = next((each for each in report.skipped if each.id == BASELINE_ID), None)
    if (
        refused is None
        or refused.cause is SkipCause.NOISY
        or all(each.baseline is None for each in all_facts)
    ):
        return verdict
    # Who gave a baseline waits for this answer first, and a terminal cuts what is long.
    summary = f"Not compared: {refused.reason}. {verdict.summary}".strip()
    return replace(verdict, summary=summary)


def _verdict(report: Report, all_facts: Sequence[BenchFacts]) -> Verdict:
    verdict = report.verdict
    serious = [
        each for each in report.findings if each.ignored is None and each.severity is not Severity.INFO
    ]
    if serious:
        return verdict
    if verdict.status is Status.UNKNOWN:
        ended = next((each.stopped for each in all_facts if each.stopped is not None), None)
        if ended is not None and (ended.by_user or not report.subject.missing_ranks):
            # Before noise: of a run that somebody broke off nobody asks how steady it was.
            who = "somebody ended the measurement" if ended.by_user else "the measurement was ended"
            where = f" in {ended.phase}" if ended.phase else ""
            summary = f"It was ended{where}: {ended.reason}. {_reached(all_facts)}"
            return replace(verdict, title=f"cannot tell: {who} early", summary=summary.strip())
        noisy = next((each for each in report.skipped if each.id == NOISY_ID and each.essential), None)
        if noisy is not None:
            why = noisy.reason.removeprefix("inconclusive: ")
            return replace(
                verdict,
                title="inconclusive: too noisy to judge the speed of the network",
                summary=f"{_sentence(why)} {_reached(all_facts)}".strip(),
            )
        if any(pairs_left_out(facts) for facts in all_facts):
            return replace(
                verdict,
                title="cannot tell who is slow: no time was left to measure pairs of ranks",
                summary=f"Give it more time (--time-limit), or fewer sizes. {_reached(all_facts)}".strip(),
            )
        refused = [each for facts in all_facts if facts.is_live for each in facts.not_measured]
        if refused and _best_row(all_facts) is None and not report.subject.missing_ranks:
            what, why = refused[0].what, refused[0].why
            title = f"cannot tell: nothing could be measured; {what}: {why}"
            return replace(verdict, title=title[:MAX_TITLE], summary=f"{what}: {why}.")
        return verdict
    best = _best_row(all_facts)
    if best is None:
        return verdict
    facts, row = best
    answer = expectation_of(facts, row)
    reached = _words(row)
    if row.busbw_gbps is None:
        title, rest = f"{reached}; one rank has no bus bandwidth", "Start more ranks to measure links."
    elif isinstance(answer, Expectation) and row.size_bytes >= answer.from_bytes:
        where = "within" if row.busbw_gbps >= answer.low_gbps else "just below"
        title = f"{reached}: {where} {answer.low_gbps:.3g}-{answer.high_gbps:.3g} expected"
        rest = f"Expected by: {answer.rule} ({answer.source})."
    elif isinstance(answer, Expectation):
        title = f"{reached}; no fault found, sizes too small to judge"
        rest = f"Bandwidth is judged from {format_bytes(answer.from_bytes)} on; measure with --max-bytes."
    elif _is_no_slower(report):
        title = f"{reached}; no slower than the baseline"
        rest = f"Compared with the baseline; besides, bandwidth is not judged: {answer.reason}."
    else:
        title = f"{reached}; no fault found, bandwidth not judged"
        rest = f"Bandwidth is not judged: {answer.reason}." + (
            f" {_sentence(answer.how)}" if answer.how else ""
        )
    return replace(
        verdict,
        title=title[:MAX_TITLE],
        summary=f"{_about(verdict)} {rest}".strip(),
        confidence=verdict.confidence
        if isinstance(answer, Expectation) and row.busbw_gbps is not None
        else Confidence.MEDIUM,
    )


def pairs_left_out(facts: BenchFacts) -> bool:
    """A run over several hosts in which the time was over before any pair of ranks was measured."""
    several = facts.is_live and (facts.num_hosts or 1) > 1
    return (
        several and facts.matrix is None and any(each.what.startswith(PAIRS) for each in facts.not_measured)
    )


def _is_no_slower(report: Report) -> bool:
    """The comparison with the baseline was made, and found nothing worse than a note."""
    return any(
        each.id == BASELINE_ID and each.state in (CheckState.PASSED, CheckState.FOUND)
        for each in report.checks
    )


def _about(verdict: Verdict) -> str:
    """What `build_report` said of the subject, up to its first colon."""
    head, colon, _ = verdict.summary.partition(":")
    return f"{head}." if colon else ""


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}."


def _reached(all_facts: Sequence[BenchFacts]) -> str:
    best = _best_row(all_facts)
    return f"Measured all the same: {_words(best[1])}." if best is not None else ""


def _best_row(all_facts: Sequence[BenchFacts]) -> tuple[BenchFacts, Row] | None:
    """The largest all_reduce, or whatever is largest."""
    candidates = [(facts, row) for facts in all_facts for row in main_rows(facts.rows)]
    if not candidates:
        return None
    return max(candidates, key=lambda each: (each[1].collective == "all_reduce", each[1].size_bytes))


def _words(row: Row) -> str:
    size = format_bytes(row.size_bytes)
    if row.busbw_gbps is None:
        return f"{row.collective} of {size} in {row.time_us:.4g} us"
    return f"{row.collective} {row.busbw_gbps:.3g} GB/s at {size}"
