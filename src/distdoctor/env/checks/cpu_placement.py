"""May the process run on enough CPUs, and on those next to its GPU?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.facts.host import HostFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.visible_gpus import gpu_of_local_rank, gpu_ref, visible_gpus
from distdoctor.report.model import Action, Confidence, Evidence, Fault, GpuRef, Scope, Severity, Team
from distdoctor.units import fold_ints

# One thread launches kernels, one more at least loads data. Our own threshold.
CPUS_PER_RANK = 2

# Launchers that start each rank with CPUs of its own; torchrun's ranks inherit the agent's.
BINDING_LAUNCHERS = ("slurm", "openmpi", "pmi")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sharers:
    """How many ranks share the process' CPUs, and how that is known."""

    count: int
    text: str
    noun: str = "rank"


def check_affinity(facts: EnvFacts) -> Sequence[Outcome]:
    """One CPU only, fewer than two per rank, or none of the NUMA node of the rank's GPU."""
    process = facts.process
    if process is None or process.affinity_cpus is None:
        return [missing(facts, "process.affinity_cpus")]
    cpus = process.affinity_cpus
    source = process.sources.get("affinity_cpus")
    num_cpus = facts.host.num_cpus if facts.host is not None else None
    if num_cpus is not None and len(cpus) >= num_cpus:
        return [Passed(detail=f"may run on all {num_cpus} CPUs")]
    sharers = _sharers(facts, len(cpus))
    if len(cpus) == 1 and num_cpus is None:
        return [missing(facts, "host.num_cpus")]
    if len(cpus) == 1 or (sharers is not None and len(cpus) < CPUS_PER_RANK * sharers.count):
        return [_too_few(facts, cpus, sharers, source)]
    return [_distance(facts, cpus, source)]


def _sharers(facts: EnvFacts, num_cpus: int) -> _Sharers | None:
    scheduler = facts.scheduler
    if scheduler is not None and scheduler.rank is not None:
        if scheduler.launcher in BINDING_LAUNCHERS and not _unbound(scheduler, num_cpus):
            return _Sharers(count=1, text=f"{scheduler.launcher} binds each rank")
        if _bound_by_itself(facts):
            return _Sharers(count=1, text="its parent may use more")
        if scheduler.local_world_size is not None:
            count = scheduler.local_world_size
            return _Sharers(count=count, text=f"{count} ranks on this host share them")
        return _Sharers(count=1, text="this rank alone")
    visible = visible_gpus(facts)
    if visible is None or visible.count == 0:
        return None
    return _Sharers(count=visible.count, text=visible.why, noun="GPU")


def _bound_by_itself(facts: EnvFacts) -> bool:
    """True unless the parent is seen to have the same CPUs: torchrun can bind each rank (`--numa-binding`)."""
    process = facts.process
    return process is not None and process.parent_affinity_cpus != process.affinity_cpus


def _unbound(scheduler: SchedulerFacts, num_cpus: int) -> bool:
    """True when the task may use all CPUs that the job has on this host: then its neighbours may, too."""
    return scheduler.cpus_requested is not None and num_cpus >= scheduler.cpus_requested


def _too_few(facts: EnvFacts, cpus: tuple[int, ...], sharers: _Sharers | None, source: str | None) -> Found:
    count, noun = (sharers.count, sharers.noun) if sharers is not None else (1, "rank")
    in_job = facts.scheduler is not None and facts.scheduler.rank is not None
    return Found(
        key="few",
        title=f"only {len(cpus)} CPU{'s' if len(cpus) > 1 else ''} for {count} {noun}{'s' if count > 1 else ''}",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH if in_job else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"may run on CPU {fold_ints(cpus)}" + (f"; {sharers.text}" if sharers else ""),
                value=len(cpus),
                unit="CPUs",
                expected=f"at least {CPUS_PER_RANK} per rank",
                expected_source="our own threshold",
                source=source,
            ),
        ),
        explanation=(
            "Threads that load data, launch kernels and drive NCCL's network take turns on these CPUs; children "
            "(data-loader workers) inherit the restriction. The GPU waits, and the other ranks with it."
        ),
        actions=(_binding_action(facts),),
        cause_class="host:cpu_affinity",
        fault=Fault.CONFIG,
    )


