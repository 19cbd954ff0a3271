"""Are all NVLinks up? Siblings of the same model are the measure; a model's full number only where there is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed
from distdoctor.env.checks.gpu_nvlink_pairs import judge_pairs, pair_counts
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_names,
    gpu_numbers,
    gpu_title,
    has_baseboard_nvlink,
    model_groups,
    nvidia_gpus,
    scope_of,
    seen_and_unseen,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, NvLink
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import fold_ints

# NVLinks of boards that always have the same number wired (NVIDIA's data sheets). NVL and PCIe boards are left
# out, since how many of their links are used depends on the bridges; so are GH200 and boards sold in China.
FULL_LINKS = (
    (re.compile(r"V100-SXM[23]"), 6),
    (re.compile(r"A100-SXM4"), 12),
    (re.compile(r"H100.*HBM3|\bH200\b|\b[BG]B?[23]00\b"), 18),
)

# A link that trained to less than this share of the usual speed. Our own threshold: generations differ by 2.
SLOW_FRACTION = 0.9

CAUSE = "gpu:nvlink"

RESET_ALL = Action(
    team=Team.PLATFORM,
    text="Drain the host, reset all GPUs and their switches together, or reboot",
    command="sudo systemctl stop nvidia-fabricmanager; sudo nvidia-smi --gpu-reset; sudo systemctl start nvidia-fabricmanager",
)


def check_nvlink(facts: EnvFacts) -> Sequence[Outcome]:
    """Links down on one GPU but not on its siblings are critical."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        pairs = judge_pairs(facts, ())
        return pairs or [devices]
    seen, unseen = seen_and_unseen(facts, devices, "nvlinks", what="NVLinks")
    found: list[Outcome] = []
    for group in model_groups(seen):
        found += _judge_group(facts, group)
        found += _judge_speeds(group)
    found += [outcome for device in seen if (outcome := _judge_errors(device)) is not None]
    if not any(isinstance(each, Found) and each.cause_class == CAUSE for each in found):
        found += judge_pairs(facts, devices)
    if found:
        return [*found, *unseen]
    if not seen:
        return _by_pairs(facts) or unseen
    if not any(active(device) for device in seen):
        return [
            NotApplicable(detail=f"no NVLink in use on {gpu_numbers([each.index for each in seen])}"),
            *unseen,
        ]
    counts = fold_ints([active(device) for device in seen])
    return [Passed(detail=f"{counts} NVLinks up on each of {len(seen)} GPUs"), *unseen]


def active(device: GpuDevice) -> int:
    """Links that are up."""
    return sum(link.active is True for link in device.nvlinks or ())


def inactive(device: GpuDevice) -> list[int]:
    """Numbers of the links that are down."""
    return [link.link for link in device.nvlinks or () if link.active is False]


def full_links(device: GpuDevice) -> int | None:
    """NVLinks that this model always has; None when it depends on the machine."""
    if not has_baseboard_nvlink(device):
        return None
    return next((count for pattern, count in FULL_LINKS if pattern.search(device.name or "")), None)


def _judge_group(facts: EnvFacts, group: list[GpuDevice]) -> list[Found]:
    """One model's GPUs against the best of them."""
    most = max(active(device) for device in group)
    if most == 0:
        return [_none_up(group)] if len(group) > 1 and has_baseboard_nvlink(group[0]) else []
    found = []
    for device in group:
        count = active(device)
        # A board with plugged bridges may have none by intent; one with links on its baseboard may not.
        if count < most and (count > 0 or has_baseboard_nvlink(device)):
            found.append(_down(device, most, len(group) - 1))
    if found:
        return found
    full = full_links(group[0])
    if full is None or most >= full:
        return []
    if len(group) == 1 and inactive(group[0]):
        # A text cut in half lists fewer links than the board has.
        return [_down(group[0], min(full, len(group[0].nvlinks or ())), 0)]
    # All alike and short: a part of a board handed to a virtual machine may look so; with the switches here
    # it may not, since every GPU has all its links to them.
    if facts.gpus is not None and facts.gpus.num_nvswitches:
        return [_all_short(group, most, full)]
    return []


def _by_pairs(facts: EnvFacts) -> list[Outcome]:
    """A topology matrix alone tells how many links join each pair, if any."""
    counts = pair_counts(facts)
    if not counts:
        return []
    if not any(counts):
        return [NotApplicable(detail="the topology shows no NVLink between GPUs")]
    return [Passed(detail=f"pairs of GPUs are joined by {fold_ints(counts)} NVLinks")]


