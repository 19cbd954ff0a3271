"""Who ended the job before SIGKILL came: a person, a scheduler, Kubernetes. What is killed after that lacked no memory."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from distdoctor.oom.messages.lines import LogLine
from distdoctor.oom.messages.mentions import is_advice, is_code, is_comment

# Words that a line of interest holds; looking for them is much faster than the patterns.
_WORDS = (
    *("ANCELLED", "ancelled", "anceled", "scancel", "qdel", "by user", "by the user", "TERM_"),
    *("ignal", "SIGTERM", "topping container", "reempt", "iveness probe", "TaintManager", "Disruption"),
    *("elet", "node shutdown", "Terminating", "terminating", "ChildFailedError", "Killed"),
)

# The end was ordered, whatever follows.
_ORDERED = re.compile(
    r"\b(?P<job>JOB \d[\w.+]* ON \S{1,80} CANCELLED AT )"
    r"|(?P<slurm>\b(?:[Jj]ob|[Tt]ask|[Rr]un|[Aa]llocation)\b[^.;]{0,60}\b(?:was|has been|is being|got|been) cancell?ed\b"
    r"|\bCANCELLED by \d+|\bstate[=: ]{1,3}CANCELLED\b|\b[Cc]ancell?ed by (?:the )?(?:user|admin\w*|uid|operator|scheduler))"
    r"|(?P<command>\b(?:scancel|qdel)\b)"
    r"|(?P<user>\b(?:[Kk]illed|[Tt]erminated|[Ss]topped|[Ee]nded|[Dd]eleted) by (?:the )?(?:user|operator|admin\w*)\b"
    r"|\bTERM_(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|USER)\b)"
    r"|(?P<pod>\bStopping container\b|failed liveness probe, will be restarted|TaintManagerEviction|\bDisruptionTarget\b"
    r"|\bPreempt(?:ed|ing|ion by)\b|\b[Pp]od\b[^.;]{0,60}\b(?:was|has been|is being) (?:deleted|preempted)\b"
    r"|\bMarking for deletion Pod\b|imminent node shutdown)"
)
_TERM = re.compile(
    r"\b(?:terminated|killed|exited) (?:by|on|with) signal:? ?(?:15\b|SIGTERM)"
    r"|\b(?:[Rr]eceived|[Gg]ot|[Cc]aught|[Rr]eceiving|[Hh]andling)(?: a| an| the)? (?:[Ss]ignals?[.: ]{1,2})?(?:15\b|SIGTERM)"
)
# A launcher ends the other ranks, and srun the step, after one rank has failed: SIGTERM behind such a line tells nothing.
_LAUNCHER = re.compile(
    r"closing signal SIGTERM|srun: (?:Terminating|launch/slurm: .{0,60}terminating)|Terminating (?:StepId|job step)"
    r"|ChildFailedError|[Ff]orcefully terminating all other|: tasks? [\d,-]+: Killed|failed \(exitcode:"
)
_EVENT = re.compile(r"\s+(?:Normal|Warning)\s+\w+\s")
_STEP = re.compile(r"\bSTEP \d[\w.+]* ON \S{1,80} CANCELLED AT ")

_WHAT = {
    "job": "the job was cancelled",
    "slurm": "the job was cancelled",
    "command": "scancel or qdel",
    "user": "a person or the scheduler ended it",
    "pod": "Kubernetes ended the pod",
}


class Ending(NamedTuple):
    """An order to end the job."""

    line: int
    """From 1."""
    words: str
    is_sure: bool
    """False for a cancelled step alone: srun cancels the step too when a task has died by itself."""


class Endings:
    """Where a log shows that its job was told to end."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._at: list[int] = []
        self._endings: list[Ending] = []
        launcher_acted = in_events = False
        for index, line in enumerate(lines):
            text = line.text
            in_events = in_events or text.startswith("Events:")
            if not any(word in text for word in _WORDS):
                continue
            ending = _ending(line, launcher_acted=launcher_acted)
            launcher_acted = launcher_acted or _LAUNCHER.search(text) is not None
            if ending is None:
                continue
            if in_events and _EVENT.match(text):
                # `kubectl describe` prints how a container ended above the events that led to it.
                self._at.insert(0, -1)
                self._endings.insert(0, ending)
            else:
                self._at.append(index)
                self._endings.append(ending)

    def before(self, index: int) -> Ending | None:
        """The first sure order before line `index`, else the first other; None without any."""
        earlier = self._endings[: bisect_left(self._at, index)]
        return next((each for each in earlier if each.is_sure), earlier[0] if earlier else None)


def _ending(line: LogLine, *, launcher_acted: bool) -> Ending | None:
    text = line.text
    if match := _ORDERED.search(text):
        before = text[: match.start()]
        if is_comment(before) or is_advice(before) or is_code(before):
            return None
        return Ending(line.number, _WHAT[match.lastgroup or "job"], is_sure=True)
    if (match := _TERM.search(text)) and not launcher_acted and not is_advice(text[: match.start()]):
        return Ending(line.number, "SIGTERM came first", is_sure=True)
    if _STEP.search(text):
        return Ending(line.number, "the step was cancelled", is_sure=False)
    return None
