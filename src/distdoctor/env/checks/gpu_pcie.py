"""Does every GPU have all its PCIe lanes, and full speed under load?"""

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

# An idle GPU lowers its PCIe generation to save power. Our own threshold for "under load".
BUSY_PCT = 50

RESEAT = Action(
    team=Team.HARDWARE,
    text="Reseat the GPU or its riser and look at the slot's wiring and BIOS bifurcation",
)


def check_pcie(facts: EnvFacts) -> Sequence[Outcome]:
    """Fewer lanes than the siblings is critical, fewer than possible a warning; speed is judged under load only."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "pcie_width", "pcie_width_max", what="PCIe width")
    found: list[Outcome] = []
    for group in model_groups(seen):
        found += _judge_widths(group)
    found += [_slow(device) for device in devices if _is_slow_under_load(device)]
    if found or not seen:
        return [*found, *unseen]
    widths = "/".join(f"x{width}" for width in sorted({each.pcie_width or 0 for each in seen}, reverse=True))
    idle = (
        ""
        if any((each.utilisation_pct or 0) >= BUSY_PCT for each in seen)
        else "; speed not judged, GPUs idle"
    )
    return [Passed(detail=f"all {len(seen)} GPUs have their lanes ({widths}){idle}"), *unseen]


def _judge_widths(group: list[GpuDevice]) -> list[Found]:
    narrow = [each for each in group if (each.pcie_width or 0) < (each.pcie_width_max or 0)]
    # The siblings' width is what the slots of this machine give.
    usual = majority(group, lambda each: each.pcie_width) or max(each.pcie_width or 0 for each in group)
    below = [each for each in narrow if (each.pcie_width or 0) < usual]
    wired_so = [each for each in narrow if each not in below]
    return [_below_siblings(each, usual, group) for each in below] + (
        [_all_narrow(wired_so)] if wired_so else []
    )


def _width(device: GpuDevice, expected: str, source: str) -> Evidence:
    return Evidence(
        text=f"PCIe x{device.pcie_width} in use, x{device.pcie_width_max} possible",
        value=device.pcie_width,
        unit="lanes",
        expected=expected,
        expected_source=source,
        source=device.sources.get("pcie_width"),
    )


def _below_siblings(device: GpuDevice, usual: int, group: list[GpuDevice]) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} runs at PCIe x{device.pcie_width} instead of x{usual}",
        severity=Severity.CRITICAL,
        # Two GPUs that differ may sit in slots of different width by design.
        confidence=Confidence.HIGH if len(group) > 2 else Confidence.MEDIUM,
        evidence=(
            _width(device, f"x{usual}", f"{len(group) - 1} other {device.name or 'GPUs'} of this host"),
        ),
        explanation=(
            "Lanes are lost: a bad contact, riser or slot. Traffic to the network card and to host memory is slower in "
            "proportion, and the whole job waits for this GPU."
        ),
        actions=(
            RESEAT,
            Action(
                team=Team.HARDWARE,
                text="Compare with the siblings afterwards",
                command="nvidia-smi --query-gpu=index,pci.bus_id,pcie.link.width.current,pcie.link.width.max --format=csv",
            ),
        ),
        scope=scope_of(device),
        fault=Fault.HOST,
    )


def _all_narrow(devices: list[GpuDevice]) -> Found:
    first = devices[0]
    several = len(devices) > 1
    return Found(
        key="narrow" if several else gpu_key(first),
        title=f"{gpu_names(devices)} run{'' if several else 's'} at PCIe x{first.pcie_width} of x{first.pcie_width_max}",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(_width(first, f"x{first.pcie_width_max}", "the most that GPU and slot report"),),
        explanation=(
            "With no sibling that has more, the slot may be wired so, or lanes may be lost. Without NVLink the "
            "bandwidth between GPUs falls in proportion."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Compare with the machine's manual: how many lanes has this slot?",
                command=smi(first, "-q | grep -A12 'GPU Link Info'"),
            ),
            RESEAT,
        ),
        scope=scope_of(*devices),
        fault=Fault.HOST,
    )


def _is_slow_under_load(device: GpuDevice) -> bool:
    gen, most, load = device.pcie_gen, device.pcie_gen_max, device.utilisation_pct
    return gen is not None and most is not None and load is not None and gen < most and load >= BUSY_PCT


def _slow(device: GpuDevice) -> Found:
    return Found(
        key=f"{gpu_key(device)} gen",
        title=f"{gpu_title(device)} runs at PCIe gen {device.pcie_gen} of {device.pcie_gen_max} under load",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"PCIe generation {device.pcie_gen} at {device.utilisation_pct} % utilisation",
                value=device.pcie_gen,
                expected=f"generation {device.pcie_gen_max}",
                expected_source="the most that GPU and system report",
                source=device.sources.get("pcie_gen"),
            ),
        ),
        explanation="The link trained to a lower speed; bandwidth to the network card and host halves a generation.",
        actions=(RESEAT,),
        scope=scope_of(device),
        fault=Fault.HOST,
    )


CHECK = Check(id="gpu-pcie-width", title="PCIe lanes of the GPUs", run=check_pcie, preflight=True)
