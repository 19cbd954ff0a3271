"""Gathering every rank's result through files, without torch: who reports, who came, who is missing?

    gathering = Gathering(identity, folder=None, deadline_s=60)
    gathering.announce({"torch": "/opt/venv"})
    if gathering.leads_host(): ...              # one process per host looks at what all of them share
    gathering.submit(json_bytes)
    match gathering.conclude():
        case Gathered() as gathered: ...        # this rank writes the report, then
            gathering.finish(exit_code)
        case ReportedElsewhere(): ...           # this rank keeps still and ends

On one host the ranks meet in a private folder below the temporary directory. With `folder`, on shared
storage, all hosts meet there; without it only this host's ranks are gathered, and the others are named as
such. Rank 0 reports. When it is dead or stopped the lowest rank that lives takes over, so that a report
always comes out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distdoctor.errors import OutputError
from distdoctor.ranks.deadline import Deadline
from distdoctor.ranks.ending import StoppedRank, end_stopped_peers
from distdoctor.ranks.folder import GatherFolder, private_folder, remove_old_folders, shared_folder
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.launchers import Launcher
from distdoctor.ranks.messages import (
    MAX_PACKED_BYTES,
    MAX_TOTAL_BYTES,
    Announcement,
    Info,
    announcement_of,
    encode_announcement,
    job_digest,
    pack_payload,
    unpack_payload,
    with_info,
)
from distdoctor.ranks.missing import MissingRank, describe_missing
from distdoctor.ranks.processes import Life
from distdoctor.ranks.rollcall import (
    SAME_LAUNCH_S,
    LaunchRule,
    RollCall,
    announcement_name,
    payload_name,
)
from distdoctor.ranks.status import write_status
from distdoctor.ranks.succession import (
    REPORTED,
    Reported,
    Succession,
    end_of_earlier_launch_s,
    read_reported,
    takeover_delay_s,
    write_reported,
)
from distdoctor.units import fold_ints

# Where nothing tells whether ranks run on other hosts and no folder is shared, a rank that has not been
# heard of by then is taken to be elsewhere. Our own threshold: Python starts within a second or two.
UNKNOWN_HOSTS_PATIENCE_S = 10.0

# How often a rank looks: in memory on its own host, and over the network. Our own choice.
_LOCAL_POLL_S = 0.05
_SHARED_POLL_S = 0.5

# All hosts together ask a shared file server at most this often a second. Our own bound.
_SHARED_POLLS_PER_S = 500

# The reporter waits this long for the others to leave before it does. Our own choice.
_FAREWELL_S = 2.0

_CANNOT_WORK = (Life.EXITED, Life.STOPPED, Life.TRACED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Everything that came by the deadline, and who did not come."""

    reporter: int
    world_size: int
    payloads: Mapping[int, bytes]
    """JSON text by rank, as submitted; valid JSON, but of unknown shape: decode it into a type."""
    announcements: Mapping[int, Announcement]
    missing: tuple[MissingRank, ...]
    """Ranks that were waited for."""
    not_gathered: tuple[int, ...]
    """Ranks that nobody waited for: they run on other hosts, and no folder is shared with them."""
    doubles: tuple[Announcement, ...]
    """Living processes that claim a rank which another process has, too."""
    hosts_seen: tuple[str, ...]
    hosts_absent: tuple[str, ...]
    """Hosts from which no rank came, where the scheduler's node list is as long as the launch is wide."""
    hint: str | None
    """What to do to gather the ranks in `not_gathered`."""
    waited_s: float

    @property
    def complete(self) -> bool:
        """Whether every rank of the launch is here."""
        return not self.missing and not self.not_gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedElsewhere:
    """Another rank (or thread) has reported, or will: this one keeps still."""

    rank: int | None
    exit_code: int | None
    """The reporter's exit code, where it left one."""


