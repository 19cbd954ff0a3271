"""Did the kernel kill processes because host memory ran out?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome
from distdoctor.env.checks.kernel_events import events_of, is_old, line_evidence, nothing_found
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind
from distdoctor.report.model import Action, Evidence, Fault, Severity, Team

# Names under which training processes and their data workers run.
_TRAINING = re.compile(
    r"python|torchrun|pt_main|pt_data|deepspeed|ray|accelerate|megatron|mpirun|slurmstepd", re.IGNORECASE
)
_CGROUP = re.compile(r"Memory cgroup out of memory|CONSTRAINT_MEMCG")


def check_oom_kill(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical when a process that looks like training was killed; a warning for others; info for history."""
    events = events_of(facts, KernelEventKind.OOM_KILL)
    if isinstance(events, NotSeen):
        return [events]
    recent = [event for event in events if not is_old(facts, event)]
    if not events:
        return [nothing_found(facts, "out-of-memory kill")]
    return [_found(facts, recent or events, is_history=not recent)]


def _found(facts: EnvFacts, events: list[KernelEvent], *, is_history: bool) -> Found:
    training = [event for event in events if _TRAINING.search(event.process or "")]
    shown = training or events
    number = sum(event.times for event in shown)
    name = shown[0].process or "a process"
    in_cgroup = any(_CGROUP.search(event.text) for event in shown)
    if is_history:
        severity = Severity.INFO
    else:
        severity = Severity.CRITICAL if training else Severity.WARNING
    what = f"`{name[:30]}`" if number == 1 else f"{number} processes (`{name[:30]}`)"
    where = "limit of its cgroup" if in_cgroup else "memory of the host"
    return Found(
        key="cgroup" if in_cgroup else "host",
        title=f"The kernel killed {what}: {where} used up",
        severity=severity,
        evidence=(
            *(line_evidence(facts, event, value=event.pid) for event in shown[:3]),
            Evidence(text=f"{number} kill{'s' if number != 1 else ''} in the log", value=number),
        ),
        explanation=(
            "When host memory (not GPU memory) runs out, the kernel ends a process with SIGKILL. The job then "
            "shows `exitcode: -9` for one rank, and the others hang or fail in their next collective."
            + (
                " Here the limit of a container or job was reached, not that of the machine."
                if in_cgroup
                else ""
            )
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Use less host memory: fewer data workers, less prefetching and pinning, smaller checkpoints in RAM",
            ),
            Action(
                team=Team.PLATFORM,
                text="Raise the memory request or limit of the job, or find who else used the memory",
                command="journalctl -k | grep -iE 'out of memory|oom-kill'",
            ),
        ),
        cause_class="host:oom_killed",
        fault=Fault.HOST,
    )


CHECK = Check(
    id="kernel-oom-kill", title="out-of-memory kills in the kernel log", run=check_oom_kill, preflight=True
)
