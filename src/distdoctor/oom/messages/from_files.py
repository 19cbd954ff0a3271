"""Files of one or many ranks become the facts of `oom explain`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_evidence
from distdoctor.oom.facts.events import ExplainFacts, OomEvent, RankFailure
from distdoctor.oom.messages.context import joined_hints
from distdoctor.oom.messages.fold import fold_events
from distdoctor.oom.messages.read import TextEvents, read_text
from distdoctor.report.model import InputFile

KIND = "out-of-memory messages"
HINT = "give the log of the job that holds `out of memory`, or the ranks' own logs"

# All events that are kept over all files. Our own bound.
MAX_EVENTS = 50_000

_FIRST_LINE_CHARACTERS = 80
# As oom/reproduction/log_file.py begins it.
_STORAGES_OF_REPRODUCE = '{"about": "distdoctor: storages of one rank'
_SNIFFED = 64 * 1024

_RANK_IN_NAME = re.compile(r"(?:^|[/_.\-])(?:global_?)?rank[_\-.]?(\d{1,6})(?=\D|$)", re.IGNORECASE)
# torchrun --log-dir: <run>/attempt_0/<local rank>/stderr.log, error.json
_LOCAL_IN_NAME = re.compile(
    r"(?:^|/)(\d{1,4})/(?:stderr|stdout|error)(?:\.\w+)?$|(?:std(?:err|out)|worker)[_.\-](\d{1,4})(?:\.\w+)?$"
)


def events_from_files(paths: Sequence[str]) -> tuple[ExplainFacts, tuple[InputFile, ...]]:
    """The events of all files, each once, and what became of each file.

    `paths`: files, folders, or `-`. A file that cannot be read, or holds no message, is named with the reason and leaves
    the others alone. Raises InputError when no file holds a message or a path is not there.
    """
    found: list[TextEvents] = []
    inputs: list[InputFile] = []
    num_with_events = 0
    for path in find_files(paths):
        text_events, file = _read_file(path)
        inputs.append(file)
        if text_events is not None:
            found.append(text_events)
            num_with_events += 1
    if not num_with_events:
        raise _nothing_read(inputs)
    return facts_of(found, tuple(file.path for file in inputs)), tuple(inputs)


def events_from_text(path: str, text: str) -> ExplainFacts:
    """The facts of one text."""
    return facts_of([_with_names(path, read_text(path, text))], (path,))


def facts_of(found: Sequence[TextEvents], files: tuple[str, ...]) -> ExplainFacts:
    """The facts of several texts of one job: events numbered, ranks resolved, repetitions folded."""
    with_events = [each for each in found if each.events]
    failures = tuple(dict.fromkeys(row for each in found for row in each.failures))
    ranks = _Ranks(failures)
    resolved = [
        replace(ranks.resolve(event), order=event.order + number * 10_000_000)
        for number, each in enumerate(with_events)
        for event in each.events
    ]
    events = fold_events(resolved)
    return ExplainFacts(
        events=tuple(replace(event, order=number) for number, event in enumerate(events[:MAX_EVENTS])),
        hints=joined_hints([each.hints for each in with_events]),
        failures=failures,
        files=files,
        num_left_out=sum(each.num_left_out for each in found) + max(0, len(events) - MAX_EVENTS),
        first_order_known=len(with_events) == 1,
    )


class _Ranks:
    """Torchrun's table of failures, to find a rank in; thousands of events meet thousands of rows."""

    def __init__(self, failures: Sequence[RankFailure]) -> None:
        self._by_pid: dict[int, list[RankFailure]] = defaultdict(list)
        self._by_local: dict[tuple[int, str | None], dict[int, RankFailure]] = defaultdict(dict)
        for row in failures:
            if row.pid is not None:
                self._by_pid[row.pid].append(row)
            if row.local_rank is not None:
                # Under None all hosts: for an event that does not tell its own.
                for host in {None, row.host}:
                    self._by_local[row.local_rank, host][row.rank] = row

    def resolve(self, event: OomEvent) -> OomEvent:
        """The event with the global rank of its pid or local rank."""
        if event.rank is not None:
            return event
        if event.pid is not None:
            for row in self._by_pid.get(event.pid, ()):
                if event.host is None or row.host in (None, event.host):
                    return replace(
                        event, rank=row.rank, local_rank=row.local_rank, host=event.host or row.host
                    )
        if event.local_rank is not None:
            fitting = self._by_local.get((event.local_rank, event.host), {})
            if len(fitting) == 1:
                row = next(iter(fitting.values()))
                return replace(event, rank=row.rank, host=event.host or row.host)
        return event


def _read_file(path: str) -> tuple[TextEvents | None, InputFile]:
    try:
        evidence = read_evidence(path)
    except InputError as error:
        why = error.in_one_line
        return None, InputFile(path=path, kind="unknown", read=False, why_not=why)
    found = _with_names(path, read_text("standard input" if path == STDIN else path, evidence.text))
    if found.events:
        return found, evidence.input_file(KIND)
    file = evidence.input_file("unknown")
    why = f"it holds no out-of-memory message; it begins `{_first_line(evidence.text)}`"
    if evidence.text.startswith(_STORAGES_OF_REPRODUCE):
        why = (
            "it is the record of all storages that a rank of `oom reproduce` on CPUs left, for programs; that "
            "command's own report says what was live"
        )
    return None, replace_struct(file, read=False, why_not=why)


def _with_names(path: str, found: TextEvents) -> TextEvents:
    """Ranks that only the file's name tells."""
    rank = _number(_RANK_IN_NAME.search(path))
    local = _number(_LOCAL_IN_NAME.search(path.replace("\\", "/")))
    if rank is None and local is None:
        return found
    events = tuple(
        event
        if event.rank is not None or event.local_rank is not None
        else replace(event, rank=rank, local_rank=local if rank is None else None)
        for event in found.events
    )
    return replace(found, events=events)


def _number(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    return int(next(each for each in match.groups() if each is not None))


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text[:_SNIFFED].split("\n") if line.strip()), "")
    shown = line if len(line) <= _FIRST_LINE_CHARACTERS else line[: _FIRST_LINE_CHARACTERS - 1] + "…"
    return json.dumps(shown, ensure_ascii=False)[1:-1]


def _nothing_read(inputs: Sequence[InputFile]) -> InputError:
    file = inputs[0]
    name = "standard input" if file.path == STDIN else f"`{file.path}`"
    why = file.why_not or "cannot be read"
    more = f" (and {len(inputs) - 1} more)" if len(inputs) > 1 else ""
    message = why if name in why or file.path in why else f"{name}: {why}"
    return InputError(f"{message}{more}", hint=HINT)
