"""Are we where the job runs, and with the GPUs that the scheduler gave?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuFacts
from distdoctor.env.visible_gpus import VisibleGpus, visible_gpus
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team


def check_login_node(facts: EnvFacts) -> Sequence[Outcome]:
    """Slurm's client, no job and no GPU: info, with the command that goes to a compute node."""
    scheduler, gpus = facts.scheduler, facts.gpus
    if scheduler is None or scheduler.on_login_node is None:
        return [missing(facts, "scheduler.on_login_node")]
    if not scheduler.on_login_node:
        where = "in a job" if scheduler.scheduler not in (None, "none") else "Slurm is not installed here"
        return [NotApplicable(detail=where)]
    if gpus is None:
        return [missing(facts, "gpus.devices")]
    if gpus.devices or gpus.num_pci_gpus or gpus.num_device_nodes:
        return [Passed(detail="Slurm is installed, no job, and GPUs are here")]
    if gpus.devices is None and gpus.num_pci_gpus is None:
        return [missing(facts, "gpus.devices")]
    return [
        Found(
            title="this is a login node: no GPU here, and no job",
            severity=Severity.INFO,
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"Slurm's client is here ({scheduler.sources.get('on_login_node')}), SLURM_JOB_ID is not set",
                    source="environment",
                ),
                Evidence(
                    text="no GPU on the PCI bus",
                    value=0,
                    unit="GPUs",
                    source=gpus.sources.get("num_pci_gpus"),
                ),
            ),
            explanation="What was found here says nothing about the hosts that train. Run it where the job runs.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="On one host (NODE), or on all hosts of a new allocation",
                    command="srun -w NODE --gres=gpu:8 distdoctor env",
                ),
                Action(
                    team=Team.JOB_OWNER,
                    text="Beside a running job (JOBID)",
                    command="srun --jobid JOBID --overlap --ntasks-per-node=1 distdoctor env",
                ),
            ),
            fault=Fault.UNKNOWN,
        )
    ]


def check_gpus_given(facts: EnvFacts) -> Sequence[Outcome]:
    """Fewer GPUs than the scheduler gave: critical; fewer than the host has: info."""
    gpus = facts.gpus
    if gpus is None or gpus.devices is None:
        return [missing(facts, "gpus.devices")]
    if any(device.mig_mode for device in gpus.devices):
        return [NotApplicable(detail="MIG slices, not whole GPUs, are given here")]
    visible = visible_gpus(facts)
    if visible is None:
        return [missing(facts, "gpus.devices")]
    requested = facts.scheduler.gpus_requested if facts.scheduler is not None else None
    if requested:
        return [_compare_request(facts, gpus, requested)]
    return [_compare_host(visible, gpus)]


def _compare_request(facts: EnvFacts, gpus: GpuFacts, requested: int) -> Outcome:
    """NVML's GPUs against the node's share of the job; tasks that were given one GPU each see only theirs."""
    scheduler, have = facts.scheduler, _num_alive(gpus)
    tasks = scheduler.tasks_on_node if scheduler is not None else None
    per_task = max(requested // tasks, 1) if tasks else requested
    if have >= requested:
        return Passed(detail=f"{requested} GPUs given on this host, {have} seen")
    if tasks and have == per_task:
        return Passed(
            detail=f"{have} of the {requested} GPUs given on this host, as {tasks} tasks share them"
        )
    return Found(
        key="fewer-than-given",
        title=f"the scheduler gave {requested} GPUs on this host, the job sees {have}",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if tasks is not None else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{have} GPUs by NVML, {requested} by the scheduler"
                + (f", {tasks} tasks" if tasks else ""),
                value=have,
                unit="GPUs",
                expected=str(requested),
                expected_source=f"{scheduler.sources.get('gpus_requested') if scheduler else None} of the scheduler",
                source=gpus.sources.get("devices", "NVML"),
            ),
        ),
        explanation=(
            "A GPU was lost after the scheduler counted it, or the container or task was not given all of them. "
            "Ranks without a GPU stop with `invalid device ordinal`."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Compare what the host has with what the scheduler believes; drain the host if one is lost",
                command="nvidia-smi -L; scontrol show node $(hostname -s) | grep -i gres",
            ),
        ),
        cause_class="gpu:missing",
        fault=Fault.SCHEDULER,
    )


def _num_alive(gpus: GpuFacts) -> int:
    return sum(not device.lost for device in gpus.devices or ())


def _compare_host(visible: VisibleGpus, gpus: GpuFacts) -> Outcome:
    on_bus, have = gpus.num_pci_gpus or 0, len(gpus.devices or ())
    total = max(on_bus, have)
    if total == 0:
        return NotApplicable(detail="no GPU here")
    if visible.unknown is not None:
        # A finding of the check of CUDA's variables; saying it twice helps nobody.
        return NotApplicable(detail=f"{visible.why} names a GPU that is not here")
    if visible.count >= total:
        return Passed(detail=f"all {total} GPUs of this host can be used")
    return Found(
        key="part-of-host",
        title=f"this process uses {visible.count} of the host's {total} GPUs",
        severity=Severity.INFO,
        confidence=Confidence.HIGH if visible.count < have else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{visible.why}; {have} by NVML, {on_bus} on the PCI bus",
                value=visible.count,
                unit="GPUs",
                source="environment, NVML and /sys/bus/pci",
            ),
        ),
        explanation="Right when the host is shared or the job was given a part of it.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="If more were expected, see who chose",
                command="echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES; nvidia-smi -L",
            ),
        ),
        fault=Fault.CONFIG,
    )


LOGIN_NODE = Check(id="login-node", title="login node or compute node", run=check_login_node, preflight=True)
GPUS_GIVEN = Check(id="scheduler-gpus", title="GPUs given to the job", run=check_gpus_given)