def _distance(facts: EnvFacts, cpus: tuple[int, ...], source: str | None) -> Outcome:
    several = f"may run on {len(cpus)} CPUs"
    device = gpu_of_local_rank(facts)
    if device is None:
        return Passed(detail=f"{several}; not compared with a GPU, as this is no rank of a job")
    near = _near_cpus(device, facts.host)
    if not near:
        return Passed(detail=f"{several}; which CPUs are next to GPU {device.index} is not known")
    if set(cpus) & set(near):
        return Passed(detail=f"{several}, some next to GPU {device.index}")
    return Found(
        key=f"far:{device.index}",
        title=f"runs on CPUs far from its GPU {device.index}",
        severity=Severity.WARNING,
        # That LOCAL_RANK is the GPU's number is the usual way, not the only one.
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"may run on CPU {fold_ints(cpus)}; next to GPU {device.index} are {fold_ints(near)}",
                expected="some CPU of the GPU's NUMA node",
                expected_source="NVML (nvmlDeviceGetCpuAffinity) or the GPU's numa_node in /sys",
                source=source,
            ),
        ),
        explanation=(
            "Copies to the GPU and NCCL's network threads cross the link between the sockets, which costs "
            "bandwidth and time on every step."
        ),
        actions=(_binding_action(facts),),
        scope=Scope(gpus=(gpu_ref(facts, device),)),
        cause_class="host:cpu_affinity",
        fault=Fault.CONFIG,
    )


def _near_cpus(device: GpuDevice, host: HostFacts | None) -> tuple[int, ...]:
    if device.local_cpus:
        return device.local_cpus
    nodes = (host.numa_nodes if host is not None else None) or ()
    for node in nodes:
        if node.node == device.numa_node:
            return node.cpus
    return ()


def _binding_action(facts: EnvFacts) -> Action:
    launcher = facts.scheduler.launcher if facts.scheduler is not None else None
    if launcher == "slurm":
        text, command = (
            "Give each task more CPUs, next to its GPU",
            "srun --cpus-per-task=8 --gpu-bind=closest …",
        )
    elif launcher == "openmpi":
        # Open MPI binds a rank to one core when it starts at most two ranks.
        text, command = "Bind ranks to a NUMA node instead of a core", "mpirun --map-by numa --bind-to numa …"
    elif launcher == "torchrun":
        text, command = (
            "See who restricted the agent; torchrun 2.9 and newer binds ranks itself",
            "torchrun --numa-binding=node …",
        )
    else:
        text, command = "See what restricts the process", "taskset -cp $$; nvidia-smi topo -m"
    return Action(team=Team.JOB_OWNER, text=text, command=command)


def check_numa_known(facts: EnvFacts) -> Sequence[Outcome]:
    """GPUs whose NUMA node the firmware does not tell, on a host with several."""
    host = facts.host
    if host is None or host.numa_nodes is None:
        return [missing(facts, "host.numa_nodes")]
    with_cpus = [node for node in host.numa_nodes if node.cpus]
    sockets = host.num_sockets or 1
    if len(with_cpus) < 2 and sockets < 2:
        return [NotApplicable(detail="one NUMA node: every CPU is as near as any other")]
    if host.gpu_numa_nodes is None:
        return [missing(facts, "host.gpu_numa_nodes")]
    if not host.gpu_numa_nodes:
        return [NotApplicable(detail="no GPU on the PCI bus here")]
    unknown = [address for address, node in host.gpu_numa_nodes.items() if node < 0]
    if not unknown:
        return [Passed(detail=f"the NUMA node of {len(host.gpu_numa_nodes)} GPUs is known")]
    virtual = host.virtualisation not in (None, "none")
    return [
        Found(
            title=f"the system does not know which CPUs are near {len(unknown)} of its GPUs",
            severity=Severity.WARNING,
            confidence=Confidence.HIGH if host.virtualisation == "none" else Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"numa_node is -1 for {', '.join(unknown[:8])}; {max(len(with_cpus), sockets)} CPU nodes",
                    value=len(unknown),
                    unit="GPUs",
                    expected="a NUMA node for every GPU",
                    expected_source="Linux, sysfs-bus-pci: numa_node",
                    source=host.sources.get("gpu_numa_nodes"),
                ),
            ),
            explanation=(
                "NCCL and launchers choose CPUs, memory and network ports by NUMA node. Without it ranks end up on "
                "the far socket, and NCCL may see different paths on different ranks."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text=(
                        "Let the hypervisor pass the NUMA topology through, or give NCCL a topology file "
                        "(NCCL_TOPO_FILE)"
                        if virtual
                        else "Update the BIOS, or set NUMA per socket there (ACPI _PXM of the PCI roots)"
                    ),
                    command="grep . /sys/bus/pci/devices/*/numa_node",
                ),
            ),
            scope=Scope(gpus=tuple(GpuRef(host=facts.host_name, pci=address) for address in unknown)),
            cause_class="host:numa",
            fault=Fault.HOST,
        )
    ]


AFFINITY = Check(id="cpu-affinity", title="CPUs that the process may use", run=check_affinity)
NUMA_KNOWN = Check(id="numa-unknown", title="NUMA node of the GPUs", run=check_numa_known, preflight=True)
