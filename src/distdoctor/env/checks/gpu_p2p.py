"""May GPUs of this host read each other's memory directly?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.gpu_nvlink_pairs import gpu_pairs, nvlinks_of
from distdoctor.env.checks.gpus import gpu_ref, is_data_centre, nvidia_gpus
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, PairLink
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, SkipCause, Team

# Words that tell nothing against a pair.
NOT_AGAINST = (None, "ok", "unknown")

# Pairs shown as evidence.
MAX_PAIRS = 6

# Paths of PCIe inside one socket, where ACS can send traffic the long way round (NVIDIA/nccl issue 667).
_PCIE = ("PIX", "PXB", "PHB", "PSB")

_UNTESTED = Unread(
    cause=SkipCause.NOT_ASKED,
    reason="a topology shows the path, not whether data gets through it",
    how="nvidia-smi topo -p2p r; then measure: distdoctor nccl-bench --launch N, or p2pBandwidthLatencyTest",
)

_MEASURE = Action(
    team=Team.PLATFORM,
    text="See the state of all pairs and why",
    command="nvidia-smi topo -p2p r; nvidia-smi topo -m",
)


def check_p2p(facts: EnvFacts) -> Sequence[Outcome]:
    """Pairs joined by NVLink that may not are critical; PCIe pairs a warning, or to know where boards cannot."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    if len(devices) < 2:
        return [NotApplicable(detail="one GPU only")]
    if any(device.mig_mode for device in devices):
        return [NotApplicable(detail="MIG slices have no peer-to-peer, see gpu-mode")]
    pairs = gpu_pairs(facts)
    if not pairs:
        return [missing(facts, "gpus.pair_links")]
    by_label = {f"GPU{device.index}": device for device in devices}
    refused = [pair for pair in pairs if pair.p2p_read not in NOT_AGAINST]
    by_nvlink = [pair for pair in refused if nvlinks_of(pair)]
    by_pcie = [pair for pair in refused if not nvlinks_of(pair)]
    found: list[Outcome] = []
    if by_nvlink:
        found.append(_refused_nvlink(by_label, by_nvlink, len(pairs)))
    if by_pcie:
        found.append(_refused_pcie(by_label, by_pcie, len(pairs)))
    return found or [_nothing_against(pairs)]


def _nothing_against(pairs: Sequence[PairLink]) -> Outcome:
    asked = [pair for pair in pairs if pair.p2p_read == "ok"]
    if len(asked) == len(pairs):
        return Passed(detail=f"the driver allows it for all {len(pairs)} pairs (not measured)")
    if all(nvlinks_of(pair) for pair in pairs):
        return Passed(detail=f"all {len(pairs)} pairs are joined by NVLink")
    what = (
        "direct access over PCIe"
        if any(pair.kind in _PCIE for pair in pairs)
        else "direct access between GPUs"
    )
    return NotSeen(unread=_UNTESTED, what=what)


def _scope(by_label: dict[str, GpuDevice], pairs: Sequence[PairLink]) -> Scope:
    labels = dict.fromkeys(label for pair in pairs for label in (pair.a, pair.b))
    return Scope(
        gpus=tuple(gpu_ref(by_label[label]) for label in labels if label in by_label),
        links=tuple(f"{pair.a}-{pair.b}" for pair in pairs[:MAX_PAIRS]),
    )


def _evidence(pairs: Sequence[PairLink], total: int) -> tuple[Evidence, ...]:
    shown = ", ".join(f"{pair.a}-{pair.b} ({pair.kind}): {pair.p2p_read}" for pair in pairs[:MAX_PAIRS])
    return (
        Evidence(
            text=f"{len(pairs)} of {total} pairs: {shown}" + (" …" if len(pairs) > MAX_PAIRS else ""),
            value=len(pairs),
            unit="pairs",
            expected="0 pairs",
            expected_source="nvmlDeviceGetP2PStatus: ok",
            source="NVML P2P status, read",
        ),
    )


def _refused_nvlink(by_label: dict[str, GpuDevice], pairs: list[PairLink], total: int) -> Found:
    one = f"{pairs[0].a} and {pairs[0].b}" if len(pairs) == 1 else f"{len(pairs)} pairs of GPUs"
    return Found(
        key="nvlink",
        title=f"{one} joined by NVLink may not use it",
        severity=Severity.CRITICAL,
        evidence=_evidence(pairs, total),
        explanation="NCCL then goes through host memory, or fails. The fabric manager or a driver setting forbids it.",
        actions=(
            _MEASURE,
            Action(
                team=Team.PLATFORM,
                text="Look at the fabric manager and at the driver's registry keys",
                command="systemctl status nvidia-fabricmanager; grep -i RegistryDwords /proc/driver/nvidia/params",
            ),
        ),
        scope=_scope(by_label, pairs),
        cause_class="gpu:pair_link_fault",
        fault=Fault.HOST,
    )


def _refused_pcie(by_label: dict[str, GpuDevice], pairs: list[PairLink], total: int) -> Found:
    """GeForce and some PCIe boards have it switched off by NVIDIA; across sockets chipsets often cannot."""
    by_intent = all(_is_by_intent(by_label, pair) for pair in pairs)
    return Found(
        key="pcie",
        title=f"No direct access between {'GPUs' if len(pairs) == total else f'{len(pairs)} of {total} pairs of GPUs'}"
        ": data goes through host memory",
        severity=Severity.INFO if by_intent else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=_evidence(pairs, total),
        explanation=(
            "Boards or chipset of this kind do not offer it; NCCL uses shared memory in the host, which is slower."
            if by_intent
            else "These boards can do it on other machines: chipset, ACS or a driver setting stands in the way."
        ),
        actions=(_MEASURE,),
        scope=_scope(by_label, pairs),
        cause_class=None if by_intent else "gpu:pair_link_fault",
        fault=Fault.HOST,
    )


def _is_by_intent(by_label: dict[str, GpuDevice], pair: PairLink) -> bool:
    if pair.kind in ("SYS", "NODE") and pair.p2p_read != "disabled by regkey":
        return True
    ends = [by_label[label] for label in (pair.a, pair.b) if label in by_label]
    small = ("L4", "T4", "A2", "A10", "A16")
    return pair.p2p_read != "disabled by regkey" and any(
        not is_data_centre(device) or (device.name or "").split()[-1] in small for device in ends
    )


CHECK = Check(id="gpu-p2p", title="direct access between GPUs", run=check_p2p, preflight=True)
