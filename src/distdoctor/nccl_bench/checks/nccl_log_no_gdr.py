"""Does RDMA reach GPU memory directly, or does every byte go through host memory?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.log_hosts import hosts_of
from distdoctor.nccl_bench.analysis.log_networks import net_routes, rdma_network, socket_use
from distdoctor.nccl_bench.analysis.log_platform import lacks_gpudirect_by_design
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import log_or_reason, override_evidence, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog, Route
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

_SETTINGS = ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_DMABUF_ENABLE", "NCCL_IB_CUDA_SUPPORT")


def check_gpudirect(facts: BenchFacts) -> Sequence[Outcome]:
    """A warning when NICs or routes are without GPUDirect; info inside one host and where the GPU never has it."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    network = rdma_network(log)
    if network is None and log.gpudirect_disabled and log.plugin_lines:
        # The plugin speaks of itself; that NCCL uses it is not said.
        return [_found(facts, log, "the plugin's network", ())]
    if network is None:
        if socket_use(log) is not None:
            return [NotApplicable(detail="no RDMA network is used")]
        return [unsaid(facts, "which network it uses")]
    routes = net_routes(log)
    without = [route for route in routes if not route.gpudirect]
    if routes:
        return [_by_routes(facts, log, network, routes, without)]
    if log.gpudirect_disabled:
        return [_found(facts, log, network, without)]
    if log.gpudirect_enabled or log.ring_gpudirect:
        return [Passed(detail=f"GPUDirect RDMA is enabled for {_nics(log.gpudirect_enabled) or network}")]
    if log.ring_gpudirect is False:
        return [_found(facts, log, network, without)]
    return [unsaid(facts, "whether GPUDirect RDMA is used")]


def _by_routes(
    facts: BenchFacts, log: NcclLog, network: str, routes: Sequence[Route], without: Sequence[Route]
) -> Outcome:
    if not without:
        return Passed(detail=f"routes over {network} that are listed: {len(routes)}, all with GPUDirect RDMA")
    if all(route.is_send for route in without) and len(without) < len(routes):
        return _sends_only(log, network, without)
    return _found(facts, log, network, without)


def _found(facts: BenchFacts, log: NcclLog, network: str, without: Sequence[Route]) -> Found:
    by_design = lacks_gpudirect_by_design(facts)
    hosts = hosts_of(facts)
    harmless = hosts.several is False
    all_routes = len(net_routes(log))
    partly = bool(without) and len(without) < all_routes
    title = "RDMA goes through host memory: GPUDirect is off"
    if log.gpudirect_too_far and not log.gpudirect_disabled:
        title = "GPUDirect RDMA is off: GPU and NIC are too far apart"
    elif partly:
        title = f"{len(without)} of {all_routes} network routes go through host memory, not GPUDirect"
    return Found(
        title=title,
        severity=Severity.INFO if by_design or harmless else Severity.WARNING,
        confidence=Confidence.LOW
        if rdma_network(log) is None
        else Confidence.MEDIUM
        if partly or not log.gpudirect_disabled
        else Confidence.HIGH,
        evidence=_evidence(log, network, without, by_design or (hosts.why if harmless else None)),
        explanation=(
            "Without GPUDirect RDMA the NIC cannot read and write GPU memory: each message is copied to host memory "
            "and out again. With 4 HDR NICs on 2 hosts of 8 A100 somebody measured 33 GB/s bus bandwidth without "
            "it, and 93 GB/s once it was on (NVIDIA/nccl issue 1412)."
        ),
        actions=_actions(log),
        cause_class="network:no_gpudirect",
        fault=Fault.HOST,
    )


def _evidence(
    log: NcclLog, network: str, without: Sequence[Route], context: str | None
) -> tuple[Evidence, ...]:
    lines: list[Evidence] = []
    if log.gpudirect_disabled:
        lines.append(
            Evidence(
                text=f"GPUDirect RDMA is disabled for {_nics(log.gpudirect_disabled)}",
                value=len(log.gpudirect_disabled),
                unit="NICs",
                expected="enabled for every NIC",
                expected_source="NVIDIA/nccl issue 1412: 33 GB/s without, 93 GB/s with it",
                source=log.place_of("gpudirect off"),
            )
        )
    if without:
        route = without[0]
        text = (
            f"{len(without)} routes over {network} lack GDRDMA, such as rank {route.source} to {route.target}"
        )
        lines.append(Evidence(text=text, value=len(without), unit="routes", source=route.where or log.origin))
    if log.ring_gpudirect is False:
        lines.append(Evidence(text="rings are set up with GDR 0", source=log.place_of("ring gdr off")))
    if log.gpudirect_too_far:
        lines.append(
            Evidence(
                text=f"{log.gpudirect_too_far} lines refuse it because GPU and NIC are too far apart",
                value=log.gpudirect_too_far,
                source=log.place_of("distance disabled"),
            )
        )
    if context:
        lines.append(Evidence(text=context, source=log.origin))
    return (*lines, *override_evidence(log, *_SETTINGS))


def _actions(log: NcclLog) -> tuple[Action, ...]:
    actions = [
        Action(
            team=Team.PLATFORM,
            text="Load nvidia_peermem on every host (or use the open driver, CUDA 11.7 and Linux 5.12 or newer: DMA-BUF)",
            command="lsmod | grep -E 'nvidia_peermem|nv_peer_mem' || sudo modprobe nvidia-peermem",
        ),
        Action(
            team=Team.HARDWARE,
            text="See how far GPUs and NICs are apart, and whether PCIe ACS sends their traffic through the root",
            command="nvidia-smi topo -m; sudo lspci -vvv | grep -i acsctl",
        ),
    ]
    names = [each.name for each in log.overrides if each.name in _SETTINGS]
    if names:
        actions.insert(
            0,
            Action(
                team=Team.JOB_OWNER,
                text="Try without the settings that limit GPUDirect",
                command="unset " + " ".join(dict.fromkeys(names)),
            ),
        )
    return tuple(actions)


def _sends_only(log: NcclLog, network: str, without: Sequence[Route]) -> Found:
    return Found(
        key="send",
        title="Sends go through host memory, receives use GPUDirect",
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{len(without)} sending routes over {network} lack GDRDMA, receiving ones have it",
                value=len(without),
                unit="routes",
                source=without[0].where or log.origin,
            ),
            *override_evidence(log, "NCCL_NET_GDR_READ"),
        ),
        explanation=(
            "NCCL lets NICs read GPU memory only where GPUs have NVLink; on PCIe hosts it sends from host memory, "
            "because reads through PCIe are slow on some of them."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Measure both ways on your hosts before you change it",
                command="export NCCL_NET_GDR_READ=1",
            ),
        ),
        cause_class="network:no_gpudirect",
        fault=Fault.CONFIG,
    )


def _nics(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown} …" if len(names) > 8 else shown


CHECK = BenchCheck(id="nccl-log-no-gdr", title="GPUDirect RDMA", run=check_gpudirect)
