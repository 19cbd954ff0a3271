"""Is /dev/shm large enough for NCCL and for data-loader workers?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import GIB, MIB, format_bytes

# DeepSpeed's ds_report warns below this; Docker's default is 64 MiB (NVIDIA/nccl issue 342).
SMALL_BYTES = 512 * MIB

# The NCCL user guide asks containers for --shm-size=1g. That it is meant for a host of 8 GPUs is our own reading.
ADVISED_BYTES = GIB
GPUS_PER_ADVICE = 8

# A tenth left means that something already fills it; the next segment or worker batch may not fit.
LOW_FREE_FRACTION = 0.1


def check_shm(facts: EnvFacts) -> Sequence[Outcome]:
    """Too small is critical with more than one GPU, a warning otherwise; nearly full is a warning."""
    process = facts.process
    if process is None or process.shm_total_bytes is None:
        return [missing(facts, "process.shm_total_bytes")]
    total, free = process.shm_total_bytes, process.shm_free_bytes
    source = process.sources.get("shm_total_bytes")
    advised = _advised_bytes(facts)
    if total < advised:
        return [_too_small(facts, total, advised, source)]
    if free is not None and free < total * LOW_FREE_FRACTION:
        return [_nearly_full(total, free, source)]
    return [Passed(detail=f"/dev/shm has {format_bytes(total)}")]


def _advised_bytes(facts: EnvFacts) -> int:
    """1 GiB for every 8 GPUs or part of it."""
    num_gpus = len(facts.gpus.devices or ()) if facts.gpus is not None else 0
    return ADVISED_BYTES * max(1, -(-num_gpus // GPUS_PER_ADVICE))


def _too_small(facts: EnvFacts, total: int, advised: int, source: str | None) -> Found:
    devices = facts.gpus.devices if facts.gpus is not None else None
    several_gpus = devices is not None and len(devices) > 1
    return Found(
        title=f"/dev/shm is only {format_bytes(total)}",
        severity=Severity.CRITICAL if several_gpus and total < SMALL_BYTES else Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"/dev/shm holds {format_bytes(total)}",
                value=total,
                unit="bytes",
                expected=f"at least {format_bytes(advised)}",
                expected_source="NCCL user guide, troubleshooting: shared memory",
                source=source,
            ),
        ),
        explanation=(
            "NCCL exchanges data between the GPUs of a host through shared memory, and PyTorch's data-loader "
            "workers hand over batches in it. When it is full, NCCL stops with `No space left on device` and "
            "workers die with `Bus error`."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Docker: start the container with more shared memory, or share the host's",
                command="docker run --shm-size=16g …   # or --ipc=host",
            ),
            Action(
                team=Team.PLATFORM,
                text="Kubernetes: mount an emptyDir with `medium: Memory` at /dev/shm",
            ),
        ),
        cause_class="host:shm_full",
        fault=Fault.CONFIG,
    )


def _nearly_full(total: int, free: int, source: str | None) -> Found:
    return Found(
        key="full",
        title=f"/dev/shm is nearly full: {format_bytes(free)} of {format_bytes(total)} left",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{format_bytes(free)} free of {format_bytes(total)}",
                value=free,
                unit="bytes",
                source=source,
            ),
        ),
        explanation="Segments of a job that died stay until somebody removes them; the next job finds no room.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Look at what fills it; remove segments whose process is gone",
                command="ls -lhS /dev/shm | head; fuser -v /dev/shm/* 2>&1 | head",
            ),
        ),
        cause_class="host:shm_full",
        fault=Fault.HOST,
    )


CHECK = Check(id="shm-too-small", title="size of /dev/shm", run=check_shm, preflight=True)