class Gathering:
    """One rank's part in gathering. May be used by the main thread and the SIGTERM thread at once."""

    def __init__(self, identity: RankIdentity, *, folder: Path | None, deadline_s: float) -> None:
        """Make or enter the folders. Raises OutputError, before any work, when they cannot be written."""
        self.identity = identity
        self._began = time.monotonic()
        self._deadline = Deadline.after(deadline_s)
        self._me = announcement_of(identity)
        self._host_folder, self._folder = _folders(folder, job_digest(identity.job_key))
        self._rule = LaunchRule(
            me=self._me,
            key_never_reused=identity.key_never_reused,
            apart_s=_apart_s(identity, deadline_s),
            not_before_s=end_of_earlier_launch_s({self._host_folder, self._folder}, self._me),
        )
        self._here = RollCall(self._host_folder, self._rule, identity.world_size)
        self._all = self._here
        if self._folder is not self._host_folder:
            self._all = RollCall(self._folder, self._rule, identity.world_size)
        self._succession = Succession(self._folder, self._rule)
        self._payload: bytes | None = None
        self._missing: tuple[int, ...] = ()
        self._concluding = threading.Lock()
        self._concluded = False
        self._reporting = False

    @property
    def reporting(self) -> bool:
        """Whether a thread of this process has been given the results and has not called `finish` yet."""
        return self._reporting

    @property
    def deadline(self) -> Deadline:
        """When waiting ends; sooner after `hurry`."""
        return self._deadline

    # --- what a rank does ---

    def announce(self, info: Info | None = None) -> None:
        """Say that this rank is here; `info` is a small dict for its peers.

        Raises OutputError when the folder cannot be written, ValueError when `info` exceeds 64 KiB as JSON.
        """
        self._me = with_info(self._me, info or {})
        for folder in {self._host_folder, self._folder}:
            self._write(folder, announcement_name(self._me), encode_announcement(self._me))

    def peers(self) -> tuple[Announcement, ...]:
        """Ranks of this host that have announced themselves and can work, this one included, by rank."""
        with contextlib.suppress(OSError):
            self._here.refresh()
        ranks = {**self._here.ranks, self.identity.rank: self._me}
        return tuple(
            ranks[rank]
            for rank in sorted(ranks)
            if ranks[rank].hostname == self._me.hostname and self._can_work(ranks[rank])
        )

    def wait_for_peers(self, patience_s: float) -> tuple[Announcement, ...]:
        """`peers`, as soon as all ranks of this host are there, at the latest after `patience_s` seconds."""
        expected = self.identity.local_world_size
        if expected is None and self.identity.spans_hosts is False:
            expected = self.identity.world_size
        until = self._deadline.sooner(patience_s)
        while True:
            peers = self.peers()
            if until.expired or (expected is not None and len(peers) >= expected):
                return peers
            time.sleep(min(self._local_poll_s(), until.remaining_s))

    def leads_host(self, peers: Sequence[Announcement] | None = None) -> bool:
        """Whether this is the lowest rank of its host that can work: it looks at what all ranks share.

        While ranks arrive two may believe it; `wait_for_peers` first makes that rare, and it does no harm.
        """
        return not any(peer.rank < self.identity.rank for peer in (peers or self.peers()))

    def leads(self, key: str, peers: Sequence[Announcement] | None = None) -> bool:
        """Whether this is the lowest rank of its host that can work among those with its `info[key]`."""
        mine = self._me.info.get(key)
        return self.leads_host([peer for peer in (peers or self.peers()) if peer.info.get(key) == mine])

    def submit(self, payload: bytes) -> None:
        """Put this rank's result, JSON text, where the reporter finds it.

        Raises OutputError when it cannot be written, ValueError when it is larger than 32 MiB.
        """
        packed = pack_payload(payload)
        self._payload = (
            payload  # what this rank found reaches the report even when the folder is full or gone
        )
        self._write(self._folder, payload_name(self._me), packed)

    def hurry(self, grace_s: float = 3.0) -> None:
        """Stop waiting `grace_s` seconds from now: the launcher is ending the job."""
        self._deadline = self._deadline.sooner(grace_s)

    def conclude(self) -> Gathered | ReportedElsewhere:
        """Wait until all results are there, the deadline has passed, or another rank has reported.

        Gives Gathered to the one rank, and to one thread of it, that is to write the report; ends within some
        ten seconds of the deadline.
        """
        with self._concluding:
            if self._concluded:
                return ReportedElsewhere(rank=self.identity.rank, exit_code=None)
            result = self._conclude()
            self._concluded = True
            if isinstance(result, ReportedElsewhere):
                self._leave()
            else:
                self._reporting = True
            return result

    def finish(self, exit_code: int) -> None:
        """After the report is written: tell the others and `--launch`, end stopped ranks, clean up."""
        write_status(exit_code, os.environ)
        self._reporting = False
        reported = Reported(
            by=self._me, exit_code=exit_code, written_s=time.time(), missing=fold_ints(self._missing)
        )
        for folder in {self._folder, self._host_folder}:
            write_reported(folder, reported)
        self.end_stopped_peers()
        until = Deadline.after(max(_FAREWELL_S, 3 * self._poll_s()))
        while not until.expired and self._somebody_waits(self._all):
            time.sleep(self._poll_s())
        self._remove_own_files()
        # Whether a rank on another host still lives cannot be seen; it has had its time.
        self._sweep(self._all, by_force=self._all is not self._here)
        if self._all is not self._here:
            self._sweep(self._here)
        remove_old_folders()

    def end_stopped_peers(self) -> tuple[StoppedRank, ...]:
        """SIGKILL for ranks of this launch on this host that stay stopped, or their launcher waits for ever."""
        registered = [
            StoppedRank(rank=peer.rank, pid=peer.pid, start_ticks=peer.start_ticks)
            for peer in (*self._here.ranks.values(), *self._here.doubles)
            if peer.is_neighbour_of(self._me)
        ]
        return end_stopped_peers(
            registered,
            rank_variable=self.identity.rank_variable,
            job_variables=dict(self.identity.job_variables),
        )

    # --- waiting ---

    def _conclude(self) -> Gathered | ReportedElsewhere:
        if self._reporter_is_out_of_reach():
            return ReportedElsewhere(rank=0, exit_code=None)
        while True:
            try:
                self._here.refresh()
                reported = self._find_reported()
                if reported is not None:
                    return ReportedElsewhere(rank=reported.by.rank, exit_code=reported.exit_code)
                if self._is_my_turn() and self._claim():
                    return self._gathered()
            except FileNotFoundError:
                # Rank 0 removes the folder when it has reported. Nobody removes it while rank 0 waits, unless
                # by hand: then it says what it knows.
                if self.identity.is_reporter:
                    return self._gathered()
                return ReportedElsewhere(rank=0, exit_code=None)
            time.sleep(min(self._poll_s(), self._deadline.remaining_s or self._poll_s()))

    def _reporter_is_out_of_reach(self) -> bool:
        """Without a shared folder, hosts other than rank 0's keep still: rank 0 says what it lacks."""
        here = self.identity.ranks_here
        return (
            self._all is self._here
            and not self._folder.shared
            and self.identity.spans_hosts is True
            and not self.identity.is_reporter
            and (here is not None and 0 not in here)
        )

    def _find_reported(self) -> Reported | None:
        """One rank per host asks the shared folder and passes the word on to its neighbours."""
        reported = read_reported(self._host_folder, self._rule)
        if reported is None and self._all is not self._here and self._leads_here():
            self._folder.refresh()
            reported = self._succession.reported()
            if reported is not None:
                write_reported(self._host_folder, reported)
        return reported

    def _is_my_turn(self) -> bool:
        """Whether every lower rank is ruled out as the reporter, or has had its time."""
        if self.identity.is_reporter:
            return True
        leads_here = self._leads_here()
        goes_first = leads_here or not self._folder.shared
        overdue_at = self._deadline.at + takeover_delay_s(self.identity.rank, goes_first=goes_first)
        if time.monotonic() > overdue_at:
            return True
        if self._folder.shared or not leads_here:
            return False
        lower_unheard = any(rank not in self._here.ranks for rank in range(self.identity.rank))
        return not lower_unheard or self._deadline.expired or self._unheard_are_elsewhere()

    def _claim(self) -> bool:
        if self._all is not self._here:
            self._all.refresh()
        if not self._deadline.expired and not self._all_is_settled():
            return False
        return self._succession.claim(self._all)

    def _leads_here(self) -> bool:
        ranks = self._here.ranks
        return not any(self._can_work(ranks[rank]) for rank in ranks if rank < self.identity.rank)

    def _can_work(self, peer: Announcement) -> bool:
        return self._here.life(peer) not in _CANNOT_WORK

    def _all_is_settled(self) -> bool:
        """Whether every expected rank has sent its result or is dead."""
        expected = self._expected()
        return expected is not None and all(
            (peer := self._all.ranks.get(rank)) is not None
            and (self._all.has_result(peer) or self._all.life(peer) is Life.EXITED)
            for rank in expected
        )

    def _expected(self) -> Sequence[int] | None:
        """Ranks that can reach the folder; None while that is open."""
        if self._folder.shared or self.identity.spans_hosts is False:
            return range(self.identity.world_size)
        if self.identity.ranks_here is not None:
            return self.identity.ranks_here
        present = sorted(self._here.ranks)
        size = self.identity.local_world_size or self.identity.world_size
        return present if len(present) >= size or self._unheard_are_elsewhere() else None

    def _unheard_are_elsewhere(self) -> bool:
        patience_over = time.monotonic() - self._began > UNKNOWN_HOSTS_PATIENCE_S
        return self.identity.spans_hosts is None and not self._folder.shared and patience_over

    # --- the result ---

    def _gathered(self) -> Gathered:
        # A result written just before its process ended may not have been in the last listing.
        with contextlib.suppress(OSError):
            self._all.refresh()
        payloads, unreadable = self._read_payloads()
        expected = self._expected()
        if expected is None:
            expected = sorted(self._here.ranks)
        elsewhere = tuple(sorted(set(range(self.identity.world_size)) - set(expected) - set(payloads)))
        self._missing = tuple(rank for rank in range(self.identity.world_size) if rank not in payloads)
        seen = frozenset(peer.host for peer in self._all.ranks.values()) | {self.identity.host}
        return Gathered(
            reporter=self.identity.rank,
            world_size=self.identity.world_size,
            payloads=payloads,
            announcements=dict(sorted(self._all.ranks.items())),
            missing=describe_missing(
                self.identity,
                self._all,
                ranks=[rank for rank in expected if rank not in payloads],
                unreadable=unreadable,
            ),
            not_gathered=elsewhere,
            doubles=tuple(self._all.doubles),
            hosts_seen=tuple(sorted(seen)),
            hosts_absent=self.identity.missing_hosts(seen) if self._folder.shared else (),
            hint=_hint(self.identity) if elsewhere else None,
            waited_s=time.monotonic() - self._began,
        )

    def _read_payloads(self) -> tuple[dict[int, bytes], dict[int, str]]:
        payloads: dict[int, bytes] = {}
        unreadable: dict[int, str] = {}
        total_bytes = 0
        if self._payload is not None:
            payloads[self.identity.rank] = self._payload
        for rank, peer in sorted(self._all.ranks.items()):
            if rank in payloads or not self._all.has_result(peer):
                continue
            if total_bytes > MAX_TOTAL_BYTES:
                unreadable[rank] = f"not read: the others take more than {MAX_TOTAL_BYTES >> 30} GiB"
                continue
            try:
                payloads[rank] = unpack_payload(self._folder.read(payload_name(peer), MAX_PACKED_BYTES))
                total_bytes += len(payloads[rank])
            except (ValueError, OSError) as error:
                unreadable[rank] = str(error)
        return dict(sorted(payloads.items())), unreadable

    # --- housekeeping ---

    def _leave(self) -> None:
        """Remove this rank's files once another rank has reported; the last of a host cleans up."""
        self._remove_own_files()
        self._sweep(self._here)

    def _somebody_waits(self, roll: RollCall) -> bool:
        with contextlib.suppress(OSError):
            roll.refresh()
            return roll.somebody_waits(but=self._me)
        return False

    def _remove_own_files(self) -> None:
        for folder in {self._folder, self._host_folder}:
            folder.remove([announcement_name(self._me), payload_name(self._me)])

    def _sweep(self, roll: RollCall, *, by_force: bool = False) -> None:
        """Clean up once nobody waits. A rank that is late, or was passed over, must find that it is over."""
        if not by_force and self._somebody_waits(roll):
            return
        expected = self.identity.local_world_size if roll is self._here else None
        everybody_came = len(roll.ranks) >= (expected or self.identity.world_size)
        somebody_may_look = not everybody_came or (by_force and not self.identity.is_reporter)
        with contextlib.suppress(OSError):
            roll.refresh()
            roll.folder.remove(roll.done_with() - ({REPORTED} if somebody_may_look else set()))
        roll.folder.remove_itself()

    def _write(self, folder: GatherFolder, name: str, data: bytes) -> None:
        try:
            folder.write(name, data)
        except FileNotFoundError:
            return  # the launch is over; `conclude` says so
        except OSError as error:
            raise OutputError(
                f"cannot write this rank's result to `{folder.path}`: {error.strerror or error}",
                hint="make room there, or give --gather (or TMPDIR) another folder",
            ) from error

    def _local_poll_s(self) -> float:
        return _LOCAL_POLL_S + len(self._here.ranks) / 1000

    def _poll_s(self) -> float:
        if not self._folder.shared:
            return self._local_poll_s()
        num_hosts = self.identity.num_nodes or self.identity.world_size
        return max(_SHARED_POLL_S, num_hosts / _SHARED_POLLS_PER_S)


def _folders(shared: Path | None, digest: str) -> tuple[GatherFolder, GatherFolder]:
    """Where the ranks of this host meet, and where all ranks do: the same without shared storage."""
    if shared is None:
        private = private_folder(digest)
        return private, private
    everybody = shared_folder(shared, digest)
    try:
        return private_folder(digest), everybody
    except OutputError:
        # A read-only image without a temporary directory: neighbours meet in the shared folder, too.
        return everybody, everybody


def _apart_s(identity: RankIdentity, deadline_s: float) -> float:
    """Pods, and ranks started by hand, come one by one; nobody waits longer for them than its deadline."""
    if identity.launcher in (Launcher.MANUAL, Launcher.KUBERNETES):
        return max(SAME_LAUNCH_S, deadline_s)
    return SAME_LAUNCH_S


def _hint(identity: RankIdentity) -> str:
    where = "if they run on other hosts" if identity.spans_hosts is None else "they run on other hosts"
    return f"{where}: pass --gather DIR on storage that all hosts share"
