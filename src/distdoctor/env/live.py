"""From a live machine to members: one process, another process by its PID, or all ranks of a launch."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from distdoctor.env.absent import absent_of
from distdoctor.env.build import NOBODY_ABSENT, Absent
from distdoctor.env.collect.all import Collection, Wanted
from distdoctor.env.collect.live_process import find_job_process, world_of_process
from distdoctor.env.collect.world import World, this_world
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.members import Member, torch_key
from distdoctor.errors import UsageError
from distdoctor.ranks.gather import Gathered, Gathering, ReportedElsewhere
from distdoctor.ranks.identity import RankIdentity

# Beside a live job: the lowest priority, so that no rank loses time to us.
BESIDE_A_JOB_NICE = 19

# How long the ranks of one host wait for one another before they decide who looks at the host. Our own
# threshold: interpreters that start together on a busy host are apart by a second or two.
PEER_PATIENCE_S = 3.0

# Hosts of a large job do not read torch from the file server in the same second: spread over this time.
STAGGER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How to collect from a live machine."""

    python: str | None = None
    timeout_s: float = 60.0
    time_limit_s: float | None = None
    """The whole gathering; None: `timeout_s` and a margin."""
    torch: bool = True
    gather: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Everybody's facts, who is absent, and how long each step took."""

    members: tuple[Member, ...]
    absent: Absent = NOBODY_ABSENT
    timings: dict[str, float]


OnEarly = Callable[[EnvFacts], None]
"""Called with the facts that need no torch, before the torch child is back."""


def collect_here(identity: RankIdentity, options: LiveOptions, on_early: OnEarly) -> Collected:
    """Facts of this process on this host."""
    collection = _collection(this_world(), identity.host, options, host_sections=True)
    collection.software()
    if options.torch:
        collection.start_probe()
    on_early(collection.early())
    facts = collection.finish()
    return Collected(
        members=(Member(rank=None, host=identity.host, facts=facts),), timings=collection.timings
    )


def collect_process_of_job(
    pid: str, identity: RankIdentity, options: LiveOptions, on_early: OnEarly
) -> Collected:
    """Facts of a live process: `pid` is a number or "auto". torch is not imported beside a job.

    Raises InputError when there is no such process, or it may not be looked at.
    """
    number = find_job_process() if pid == "auto" else _pid_number(pid)
    os.nice(BESIDE_A_JOB_NICE)
    collection = _collection(world_of_process(number), identity.host, options, host_sections=True)
    collection.software()
    on_early(collection.early())
    return Collected(
        members=(Member(rank=None, host=identity.host, facts=collection.finish()),),
        timings=collection.timings,
    )


class RankCollection:
    """One rank's part: announce, collect, submit; the reporter also merges what came by the deadline."""

    def __init__(self, identity: RankIdentity, options: LiveOptions) -> None:
        """Enter the gathering folder. Raises OutputError, before any work, when it cannot be written."""
        self._identity = identity
        self._options = options
        self._launcher_ends_job = False
        self._collection = _collection(this_world(), identity.host, options, host_sections=False)
        self.gathering = Gathering(
            identity, folder=options.gather, deadline_s=options.time_limit_s or options.timeout_s + 15
        )

    def hurry(self) -> None:
        """The launcher is ending the job: report what is there within a few seconds."""
        self._launcher_ends_job = True
        self.gathering.hurry()

    def collect(self, on_early: OnEarly) -> None:
        """This rank's facts, handed in. The lowest rank of a host also looks at the host itself."""
        software = self._collection.software()
        self.gathering.announce({"torch": _digest(torch_key(software))})
        peers = self.gathering.wait_for_peers(PEER_PATIENCE_S)
        if self._options.torch and self.gathering.leads("torch", peers):
            self._wait_for_our_turn()
            self._collection.start_probe()
        self._collection.want_host(self.gathering.leads_host(peers))
        on_early(self._collection.early())
        self.gathering.submit(msgspec.json.encode(self._collection.finish()))

    def conclude(self) -> Collected | None:
        """Everybody's facts when this rank reports, None when another rank does."""
        match self.gathering.conclude():
            case ReportedElsewhere():
                return None
            case Gathered() as gathered:
                return Collected(
                    members=_members(gathered),
                    absent=absent_of(gathered, self._identity, launcher_ends_job=self._launcher_ends_job),
                    timings={**self._collection.timings, "waiting for ranks": round(gathered.waited_s, 3)},
                )

    def _wait_for_our_turn(self) -> None:
        identity = self._identity
        if (identity.num_nodes or 1) > 1 and identity.node_rank is not None:
            time.sleep(min(STAGGER_S, 0.02 * identity.node_rank))


def _collection(world: World, host: str, options: LiveOptions, *, host_sections: bool) -> Collection:
    return Collection(
        world,
        Wanted(host_name=host, python=options.python, timeout_s=options.timeout_s, host=host_sections),
    )


def _members(gathered: Gathered) -> tuple[Member, ...]:
    """Decoded payloads by rank; what a rank sent is read as typed JSON only."""
    return tuple(
        Member(
            rank=rank, host=gathered.announcements[rank].host, facts=msgspec.json.decode(data, type=EnvFacts)
        )
        for rank, data in sorted(gathered.payloads.items())
    )


def _digest(parts: Sequence[str | None]) -> str:
    return hashlib.sha256(repr(tuple(parts)).encode()).hexdigest()[:16]


def _pid_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or int(text) < 1:
        raise UsageError(f"`--pid {text}`: not a process id", hint="give a number, or `auto`")
    return int(text)
