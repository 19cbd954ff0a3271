"""Do compute mode and MIG let several ranks work together?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_names,
    gpu_numbers,
    nvidia_gpus,
    reset_action,
    scope_of,
    seen_and_unseen,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.versions import at_least
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# NCCL 2.30 release notes: first, experimental support for MIG slices; before, ncclCommInitRank refuses them or
# takes two slices of one GPU for a duplicate.
NCCL_WITH_MIG = "2.30"

EXCLUSIVE = ("exclusive_process", "exclusive_thread")


def check_mode(facts: EnvFacts) -> Sequence[Outcome]:
    """Prohibited and exclusive compute modes, MIG in a job of several ranks, and modes that will change."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "compute_mode", what="compute mode")
    found = [*_judge_compute(facts, seen), *_judge_mig(facts, devices)]
    if found or not seen:
        return [*found, *unseen]
    sliced = [device.index for device in devices if device.mig_mode]
    mig = f", MIG on for {gpu_numbers(sliced)}" if sliced else ""
    return [Passed(detail=f"compute mode default on {len(seen)} GPUs{mig}"), *unseen]


def _judge_compute(facts: EnvFacts, devices: Sequence[GpuDevice]) -> list[Found]:
    found = []
    prohibited = [device for device in devices if device.compute_mode == "prohibited"]
    exclusive = [device for device in devices if device.compute_mode in EXCLUSIVE]
    if prohibited:
        found.append(_prohibited(prohibited))
    if exclusive:
        found.append(_exclusive(facts, exclusive, len(devices)))
    return found


def _mode_evidence(devices: list[GpuDevice]) -> Evidence:
    return Evidence(
        text=f"compute mode {devices[0].compute_mode} on {len(devices)} GPUs",
        value=devices[0].compute_mode,
        expected="default",
        expected_source="nvidia-smi manual, compute modes",
        source=devices[0].sources.get("compute_mode"),
    )


_SET_DEFAULT = Action(
    team=Team.PLATFORM, text="Set the default compute mode", command="sudo nvidia-smi -c DEFAULT"
)


def _prohibited(devices: list[GpuDevice]) -> Found:
    return Found(
        key="prohibited",
        title=f"{gpu_names(devices)}: compute mode forbids every CUDA program",
        severity=Severity.CRITICAL,
        evidence=(_mode_evidence(devices),),
        explanation="No program can make a CUDA context: `all CUDA-capable devices are busy or unavailable`.",
        actions=(_SET_DEFAULT,),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


def _exclusive(facts: EnvFacts, devices: list[GpuDevice], num_gpus: int) -> Found:
    scheduler = facts.scheduler
    ranks_here = scheduler.local_world_size if scheduler is not None else None
    crowded = ranks_here is not None and ranks_here > num_gpus
    return Found(
        key="exclusive",
        title=f"{gpu_names(devices)}: only one process may use the GPU",
        severity=Severity.CRITICAL if crowded else Severity.INFO,
        confidence=Confidence.HIGH if crowded else Confidence.MEDIUM,
        evidence=(
            _mode_evidence(devices),
            *(
                (Evidence(text=f"{ranks_here} ranks on {num_gpus} GPUs", value=ranks_here, unit="ranks"),)
                if crowded
                else ()
            ),
        ),
        explanation=(
            "A second process on a GPU gets `all CUDA-capable devices are busy or unavailable`: a second rank, an "
            "evaluation beside the job, or a rank that touches GPU 0 before it chooses its own."
        ),
        actions=(_SET_DEFAULT,),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


def _judge_mig(facts: EnvFacts, devices: Sequence[GpuDevice]) -> list[Found]:
    found = []
    sliced = [device for device in devices if device.mig_mode]
    changing = [
        device
        for device in devices
        if device.mig_mode is not None
        and device.mig_mode_pending is not None
        and device.mig_mode != device.mig_mode_pending
    ]
    if sliced and _joins_gpus(facts, devices):
        found.append(_sliced(facts, sliced, len(devices)))
    if changing:
        found.append(_changing(changing))
    return found


def _joins_gpus(facts: EnvFacts, devices: Sequence[GpuDevice]) -> bool:
    """Several ranks, or several GPUs when nothing is known of ranks."""
    world_size = facts.scheduler.world_size if facts.scheduler is not None else None
    return world_size > 1 if world_size is not None else len(devices) > 1


def _sliced(facts: EnvFacts, sliced: list[GpuDevice], num_gpus: int) -> Found:
    world_size = facts.scheduler.world_size if facts.scheduler is not None else None
    certain = world_size is not None and world_size > 1 and not _nccl_knows_mig(facts)
    profiles = sorted({each.profile for device in sliced for each in device.mig_instances})
    slices = f", slices {', '.join(profiles)}" if profiles else ""
    return Found(
        key="mig",
        title=f"{gpu_names(sliced)}: MIG is on, NCCL cannot join the slices",
        severity=Severity.CRITICAL if certain else Severity.WARNING,
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"MIG is on for {len(sliced)} of {num_gpus} GPUs{slices}"
                + (f"; the job has {world_size} ranks" if world_size is not None else ""),
                value=True,
                expected="off",
                expected_source="NVIDIA MIG user guide: no peer-to-peer between slices",
                source=sliced[0].sources.get("mig_mode"),
            ),
        ),
        explanation=(
            "A slice has no peer-to-peer and no NVLink. NCCL before 2.30 does not join slices, and 2.30 does so only "
            "as an experiment; a rank on a slice makes the whole job fail or slow."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Give the job whole GPUs: choose another host, or switch MIG off on a drained one",
                command=f"sudo nvidia-smi -i {','.join(str(device.index) for device in sliced)} -mig 0",
            ),
        ),
        scope=scope_of(*sliced),
        fault=Fault.CONFIG,
    )


def _nccl_knows_mig(facts: EnvFacts) -> bool:
    """True when the version is known to be new enough; an unknown one is not taken for new."""
    nccl = facts.nccl
    version = (nccl.loaded_version or nccl.predicted_version) if nccl is not None else None
    return at_least(version, NCCL_WITH_MIG) is True


def _changing(devices: list[GpuDevice]) -> Found:
    now, later = ("on", "off") if devices[0].mig_mode else ("off", "on")
    return Found(
        key="mig-pending",
        title=f"{gpu_names(devices)}: MIG will be switched {later} at the next reset",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"MIG is {now}, after the next reset {later}",
                value=now,
                source=devices[0].sources.get("mig_mode_pending"),
            ),
        ),
        explanation="The setting that counts and the setting that somebody made differ until the GPU is reset.",
        actions=(reset_action(devices[0]),),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


CHECK = Check(id="gpu-mode", title="compute mode and MIG", run=check_mode, preflight=True)
