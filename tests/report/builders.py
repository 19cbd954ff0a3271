"""Reports for tests: an all-clear, one accused GPU, many hosts, a bandwidth sweep, a hostile one."""

from __future__ import annotations

import functools
from collections.abc import Callable

from distdoctor.report.model import (
    Action,
    CheckResult,
    CheckState,
    Column,
    Confidence,
    Culprit,
    Drain,
    Evidence,
    Fact,
    Fault,
    Finding,
    GpuRef,
    Ignored,
    Impact,
    InputFile,
    MissingEvidence,
    Report,
    RuledOut,
    Scope,
    Series,
    Severity,
    Since,
    SkipCause,
    Skipped,
    Status,
    Subject,
    Table,
    Team,
    TimelineEvent,
    Tool,
    Verdict,
)
from distdoctor.report.seal import seal

WHEN = "2026-11-30T10:02:11Z"


def tool(command: str) -> Tool:
    return Tool(name="distdoctor", version="0.1.0", command=command, argv=(command,))


def check(number: int, state: CheckState, host: str = "host-a") -> CheckResult:
    return CheckResult(
        id=f"check-{number}", title=f"topic {number}", state=state, detail="as it should be", hosts=(host,)
    )


def skip(name: str, cause: SkipCause, how: str | None = None, **more: object) -> Skipped:
    return Skipped(
        id=name.replace(" ", "-"),
        what=name,
        cause=cause,
        reason="Permission denied",
        how=how,
        hosts=("host-a",),
        **more,
    )  # type: ignore[arg-type]


def all_clear() -> Report:
    return Report(
        tool=tool("checkup"),
        verdict=Verdict(
            status=Status.OK,
            title="no fault found in 6 of 9 checks; kernel log not seen",
            summary="This host. No fault found in 6 of 9 checks; kernel log and 2 others not seen.",
            confidence=Confidence.MEDIUM,
        ),
        subject=Subject(
            hosts=("host-a",),
            scheduler="slurm",
            job_id="4711",
            num_gpus=8,
            gpu_models=("NVIDIA H100 80GB HBM3",),
            torch="2.13.0",
            nccl="2.28.9",
            driver="570.86.15",
        ),
        started_utc=WHEN,
        duration_s=1.2,
        checks=(
            *(check(number, CheckState.PASSED) for number in range(6)),
            check(6, CheckState.NOT_APPLICABLE),
            *(check(number, CheckState.SKIPPED) for number in range(7, 10)),
        ),
        skipped=(
            skip("kernel log", SkipCause.NEEDS_ROOT, "sudo distdoctor checkup"),
            skip("PCIe link", SkipCause.NEEDS_ROOT),
            skip("port counters", SkipCause.TOOL_MISSING, "install infiniband-diags"),
        ),
        facts=(
            Fact(key="torch.version", value="2.13.0", source="torch/version.py", hosts=("host-a",)),
            Fact(
                key="process.shm_total_bytes",
                value=17179869184,
                unit="bytes",
                source="statvfs(/dev/shm)",
                hosts=("host-a",),
            ),
            Fact(key="host.kernel_log", value=None, why="dmesg: Operation not permitted", hosts=("host-a",)),
        ),
        timings={"collect": 0.9, "checks": 0.1},
    )


GPU = GpuRef(
    host="host-c",
    index=3,
    pci="00000000:3B:00.0",
    uuid="GPU-3b5a1f0e-0d3c-4c1b-9f57-0a1b2c3d4e5f",
    model="NVIDIA H100",
)


