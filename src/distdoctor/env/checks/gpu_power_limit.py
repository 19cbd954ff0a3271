"""May every GPU draw the power that its siblings may?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_names,
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

# NVML gives limits in milliwatts and boards round them; less than this is no difference. Our own threshold.
TOLERANCE_W = 2.0


def check_power_limit(facts: EnvFacts) -> Sequence[Outcome]:
    """A limit below the siblings' or below the default is a warning."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "power_limit_w", what="power limit")
    found: list[Outcome] = []
    for group in model_groups(seen):
        found += _judge(group)
    if found or not seen:
        return [*found, *unseen]
    limits = "/".join(f"{watts:g}" for watts in sorted({each.power_limit_w or 0 for each in seen}))
    return [Passed(detail=f"power limit {limits} W on {len(seen)} GPUs"), *unseen]


def _limit(device: GpuDevice) -> float:
    return device.power_limit_w or 0.0


def _judge(group: list[GpuDevice]) -> list[Found]:
    usual = majority(group, lambda each: round(_limit(each)))
    reference = float(usual) if usual is not None else max(_limit(each) for each in group)
    odd = [each for each in group if _limit(each) < reference - TOLERANCE_W]
    capped = [
        each
        for each in group
        if each not in odd
        and each.power_limit_default_w is not None
        and _limit(each) < each.power_limit_default_w - TOLERANCE_W
    ]
    found = [_odd_one(each, reference, len(group) - len(odd)) for each in odd]
    return [*found, _below_default(capped)] if capped else found


def _odd_one(device: GpuDevice, reference: float, num_others: int) -> Found:
    limit = _limit(device)
    others = f"{num_others} other {device.name or 'GPUs'} of this host"
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} is limited to {limit:g} W, its siblings to {reference:g} W",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"power limit {limit:g} W",
                value=limit,
                unit="W",
                expected=f"{reference:g} W",
                expected_source=others,
                source=device.sources.get("power_limit_w"),
            ),
        ),
        explanation=(
            "With less power it runs at lower clocks, and every rank waits for it. The limit was set by hand, or by a "
            "management controller that lacks power or cooling."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Set the siblings' limit; if it does not stick, look at power supplies and the controller",
                command=f"sudo {smi(device, f'-pl {reference:.0f}')}",
            ),
        ),
        scope=scope_of(device),
        fault=Fault.HOST,
    )


def _below_default(devices: list[GpuDevice]) -> Found:
    first = devices[0]
    default = first.power_limit_default_w or 0.0
    return Found(
        key="default",
        title=f"{gpu_names(devices)} limited to {_limit(first):g} W, by default {default:g} W",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"power limit {_limit(first):g} W on {len(devices)} {first.name or 'GPUs'}",
                value=_limit(first),
                unit="W",
                expected=f"{default:g} W",
                expected_source="the board's default limit (NVML)",
                source=first.sources.get("power_limit_w"),
            ),
        ),
        explanation="Jobs run below the board's speed. Where a site saves power on purpose this is to be accepted.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="If it is not on purpose, set the default again",
                command=f"sudo nvidia-smi -pl {default:.0f}",
            ),
        ),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


CHECK = Check(id="gpu-power-limit", title="power limits of the GPUs", run=check_power_limit, preflight=True)