def _none_up(group: list[GpuDevice]) -> Found:
    full = full_links(group[0])
    return Found(
        key="none",
        title=f"{gpu_names(group)} have no NVLink up",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"0 NVLinks up on {len(group)} {group[0].name}",
                value=0,
                unit="links",
                expected=f"{full} links" if full else "links up",
                expected_source=f"NVLinks are on the baseboard of {group[0].name}",
                source=group[0].sources.get("nvlinks"),
            ),
        ),
        explanation="Traffic between these GPUs goes over PCIe or host memory, many times slower than NVLink.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See whether NVLink is switched off, or the fabric manager did not start",
                command="nvidia-smi nvlink -s; systemctl status nvidia-fabricmanager; cat /proc/driver/nvidia/params | grep -i nvlink",
            ),
        ),
        scope=scope_of(*group),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _down(device: GpuDevice, expected: int, num_siblings: int) -> Found:
    count, links = active(device), inactive(device)
    numbers = f": link{'s' if len(links) > 1 else ''} {fold_ints(links)}" if links else ""
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} has {count} of {expected} NVLinks up"[:80],
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if num_siblings else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{count} NVLinks up{', down' + numbers if numbers else ''}",
                value=count,
                unit="links",
                expected=f"{expected} links",
                expected_source=f"other {device.name or 'GPUs'} of this host"
                if num_siblings
                else f"NVIDIA's data sheet of {device.name}",
                source=device.sources.get("nvlinks"),
            ),
        ),
        explanation=(
            "Collectives between the GPUs of this host run at the pace of the GPU with the fewest links, or fail when "
            "NCCL finds no common path."
        ),
        actions=(
            RESET_ALL,
            Action(
                team=Team.HARDWARE,
                text="If the links stay down, have the GPU or baseboard checked",
                command=f"nvidia-smi nvlink -s -i {device.index}",
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _all_short(group: list[GpuDevice], most: int, full: int) -> Found:
    return Found(
        key="all",
        title=f"{gpu_names(group)} have {most} of {full} NVLinks up",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{most} NVLinks up on every GPU",
                value=most,
                unit="links",
                expected=f"{full} links",
                expected_source=f"NVIDIA's data sheet of {group[0].name}",
                source=group[0].sources.get("nvlinks"),
            ),
        ),
        explanation="All GPUs lost the same number of links: an NVSwitch may be out of service.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Look for a switch that the fabric manager left out, and for SXid lines in the kernel log",
                command="sudo dmesg | grep -i sxid | tail; sudo journalctl -u nvidia-fabricmanager -n 50 --no-pager",
            ),
        ),
        scope=scope_of(*group),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _judge_speeds(group: list[GpuDevice]) -> list[Found]:
    speeds = sorted(
        link.speed_gbps
        for device in group
        for link in device.nvlinks or ()
        if link.active and link.speed_gbps
    )
    if len(speeds) < 2:
        return []
    usual = speeds[len(speeds) // 2]
    found = []
    for device in group:
        slow = [
            link
            for link in device.nvlinks or ()
            if link.active and link.speed_gbps is not None and 0 < link.speed_gbps < usual * SLOW_FRACTION
        ]
        if slow:
            found.append(_slow(device, slow, usual))
    return found


def _slow(device: GpuDevice, slow: list[NvLink], usual: float) -> Found:
    return Found(
        key=f"{gpu_key(device)} speed",
        title=f"{gpu_title(device)}: {len(slow)} NVLink{'s' if len(slow) > 1 else ''} slower than the others",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"link {fold_ints([link.link for link in slow])}: {slow[0].speed_gbps:g} GB/s",
                value=slow[0].speed_gbps,
                unit="GB/s",
                expected=f"{usual:g} GB/s",
                expected_source="median of the links of this host",
                source=device.sources.get("nvlinks"),
            ),
        ),
        explanation="The link trained to a lower speed; everything that crosses it waits.",
        actions=(RESET_ALL,),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _judge_errors(device: GpuDevice) -> Found | None:
    """Recoveries only: replays and CRC errors are repaired in hardware, and their counters never start again."""
    recovering = [link for link in device.nvlinks or () if link.recovery_errors]
    if not recovering:
        return None
    total = sum(link.recovery_errors or 0 for link in recovering)
    return Found(
        key=f"{gpu_key(device)} errors",
        title=f"{gpu_title(device)}: NVLink {fold_ints([link.link for link in recovering])} had to recover"[
            :80
        ],
        severity=Severity.WARNING,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"{total} recoveries on link {fold_ints([link.link for link in recovering])} since the driver was loaded",
                value=total,
                unit="recoveries",
                expected="0",
                expected_source="NVIDIA DCGM, NVLink health check",
                source=device.sources.get("nvlinks"),
            ),
        ),
        explanation="The link went down and came back. Whether it still does so shows in a second reading.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Read the counters twice, a minute apart, while a job runs",
                command=f"nvidia-smi nvlink -e -i {device.index}; sleep 60; nvidia-smi nvlink -e -i {device.index}",
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


CHECK = Check(id="gpu-nvlink", title="NVLinks of the GPUs", run=check_nvlink, preflight=True)
