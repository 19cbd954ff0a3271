"""What is said of GPUs that fall into two groups by their clock."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdoctor.report.checking import Found
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import short_host
from distdoctor.straggler.analysis.telemetry.alike import WORK_DIFFERS, TwoGroups
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.checks.telemetry import words
from distdoctor.straggler.checks.telemetry.judging import FIRM_CLOCK
from distdoctor.straggler.facts.telemetry import Metric

# Hosts that are named in a sentence.
MAX_HOSTS = 4


def two_groups_finding(panel: Panel, groups: TwoGroups, source: str) -> Found:
    """A lead: the job waits for the slower group, and which of the two is as it should be telemetry does not tell."""
    hosts = _whole_hosts(panel, groups.slow)
    num = len(groups.slow)
    of = num + len(groups.fast)
    slow, fast = f"{groups.slow_mhz:.0f} MHz", f"{groups.fast_mhz:.0f} MHz"
    where = f": all of {_listed(hosts)}" if hosts else ""
    evidence = [
        Evidence(
            text=f"{num} of {of} GPUs{where}: SM clock {slow}, the others {fast}, in {groups.share:.0%} of the time under load",
            value=round(groups.slow_mhz),
            unit=Metric.SM_CLOCK.value,
            expected=fast,
            expected_source=words.THRESHOLDS,
            source=source,
        )
    ]
    for name, share in (("power", groups.slow_power), ("SM activity", groups.slow_activity)):
        if not math.isnan(share):
            evidence.append(Evidence(text=f"their {name} is {share:.0%} of the others'", source=source))
    return Found(
        key="two groups:clock",
        title=f"{num} of {of} GPUs run at {slow}, the others at {fast}",
        severity=Severity.WARNING if _is_firm(panel, groups) else Severity.INFO,
        confidence=Confidence.LOW,
        evidence=tuple(evidence),
        explanation=_explanation(panel, groups),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Power limits, clock settings and reasons for low clocks of the slower ones beside the others",
                command="nvidia-smi -q -d PERFORMANCE,POWER,CLOCK",
            ),
        ),
        scope=Scope(hosts=tuple(hosts), gpus=tuple(panel.gpus[row].gpu for row in groups.slow)),
        cause_class="gpu_unlike_peers",
        fault=Fault.UNKNOWN,
    )


def _is_firm(panel: Panel, groups: TwoGroups) -> bool:
    """Slower for no reason of work: they draw no more power, and are no less active. Models may differ when untold."""
    works_more = groups.slow_power >= 1 + WORK_DIFFERS
    works_less = groups.slow_activity <= 1 - WORK_DIFFERS
    far = groups.slow_mhz < FIRM_CLOCK * groups.fast_mhz
    return far and not works_more and not works_less and panel.model is not None


def _explanation(panel: Panel, groups: TwoGroups) -> str:
    if groups.slow_power >= 1 + WORK_DIFFERS:
        meaning = "The slower ones draw more power: they have more work, by which clocks fall."
    elif groups.slow_activity <= 1 - WORK_DIFFERS:
        meaning = "The slower ones are less active: they have less work, or wait."
    else:
        meaning = "In a synchronous job the faster ones wait for the slower ones in every step."
    model = "" if panel.model is not None else " The evidence does not tell their models, which may differ."
    unknown = words.unknown_job(panel)
    return (
        f"{meaning} Which group is as it should be telemetry does not tell: a power cap, a clock setting, or other work."
        f"{model}{unknown} Telemetry has no step times: it is a lead, and step times decide which rank is slow."
    )


def _whole_hosts(panel: Panel, rows: Sequence[int]) -> list[str]:
    """Hosts of these rows, when all GPUs under load of these hosts are among them; else none."""
    inside = set(rows)
    hosts = list(dict.fromkeys(panel.gpus[row].gpu.host for row in rows))
    others = {one.gpu.host for row, one in enumerate(panel.gpus) if panel.belongs[row] and row not in inside}
    if any(host is None or host in others for host in hosts):
        return []
    return [host for host in hosts if host is not None]


def _listed(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - MAX_HOSTS} more" if len(hosts) > MAX_HOSTS else ""
    return ", ".join(short_host(host) for host in hosts[:MAX_HOSTS]) + more
