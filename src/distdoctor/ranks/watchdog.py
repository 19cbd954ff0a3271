"""When ranks that measure together stop making progress: who is missing, who is frozen, and a report of it.

Every rank runs one. The main thread says which phase it enters and leaves; two threads of the watchdog beat a
heart and look at the clock. When nothing has moved for the deadline, the lowest rank that entered the furthest
phase calls `report` with what is known, and all ranks end, although their main threads sit in a collective
that never returns (the interpreter lock is released in there).

- Judged is the furthest phase that any rank has entered. A rank's own phase would not do: a rank 0 that hangs
  times out in an older phase, which everybody had entered, and finds nobody missing.
- The heart beats in a thread of its own. Beating in the thread that judges would stop while it waits, and
  healthy ranks would look frozen.
- Nothing here is a collective, and every call to the store has a time limit.

A rank that hangs while it holds the interpreter lock runs no thread; its peers name it as frozen.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import msgspec

from distdoctor.exit_codes import ExitCode
from distdoctor.ranks.ending import StoppedRank, end_stopped_peers
from distdoctor.ranks.first_of_host import claim_on_host, wait_until_free
from distdoctor.ranks.processes import Life, boot_id, life_of, pid_namespace, read_stat
from distdoctor.ranks.store import STORE_LIMIT_S, Store, StoreLostError, TimedStore
from distdoctor.ranks.terminate import Termination, end_process, on_terminate

_POLL_S = 0.1

# A heart that stays still for this many beats has stopped. Our own threshold; three beats may be lost to load.
_BEATS_TO_BE_SURE = 3.2

# All ranks together beat at most this often a second: the store serves some 100,000 calls. Our own bound.
_BEATS_PER_S = 2000
_MIN_BEAT_S = 0.5

# How long the others wait for the report of the rank whose turn it is, beyond its look at the hearts; and for
# a rank that claimed to write it. Our own thresholds.
_REPORT_PATIENCE_S = 2.0
_WRITING_S = 10.0

# A rank that hosts the store stays this long after its report, so that the others can read that it is out; after
# a run that went well, until they have, at most so long. Our own choices.
_HOST_LINGERS_S = 2.0
_HOST_WAITS_S = 10.0

# Details of at most this many absent ranks are fetched; beyond it their numbers say enough. Our own bound.
_MAX_DESCRIBED = 256
_MAX_PHASE_CHARS = 200
_MAX_ERROR_CHARS = 500


class _Presence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rank says about itself in the store."""

    rank: int
    host: str
    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str
    phase: str = ""


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank's main thread is in its program, by its innermost Python frame."""

    rank: int
    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absentee:
    """A rank that holds the others up, as far as it is known."""

    rank: int
    host: str | None = None
    pid: int | None = None
    last_phase: str | None = None
    """The last phase that it entered."""
    life: Life | None = None
    """State of its process; None when it is not on this host."""
    beats: bool | None = None
    """Whether its heart still beats: then it runs, and is only late; None when that was not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why there is no progress."""

    reason: str
    reporter: int
    phase: str | None
    """The furthest phase that any rank has entered; None when none was."""
    missing: tuple[Absentee, ...] = ()
    """Ranks that have not entered it; before the first phase, ranks that have not come at all."""
    inside: tuple[int, ...] = ()
    """Ranks that entered it and have not left."""
    frozen: tuple[Absentee, ...] = ()
    """Ranks, inside or missing, whose heart has stopped or whose process is gone or stopped."""
    terminated: bool = False
    """The launcher sent SIGTERM, or somebody pressed Ctrl-C, before the deadline had passed."""
    interrupted: bool = False
    """It was Ctrl-C."""
    errors: tuple[tuple[int, str], ...] = ()
    """(rank, text) of ranks that could not go on, in the order in which they said so."""
    where: tuple[Whereabouts, ...] = ()
    """Of the ranks that could tell: one that is elsewhere than the others holds them up, though it entered."""
    store_lost: str | None = None
    """The store does not answer, so that nothing is known of the others: this rank speaks for itself alone."""


