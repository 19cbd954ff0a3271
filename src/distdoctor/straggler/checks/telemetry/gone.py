"""What is said of GPUs whose samples stop while those of the others go on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from distdoctor.report.checking import Found
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.straggler.analysis.telemetry.gone import Gone
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.checks.telemetry import words
from distdoctor.units import format_seconds


def gone_findings(panel: Panel, gone: Sequence[Gone], source: str) -> list[Found]:
    """One lead for each host, or each GPU whose host is not known."""
    by_host: dict[str | int, list[Gone]] = {}
    for each in gone:
        host = panel.gpus[each.row].gpu.host
        by_host.setdefault(host if host is not None else each.row, []).append(each)
    return [_finding(panel, of_host, source) for of_host in by_host.values()]


def _finding(panel: Panel, gone: Sequence[Gone], source: str) -> Found:
    gpus = [panel.gpus[each.row].gpu for each in gone]
    host = gpus[0].host
    return Found(
        key=f"gone:{gpus[0].pci or gpus[0].index}" if len(gpus) == 1 else "gone:several",
        title=f"{words.name_of(gpus)}: samples stop, those of the others go on"[:80],
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=tuple(
            Evidence(
                text=(
                    f"{words.name_of([panel.gpus[each.row].gpu])}: last sample at {_time(each.last_s)}, those of the "
                    f"others go on for {format_seconds(each.others_s)}"
                ),
                source=source,
            )
            for each in gone[:8]
        ),
        explanation=(
            "The GPU fell off the bus, its host or its exporter is lost, or the job no longer uses it. Of the time after "
            "that nothing is known of it."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text=f"{f'on {host}: ' if host else ''}whether the GPU still answers, and what the kernel log says of it",
                command="nvidia-smi -L; dmesg --ctime | grep -i -e xid -e nvrm",
            ),
        ),
        scope=Scope(hosts=(host,) if host is not None else (), gpus=tuple(gpus)),
        cause_class="gpu_unlike_peers",
        fault=Fault.UNKNOWN,
    )


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s since 1970"
