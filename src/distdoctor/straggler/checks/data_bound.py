"""Do all ranks wait for their data loaders? Then nobody is slow, and the job is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.words import ms, percent

# Share of a step in which the median rank waits for input, from which on it is told, and from which it is a warning.
# Our own thresholds: 5 % is usual (MLPerf Mask R-CNN), above a fifth the GPUs are not what is slow.
TELL_SHARE = 0.1
WARN_SHARE = 0.2


def check_data_bound(facts: Analysed) -> Sequence[Outcome]:
    """A finding where waiting for input is a large part of every rank's step."""
    with_data = [each for each in facts.judged if Section.DATA in each.timings.sections]
    if not with_data:
        return [not_seen("the evidence does not tell how long ranks wait for their data loaders")]
    return [_outcome(each) for each in with_data]


def _outcome(judged: Judged) -> Outcome:
    judgement = judged.judgement
    data = judged.timings.sections[Section.DATA][:, judgement.num_warm_up :]
    sample = data[:: max(1, len(data) // 64), :: max(1, data.shape[1] // 1024)]
    known = sample[np.isfinite(sample)]
    step_ms = judgement.step_ms
    if not len(known) or not step_ms:
        return not_seen("no step has both a time for data and one for the whole")
    usual = float(np.median(known))
    share = usual / step_ms
    if share < TELL_SHARE:
        return Passed(
            detail=f"waiting for data is {percent(share)} of a step: the job is not bound by its input"
        )
    return Found(
        title=f"all ranks wait {percent(share)} of each step for their data loaders",
        severity=Severity.WARNING if share >= WARN_SHARE else Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"the median rank waits {ms(usual)} of {ms(step_ms)} a step for data",
                value=round(usual, 3),
                unit="ms",
                expected="some 5 % in jobs that keep their GPUs busy",
                expected_source="MLPerf Training v3.1, Mask R-CNN: data 0.010 s of 0.19 s",
                source=judged.source,
            ),
        ),
        explanation="It is the same on all ranks, so none of them is slow: the job is bound by its input.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="raise num_workers and prefetch_factor, decode ahead of time, or move data nearer; compare with a "
                "run on synthetic input",
            ),
        ),
        cause_class="data_bound",
        fault=Fault.DATA,
    )


CHECK = StragglerCheck(
    id="straggler-data-bound", title="waiting for input on all ranks", run=check_data_bound
)
