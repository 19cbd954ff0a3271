"""Do the process' resource limits (ulimit) let RDMA, NCCL and many ranks work?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.limits_owner import is_rank, limit_action, not_the_job, stands_for_job
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.process import UNLIMITED, ProcessFacts
from distdoctor.env.versions import at_least
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import MIB, format_bytes

NCCL_GUIDE = "NCCL user guide, troubleshooting, runtime and MPI issues"

# Linux' defaults are 64 KiB and 8 MiB; one NCCL channel registers several MiB. Our own threshold for "fails".
MEMLOCK_FAILS_BELOW = 64 * MIB

# include/uapi/linux/capability.h. With it the kernel does not apply RLIMIT_MEMLOCK to RDMA registrations
# (drivers/infiniband/core/umem.c), but only when it is held in the machine's first user namespace.
CAP_IPC_LOCK = 14

# The NCCL guide advises 131072; half of it is our own threshold, below the guide's example of 32 K for 144 ranks.
NOFILE_ENOUGH = 65536
NOFILE_ADVISED = 131072
# 1024, the usual default, is used up by data-loader workers alone on large hosts. Our own threshold.
NOFILE_SMALL = 4096
MANY_RANKS = 64

# From this version on NCCL sets the stack size of its own threads (the same guide, "Stack size").
STACK_FIXED_IN = "2.28"

# Racks whose NVLink spans hosts. GPU names as NVML gives them.
RACK_SCALE_GPU = re.compile(r"GB[23]00|NVL(32|36|72|144)")


def check_memlock(facts: EnvFacts) -> Sequence[Outcome]:
    """Not unlimited with an RDMA device: critical below 64 MiB, else a warning; RDMA unknown: a warning at most."""
    ports = facts.network.rdma_ports if facts.network is not None else None
    if ports is not None and not ports:
        return [NotApplicable(detail="no RDMA device here")]
    process = facts.process
    if process is None or process.memlock_bytes is None:
        return [missing(facts, "process.memlock_bytes")]
    limit = process.memlock_bytes
    if limit == UNLIMITED:
        return [Passed(detail="locked memory is unlimited")]
    if (process.effective_capabilities or 0) >> CAP_IPC_LOCK & 1:
        lifted = _lifted(facts, limit)
        if lifted is not None:
            return [lifted]
    return [_memlock_found(facts, process, limit, rdma_known=ports is not None)]


def _lifted(facts: EnvFacts, limit: int) -> Outcome | None:
    """The outcome for a process with CAP_IPC_LOCK; None when a user namespace makes it worthless."""
    container, process = facts.container, facts.process
    if container is None or container.user_namespace is None:
        return missing(facts, "container.user_namespace")
    if container.user_namespace:
        return None
    stands_for_job = (
        container.kind not in (None, "none") or not (process and process.is_root) or is_rank(facts)
    )
    if stands_for_job:
        return Passed(detail=f"the capability IPC_LOCK lifts the limit of {format_bytes(limit)}")
    return NotSeen(
        unread=Unread(
            cause=SkipCause.NOT_ASKED,
            reason=f"this is root, whom the limit of {format_bytes(limit)} does not bind; the job's user may be bound",
            how="run as the job's user, or look at the job's process: distdoctor env --pid PID",
        )
    )


def _memlock_found(facts: EnvFacts, process: ProcessFacts, limit: int, *, rdma_known: bool) -> Found:
    hard = process.memlock_hard_bytes
    hard_text = "" if hard is None else f" (hard limit {_size(hard)})"
    sure = rdma_known and stands_for_job(facts)
    return Found(
        title=f"only {format_bytes(limit)} of memory may be locked; RDMA needs more",
        severity=Severity.CRITICAL if rdma_known and limit < MEMLOCK_FAILS_BELOW else Severity.WARNING,
        confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"locked memory is limited to {format_bytes(limit)}{hard_text}",
                value=limit,
                unit="bytes",
                expected="unlimited",
                expected_source=f"{NCCL_GUIDE}: Docker (`--ulimit memlock=-1`)",
                source=process.sources.get("memlock_bytes"),
            ),
        ),
        explanation=(
            "InfiniBand, RoCE and EFA work on memory that is locked. Above the limit, registration fails with "
            "`Cannot allocate memory` (`ibv_reg_mr`), at start or when buffers grow." + not_the_job(facts)
        ),
        actions=(limit_action(facts, "memlock", "unlimited", "-1"),),
        cause_class="host:memlock",
        fault=Fault.CONFIG,
    )


def check_nofile(facts: EnvFacts) -> Sequence[Outcome]:
    """Soft limit of open files: critical below 4096 in a job of more than 64 ranks, a warning below 65536."""
    process = facts.process
    if process is None or process.nofile is None:
        return [missing(facts, "process.nofile")]
    limit = process.nofile
    if limit == UNLIMITED or limit >= NOFILE_ENOUGH:
        return [Passed(detail=f"{'unlimited' if limit == UNLIMITED else limit} open files")]
    ranks = facts.scheduler.world_size if facts.scheduler is not None else None
    hard = process.nofile_hard
    hard_text = "" if hard is None else f", hard limit {'unlimited' if hard == UNLIMITED else hard}"
    severity = _nofile_severity(facts, limit, ranks)
    return [
        Found(
            title=f"only {limit} files may be open at once",
            severity=severity,
            confidence=Confidence.HIGH if stands_for_job(facts) else Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"soft limit {limit}{hard_text}" + (f", job of {ranks} ranks" if ranks else ""),
                    value=limit,
                    unit="files",
                    expected=f"{NOFILE_ADVISED}",
                    expected_source=f"{NCCL_GUIDE}: file descriptors",
                    source=process.sources.get("nofile"),
                ),
            ),
            explanation=(
                "NCCL keeps sockets to many ranks, and every tensor that a data-loader worker hands over may be "
                "a file. At the limit, the job ends with `Too many open files`." + not_the_job(facts)
            ),
            actions=(
                limit_action(facts, "nofile", str(NOFILE_ADVISED), f"{NOFILE_ADVISED}:{NOFILE_ADVISED}"),
            ),
            cause_class="host:nofile",
            fault=Fault.CONFIG,
        )
    ]


def _nofile_severity(facts: EnvFacts, limit: int, ranks: int | None) -> Severity:
    gpus = facts.gpus
    no_gpu_no_job = ranks is None and gpus is not None and gpus.devices == () and not gpus.num_pci_gpus
    if ranks is not None and ranks > MANY_RANKS and limit < NOFILE_SMALL:
        return Severity.CRITICAL
    small_job = ranks is not None and ranks <= MANY_RANKS
    if no_gpu_no_job or (small_job and limit >= NOFILE_SMALL):
        return Severity.INFO
    return Severity.WARNING


def check_stack(facts: EnvFacts) -> Sequence[Outcome]:
    """An unlimited stack with NCCL before 2.28 on multi-node NVLink is a warning."""
    process = facts.process
    if process is None or process.stack_bytes is None:
        return [missing(facts, "process.stack_bytes")]
    if process.stack_bytes != UNLIMITED:
        return [Passed(detail=f"stack limit {format_bytes(process.stack_bytes)}")]
    devices = facts.gpus.devices if facts.gpus is not None else None
    if devices is None:
        return [missing(facts, "gpus.devices")]
    if not any(RACK_SCALE_GPU.search(device.name or "") for device in devices):
        return [NotApplicable(detail="no NVLink across hosts here")]
    version = facts.nccl.version if facts.nccl is not None else None
    fixed = at_least(version, STACK_FIXED_IN)
    if fixed is None:
        return [missing(facts, "nccl.loaded_version", what="NCCL's version, for the unlimited stack")]
    if fixed:
        return [Passed(detail=f"stack is unlimited; NCCL {version} sets its threads' own")]
    return [
        Found(
            title=f"an unlimited stack gives NCCL {version}'s threads only 2 MiB",
            severity=Severity.WARNING,
            confidence=Confidence.HIGH if stands_for_job(facts) else Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"stack limit is unlimited, NCCL is {version}",
                    value="unlimited",
                    expected=f"8 MiB, or NCCL {STACK_FIXED_IN}",
                    expected_source=f"{NCCL_GUIDE}: stack size",
                    source=process.sources.get("stack_bytes"),
                ),
            ),
            explanation=(
                "With `unlimited`, glibc gives new threads 2 MiB. Where NVLink spans hosts, NCCL's search for "
                "paths may need more and end with a segmentation fault when communicators are made."
            ),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Set it in the job script, on all hosts",
                    command="ulimit -s 8192",
                ),
            ),
            cause_class="host:stack",
            fault=Fault.CONFIG,
        )
    ]


def _size(limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else format_bytes(limit)


MEMLOCK = Check(id="memlock-too-low", title="limit of locked memory", run=check_memlock, preflight=True)
NOFILE = Check(id="nofile-too-low", title="limit of open files", run=check_nofile, preflight=True)
STACK = Check(id="stack-unlimited", title="limit of the stack", run=check_stack)
