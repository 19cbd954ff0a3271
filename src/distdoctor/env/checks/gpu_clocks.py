"""May and do the GPUs of one model run at the same clocks?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_title,
    majority,
    model_groups,
    nvidia_gpus,
    scope_of,
    seen_and_unseen,
    smi,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# A busy GPU below this share of its siblings' median clock is held down by something. Our own threshold: boards
# of one model differ by some per cent at the same power.
LOW_CLOCK_FRACTION = 0.8

# Clocks of GPUs that do nothing say nothing. Our own threshold.
BUSY_PCT = 80

# With fewer busy siblings a median is one GPU's word against another's.
MIN_SIBLINGS = 3

_SETTINGS = {
    "sm_clock_max_mhz": "highest SM clock",
    "application_clock_mhz": "application clock",
}


def check_clocks(facts: EnvFacts) -> Sequence[Outcome]:
    """A different clock setting, or a far lower clock under load, is a warning."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "sm_clock_max_mhz", what="SM clocks")
    found: list[Outcome] = []
    for group in model_groups(devices):
        for field in _SETTINGS:
            found += _odd_settings(group, field)
        found += _low_under_load(group)
    if found or not seen:
        return [*found, *unseen]
    clocks = "/".join(str(clock) for clock in sorted({each.sm_clock_max_mhz or 0 for each in seen}))
    return [Passed(detail=f"same clock settings on each model, at most {clocks} MHz"), *unseen]


def _odd_settings(group: list[GpuDevice], field: str) -> list[Found]:
    known = [device for device in group if getattr(device, field) is not None]
    usual: int | None = majority(known, lambda device: getattr(device, field))
    if usual is None:
        return []
    return [
        _odd_setting(device, field, getattr(device, field), usual, len(known) - 1)
        for device in known
        if getattr(device, field) != usual
    ]


def _odd_setting(device: GpuDevice, field: str, clock: int, usual: int, num_others: int) -> Found:
    what = _SETTINGS[field]
    return Found(
        key=f"{gpu_key(device)} {field}",
        title=f"{gpu_title(device)}: {what} {clock} MHz, siblings {usual} MHz",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"{what} {clock} MHz",
                value=clock,
                unit="MHz",
                expected=f"{usual} MHz",
                expected_source=f"most of {num_others} other {device.name or 'GPUs'} of this host",
                source=device.sources.get(field),
            ),
        ),
        explanation="Every rank waits for the GPU with the lowest clock.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Give up clocks set by hand; if it stays, compare VBIOS and board revision",
                command=f"sudo {smi(device, '-rac')}; sudo {smi(device, '-rgc')}; {smi(device, '-q -d CLOCK')}",
            ),
        ),
        scope=scope_of(device),
        fault=Fault.CONFIG,
    )


def _low_under_load(group: list[GpuDevice]) -> list[Found]:
    busy = [
        device
        for device in group
        if device.sm_clock_mhz is not None and (device.utilisation_pct or 0) >= BUSY_PCT
    ]
    if len(busy) < MIN_SIBLINGS:
        return []
    median = sorted(device.sm_clock_mhz or 0 for device in busy)[len(busy) // 2]
    return [
        _low_clock(device, median, len(busy) - 1)
        for device in busy
        if (device.sm_clock_mhz or 0) < LOW_CLOCK_FRACTION * median
    ]


def _low_clock(device: GpuDevice, median: int, num_others: int) -> Found:
    return Found(
        key=f"{gpu_key(device)} load",
        title=f"{gpu_title(device)} runs at {device.sm_clock_mhz} MHz, its siblings at {median} MHz",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"SM clock {device.sm_clock_mhz} MHz at {device.utilisation_pct} % utilisation",
                value=device.sm_clock_mhz,
                unit="MHz",
                expected=f"about {median} MHz",
                expected_source=f"median of {num_others + 1} busy GPUs of this model; threshold our own",
                source=device.sources.get("sm_clock_mhz"),
            ),
        ),
        explanation="Clocks locked by hand, heat, or a power limit; or this rank has other work than the others.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Look at limits and reasons, then give up locked clocks",
                command=f"{smi(device, '-q -d PERFORMANCE,CLOCK,POWER')}; sudo {smi(device, '-rgc')}",
            ),
        ),
        scope=scope_of(device),
        fault=Fault.GPU,
    )


CHECK = Check(id="gpu-clocks", title="clocks of the GPUs", run=check_clocks, preflight=True)