class Watchdog:
    """Use from the main thread: `start`, then `arrive` and `leave` around each phase, then `finish`."""

    def __init__(
        self,
        store: Store,
        *,
        prefix: str,
        rank: int,
        world_size: int,
        host: str,
        deadline_s: float,
        report: Callable[[Stall], int],
        hosts_store: bool = False,
        before_end: Callable[[], None] | None = None,
        rank_variable: str | None = None,
        job_variables: Mapping[str, str] | None = None,
        beat_s: float | None = None,
    ) -> None:
        """A watchdog for one rank.

        store: a client of its own, for a blocked call on a shared one would block the heart.
        prefix: keys of this launch (`launch_prefix`).
        deadline_s: longest time without progress of this rank; well below the process group's timeout.
        report: called at most once per launch, in another thread, while the main thread may be stuck: writes
            what has arrived and gives the exit code. With `Stall.store_lost` it may be called once on every host.
        hosts_store: this process is the store's server, as rank 0 is without torchrun.
        before_end: called before the watchdog ends the process: what has to be removed then.
        rank_variable, job_variables: by which ranks of this launch are known that were stopped before they came.
        """
        self._store = TimedStore(store, prefix=f"{prefix}watch/")
        self._rank = rank
        self._world_size = world_size
        self._deadline_s = deadline_s
        self._report = report
        self._hosts_store = hosts_store
        self._before_end = before_end
        self._rank_variable = rank_variable
        self._job_variables = job_variables
        self._launch = prefix
        self._beat_s = beat_s or max(_MIN_BEAT_S, world_size / _BEATS_PER_S)
        self._presence = _own_presence(rank, host)
        self._phase_index = -1
        self._phase_deadline_s = deadline_s
        self._progress_at = time.monotonic()
        self._over = threading.Event()
        self._finished = False
        self._claim: socket.socket | None = None
        self._gave_up: str | None = None
        self._judging = threading.Lock()
        self._termination: Termination | None = None

    # --- the main thread ---

    def start(self) -> None:
        """Begin to watch. Call from the main thread: it takes over SIGTERM and SIGINT until `finish`."""
        self._progress_at = time.monotonic()
        self._termination = on_terminate(self._on_signal, interrupts=True)
        for target in (self._watch, self._beat):
            threading.Thread(target=target, name=f"distdoctor{target.__name__}", daemon=True).start()
        self._quietly(self._introduce)

    def arrive(self, phase: str, *, deadline_s: float | None = None) -> None:
        """This rank is about to enter `phase`; all ranks enter the same phases in the same order.

        `deadline_s` replaces the watchdog's own until the next phase. A store that is lost is not this
        call's business: the watching thread finds out.
        """
        self._phase_index += 1
        index, name = self._phase_index, phase[:_MAX_PHASE_CHARS]
        self._phase_deadline_s = deadline_s or self._deadline_s
        self._progress_at = time.monotonic()
        self._presence = msgspec.structs.replace(self._presence, phase=name)

        def tell() -> None:
            self._store.set(f"{index}/name", name)
            self._store.note_rank(f"{index}/in", self._rank)
            self._store.set(f"who/{self._rank}", msgspec.json.encode(self._presence))

        self._quietly(tell)

    def leave(self) -> None:
        """This rank has left the phase that it entered last."""
        index = self._phase_index
        self._quietly(lambda: self._store.note_rank(f"{index}/out", self._rank))
        self._progress_at = time.monotonic()

    def give_up(self, error: str) -> NoReturn:
        """This rank cannot go on, and says why: judged at once. Does not return; the process ends.

        A peer that closed the connection is an error here and a death there: the report tells both.
        """
        self._quietly(lambda: self._store.append("errors", f"{self._rank} {_one_line(error)}\n"))
        self._gave_up = error
        while True:
            time.sleep(3600)

    def begin_report(self) -> int | None:
        """All is measured, and this rank is about to write the report: None, or the exit code of one that is out.

        From here on the watchdog of this rank reports nothing, and a signal lets the writing come to its end.
        """
        with self._judging:
            self._over.set()
        try:
            if self._store.add("claim/0", 1) == 1:
                return None
            return self._wait_for_report(_WRITING_S)
        except StoreLostError:
            return None

    def end_report(self, exit_code: int) -> None:
        """The report is written: whoever waits for it may end."""
        self._quietly(partial(self._store.set, "complete", str(exit_code)))
        self.let_others_leave()

    def let_others_leave(self) -> None:
        """Where this process serves the store, wait some seconds at most until the others have finished."""
        if self._hosts_store:
            self._quietly(self._wait_for_others)

    def await_report(self) -> None:
        """Wait until another rank has written the report; should it die meanwhile, the watchdog reports.

        Raises StoreLostError.
        """
        while not self._store.has("complete"):
            time.sleep(max(_POLL_S, self._world_size / _BEATS_PER_S))

    def _wait_for_others(self) -> None:
        until = time.monotonic() + _HOST_WAITS_S
        others = self._world_size - 1
        while time.monotonic() < until and len(self._store.ranks_in("finished", self._world_size)) < others:
            time.sleep(_POLL_S)

    def finish(self) -> None:
        """The measuring is over on this rank: nothing is reported any more, the signals are given back.

        A second call does nothing.
        """
        with self._judging:
            if self._finished:
                return
            self._finished = True
            self._over.set()
        self._quietly(lambda: self._store.note_rank("finished", self._rank))
        if self._termination is not None:
            self._termination.stop()
        self._store.close()

    # --- the watchdog's threads ---

    def _introduce(self) -> None:
        self._store.set(f"who/{self._rank}", msgspec.json.encode(self._presence))
        self._store.note_rank(self._neighbours_key(), self._rank)

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            self._quietly(lambda: self._store.add(f"heart/{self._rank}", 1))
            self._quietly(self._end_after_report)

    def _end_after_report(self) -> None:
        """Another rank has reported what stopped the measuring: there is nothing left to do."""
        code = self._store.get("reported")
        if code is None or not self._judging.acquire(blocking=False):
            return  # nothing reported, or this rank's own judge sees to its end
        try:
            if not self._over.is_set():
                if self._hosts_store:
                    time.sleep(_HOST_LINGERS_S)
                self._end(_exit_code(code))
        finally:
            self._judging.release()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            if self._gave_up is not None and self._judge(self._gave_up, terminated=True):
                return
            quiet_s = time.monotonic() - self._progress_at
            limit_s = self._phase_deadline_s
            if quiet_s > limit_s and self._judge(f"no progress for {limit_s:g} s", terminated=False):
                return

    def _on_signal(self) -> int | None:
        seen = self._termination.seen if self._termination is not None else None
        reason = {
            signal.SIGINT: "interrupted (Ctrl-C)",
            signal.SIGHUP: "the terminal or the session was closed (SIGHUP)",
        }.get(seen or signal.SIGTERM, "the launcher ended the job (SIGTERM)")
        self._judge(reason, terminated=True)
        return None

    @property
    def _interrupted(self) -> bool:
        return self._termination is not None and self._termination.seen == signal.SIGINT

    def _judge(self, reason: str, *, terminated: bool) -> bool:
        """Find out what is wrong, see to it that it is reported once, and end. False after a false alarm."""
        with self._judging:
            if self._over.is_set():
                return True
            try:
                code = self._judge_by_store(reason, terminated=terminated)
            except StoreLostError as error:
                code = self._speak_for_host(
                    Stall(
                        reason=reason,
                        reporter=self._rank,
                        phase=self._presence.phase or None,
                        terminated=terminated,
                        interrupted=self._interrupted,
                        errors=((self._rank, self._gave_up),) if self._gave_up else (),
                        store_lost=str(error),
                    )
                )
            if code is None:
                self._progress_at = time.monotonic()
                return False
            self._quietly(self._end_stopped_neighbours)
            if self._hosts_store:
                time.sleep(_HOST_LINGERS_S)
            self._end(code)
            return True

    def _judge_by_store(self, reason: str, *, terminated: bool) -> int | None:
        self._tell_where()
        before = self._position()
        look_s = self._beat_s * _BEATS_TO_BE_SURE
        if self._rank != self._whose_turn(before):
            code = self._wait_for_report(look_s + _REPORT_PATIENCE_S)
            if code is not None:
                return code
        hearts = self._hearts()
        time.sleep(look_s)
        still = frozenset(
            rank for rank, (old, new) in enumerate(zip(hearts, self._hearts(), strict=True)) if old == new
        )
        after = self._position()
        if after != before and not terminated:
            return None  # somebody moved: slow, not stuck
        stall = self._stall(after, still - {self._rank}, reason, terminated=terminated)
        for generation in range(self._world_size):
            if self._store.add(f"claim/{generation}", 1) == 1:
                code = self._speak(stall)
                self._quietly(partial(self._store.set, "reported", str(code)))
                return code
            code = self._wait_for_report(_WRITING_S)
            if code is not None:
                return code
        return 0

    def _speak_for_host(self, stall: Stall) -> int:
        """Nobody can be asked who reports: one of the ranks of a host does, and its exit code tells for all."""
        name = f"{self._launch}report"
        claim = claim_on_host(name)
        if claim is None:
            wait_until_free(name, _WRITING_S)
            return ExitCode.OK
        self._claim = claim  # held until the process ends
        code = self._speak(stall)
        # Others may still wait for an answer of the store: they must find the claim taken.
        time.sleep(STORE_LIMIT_S)
        return code

    def _end(self, code: int) -> None:
        if self._before_end is not None:
            try:
                self._before_end()
            except OSError:
                traceback.print_exc()
        end_process(code)

    def _speak(self, stall: Stall) -> int:
        try:
            return self._report(stall)
        except Exception:
            # This thread is the last one that can end the process.
            traceback.print_exc()
            return ExitCode.BUG

    def _wait_for_report(self, patience_s: float) -> int | None:
        """The reporter's exit code once its report is out, or None."""
        until = time.monotonic() + patience_s
        while True:
            code = self._store.get("reported") or self._store.get("complete")
            if code is not None:
                return _exit_code(code)
            if time.monotonic() > until:
                return None
            time.sleep(_POLL_S)

    def _position(self) -> _Position:
        index = max(self._phase_index, 0)
        while self._store.has(f"{index + 1}/in"):
            index += 1
        entered = self._store.ranks_in(f"{index}/in", self._world_size)
        return _Position(
            index=index,
            entered=entered,
            left=self._store.ranks_in(f"{index}/out", self._world_size),
            finished=self._store.ranks_in("finished", self._world_size),
        )

    def _whose_turn(self, position: _Position) -> int:
        """The lowest rank that entered the furthest phase and can work, as far as this host sees."""
        for rank in sorted(position.entered - position.finished):
            if rank == self._rank or self._life(self._presence_of(rank)) in (
                None,
                Life.RUNNING,
                Life.BLOCKED,
            ):
                return rank
        return self._rank

    def _hearts(self) -> list[int]:
        return self._store.counters([f"heart/{rank}" for rank in range(self._world_size)])

    def _stall(self, position: _Position, still: frozenset[int], reason: str, *, terminated: bool) -> Stall:
        name = self._store.get(f"{position.index}/name") if position.entered else None
        expected = frozenset(range(self._world_size)) - position.finished
        absent = expected - (position.entered or self._introduced())
        missing = self._describe(absent, still)
        inside = expected & (position.entered - position.left)
        suspects = self._describe((expected & still) | inside, still)
        return Stall(
            reason=reason,
            reporter=self._rank,
            phase=name.decode("utf-8", "replace")[:_MAX_PHASE_CHARS] if name is not None else None,
            missing=missing,
            inside=tuple(sorted(inside)),
            frozen=tuple(
                each
                for each in suspects
                if each.rank != self._rank
                and (each.rank in still or each.life in (Life.STOPPED, Life.TRACED, Life.EXITED))
            ),
            terminated=terminated,
            interrupted=self._interrupted,
            errors=self._errors(),
            where=self._whereabouts(expected),
        )

    def _tell_where(self) -> None:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if frame is None:
            return
        code = frame.f_code
        where = Whereabouts(
            rank=self._rank,
            file=code.co_filename[-_MAX_PHASE_CHARS:],
            line=frame.f_lineno,
            function=code.co_name[:_MAX_PHASE_CHARS],
        )
        self._store.set(f"where/{self._rank}", msgspec.json.encode(where))

    def _whereabouts(self, ranks: Iterable[int]) -> tuple[Whereabouts, ...]:
        found = []
        for rank in sorted(ranks)[:_MAX_DESCRIBED]:
            data = self._store.get(f"where/{rank}")
            try:
                where = msgspec.json.decode(data or b"", type=Whereabouts) if data else None
            except (msgspec.DecodeError, RecursionError):
                continue
            if where is not None and where.rank == rank:
                found.append(where)
        return tuple(found)

    def _errors(self) -> tuple[tuple[int, str], ...]:
        text = (self._store.get("errors") or b"").decode("utf-8", "replace")
        words = (line.partition(" ") for line in text.splitlines()[:_MAX_DESCRIBED])
        return tuple(
            (int(rank), error)
            for rank, _, error in words
            if rank.isdecimal() and int(rank) < self._world_size
        )

    def _introduced(self) -> frozenset[int]:
        """Ranks whose watchdog has started: before the first phase the others are the missing ones."""
        return frozenset(rank for rank in range(self._world_size) if self._store.has(f"who/{rank}"))

    def _describe(self, ranks: Iterable[int], still: frozenset[int]) -> tuple[Absentee, ...]:
        absentees = []
        for number, rank in enumerate(sorted(ranks)):
            presence = self._presence_of(rank) if number < _MAX_DESCRIBED else None
            if presence is None:
                absentees.append(Absentee(rank=rank, beats=rank not in still))
                continue
            absentees.append(
                Absentee(
                    rank=rank,
                    host=presence.host,
                    pid=presence.pid,
                    last_phase=presence.phase or None,
                    life=self._life(presence),
                    beats=rank not in still,
                )
            )
        return tuple(absentees)

    def _presence_of(self, rank: int) -> _Presence | None:
        data = self._store.get(f"who/{rank}")
        if data is None or len(data) > 4096:
            return None
        try:
            presence = msgspec.json.decode(data, type=_Presence)
        except (msgspec.DecodeError, RecursionError):
            return None
        return presence if presence.rank == rank else None

    def _life(self, presence: _Presence | None) -> Life | None:
        """What the process of a rank on this host does; None for ranks elsewhere."""
        mine = self._presence
        if presence is None or not mine.boot_id or not mine.pid_namespace:
            return None
        if (presence.boot_id, presence.pid_namespace) != (mine.boot_id, mine.pid_namespace):
            return None
        return life_of(presence.pid, presence.start_ticks)

    def _end_stopped_neighbours(self) -> None:
        ranks = self._store.ranks_in(self._neighbours_key(), self._world_size)
        present = [self._presence_of(rank) for rank in sorted(ranks)]
        end_stopped_peers(
            [
                StoppedRank(rank=each.rank, pid=each.pid, start_ticks=each.start_ticks)
                for each in present
                if each is not None and self._life(each) is Life.STOPPED
            ],
            rank_variable=self._rank_variable,
            job_variables=self._job_variables,
        )

    def _neighbours_key(self) -> str:
        return f"neighbours/{self._presence.boot_id}/{self._presence.pid_namespace}"

    def _quietly(self, tell: Callable[[], object]) -> None:
        """Tell the store something; whether it listens is for the watching thread to judge."""
        try:
            tell()
        except StoreLostError:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """How far the ranks have come."""

    index: int
    entered: frozenset[int]
    left: frozenset[int]
    finished: frozenset[int]


def _exit_code(text: bytes) -> int:
    """What the reporter told; anything else is a bug's code."""
    return int(text) if text.isdigit() and len(text) < 4 else ExitCode.BUG


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MAX_ERROR_CHARS]


def _own_presence(rank: int, host: str) -> _Presence:
    stat = read_stat(os.getpid())
    return _Presence(
        rank=rank,
        host=host,
        pid=os.getpid(),
        start_ticks=stat.start_ticks if stat is not None else 0,
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
    )
