"""Did the measurement end before its plan, and who is the cause?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.ranks.blame import Blame, Cause, blame
from distdoctor.ranks.lost import Stopped
from distdoctor.ranks.lost_found import error_evidence, lost_found, store_lost_found, waiting_evidence
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team


def check_stopped(facts: BenchFacts) -> Sequence[Outcome]:
    """Critical with the culprit where a rank is lost or all are stuck; info when somebody ended the run."""
    stopped = facts.stopped
    if stopped is None:
        if not facts.is_live:
            return [NotApplicable(detail="no run of ours")]
        return [Passed(detail="every step ended in time")]
    told = blame(stopped)
    match told.cause:
        case Cause.BY_USER | Cause.ENDED:
            return [_ended(stopped, told)]
        case Cause.STUCK | Cause.BROKEN:
            return [_stuck(facts, stopped, told)]
        case Cause.STORE_LOST:
            return [store_lost_found(stopped, told, facts.places)]
        case _:
            return [lost_found(stopped, told, facts.places)]


def _stuck(facts: BenchFacts, stopped: Stopped, told: Blame) -> Found:
    broken = told.cause is Cause.BROKEN
    several_hosts = len({place.host for place in facts.places}) > 1
    on_gpu = facts.backend in ("nccl", "rccl")
    return Found(
        key="broken" if broken else "stuck",
        title=(
            "a connection between ranks broke, though all of them run"
            if broken
            else "all ranks are in the collective and none comes out: communication is stuck"
        ),
        severity=Severity.CRITICAL,
        # A rank that went into the step and then does something else looks the same until its stack is seen.
        confidence=Confidence.MEDIUM,
        evidence=(*error_evidence(told), waiting_evidence(stopped, told)),
        explanation=(
            "No rank is missing and all processes run: data does not get from one to another. "
            + (
                "Between hosts: an interface or port that NCCL chose and that cannot reach the others, a firewall, "
                "a port that is down. "
                if several_hosts
                else ""
            )
            + (
                "Inside a host: direct transfers between GPUs that hang because PCIe ACS or an IOMMU diverts them. "
                if on_gpu
                else ""
            )
            + "Which of them it is, the commands below tell."
        ),
        actions=_stuck_actions(several_hosts=several_hosts, on_gpu=on_gpu),
        cause_class="network:unreachable_peer" if broken else "comm_stuck",
        fault=Fault.NETWORK if several_hosts else Fault.UNKNOWN,
    )


def _stuck_actions(*, several_hosts: bool, on_gpu: bool) -> tuple[Action, ...]:
    actions = []
    if on_gpu:
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="repeat without direct GPU transfers; if that runs, PCIe ACS or an IOMMU is the cause",
                command="NCCL_P2P_DISABLE=1 distdoctor nccl-bench --launch 8",
            )
        )
        actions.append(
            Action(
                team=Team.HARDWARE,
                text="whether PCIe ACS or the IOMMU redirects transfers between GPUs",
                command="lspci -vvv 2>/dev/null | grep -c 'ACSCtl.*SrcValid+'; grep -o 'iommu[^ ]*' /proc/cmdline",
            )
        )
    if several_hosts:
        variable = "NCCL_SOCKET_IFNAME" if on_gpu else "GLOO_SOCKET_IFNAME"
        actions.append(
            Action(
                team=Team.NETWORK,
                text="repeat over an interface that is known to reach all hosts; check firewalls between them",
                command=f"{variable}=eth0 distdoctor nccl-bench   # the interface of your network",
            )
        )
    actions.append(
        Action(
            team=Team.JOB_OWNER,
            text="the stacks of all ranks while they hang: one that is elsewhere than the others is the cause",
            command="for pid in $(pgrep -f distdoctor); do py-spy dump --pid $pid; done",
        )
    )
    return tuple(actions)


def _ended(stopped: Stopped, told: Blame) -> Found:
    by_user = told.cause is Cause.BY_USER
    return Found(
        key="ended",
        title=(
            "somebody ended the measurement before its plan"
            if by_user
            else "the launcher ended the measurement; no rank was found at fault"
        ),
        severity=Severity.INFO,
        confidence=Confidence.HIGH if by_user else Confidence.MEDIUM,
        evidence=(waiting_evidence(stopped, told),),
        explanation=(
            "What was measured until then is in the report. "
            + (
                ""
                if by_user
                else "A time limit, a preemption, or a rank that ended elsewhere; the launcher's log tells."
            )
        ).strip(),
        actions=(),
        cause_class=None,
        fault=Fault.UNKNOWN,
    )


CHECK = BenchCheck(id="bench-stopped", title="whether every step ended", run=check_stopped)
