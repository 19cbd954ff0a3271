"""Did a process crash inside the NCCL library?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome
from distdoctor.env.checks.kernel_events import (
    count_evidence,
    events_of,
    line_evidence,
    nothing_found,
    severity_by_age,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.kernel_log import KernelEventKind
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team


def check_nccl_segfault(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical: the process is gone and its peers wait for it."""
    events = events_of(facts, KernelEventKind.NCCL_SEGFAULT)
    if isinstance(events, NotSeen):
        return [events]
    if not events:
        return [nothing_found(facts, "crash in libnccl")]
    first = events[0]
    return [
        Found(
            title=f"A process crashed inside NCCL: `{(first.process or 'unknown')[:30]}`",
            severity=severity_by_age(facts, events, Severity.CRITICAL),
            confidence=Confidence.HIGH,
            evidence=(
                line_evidence(facts, first, value=first.pid),
                count_evidence(events, "crashes in libnccl"),
            ),
            explanation=(
                "The kernel ended the process with a segmentation fault in libnccl. The other ranks then hang or fail in "
                "their next collective. Known causes are two NCCL versions in one process, a network plugin built for "
                "another version, and bugs of one NCCL release."
            ),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="See which libnccl and which plugin the job loads, and run again with NCCL's own log",
                    command="distdoctor env; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET …",
                ),
            ),
            cause_class="rank_died:sigsegv",
            fault=Fault.SOFTWARE,
        )
    ]


CHECK = Check(
    id="kernel-nccl-segfault",
    title="crashes in libnccl in the kernel log",
    run=check_nccl_segfault,
    preflight=True,
)
