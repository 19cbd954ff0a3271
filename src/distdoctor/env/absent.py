"""Ranks and hosts that handed in nothing, as findings that name them and say what is known of each."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.build import Absent
from distdoctor.ranks.gather import Gathered
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.missing import Absence, MissingRank
from distdoctor.report.model import (
    Action,
    Confidence,
    Evidence,
    Fault,
    Finding,
    MissingEvidence,
    Scope,
    Severity,
    Team,
)
from distdoctor.units import fold_ints

# A finding a rank up to here; beyond it the same words for one rank after the other help nobody.
MAX_SHOWN = 8

_WHY_IT_MATTERS = {
    Absence.STOPPED: "A stopped process does nothing until it gets SIGCONT.",
    Absence.BLOCKED: "A process that waits in the kernel cannot be ended; a device or file system does not answer.",
    Absence.EXITED: "It ended before it could report: killed, out of memory, or its start script failed.",
    Absence.NEVER_SEEN: "It did not start, was stopped or killed at once, or runs where the folder is not shared.",
    Absence.SILENT: "It started and did not finish in time: a slow or hanging import, disk or driver.",
}


def absent_of(gathered: Gathered, identity: RankIdentity, *, launcher_ends_job: bool = False) -> Absent:
    """Who is absent from a gathering: ranks that were waited for, and hosts of the scheduler's list.

    When the launcher is ending the job, one rank has died and the others were told to end: of several
    absent ranks none is accused.

    Ranks on hosts that share no folder with us were not asked; they are missing evidence, not a fault.
    """
    if launcher_ends_job and len(gathered.missing) > 1:
        findings = [_ended_ranks(gathered)]
    else:
        findings = [_missing_ranks(group, gathered) for group in _by_absence(gathered.missing)]
    if gathered.hosts_absent:
        findings.append(_missing_hosts(gathered, identity))
    evidence = []
    if gathered.not_gathered:
        evidence.append(
            MissingEvidence(
                what=f"ranks {fold_ints(gathered.not_gathered)}",
                why="they run on other hosts, and no folder is shared with them",
                how=gathered.hint,
            )
        )
    return Absent(
        ranks=tuple(sorted({*(each.rank for each in gathered.missing), *gathered.not_gathered})),
        hosts=gathered.hosts_absent,
        findings=tuple(findings),
        evidence=tuple(evidence),
    )


def _by_absence(missing: Sequence[MissingRank]) -> list[list[MissingRank]]:
    groups: dict[tuple[Absence, str | None], list[MissingRank]] = {}
    for each in missing:
        groups.setdefault((each.absence, each.host), []).append(each)
    return list(groups.values())


def _missing_ranks(group: Sequence[MissingRank], gathered: Gathered) -> Finding:
    ranks = tuple(sorted(each.rank for each in group))
    first = group[0]
    who = f"rank{'s' if len(ranks) > 1 else ''} {fold_ints(ranks)}"
    where = f" ({first.host})" if first.host else ""
    return Finding(
        id="rank-missing",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        title=f"{who}{where} did not report: it {first.absence.value}"[:80],
        fingerprint=f"rank-missing:{fold_ints(ranks)}",
        evidence=(
            *(
                Evidence(text=f"rank {each.rank}: {each.detail}", source="its announcement and /proc")
                for each in group[:MAX_SHOWN]
            ),
            Evidence(
                text=f"waited {gathered.waited_s:.1f} s; {len(gathered.payloads)} of {gathered.world_size} ranks reported",
                value=round(gathered.waited_s, 1),
                unit="s",
            ),
        ),
        explanation=_WHY_IT_MATTERS.get(first.absence, "Its result cannot be used.")
        + " The job would wait for it in its first collective.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=f"Look at the log of {who}{where} first",
                command=f"ps -o pid,stat,wchan:30,etime,cmd -p {first.pid}"
                if first.pid is not None
                else None,
            ),
        ),
        scope=Scope(ranks=ranks, hosts=(first.host,) if first.host else ()),
        cause_class="rank_died" if first.absence is Absence.EXITED else "rank_not_arrived",
        fault=Fault.UNKNOWN,
    )


def _ended_ranks(gathered: Gathered) -> Finding:
    """Several ranks are absent while the launcher ends the job: one of them is why, and which is not known."""
    ranks = tuple(sorted(each.rank for each in gathered.missing))
    return Finding(
        id="rank-missing",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        title=f"a rank ended at once, and the launcher ended the job: one of {fold_ints(ranks)}"[:80],
        fingerprint=f"rank-missing:{fold_ints(ranks)}",
        evidence=tuple(
            Evidence(text=f"rank {each.rank}: {each.detail}", source="its announcement and /proc")
            for each in gathered.missing[:MAX_SHOWN]
        ),
        explanation="When one rank ends, the launcher ends the others. Of those that did not report, one is the cause.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="The launcher's own message names the rank that ended first (torchrun: `Root Cause`)",
            ),
        ),
        scope=Scope(ranks=ranks),
        cause_class="rank_died",
        fault=Fault.UNKNOWN,
    )


def _missing_hosts(gathered: Gathered, identity: RankIdentity) -> Finding:
    hosts = gathered.hosts_absent
    names = ", ".join(hosts[:MAX_SHOWN]) + (
        f" and {len(hosts) - MAX_SHOWN} more" if len(hosts) > MAX_SHOWN else ""
    )
    slurm = "SLURM_JOB_ID" in dict(identity.job_variables) or identity.launcher.value == "slurm"
    return Finding(
        id="host-missing",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        title=f"no rank reported from {names}"[:80],
        fingerprint="host-missing",
        evidence=(
            Evidence(
                text=f"{len(gathered.hosts_seen)} of {len(gathered.hosts_seen) + len(hosts)} hosts reported: "
                f"{', '.join(gathered.hosts_seen[:MAX_SHOWN])}",
                expected=f"{len(gathered.hosts_seen) + len(hosts)} hosts",
                expected_source="the scheduler's node list",
            ),
        ),
        explanation="Its tasks did not start, or cannot reach the shared folder. The job would wait for them.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text=f"See whether {hosts[0]} is up and started its task",
                command=f"scontrol show node {_quoted(hosts[0])}" if slurm else None,
            ),
        ),
        scope=Scope(hosts=hosts),
        cause_class="rank_not_arrived",
        fault=Fault.HOST,
    )


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
