"""NVLinks between pairs of GPUs, as a topology matrix shows them: one bridge too weak, one GPU below the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from distdoctor.env.checks.base import Found
from distdoctor.env.checks.gpus import gpu_ref
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, PairLink
from distdoctor.report.model import Action, Confidence, Evidence, Fault, GpuRef, Scope, Severity, Team

# Links of one bridge between two boards (NVIDIA, NVLink bridge data sheets).
BRIDGE_LINKS = (
    (re.compile(r"RTX A[456]\d00|\bA40\b|RTX 3090|\bA30\b"), 4),
    (re.compile(r"RTX 2080|TITAN RTX|Quadro RTX [568]000"), 2),
)

# No bridge joins two boards by three links; POWER9 machines with V100 do (IBM AC922), and are left out.
ODD_BRIDGE = 3
POWER = ("ppc64le", "ppc64")

# In a full mesh of at least this many links a pair, pairs are equal by design (NVSwitch, HGX with 4 GPUs).
# Cube meshes of V100 have pairs with 1, with 2 and with none.
MESH_LINKS = 4

CAUSE = "gpu:nvlink"


def judge_pairs(facts: EnvFacts, devices: Sequence[GpuDevice]) -> list[Found]:
    """Findings from the links between GPUs; nothing when there is no matrix."""
    pairs = gpu_pairs(facts)
    by_label = {f"GPU{device.index}": device for device in devices}
    weak = _weak_rows(pairs)
    if weak is not None:
        label, links, usual = weak
        return [_weak_row(by_label, label, links, usual)]
    return [found for pair in pairs if (found := _judge_bridge(facts, by_label, pair)) is not None]


def gpu_pairs(facts: EnvFacts) -> list[PairLink]:
    """Pairs of GPUs, without those of a GPU and a NIC."""
    pairs = facts.gpus.pair_links if facts.gpus is not None else ()
    return [pair for pair in pairs if _is_gpu(pair.a) and _is_gpu(pair.b)]


def pair_counts(facts: EnvFacts) -> list[int]:
    """NVLinks of each pair of GPUs; empty when there is no topology."""
    return [nvlinks_of(pair) for pair in gpu_pairs(facts)]


def _is_gpu(label: str) -> bool:
    return re.fullmatch(r"GPU\d+", label) is not None


def nvlinks_of(pair: PairLink) -> int:
    """Number of NVLinks of a pair: 18 for "NV18", 0 for "PIX"."""
    match = re.fullmatch(r"NV(\d+)", pair.kind)
    return int(match.group(1)) if match else 0


def _weak_rows(pairs: Sequence[PairLink]) -> tuple[str, int, int] | None:
    """(GPU, its links, the usual number) when all pairs below the usual number share one GPU."""
    if len(pairs) < 3:
        return None
    usual, count = Counter(nvlinks_of(pair) for pair in pairs).most_common(1)[0]
    if usual < MESH_LINKS or 2 * count < len(pairs):
        return None
    weak = [pair for pair in pairs if nvlinks_of(pair) < usual]
    if not weak:
        return None
    common = set.intersection(*({pair.a, pair.b} for pair in weak))
    if len(common) == 1:
        return common.pop(), min(nvlinks_of(pair) for pair in weak), usual
    return (f"{weak[0].a} and {weak[0].b}", nvlinks_of(weak[0]), usual) if len(weak) == 1 else None


def _scope(by_label: dict[str, GpuDevice], labels: Sequence[str]) -> Scope:
    return Scope(
        gpus=tuple(
            gpu_ref(by_label[label]) if label in by_label else GpuRef(index=int(label[3:]))
            for label in labels
        )
    )


def _weak_row(by_label: dict[str, GpuDevice], label: str, links: int, usual: int) -> Found:
    labels = label.split(" and ")
    has = f"{links} NVLinks" if links else "no NVLink"
    return Found(
        key=label,
        title=f"{label} {'have' if len(labels) > 1 else 'has'} {has} to other GPUs, the rest have {usual}",
        severity=Severity.CRITICAL,
        evidence=(
            Evidence(
                text=f"{label}: NV{links}" if links else f"{label}: no NVLink",
                value=links,
                unit="links",
                expected=f"NV{usual}",
                expected_source="other pairs of this host",
                source="GPU topology",
            ),
        ),
        explanation="All collectives of this host run at the pace of the GPU with the fewest links.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See which links are down; reset all GPUs and switches together, or reboot",
                command="nvidia-smi nvlink -s",
            ),
        ),
        scope=_scope(by_label, labels),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _judge_bridge(facts: EnvFacts, by_label: dict[str, GpuDevice], pair: PairLink) -> Found | None:
    links = nvlinks_of(pair)
    device = by_label.get(pair.a)
    name = device.name if device is not None else None
    expected = next((count for pattern, count in BRIDGE_LINKS if pattern.search(name or "")), None)
    if name is None and links == ODD_BRIDGE and not (facts.host and facts.host.architecture in POWER):
        expected = ODD_BRIDGE + 1
    if expected is None or not 0 < links < expected:
        return None
    return Found(
        key=f"{pair.a}-{pair.b}",
        title=f"The NVLink bridge of {pair.a} and {pair.b} has {links} links up, not {expected}",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH if name is not None else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{pair.a} and {pair.b}: {pair.kind}",
                value=links,
                unit="links",
                expected=f"NV{expected}",
                expected_source=f"bridge of {name}" if name else "no bridge of NVIDIA's has 3 links",
                source="GPU topology",
            ),
        ),
        explanation="A link of the bridge did not come up: mostly a bridge that does not sit well.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Power off, reseat the NVLink bridge, and look again",
                command="nvidia-smi nvlink -s; nvidia-smi topo -m",
            ),
        ),
        scope=_scope(by_label, [pair.a, pair.b]),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )
