"""Which ranks of this launch have announced themselves in a folder, and which results lie there?"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from distdoctor.ranks.folder import GatherFolder
from distdoctor.ranks.messages import (
    MAX_ANNOUNCEMENT_BYTES,
    Announcement,
    decode_announcement,
)
from distdoctor.ranks.processes import Life, life_of

_ANNOUNCEMENT_NAME = re.compile(r"a\.(\d{1,7})\.([0-9a-f]{16})")

# Ranks of one launch start within seconds of one another; where another launch can have the same key, what
# started further away belongs to it. Our own threshold: a slow node's start, and clocks that differ.
SAME_LAUNCH_S = 30.0

# An earlier launch leaves at most its own files; more than this many per rank is somebody's mischief.
_MAX_FILES_PER_RANK = 8


@dataclass(frozen=True, slots=True)
class LaunchRule:
    """Decides whether an announcement belongs to the same launch as `me`."""

    me: Announcement
    key_never_reused: bool
    apart_s: float = SAME_LAUNCH_S
    """How far apart ranks of one launch may start, in seconds."""
    not_before_s: float = 0.0
    """Nothing that started before this moment (seconds since the epoch) is of this launch: a report was
    already out then. The same job can be looked at twice."""

    def same_launch(self, other: Announcement) -> bool:
        """Whether `other` is a rank of this launch rather than what an earlier one left behind."""
        me = self.me
        if other.job != me.job or other.started_s < self.not_before_s:
            return False
        if self.key_never_reused or other.nonce == me.nonce:
            return True
        if not other.is_neighbour_of(me):
            return abs(other.started_s - me.started_s) <= self.apart_s
        another_launcher = (
            me.node_rank == other.node_rank
            and None not in (me.launcher_pid, other.launcher_pid)
            and _launcher(me) != _launcher(other)
        )
        return not another_launcher and abs(other.started_s - me.started_s) <= self.apart_s


def _launcher(announcement: Announcement) -> tuple[int | None, int | None]:
    return announcement.launcher_pid, announcement.launcher_start_ticks


def announcement_name(announcement: Announcement) -> str:
    """File name of an announcement: two processes never share one, whatever rank they claim."""
    return f"a.{announcement.rank}.{announcement.nonce}"


def payload_name(announcement: Announcement) -> str:
    """File name of the result of the process that announced itself so."""
    return f"p.{announcement.rank}.{announcement.nonce}"


class RollCall:
    """Reads each announcement once and remembers it; `refresh` lists the folder once."""

    def __init__(self, folder: GatherFolder, rule: LaunchRule, world_size: int) -> None:
        self.folder = folder
        self.names: frozenset[str] = frozenset()
        self.ranks: dict[int, Announcement] = {}
        """Of this launch, by rank."""
        self.earlier: dict[int, Announcement] = {}
        """Of another launch with the same key, or so it seems, by rank."""
        self.doubles: list[Announcement] = []
        """Living processes that claim a rank which another process has."""
        self._rule = rule
        self._world_size = world_size
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """List the folder and read what is new. Raises FileNotFoundError when the folder is gone."""
        with self._lock:
            self.folder.refresh()
            self.names = frozenset(self.folder.names())
            self._read_new()

    def _read_new(self) -> None:
        ranks = dict(self.ranks)  # replaced as a whole: another thread may be reading
        for name in self.names - self._known:
            if len(self._known) > _MAX_FILES_PER_RANK * self._world_size:
                break
            match = _ANNOUNCEMENT_NAME.fullmatch(name)
            if match is None:
                continue
            announcement = self._read(name)
            if announcement is None:
                continue  # read again at the next call: it may not be whole yet on this client
            self._known.add(name)
            if announcement.rank == int(match.group(1)) < self._world_size:
                self._file(announcement, ranks)
        self.ranks = ranks

    def has_result(self, announcement: Announcement) -> bool:
        """Whether that process has put its result there."""
        return payload_name(announcement) in self.names

    def life(self, announcement: Announcement) -> Life | None:
        """What that process does now; None when it cannot be looked at from here."""
        if not announcement.is_neighbour_of(self._rule.me):
            return None
        return life_of(announcement.pid, announcement.start_ticks)

    def somebody_waits(self, but: Announcement) -> bool:
        """Whether a rank other than `but` has announced itself, not left, and is not known to be dead."""
        return any(
            announcement_name(peer) in self.names and self.life(peer) is not Life.EXITED
            for peer in self.ranks.values()
            if peer.rank != but.rank
        )

    def done_with(self) -> set[str]:
        """Files that nobody needs once this launch is over; none but its own when a newer one is under way."""
        newer = [
            announcement
            for announcement in self.earlier.values()
            if announcement.started_s > self._rule.me.started_s or self.life(announcement) is Life.RUNNING
        ]
        if not newer:
            return set(self.names)
        own = [*self.ranks.values(), *self.doubles]
        return {name(announcement) for announcement in own for name in (announcement_name, payload_name)}

    def _read(self, name: str) -> Announcement | None:
        try:
            return decode_announcement(self.folder.read(name, MAX_ANNOUNCEMENT_BYTES))
        except (OSError, ValueError):
            return None

    def _file(self, announcement: Announcement, ranks: dict[int, Announcement]) -> None:
        if not self._rule.same_launch(announcement):
            self.earlier[announcement.rank] = announcement
            return
        present = ranks.get(announcement.rank)
        if present is None:
            ranks[announcement.rank] = announcement
            return
        kept, other = self._which_counts(present, announcement)
        ranks[announcement.rank] = kept
        if self.life(other) not in (None, Life.EXITED) or not kept.is_neighbour_of(other):
            self.doubles.append(other)

    def _which_counts(self, one: Announcement, two: Announcement) -> tuple[Announcement, Announcement]:
        """Of two processes with one rank: the living one, else the younger one; then the other."""
        one_lives, two_lives = (self.life(each) is not Life.EXITED for each in (one, two))
        if one_lives != two_lives:
            return (one, two) if one_lives else (two, one)
        return (one, two) if one.started_s >= two.started_s else (two, one)