def slow_gpu() -> Report:
    """One accused GPU: culprit, victims, since, impact, drain, series, timeline."""
    finding = Finding(
        id="straggler-clock",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        title="rank 19 is 31 % slower than the median rank",
        fingerprint="straggler-clock:hw",
        evidence=(
            Evidence(
                text="median step 412 ms on rank 19, 314 ms on the other 31 (200 steps)",
                value=412.0,
                unit="ms",
                expected="at most 330 ms",
                expected_source="the other ranks plus 5 %",
                source="steps.jsonl",
            ),
            Evidence(
                text="SM clock of host-c gpu 3: 1065 MHz, its 7 peers 1755 MHz",
                value=1065,
                unit="MHz",
                expected="1755 MHz",
                expected_source="median of the host's other GPUs",
                source="NVML",
            ),
        ),
        explanation="In data-parallel training all ranks wait for the slowest, so one slow GPU slows the whole job.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Check cooling and power cap of host-c gpu 3",
                command="nvidia-smi -q -d PERFORMANCE,POWER -i 3",
            ),
            Action(
                team=Team.JOB_OWNER,
                text="Restart from the last checkpoint without host-c",
                command="sbatch --exclude=host-c train.sbatch",
            ),
        ),
        scope=Scope(ranks=(19,), hosts=("host-c",), gpus=(GPU,)),
        cause_class="gpu:thermal",
        fault=Fault.GPU,
    )
    minor = Finding(
        id="driver-differs",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title="two driver versions in one job",
        fingerprint="driver-differs",
        evidence=(Evidence(text="driver 570.86.15 on 3 hosts, 565.57.01 on host-b", source="NVML"),),
        explanation="Mixed drivers rarely fail, but they make faults hard to compare.",
        actions=(Action(team=Team.PLATFORM, text="Bring host-b to the driver of the others"),),
        scope=Scope(hosts=("host-b",)),
        fault=Fault.SOFTWARE,
    )
    accepted = Finding(
        id="thp-always", severity=Severity.INFO, confidence=Confidence.HIGH, title="transparent huge pages are `always`",
        fingerprint="thp-always", ignored=Ignored(by="/etc/distdoctor.toml", reason="agreed with the vendor", expires="2027-06-30"),
    )  # fmt: skip
    return Report(
        tool=tool("straggler"),
        verdict=Verdict(
            status=Status.CRITICAL,
            title="rank 19 is 31 % slower than the median rank",
            summary="One GPU of host-c runs at a reduced clock, and the other 31 ranks wait for it in every step.",
            confidence=Confidence.HIGH,
            cause_class="gpu:thermal",
            fault=Fault.GPU,
        ),
        subject=Subject(
            hosts=("host-a", "host-b", "host-c", "host-d"), world_size=32, scheduler="slurm", job_id="4711", job_name="llm-7b",
            num_gpus=32, gpu_models=("NVIDIA H100",), torch="2.13.0", nccl="2.28.9", cuda="12.8", driver="570.86.15",
        ),
        started_utc=WHEN,
        duration_s=3.4,
        culprits=(
            Culprit(rank=19, host="host-c", pod="trainer-2", local_rank=3, gpu=GPU, why="reduced clock"),
            Culprit(role="victim", ranks=tuple(range(8, 16)), host="host-b"),
            Culprit(role="victim", ranks=tuple(range(8)), host="host-a"),
        ),
        since=Since(utc="2026-11-30T08:14:00Z", source_zone="Europe/Berlin", step=1200, exactness="to the minute"),
        impact=Impact(gpus_held=32, slowdown_pct=31.2, gpu_hours=13.7, basis="estimated"),
        drain=(
            Drain(host="host-c", answer="yes", why="the clock stayed low for 90 minutes", command="scontrol update NodeName=host-c State=DRAIN Reason=clock"),
        ),
        timeline=(
            TimelineEvent(utc="2026-11-30T08:14:00Z", text="clock of host-c gpu 3 falls to 1065 MHz", source="telemetry"),
            TimelineEvent(text="steps become 31 % slower", source="steps.jsonl"),
        ),
        findings=(finding, minor, accepted),
        checks=(check(1, CheckState.FOUND), check(2, CheckState.PASSED)),
        ruled_out=(RuledOut(what="data loading", why="the time before forward is equal on all ranks"),),
        missing_evidence=(MissingEvidence(what="power readings", why="telemetry has no power column", how="nvidia-smi dmon -s p"),),
        tables=(
            Table(
                name="ranks", title="Median step per rank",
                columns=(Column(name="rank", align="right"), Column(name="host"), Column(name="median step", unit="ms", align="right")),
                rows=((18, "host-c", 314.2), (19, "host-c", 412.0), (20, "host-c", 315.0)),
                note="the three ranks around the accused one",
            ),
        ),
        series=(
            Series(name="median_step", title="Median step per rank", kind="bars", x_label="rank", y_label="ms",
                   x=tuple(range(32)), values=(tuple(412.0 if rank == 19 else 310.0 + rank % 7 for rank in range(32)),), hot=(19,)),
            Series(name="busbw", title="Bus bandwidth by message size", kind="lines", x_label="bytes", y_label="GB/s",
                   x=tuple(1 << power for power in range(10, 31, 2)), names=("all_reduce", "all_gather"),
                   values=((0.1, 0.4, 1.6, 6.0, 21.0, 64.0, 140.0, 230.0, 310.0, 352.0, 361.0),
                           (0.1, 0.3, 1.3, 5.1, 18.0, 55.0, None, 205.0, 290.0, 330.0, 342.0))),
            Series(name="pairs", title="Bandwidth between hosts", kind="heat", x_label="to", y_label="from",
                   x=("host-a", "host-b", "host-c", "host-d"), names=("host-a", "host-b", "host-c", "host-d"),
                   values=((None, 48.1, 22.3, 47.9), (48.0, None, 22.1, 48.2), (22.4, 22.0, None, 21.9), (48.3, 47.7, 22.5, None)), hot=(2,)),
        ),
        facts=(
            Fact(key="gpu.driver", value="570.86.15", source="NVML", hosts=("host-a", "host-c", "host-d")),
            Fact(key="gpu.driver", value="565.57.01", source="NVML", hosts=("host-b",)),
            Fact(key="gpu.3.power_limit_w", value=700, unit="W", source="NVML", hosts=("host-c",)),
        ),
        inputs=(
            InputFile(path="steps.jsonl", kind="step times", bytes=123456, sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
            InputFile(path="trace.json.gz", kind="Kineto trace", bytes=99, read=False, why_not="cut off after 99 bytes"),
        ),
    )  # fmt: skip


def many_hosts(num_hosts: int = 10_000, num_findings: int = 500) -> Report:
    """A job of a size where every list must fold."""
    hosts = tuple(f"node{number:05d}" for number in range(num_hosts))
    findings = tuple(
        Finding(
            id=f"nic-slow-{number}",
            severity=Severity.CRITICAL if number < 3 else Severity.WARNING,
            confidence=Confidence.HIGH if number % 2 else Confidence.LOW,
            title=f"port mlx5_{number % 8}/1 of {hosts[number % num_hosts]} runs at a quarter of its rate",
            fingerprint=f"nic-slow:{number}",
            evidence=tuple(
                Evidence(text=f"reading {part}: 12.{number % 10} GB/s", expected="48 GB/s", expected_source="port rate 400 Gb/s", source=f"/sys/class/infiniband/mlx5_{number % 8}/ports/1/rate")
                for part in range(3)
            ),
            explanation="A port that trained to a lower rate slows every collective that crosses it.",
            actions=(
                Action(team=Team.NETWORK, text=f"Reseat or replace the cable of {hosts[number % num_hosts]}", command=f"mlxlink -d mlx5_{number % 8} -c"),
                Action(team=Team.PLATFORM, text="Exclude the host until then"),
            ),
            scope=Scope(hosts=hosts[number % num_hosts : number % num_hosts + 40], links=(f"{hosts[number % num_hosts]} mlx5_{number % 8}/1",)),
        )
        for number in range(num_findings)
    )  # fmt: skip
    return Report(
        tool=tool("env"),
        verdict=Verdict(
            status=Status.CRITICAL,
            title=f"port mlx5_0/1 of {hosts[0]} runs at a quarter of its rate",
            summary=f"{num_hosts} hosts: {num_findings} findings, of which 3 are critical.",
            fault=Fault.NETWORK,
        ),
        subject=Subject(hosts=hosts, world_size=8 * num_hosts, scheduler="slurm", job_id="9", num_gpus=8 * num_hosts, missing_hosts=hosts[7:9]),
        started_utc=WHEN,
        findings=findings,
        drain=tuple(Drain(host=host, answer="yes" if index < 3 else "no", why="slow port") for index, host in enumerate(hosts[:50])),
        checks=tuple(CheckResult(id=f"check-{number}", title=f"topic {number}", state=CheckState.PASSED, detail="fine", hosts=hosts) for number in range(33)),
        skipped=tuple(
            Skipped(id=f"skip-{number}", what=f"topic {number}", cause=SkipCause.NEEDS_ROOT, reason="Permission denied", how="run as root", hosts=hosts)
            for number in range(33, 60)
        ),
        facts=tuple(Fact(key=f"net.mlx5_{number}.rate_gbps", value=400, unit="Gb/s", source="/sys", hosts=hosts) for number in range(200)),
        tables=(
            Table(name="hosts", title="Bandwidth per host", columns=(Column(name="host"), Column(name="busbw", unit="GB/s", align="right")),
                  rows=tuple((host, 48.0) for host in hosts)),
        ),
        series=(Series(name="busbw", title="Bandwidth per host", kind="bars", x_label="host", y_label="GB/s", x=hosts,
                       values=(tuple(48.0 if index else 12.0 for index in range(num_hosts)),), hot=(0,)),),
    )  # fmt: skip


def memory_plan() -> Report:
    """Where the memory would go under four strategies: bars of named parts, one beyond the limit, one known in part."""
    return Report(
        tool=tool("oom"),
        verdict=Verdict(
            status=Status.WARNING,
            title="DDP needs 159 GiB a GPU, an H100 has 79.1 GiB",
            summary="Estimated for a model of 8.03e9 parameters in bfloat16 with AdamW in float32.",
            confidence=Confidence.MEDIUM,
        ),
        subject=Subject(world_size=64, num_gpus=64, gpu_models=("NVIDIA H100 80GB HBM3",)),
        started_utc=WHEN,
        series=(
            Series(
                name="memory", title="Where the memory of the fullest rank goes", kind="stacked", x_label="strategy", y_label="GiB",
                x=("DDP", "ZeRO-1", "FSDP2, full checkpointing", "HSDP 8 x 8, selective checkpointing"),
                names=("parameters", "gradients", "optimizer states", "gathered parameters", "activations", "logits and loss",
                       "communication buffers", "temporaries", "CUDA context"),
                values=((14.96, 14.96, 0.234, 1.87), (14.96, 14.96, 0.234, 1.87), (89.76, 1.402, 1.402, 11.22), (0.0, 0.0, 1.625, 1.625),
                        (31.2, 31.2, 4.125, 12.25), (7.828, 7.828, 7.828, None), (0.4, 0.8, 0.5, 0.5), (0.02, 0.02, 0.031, 0.031), (0.5, 0.5, 0.5, 0.5)),
                limit=79.1, limit_label="NVIDIA H100 80GB HBM3: 79.1 GiB",
            ),
            Series(
                name="timeline", title="Allocated over two steps", kind="areas", x_label="allocations and frees, in their order", y_label="GiB",
                x=(0, 290, 292, 2900, 2910, 2925, 2926, 6000, 9000, 9001, 9800, 9802, 12600, 12620, 12630, 18700, 18701, 19400),
                names=("parameters", "gradients", "optimizer states", "activations", "logits and loss"),
                values=(
                    (0.1, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743, 3.743),
                    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.9, 3.743, 3.743, 3.743, 0.0, 0.0, 0.0, 0.0, 3.743, 3.743, 0.0),
                    (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.479, 7.479, 7.479, 7.479, 7.479, 7.479, 7.479, 7.479),
                    (0.0, 0.0, 0.0, 31.31, 31.31, 31.31, 31.31, 14.2, 0.3, 0.0, 0.0, 0.0, 31.31, 31.31, 31.31, 0.2, 0.0, 0.0),
                    (0.0, 0.0, 0.0, 3.9, 15.7, 19.6, 27.4, 0.0, 0.0, 0.0, 0.0, 0.0, 3.9, 19.6, 27.4, 0.0, 0.0, 0.0),
                ),
                limit=79.1, limit_label="NVIDIA H100 80GB HBM3: 79.1 GiB",
                marks=((0, "initialisation"), (2, "step 1: forward"), (4, "step 1: loss"), (6, "step 1: backward"), (9, "step 1: optimizer step"),
                       (11, "step 2: forward"), (13, "step 2: loss"), (14, "step 2: backward"), (16, "step 2: optimizer step")),
            ),
        ),
    )  # fmt: skip


