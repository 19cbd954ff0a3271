"""One rank's run, from meeting the others to the report of all.

Every rank works; rank 0 also reports at the end. When a rank is lost, the watchdog calls the report from a thread of
its own, on whichever rank is next, with what is in the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode
from distdoctor.ranks.agreement import ToldOptions, difference, read_options
from distdoctor.ranks.greeting import encode
from distdoctor.ranks.group.joining import Joined
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.told import tell, told_by_rank
from distdoctor.ranks.watchdog import Stall

# Others wait so long for rank 0 to write its report: a slow file system is no stuck rank. Our own choice.
_WRITING_LIMIT_S = 60.0

# A launcher ends all ranks as soon as one has failed: the others leave rank 0 so long to say what is wrong. Our own choice.
_SPEAKS_FIRST_S = 2.0


class RefusedError(DistdoctorError):
    """Nothing is done, by the decision of rank 0."""


class DifferentOptionsError(RefusedError):
    """The ranks were told to do different things."""

    exit_code = ExitCode.USAGE


class GroupRun:
    """A rank that works with the others until the report is out."""

    def __init__(
        self,
        identity: RankIdentity,
        *,
        room: str,
        timeout_s: float,
        import_torch_s: float,
        report: Callable[[Stall | None], int],
        before_end: Callable[[], None],
        join_limit_s: float | None = None,
    ) -> None:
        """Connect to the others' meeting point; raises DistdoctorError.

        report: writes the report of what ranks have told so far, and gives the exit code; with the watchdog's findings
            where the work could not come to its end. Called once, in the main thread of rank 0 or in another thread.
        before_end: removes what must not stay behind, however the process ends.
        join_limit_s: as in `Joined`.
        """
        self._identity = identity
        self._is_first = identity.rank == 0
        self._timeout_s = timeout_s
        self._report = report
        self._before_end = before_end
        self._reporting = threading.Lock()
        self.joined = Joined(
            identity,
            room=room,
            timeout_s=timeout_s,
            import_torch_s=import_torch_s,
            report=self._report_once,
            before_end=before_end,
            join_limit_s=join_limit_s,
        )

    def run(self, work: Callable[[], None]) -> int:
        """Do `work` together with the other ranks, then report in rank 0; the exit code.

        Raises RefusedError in rank 0 where `work` does. Any other fault ends the process from the watchdog.
        """
        try:
            self._work(work)
        except RefusedError as error:
            # All ranks were told the same; rank 0 says it for all.
            if self._is_first:
                self.joined.watchdog.let_others_leave()
                self.joined.finish()
                raise
            self.joined.finish()
            if error.exit_code is not ExitCode.USAGE:
                return 0
            time.sleep(_SPEAKS_FIRST_S)
            return int(error.exit_code)
        # What goes wrong in writing is nobody's fault among the ranks: it is raised.
        code = self._report_at_end() if self._is_first else 0
        self.joined.finish()
        self._before_end()
        return code

    def agree_on(self, options: ToldOptions) -> None:
        """Raises DifferentOptionsError, in all ranks, where they were told different things; call it before anything else."""
        joined = self.joined
        joined.watchdog.arrive("comparing options")
        tell(joined.control, "options", self._identity.rank, encode(options))
        joined.control.in_step()
        differs = joined.control.in_step(
            difference(read_options(self._told("options"))) if self._is_first else ""
        )
        joined.watchdog.leave()
        if differs:
            raise DifferentOptionsError(differs, hint="start all ranks with one command line")

    def look_at_hosts(
        self, look: Callable[[], bytes], object_to: Callable[[Mapping[int, bytes]], str], *, hint: str
    ) -> None:
        """One rank of each host tells what is there, and rank 0 says whether the work may begin beside it.

        `object_to` gives the objection, or an empty text. Raises RefusedError, in all ranks.
        """
        joined = self.joined
        joined.watchdog.arrive("looking at the hosts", deadline_s=self._timeout_s * 2)
        if self._identity.local_rank in (0, None):
            tell(joined.control, "look", self._identity.rank, look())
        joined.control.in_step()
        objection = joined.control.in_step(object_to(self._told("look")) if self._is_first else "")
        joined.watchdog.leave()
        if objection:
            raise RefusedError(objection, hint=hint)

    def _told(self, name: str) -> Mapping[int, bytes]:
        return told_by_rank(self.joined.records, self.joined.room_prefix, name, self._identity.world_size)

    def _work(self, work: Callable[[], None]) -> None:
        watchdog = self.joined.watchdog
        try:
            self.joined.meet()
            work()
            watchdog.arrive("writing the report", deadline_s=_WRITING_LIMIT_S)
            if not self._is_first:
                watchdog.await_report()
        except RefusedError:
            raise
        except DistdoctorError as error:
            watchdog.give_up(error.message)
        except Exception as error:
            # A peer that is gone, an allocation that failed, a bug: the watchdog finds out who is to blame.
            watchdog.give_up(one_line(error))

    def _report_at_end(self) -> int:
        """Once, whoever comes first: the main thread at the end, or the watchdog of any rank."""
        watchdog = self.joined.watchdog
        told = watchdog.begin_report()
        if told is not None:
            return told
        code = int(ExitCode.BUG)
        try:
            code = self._report_once(None)
        finally:
            watchdog.end_report(code)
        return code

    def _report_once(self, stall: Stall | None) -> int:
        with self._reporting:
            return self._report(stall)


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"
