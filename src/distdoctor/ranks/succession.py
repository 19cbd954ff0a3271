"""Which rank writes the report? Rank 0, or the lowest that lives; exactly one, by a claim file.

`claim.0` is created by the rank that begins to write. When that rank dies or stops before it is done, the next
one creates `claim.1`. `reported` says that the report is out and with which exit code. Both hold the
announcement of their author, so that what an earlier launch left behind is told apart.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable

import msgspec

from distdoctor.ranks.folder import GatherFolder
from distdoctor.ranks.messages import MAX_ANNOUNCEMENT_BYTES, Announcement, decode_announcement
from distdoctor.ranks.processes import Life, life_of
from distdoctor.ranks.rollcall import LaunchRule, RollCall

REPORTED = "reported"

_CLAIM_NAME = re.compile(r"claim\.(\d{1,3})")

# Rendering and writing a report takes about a second. Our own threshold.
WRITING_S = 20.0

# How long after the deadline a rank that cannot look at the reporter gives it before it takes over, and how
# far apart several such ranks try, lower ones first. Our own thresholds; with the longest the report is out
# before a launcher's SIGKILL, which torchrun sends 30 s after SIGTERM.
TAKEOVER_AFTER_S = 5.0
_TAKEOVER_STEP_S = 0.25
_MAX_STEPS = 20


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The report is out."""

    by: Announcement
    exit_code: int
    written_s: float
    """Seconds since the epoch, by the author's clock."""
    missing: str = ""
    """Ranks without a result, folded ("2,8-15"). One of them that comes now is late, not of another launch."""


class Succession:
    """Claims and their state in one folder, as one rank sees them."""

    def __init__(self, folder: GatherFolder, rule: LaunchRule) -> None:
        self._folder = folder
        self._rule = rule
        self._first_seen: dict[int, float] = {}

    def reported(self) -> Reported | None:
        """What the reporter of this launch left when it was done, or None."""
        return read_reported(self._folder, self._rule)

    def claim(self, roll: RollCall) -> bool:
        """Whether this rank is now the one that writes. Raises OSError when the folder cannot be written."""
        generation = 0
        taken = {int(match.group(1)) for name in roll.names if (match := _CLAIM_NAME.fullmatch(name))}
        if taken:
            latest = max(taken)
            if self._is_alive(latest):
                return False
            generation = latest + 1
        return self._folder.claim(f"claim.{generation}", msgspec.json.encode(self._rule.me))

    def _is_alive(self, generation: int) -> bool:
        """Whether the author of a claim may still be writing."""
        first_seen = self._first_seen.setdefault(generation, time.monotonic())
        if time.monotonic() - first_seen > WRITING_S:
            return False
        try:
            author = decode_announcement(self._folder.read(f"claim.{generation}", MAX_ANNOUNCEMENT_BYTES))
        except (OSError, ValueError):
            return True
        if author is None:
            return True  # being written at this moment
        if not self._rule.same_launch(author):
            return False
        if not author.is_neighbour_of(self._rule.me):
            return True
        life = life_of(author.pid, author.start_ticks)
        return life not in (Life.EXITED, Life.STOPPED, Life.TRACED)


def takeover_delay_s(rank: int, *, goes_first: bool) -> float:
    """Seconds after the deadline at which `rank` takes over from lower ranks that it cannot rule out.

    On shared storage one rank per host goes first, so that a large job does not storm its file server.
    """
    delay_s = TAKEOVER_AFTER_S + _TAKEOVER_STEP_S * min(rank, _MAX_STEPS)
    return delay_s if goes_first else delay_s + TAKEOVER_AFTER_S


def write_reported(folder: GatherFolder, reported: Reported) -> None:
    """Say in `folder` that the report is out; a folder that is gone needs no telling."""
    with contextlib.suppress(OSError):
        folder.write(REPORTED, msgspec.json.encode(reported))


def end_of_earlier_launch_s(folders: Iterable[GatherFolder], me: Announcement) -> float:
    """When the last report was written that was out, with a result of our rank, before `me` started; else 0.

    Seconds since the epoch. Whoever looks at one job twice starts another launch with the same key; a rank
    that the report lacks is late instead.
    """
    found = [reported for folder in folders if (reported := _read(folder)) is not None]
    return max(
        (
            each.written_s
            for each in found
            if each.written_s < me.started_s and not _is_among(me.rank, each.missing)
        ),
        default=0.0,
    )


def _is_among(rank: int, folded: str) -> bool:
    """Whether ranges as `units.fold_ints` writes them hold `rank`; text that is none holds nobody."""
    for part in folded.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(first) <= rank <= int(last or first):
            return True
    return False


def read_reported(folder: GatherFolder, rule: LaunchRule) -> Reported | None:
    """The word that the report of this launch is out, or None. What an earlier launch left does not count."""
    reported = _read(folder)
    return reported if reported is not None and rule.same_launch(reported.by) else None


def _read(folder: GatherFolder) -> Reported | None:
    try:
        data = folder.read(REPORTED, MAX_ANNOUNCEMENT_BYTES + 256)
        return msgspec.json.decode(data, type=Reported)
    except (OSError, ValueError, RecursionError):
        return None
