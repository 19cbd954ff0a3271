"""Does the container, pod or job give the process enough memory and CPU time?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.process import UNLIMITED, ProcessFacts
from distdoctor.env.visible_gpus import visible_gpus
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import format_bytes

# Memory that cannot be given back, as a part of the limit. Our own threshold.
NEARLY_FULL_FRACTION = 0.9

# One CPU launches kernels for its GPU, another at least loads data. Our own threshold.
CPUS_PER_GPU = 2

# Our own thresholds: a period is 100 ms by default, so that 100 of them are 10 s of a busy cgroup.
THROTTLED_FRACTION = 0.05
MIN_PERIODS = 100

OOM_SOURCE = (
    "Linux, cgroup-v2 documentation, memory.events: no process is killed in a group that fits its limit"
)


def check_memory(facts: EnvFacts) -> Sequence[Outcome]:
    """Processes that the OOM killer ended, and memory above 90 % of the limit without what can be given back."""
    process = facts.process
    if process is None:
        return [missing(facts, "process.cgroup_memory_max_bytes")]
    return [_oom_kills(facts, process), _usage(facts, process)]


def _oom_kills(facts: EnvFacts, process: ProcessFacts) -> Outcome:
    own, above = process.cgroup_oom_kills, process.cgroup_limit_oom_kills
    if own is None and above is None:
        return missing(facts, "process.cgroup_oom_kills", what="processes ended by the OOM killer")
    if not own and not above:
        return Passed(detail="the OOM killer ended no process of this cgroup")
    count = own or above or 0
    field = "cgroup_oom_kills" if own else "cgroup_limit_oom_kills"
    whose = "this cgroup" if own else "a cgroup above this one (its other members count too)"
    in_job = facts.scheduler is not None and facts.scheduler.rank is not None
    return Found(
        key="oom-killed",
        title=f"the kernel killed {count} process{'es' if count > 1 else ''} here for lack of memory",
        severity=Severity.CRITICAL if own and in_job else Severity.WARNING,
        confidence=Confidence.HIGH if own and in_job else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{count} kills by the OOM killer in {whose}, since this cgroup was made",
                value=count,
                unit="processes",
                expected="0",
                expected_source=OOM_SOURCE,
                source=process.sources.get(field),
            ),
        ),
        explanation=(
            "The memory limit of the container or job was reached, and the kernel ended a process in it: a rank "
            "(`exit code -9`, `Killed`) or a data-loader worker (`killed by signal: Killed`). When it happened, "
            "this counter does not say."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See which process, and when",
                command="sudo dmesg -T | grep -iE 'oom-kill|killed process' | tail",
            ),
            Action(
                team=Team.JOB_OWNER,
                text="Ask for more memory, or use less: fewer workers, less prefetch, less pinned memory, smaller /dev/shm",
            ),
        ),
        cause_class="host:oom_killed",
        fault=Fault.CONFIG,
    )


def _usage(facts: EnvFacts, process: ProcessFacts) -> Outcome:
    limit, current = process.cgroup_memory_max_bytes, process.cgroup_memory_current_bytes
    if limit is None:
        return missing(facts, "process.cgroup_memory_max_bytes")
    if limit == UNLIMITED:
        hidden = "" if process.cgroup_sees_root else " in sight; a container does not see those above it"
        return Passed(detail=f"no memory limit{hidden}")
    if current is None:
        return missing(facts, "process.cgroup_memory_current_bytes", what="memory in use below its limit")
    if current <= limit * NEARLY_FULL_FRACTION:
        return Passed(detail=f"{format_bytes(current)} in use of {format_bytes(limit)}")
    cache = process.cgroup_memory_file_bytes
    if cache is None:
        return missing(
            facts, "process.cgroup_memory_file_bytes", what="how much of the memory can be given back"
        )
    cache += process.cgroup_memory_slab_reclaimable_bytes or 0
    held = current - cache
    if held <= limit * NEARLY_FULL_FRACTION:
        return Passed(
            detail=f"{format_bytes(held)} held of {format_bytes(limit)}; {format_bytes(cache)} of cache can go"
        )
    return Found(
        key="nearly-full",
        title=f"memory is nearly used up: {format_bytes(held)} of {format_bytes(limit)}",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=(
                    f"{format_bytes(current)} in use, of which {format_bytes(cache)} are cache that the kernel can "
                    f"give back; the limit is {format_bytes(limit)} ({process.sources.get('cgroup_memory_max_bytes')})"
                ),
                value=held,
                unit="bytes",
                expected=f"below {NEARLY_FULL_FRACTION:.0%} of the limit",
                expected_source="our own threshold",
                source=process.sources.get("cgroup_memory_current_bytes"),
            ),
        ),
        explanation="At the limit the kernel ends a process. Pinned buffers and /dev/shm count as used.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Ask for more memory, or see who holds it",
                command="ps -eo pid,rss,comm --sort=-rss | head; du -sh /dev/shm",
            ),
        ),
        cause_class="host:oom_killed",
        fault=Fault.CONFIG,
    )


def check_cpu(facts: EnvFacts) -> Sequence[Outcome]:
    """A CPU quota below 2 CPUs per GPU, and a cgroup that was stopped in more than 5 % of its periods."""
    process = facts.process
    if process is None or process.cgroup_cpu_quota_cpus is None:
        return [missing(facts, "process.cgroup_cpu_quota_cpus")]
    quota = process.cgroup_cpu_quota_cpus
    if quota == UNLIMITED:
        hidden = "" if process.cgroup_sees_root else " in sight; a container does not see those above it"
        return [Passed(detail=f"no CPU quota{hidden}")]
    return [_quota(facts, process, quota), _throttled(facts, process, quota)]


def _quota(facts: EnvFacts, process: ProcessFacts, quota: float) -> Outcome:
    visible = visible_gpus(facts)
    if visible is None:
        return missing(facts, "gpus.devices", what="CPU quota per GPU")
    if visible.count == 0:
        return NotApplicable(detail="no GPU here to compare the CPU quota with")
    if quota >= CPUS_PER_GPU * visible.count:
        return Passed(detail=f"a quota of {quota:g} CPUs for {visible.count} GPUs")
    return Found(
        key="quota",
        title=f"a quota of {quota:g} CPUs for {visible.count} GPU{'s' if visible.count > 1 else ''}",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"CPU time is limited to that of {quota:g} CPUs; {visible.why}",
                value=quota,
                unit="CPUs",
                expected=f"at least {CPUS_PER_GPU} per GPU, {CPUS_PER_GPU * visible.count} here",
                expected_source="our own threshold",
                source=process.sources.get("cgroup_cpu_quota_cpus"),
            ),
        ),
        explanation=(
            "Each rank needs a CPU to launch kernels and more to load data. When the quota of a period is used up, "
            "all threads stop, NCCL's too, and the other ranks wait for this one."
        ),
        actions=(_raise_quota(),),
        cause_class="host:cpu_quota",
        fault=Fault.CONFIG,
    )


def _throttled(facts: EnvFacts, process: ProcessFacts, quota: float) -> Outcome:
    periods, throttled = process.cgroup_cpu_periods, process.cgroup_cpu_throttled_periods
    if periods is None:
        return missing(facts, "process.cgroup_cpu_periods", what="how often the CPU quota was used up")
    if throttled is None:
        return missing(
            facts, "process.cgroup_cpu_throttled_periods", what="how often the CPU quota was used up"
        )
    if periods < MIN_PERIODS:
        return Passed(detail=f"only {periods} periods under the quota of {quota:g} CPUs so far")
    if throttled <= periods * THROTTLED_FRACTION:
        return Passed(detail=f"stopped in {throttled / periods:.1%} of {periods} periods")
    return Found(
        key="throttled",
        title=f"all threads were stopped in {throttled / periods:.0%} of the time slices",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=(
                    f"{throttled} of {periods} periods used up the quota of {quota:g} CPUs, "
                    "since this cgroup was made"
                ),
                value=round(throttled / periods * 100, 1),
                unit="%",
                expected=f"below {THROTTLED_FRACTION:.0%}",
                expected_source="our own threshold",
                source=process.sources.get("cgroup_cpu_throttled_periods"),
            ),
        ),
        explanation=(
            "In such a period no thread of the container runs until the next one begins (100 ms by default). "
            "A rank that stops makes all others wait in the next collective."
        ),
        actions=(_raise_quota(),),
        cause_class="host:cpu_quota",
        fault=Fault.CONFIG,
    )


def _raise_quota() -> Action:
    return Action(
        team=Team.JOB_OWNER,
        text="Raise the CPU limit, or leave it out and keep the request (Kubernetes: resources.limits.cpu)",
    )


MEMORY = Check(
    id="cgroup-memory", title="memory limit of the container or job", run=check_memory, preflight=True
)
CPU = Check(id="cgroup-cpu", title="CPU quota of the container or job", run=check_cpu, preflight=True)
