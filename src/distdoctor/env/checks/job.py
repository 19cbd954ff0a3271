"""Checks across the ranks and hosts of a job: who differs from the others, and what that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdoctor.env.catalog.relevance import env_relevance
from distdoctor.env.checks.base import Found, Outcome, Passed
from distdoctor.env.checks.job_network import run_job_network
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.flatten import flat_rows
from distdoctor.env.members import HOST_SECTIONS, Member
from distdoctor.report.differences import Difference, find_differences
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scalar, Scope, Severity, Team
from distdoctor.units import fold_ints

# Beyond this the logs of several hosts cannot be put in one order. Our own threshold.
MAX_CLOCK_OFFSET_S = 0.1

# More names than this are counted rather than told; the JSON facts hold them all.
MAX_HOLDERS_SHOWN = 8

# Names of facts that want an article in a sentence.
_COMMON_NOUNS = (
    "version of",
    "number of",
    "size of",
    "limit of",
    "model of",
    "state of",
    "rate of",
    "MTU of",
)

_FAULTS = {
    "variables": Fault.CONFIG,
    "ranks": Fault.CONFIG,
    "versions": Fault.SOFTWARE,
    "hardware": Fault.HOST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheck:
    """A check across members; otherwise as `env.checks.base.Check`."""

    id: str
    title: str
    run: Callable[[Sequence[Member], Sequence[Difference]], Sequence[Outcome]]


def job_differences(members: Sequence[Member]) -> tuple[Difference, ...]:
    """Facts that differ between ranks, or between hosts for facts about hosts; most relevant first."""
    by_rank: dict[str, dict[str, Scalar]] = {}
    by_host: dict[str, dict[str, Scalar]] = {}
    for member in members:
        rows = {key: value for key, value, _, _ in flat_rows(member.facts) if value is not None}
        by_rank[_holder(member)] = {key: value for key, value in rows.items() if not _is_host_key(key)}
        if member.host not in by_host:
            by_host[member.host] = {key: value for key, value in rows.items() if _is_host_key(key)}
            by_host[member.host] |= _counts(member.facts)
    seen = {host: rows for host, rows in by_host.items() if rows}
    return (*find_differences(by_rank, env_relevance), *find_differences(seen, env_relevance))


def check_clock_offset(members: Sequence[Member], _: Sequence[Difference]) -> Sequence[Outcome]:
    """Hosts whose clock is more than 100 ms from the median of the job's hosts."""
    offsets = {member.host: member.clock_offset_s for member in members if member.clock_offset_s is not None}
    if len(offsets) < 2:
        return [Passed(detail="clocks of several hosts were not compared")]
    median = sorted(offsets.values())[len(offsets) // 2]
    odd = {
        host: offset - median for host, offset in offsets.items() if abs(offset - median) > MAX_CLOCK_OFFSET_S
    }
    if not odd:
        return [Passed(detail=f"within {MAX_CLOCK_OFFSET_S * 1e3:.0f} ms on {len(offsets)} hosts")]
    worst_first = sorted(odd.items(), key=lambda item: -abs(item[1]))
    host, offset = worst_first[0]
    return [
        Found(
            title=f"clock of {host} is {offset:+.2f} s off the others"[:80],
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            evidence=tuple(
                Evidence(
                    text=f"{name}: {value:+.3f} s from the median of {len(offsets)} hosts",
                    value=round(value, 3),
                    unit="s",
                    expected=f"within {MAX_CLOCK_OFFSET_S} s",
                    expected_source="our own threshold",
                    source="time stamp of its file in the shared folder",
                )
                for name, value in worst_first[:MAX_HOLDERS_SHOWN]
            ),
            explanation="Logs of these hosts cannot be put in one order, and certificates may be refused.",
            actions=(
                Action(
                    team=Team.PLATFORM, text="Look at time synchronisation there", command="chronyc tracking"
                ),
            ),
            scope=Scope(hosts=tuple(odd)),
            fault=Fault.HOST,
        )
    ]


def check_common_network(members: Sequence[Member], _: Sequence[Difference]) -> Sequence[Outcome]:
    """Do the hosts have a common subnet among the interfaces that NCCL would choose?"""
    # Pods or tasks that share a kernel share its network card, and rightly its addresses.
    machines: dict[str, tuple[str, EnvFacts]] = {}
    for member in members:
        boot_id = member.facts.host.boot_id if member.facts.host else None
        machines.setdefault(boot_id or member.host, (member.host, member.facts))
    hosts = dict(machines.values())
    if len(hosts) < 2:
        return [Passed(detail="one machine")]
    return list(run_job_network(hosts)) or [Passed(detail=f"common among {len(hosts)} hosts")]


def _topic_check(topic: str) -> Callable[[Sequence[Member], Sequence[Difference]], Sequence[Outcome]]:
    def run(members: Sequence[Member], differences: Sequence[Difference]) -> Sequence[Outcome]:
        mine = [each for each in differences if each.relevance.topic == topic]
        if mine:
            return [_difference_found(each, members) for each in mine]
        hosts = len({member.host for member in members})
        return [Passed(detail=f"equal on {len(members)} processes of {hosts} host{'s' if hosts > 1 else ''}")]

    return run


JOB_CHECKS: tuple[JobCheck, ...] = (
    JobCheck(id="job-versions-differ", title="versions equal on all ranks", run=_topic_check("versions")),
    JobCheck(id="job-variables-differ", title="variables equal on all ranks", run=_topic_check("variables")),
    JobCheck(id="job-ranks-disagree", title="ranks agree about the job", run=_topic_check("ranks")),
    JobCheck(id="job-hardware-differs", title="hardware equal on all hosts", run=_topic_check("hardware")),
    JobCheck(id="job-settings-differ", title="limits and settings equal", run=_topic_check("settings")),
    JobCheck(id="job-common-network", title="a network common to all hosts", run=check_common_network),
    JobCheck(id="job-clock-offset", title="clocks of the hosts", run=check_clock_offset),
)


def _difference_found(difference: Difference, members: Sequence[Member]) -> Found:
    odd = set(difference.odd)
    odd_members = [member for member in members if odd & {member.host, _holder(member)}]
    ranks = tuple(sorted(member.rank for member in odd_members if member.rank is not None))
    hosts = tuple(dict.fromkeys(member.host for member in odd_members))
    about_host = _is_host_key(difference.key)
    topic = difference.relevance.topic
    name = difference.name
    if difference.has_majority:
        title = f"{_who(ranks, hosts, about_host)}: {name} differs from the others"
    else:
        title = f"{name} differs between {'hosts' if about_host or not ranks else 'ranks'}, no majority"
    if topic == "hardware":
        advice = f"Find out why {name} differs there; leave the host out until it is known"
    else:
        where = "hosts" if about_host or not ranks else "ranks"
        advice = (
            f"Make the {name} the same on all {where}"
            if name.startswith(_COMMON_NOUNS)
            else f"Make {name} the same on all {where}"
        )
    return Found(
        key=difference.key,
        title=title[:80],
        severity=difference.relevance.severity,
        confidence=Confidence.HIGH if difference.has_majority else Confidence.MEDIUM,
        evidence=tuple(
            Evidence(text=f"{fold_holders(holders)}: {shown_value(value)}", value=value)
            for value, holders in difference.groups[:MAX_HOLDERS_SHOWN]
        ),
        explanation=difference.relevance.consequence[:1].upper() + difference.relevance.consequence[1:] + ".",
        actions=(
            Action(team=Team.JOB_OWNER if topic in ("variables", "ranks") else Team.PLATFORM, text=advice),
        ),
        scope=Scope(ranks=() if about_host else ranks, hosts=hosts),
        cause_class="env:nccl_version_skew" if _is_nccl_version(difference.key) else None,
        fault=_FAULTS.get(topic, Fault.HOST),
    )


def fold_holders(holders: tuple[str, ...]) -> str:
    """Holders as people say them: "ranks 0-6", "host-a, host-b and 12 more"."""
    ranks = [int(holder[5:]) for holder in holders if holder.startswith("rank ") and holder[5:].isdigit()]
    if ranks and len(ranks) == len(holders):
        return f"rank{'s' if len(ranks) > 1 else ''} {fold_ints(ranks)}"
    shown = ", ".join(holders[:MAX_HOLDERS_SHOWN])
    more = len(holders) - MAX_HOLDERS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def shown_value(value: Scalar) -> str:
    """A value in a sentence; an absent one is "not set"."""
    return "not set" if value is None else str(value)


def _holder(member: Member) -> str:
    return f"rank {member.rank}" if member.rank is not None else member.host


def _who(ranks: tuple[int, ...], hosts: tuple[str, ...], about_host: bool) -> str:
    if ranks and not about_host:
        where = f" ({hosts[0]})" if len(hosts) == 1 else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {fold_ints(ranks)}{where}"
    return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


def _is_nccl_version(key: str) -> bool:
    return key.startswith(("nccl.", "python.distributions.nvidia-nccl-"))


def _is_host_key(key: str) -> bool:
    return key.partition(".")[0] in HOST_SECTIONS


def _counts(facts: EnvFacts) -> dict[str, Scalar]:
    counts: dict[str, Scalar] = {}
    if facts.gpus is not None and facts.gpus.devices is not None:
        counts["gpus.num_devices"] = len(facts.gpus.devices)
    if facts.network is not None and facts.network.rdma_ports is not None:
        active = sum(port.state == "ACTIVE" for port in facts.network.rdma_ports)
        counts["network.num_active_rdma_ports"] = active
    return counts
