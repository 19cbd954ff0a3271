"""Files beside the evidence in its folder: licences, indexes, scripts. Told, but nothing is missing for want of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from msgspec.structs import replace as replace_struct

from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.readers.logs.read import KIND as LOG_KIND
from distdoctor.straggler.readers.op_trace.reader import RESULTS as OP_TRACE_RESULTS
from distdoctor.straggler.readers.refusals import REFUSALS

ASIDE = "no timing"
UNKNOWN = "unknown"
"""A file that could be opened and that no reader knows."""

# Names that a note lists.
_MAX_NAMED = 8

# What readers call a file that was read and holds nothing of their kind. A damaged one has another kind.
_HARMLESS = frozenset((UNKNOWN, OP_TRACE_RESULTS, LOG_KIND, *(reader.name for reader in REFUSALS)))


def left_aside(reading: Reading, *, given: frozenset[str]) -> Reading:
    """`reading` with files that a folder merely contains as read and set aside, rather than as unread evidence.

    `given`: paths of the command line; what is named there is evidence. A file whose name ends as one that was read
    does is evidence too: it may be the damaged trace of the one rank that matters.
    """
    endings = {_ending(each.path) for each in reading.inputs if each.read}
    aside = [
        each
        for each in reading.inputs
        if not each.read
        and each.kind in _HARMLESS
        and each.path not in given
        and _ending(each.path) not in endings
    ]
    if not aside:
        return reading
    paths = {each.path for each in aside}
    names = ", ".join(f"`{PurePath(each.path).name}`" for each in aside[:_MAX_NAMED])
    more = f" and {len(aside) - _MAX_NAMED} more" if len(aside) > _MAX_NAMED else ""
    note = Note(
        kind=NoteKind.LEFT_ASIDE,
        text=f"{len(aside)} file{'s' if len(aside) > 1 else ''} in the folders hold{'' if len(aside) > 1 else 's'} no "
        f"timing: {names}{more}",
    )
    return replace(
        reading,
        inputs=tuple(_set_aside(each) if each.path in paths else each for each in reading.inputs),
        notes=(*reading.notes, note),
    )


def _set_aside(file: InputFile) -> InputFile:
    return replace_struct(file, kind=ASIDE, read=True, why_not=None)


def _ending(path: str) -> str:
    """The suffix, `.json.gz` or `.jsonl`; of a name without one its first letters, `xpu_` of `xpu_timer_metric_0`."""
    name = PurePath(path).name.lower()
    packed = ".gz" if name.endswith(".gz") else ""
    return (PurePath(name.removesuffix(".gz")).suffix or name[:4]) + packed
