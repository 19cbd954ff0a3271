"""The words for ranks that ended a launch's work before its plan: who, by what evidence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from distdoctor.ranks.blame import Blame, Cause
from distdoctor.ranks.lost import Lost, LostRank, Stopped
from distdoctor.ranks.places import Place
from distdoctor.report.assemble import clip_title
from distdoctor.report.checking import Found
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import short_host
from distdoctor.units import fold_ints

# Ranks that get a line of evidence each. Our own bound.
MAX_SHOWN = 6

MAX_ERROR_CHARACTERS = 300

_STATE_WORDS = {
    Lost.STOPPED: "is stopped (SIGSTOP, or a debugger holds it)",
    Lost.GONE: "is gone: its process died",
    Lost.FROZEN: "is frozen: its process does not answer",
    Lost.LATE: "has not arrived, though its process runs",
    Lost.UNKNOWN: "has not arrived; nothing is known of its process",
}

_MEANING = {
    Lost.STOPPED: "Its process takes no part until somebody continues it; all others wait in the collective.",
    Lost.GONE: "A process that died leaves all others waiting. Its own log, or the kernel's (out of memory), says why.",
    Lost.FROZEN: "Its process sends no sign of life: blocked in the kernel or a driver, or its host is gone.",
    Lost.LATE: "Its process runs and does something else; its stack says what.",
    Lost.UNKNOWN: "Its process, or its whole host, has to be looked at first.",
}


def rank_words(lost: LostRank) -> str:
    """ "rank 3 (host-b, pid 4242) is gone: its process died"."""
    known = [*([lost.host] if lost.host else []), *([f"pid {lost.pid}"] if lost.pid else [])]
    where = f" ({', '.join(known)})" if known else ""
    return f"rank {lost.rank}{where} {_STATE_WORDS[lost.state]}"


def lost_found(stopped: Stopped, told: Blame, places: Sequence[Place]) -> Found:
    """Critical, with the ranks that are to blame; `told` has at least one."""
    by_rank = {place.rank: place for place in places}
    ranks = tuple(each.rank for each in told.culprits)
    first = told.culprits[0]
    hosts = tuple(dict.fromkeys(host for each in told.culprits if (host := _host_of(each, by_rank))))
    raised = told.cause is Cause.RAISED
    several = len(ranks) > 1
    # When a rank dies the launcher ends the others: of several that are gone one is the cause.
    unsure = several and not raised and first.state in (Lost.GONE, Lost.UNKNOWN)
    return Found(
        key="raised" if raised else first.state.name.lower(),
        title=_title(ranks, hosts, first, raised=raised),
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM if unsure else Confidence.HIGH,
        evidence=(
            *error_evidence(told),
            *(
                Evidence(text=_with_phase(each), source="its process and its sign of life in the store")
                for each in told.culprits[:MAX_SHOWN]
                if not (raised and each.state is Lost.UNKNOWN)
            ),
            waiting_evidence(stopped, told),
            *_victims(told),
        ),
        explanation=(_raised_words(several=several) if raised else _MEANING[first.state])
        + (" Of these ranks one is the cause; the launcher ends the others." if unsure else ""),
        actions=_actions(told, hosts),
        scope=Scope(
            ranks=ranks,
            hosts=hosts,
            gpus=tuple(gpu for rank in ranks if rank in by_rank and (gpu := by_rank[rank].gpu) is not None),
        ),
        cause_class=_cause_class(told, first),
        fault=Fault.UNKNOWN,
    )


def error_evidence(told: Blame) -> tuple[Evidence, ...]:
    """A rank's own words, where there are any."""
    if told.error is None:
        return ()
    rank, text = told.error
    return (Evidence(text=f"rank {rank}: {text[:MAX_ERROR_CHARACTERS]}", source=f"the error of rank {rank}"),)


def waiting_evidence(stopped: Stopped, told: Blame) -> Evidence:
    """In which step the work stopped, and who waited there."""
    phase = f" in: {stopped.phase}" if stopped.phase else " before the first step"
    accused = {each.rank for each in told.culprits}
    waited = tuple(rank for rank in stopped.inside if rank not in accused)
    who = f"; rank{'s' if len(waited) > 1 else ''} {fold_ints(waited)} waited there" if waited else ""
    after = f" after {stopped.waited_s:.0f} s" if stopped.waited_s is not None else ""
    said = any(text in stopped.reason for _, text in stopped.errors)
    why = "" if said else f" ({stopped.reason[:MAX_ERROR_CHARACTERS]})"
    return Evidence(text=f"stopped{phase}{after}{why}{who}", source="the watchdog of the run")