HOSTILE = (
    "<script>alert(1)</script> a|b `x` [click](http://evil.example/x) ![i](//e) @alice #12 GH-3 www.evil.example "
    "\x1b[31mred\x1b[0m \u202egnp.exe \u200bzero [bold]rich[/bold] {{ 7*7 }} </details> $HOME :tada: _it_ **b** ~~s~~ "
    "0123456789abcdef0123456789abcdef01234567\nsecond line | # heading"
)


def hostile() -> Report:
    """Every field that people read holds text that tries to be something else."""
    evil = HOSTILE
    return Report(
        tool=Tool(name="distdoctor", version=evil, command=evil, argv=(evil,)),
        verdict=Verdict(status=Status.CRITICAL, title=evil, summary=evil, confidence=Confidence.MEDIUM, cause_class=evil),
        subject=Subject(hosts=(evil, "host-a"), scheduler=evil, job_id=evil, job_name=evil, image=evil, gpu_models=(evil,), torch=evil, missing_hosts=(evil,)),
        started_utc=evil,
        culprits=(Culprit(rank=1, host=evil, pod=evil, gpu=GpuRef(index=1, pci=evil, model=evil), nic_port=evil, why=evil),),
        since=Since(utc=evil, source_zone=evil, exactness=evil),
        drain=(Drain(host=evil, answer="yes", why=evil, command=evil),),
        timeline=(TimelineEvent(utc=evil, text=evil, source=evil),),
        findings=(
            Finding(
                id=evil, severity=Severity.CRITICAL, confidence=Confidence.MEDIUM, title=f"other {evil}", fingerprint=evil,
                evidence=(Evidence(text=evil, value=evil, unit=evil, expected=evil, expected_source=evil, source=evil),),
                explanation=evil, actions=(Action(team=Team.NETWORK, text=evil, command=evil),),
                scope=Scope(ranks=(1,), hosts=(evil,), gpus=(GpuRef(host=evil, index=1, model=evil),), links=(evil,)), cause_class=evil,
            ),
            Finding(id=evil, severity=Severity.INFO, confidence=Confidence.LOW, title=evil, fingerprint=evil, ignored=Ignored(by=evil, reason=evil, expires=evil)),
        ),
        checks=(CheckResult(id=evil, title=evil, state=CheckState.PASSED, detail=evil, hosts=(evil,)),),
        skipped=(Skipped(id=evil, what=evil, cause=SkipCause.FAILED, reason=evil, how=evil, hosts=(evil,)),),
        ruled_out=(RuledOut(what=evil, why=evil),),
        missing_evidence=(MissingEvidence(what=evil, why=evil, how=evil),),
        facts=(Fact(key=evil, value=evil, unit=evil, source=evil, hosts=(evil,)), Fact(key="a.b", why=evil)),
        tables=(Table(name=evil, title=evil, columns=(Column(name=evil, unit=evil),), rows=((evil,), (None,)), note=evil),),
        series=(
            Series(name=evil, title=evil, kind="bars", x_label=evil, y_label=evil, x=(evil, "b"), names=(evil,), values=((1.0, None),), hot=(0,)),
            Series(name=evil, title=evil, kind="lines", x_label=evil, y_label=evil, x=(evil, "b"), names=(evil,), values=((1.0, 2.0),)),
            Series(name=evil, title=evil, kind="stacked", x_label=evil, y_label=evil, x=(evil, "b"), names=(evil,), values=((1.0, 2.0),), limit=1.5, limit_label=evil),
            Series(name=evil, title=evil, kind="areas", x_label=evil, y_label=evil, x=(1, 2), names=(evil,), values=((1.0, 2.0),), limit=1.5, limit_label=evil, marks=((0, evil), (1, f"{evil}: {evil}"))),
            Series(name=evil, title=evil, kind="heat", x_label=evil, y_label=evil, x=(evil, "b"), names=(evil,), values=((1.0, 2.0),)),
        ),
        inputs=(InputFile(path=evil, kind=evil, read=False, why_not=evil),),
        timings={evil: 1.0},
    )  # fmt: skip


@functools.cache
def sealed(make: Callable[[], Report]) -> Report:
    """The report of one of these functions, fit to leave; made once, for ten thousand hosts take a second."""
    return seal(make())


REPORTS = {
    "all_clear": all_clear,
    "slow_gpu": slow_gpu,
    "many_hosts": many_hosts,
    "memory_plan": memory_plan,
    "hostile": hostile,
}
