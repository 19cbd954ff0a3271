"""Do GPUs of one host exchange data directly, or through host memory?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.log_platform import has_nvlink
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import log_or_reason, override_evidence, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog, Route
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

_SETTINGS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_IGNORE_DISABLED_P2P")

# Values of NCCL_P2P_LEVEL that allow no direct path, or only NVLink (NCCL user guide).
_NEVER = ("LOC", "0")


def check_shared_memory(facts: BenchFacts) -> Sequence[Outcome]:
    """Critical where NVLink is there, info on PCIe alone, and a lead where the log does not tell."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    through_memory = [route for route in log.routes if route.transport == "SHM"]
    direct = [route for route in log.routes if route.transport == "P2P"]
    if not through_memory:
        if direct:
            return [Passed(detail=f"routes inside hosts that are listed: {len(direct)}, all direct (P2P)")]
        alone = [comm.local_ranks for comm in log.comms if comm.local_ranks is not None]
        if alone and max(alone) == 1:
            return [NotApplicable(detail="one rank a host: nothing is exchanged inside hosts")]
        return [unsaid(facts, "how GPUs of a host are joined")]
    return [_found(facts, log, through_memory, direct)]


def _found(
    facts: BenchFacts, log: NcclLog, through_memory: Sequence[Route], direct: Sequence[Route]
) -> Found:
    nvlink = has_nvlink(facts)
    forced = _is_forced(log)
    # Direct paths for some pairs and none for others is what PCIe switches without peer access across the root give.
    mixed = bool(direct) and not forced
    if nvlink:
        severity, confidence = Severity.CRITICAL, Confidence.HIGH
    elif forced:
        severity, confidence = Severity.WARNING, Confidence.MEDIUM
    elif nvlink is False or mixed:
        severity, confidence = Severity.INFO, Confidence.HIGH if nvlink is False else Confidence.MEDIUM
    else:
        severity, confidence = Severity.WARNING, Confidence.LOW
    total = len(through_memory) + len(direct)
    return Found(
        title=f"{len(through_memory)} of {total} routes between GPUs of a host go through host memory",
        severity=severity,
        confidence=confidence,
        evidence=_evidence(log, through_memory, direct, nvlink),
        explanation=_explanation(nvlink, mixed=mixed),
        actions=_actions(nvlink, forced=forced),
        cause_class="host:no_gpu_p2p",
        fault=Fault.CONFIG if forced else Fault.HOST,
    )


def _is_forced(log: NcclLog) -> bool:
    for each in log.overrides:
        value = each.value.strip().upper()
        if (each.name == "NCCL_P2P_DISABLE" and value not in ("0", "")) or (
            each.name == "NCCL_P2P_LEVEL" and value in _NEVER
        ):
            return True
    return False


def _evidence(
    log: NcclLog, through_memory: Sequence[Route], direct: Sequence[Route], nvlink: bool | None
) -> tuple[Evidence, ...]:
    first = through_memory[0]
    pairs = ", ".join(f"{route.source}-{route.target}" for route in through_memory[:6])
    lines = [
        Evidence(
            text=f"ranks {pairs} are joined by SHM/{first.detail}",
            value=len(through_memory),
            unit="routes",
            expected="P2P between GPUs of one host" if nvlink else None,
            expected_source="NCCL user guide, troubleshooting: GPU-to-GPU communication" if nvlink else None,
            source=first.where or log.origin,
        )
    ]
    if direct:
        pairs = ", ".join(f"{route.source}-{route.target}" for route in direct[:6])
        text = f"ranks {pairs} are joined directly (P2P/{direct[0].detail})"
        lines.append(
            Evidence(text=text, value=len(direct), unit="routes", source=direct[0].where or log.origin)
        )
    if nvlink:
        place = log.place_of("nvlink") if log.nvlink_gbps else log.origin
        lines.append(Evidence(text="the GPUs have NVLink", source=place))
    if log.all_direct_p2p is False:
        text = "NCCL says that not all pairs have direct P2P (isAllDirectP2p 0)"
        lines.append(Evidence(text=text, source=log.place_of("not all direct p2p")))
    return (*lines, *override_evidence(log, *_SETTINGS))


def _explanation(nvlink: bool | None, *, mixed: bool) -> str:
    ring = "A ring is as fast as its slowest edge. "
    if nvlink:
        return ring + (
            "These GPUs are joined by NVLink, and a detour through host memory is tens of times slower: 8 A100 reach "
            "some 230 GB/s bus bandwidth over NVLink."
        )
    ceiling = (
        "Through host memory others measured 3.9 GB/s bus bandwidth between 2 A40 on one socket and 1.4 GB/s "
        "between 4 A40 across sockets."
    )
    if mixed:
        return ring + (
            "Some pairs have a direct path and some have none, as on PCIe switches below different root ports. "
            f"If these GPUs have no NVLink, that is the ceiling of the machine. {ceiling}"
        )
    return ring + ceiling


def _actions(nvlink: bool | None, *, forced: bool) -> tuple[Action, ...]:
    actions: list[Action] = []
    if forced:
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="Remove the setting that shuts direct paths off",
                command="unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL",
            )
        )
    actions.append(
        Action(
            team=Team.HARDWARE,
            text="See which links join the GPUs and whether the driver allows peer access",
            command="nvidia-smi topo -m; nvidia-smi topo -p2p r",
        )
    )
    if not nvlink:
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="On bare metal, PCIe ACS and IOMMU translation stop peer access; see whether they are on",
                command="sudo lspci -vvv | grep -i acsctl; cat /proc/cmdline",
            )
        )
    return tuple(actions)


CHECK = BenchCheck(id="nccl-log-shm", title="paths between GPUs of a host", run=check_shared_memory)