def store_lost_found(stopped: Stopped, told: Blame, places: Sequence[Place]) -> Found:
    """The ranks' meeting point is gone, so that one rank speaks for itself alone."""
    host = next((place.host for place in places if place.rank == 0), None)
    where = f" ({short_host(host)})" if host else ""
    return Found(
        key="store",
        title=clip_title(f"the ranks' meeting point is gone: the process or host of rank 0{where}"),
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=(waiting_evidence(stopped, told),),
        explanation=(
            "The key-value store of the job does not answer. It lives with the launcher or with rank 0; when it goes, "
            "nobody can tell who else is gone. This report speaks for one rank alone."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="look at the host that MASTER_ADDR names: is it up, did its launcher or rank 0 end?",
                command='ping -c 3 "$MASTER_ADDR"; nc -zv "$MASTER_ADDR" "$MASTER_PORT"',
            ),
        ),
        scope=Scope(hosts=(host,) if host else ()),
        cause_class="cascade:store_host_gone",
        fault=Fault.UNKNOWN,
    )


def _host_of(lost: LostRank, places: Mapping[int, Place]) -> str | None:
    place = places.get(lost.rank)
    return lost.host or (place.host if place is not None else None)


def _raised_words(*, several: bool) -> str:
    if several:
        return "They raised the same error: look for what they have in common, such as a setting of the job."
    return "The other ranks cannot go on without it."


def _title(ranks: Sequence[int], hosts: Sequence[str], first: LostRank, *, raised: bool) -> str:
    several = len(ranks) > 1
    where = f" ({short_host(hosts[0])})" if len(hosts) == 1 else ""
    who = f"rank{'s' if several else ''} {fold_ints(tuple(ranks))}"
    if raised:
        return clip_title(f"{who}{where} could not go on: {'they' if several else 'it'} raised an error")
    words = {
        Lost.STOPPED: "are stopped" if several else "is stopped",
        Lost.GONE: "are gone" if several else "is gone",
        Lost.FROZEN: "do not answer" if several else "does not answer",
        Lost.LATE: "have not arrived" if several else "has not arrived",
        Lost.UNKNOWN: "have not arrived" if several else "has not arrived",
    }[first.state]
    return clip_title(f"{who}{where} {words}: the others waited")


def _with_phase(lost: LostRank) -> str:
    last = f"; last seen in: {lost.last_phase}" if lost.last_phase else ""
    doing = f"; its main thread is in {lost.doing}" if lost.doing else ""
    return rank_words(lost) + last + doing


def _victims(told: Blame) -> tuple[Evidence, ...]:
    if not told.victims:
        return ()
    ranks = fold_ints(tuple(each.rank for each in told.victims))
    text = f"ranks {ranks} are missing too, with weaker signs; taken as a consequence"
    return (Evidence(text=text, source="the watchdog of the run"),)


def _cause_class(told: Blame, first: LostRank) -> str:
    if told.cause is Cause.RAISED:
        return "rank_died:python_exception"
    return "rank_died" if first.state is Lost.GONE else "rank_not_arrived"


def _actions(told: Blame, hosts: Sequence[str]) -> tuple[Action, ...]:
    first = told.culprits[0]
    where = f"on {hosts[0]}: " if hosts else ""
    pid = first.pid
    if told.cause is Cause.RAISED:
        text = f"read the log of rank {first.rank}: the whole traceback stands there"
        return (Action(team=Team.JOB_OWNER, text=text),)
    match first.state:
        case Lost.STOPPED:
            text = f"{where}find out who stopped it (a debugger, a shell, a checkpoint tool), then continue or end it"
            command = f"grep -E 'State|TracerPid' /proc/{pid}/status; kill -CONT {pid}" if pid else None
        case Lost.GONE:
            text = (
                f"{where}why it died: its own log first, then the kernel's log (out of memory, Xid, segfault)"
            )
            command = "dmesg -T | grep -Ei 'killed process|out of memory|oom|xid|segfault' | tail"
        case Lost.FROZEN | Lost.LATE:
            text = f"{where}what it is doing: its stack"
            command = (
                f"py-spy dump --pid {pid}; cat /proc/{pid}/wchan; cat /proc/{pid}/stack" if pid else None
            )
        case _:
            text = f"{where}whether the host is up and the rank was started there"
            command = f"ping -c 3 {shlex.quote(hosts[0])}" if hosts else None
    return (Action(team=Team.PLATFORM, text=text, command=command),)
