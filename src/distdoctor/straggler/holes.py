"""Ranks that must be there because their neighbours are: a hole in the numbers is a rank of which nothing was given."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.words import ranks_words

# Evidence of most ranks is meant to be of all; evidence of one rank a host, or of every eighth, is a choice. Our own
# threshold.
MOST = 0.75


def with_holes(reading: Reading) -> Reading:
    """`reading` with a world size where the evidence tells none and its ranks are most of 0 to the highest."""
    steps, notes = [], []
    for timings in reading.steps:
        missing = _missing(timings)
        if missing:
            notes.append(
                Note(
                    kind=NoteKind.MISSING_RANKS,
                    text=f"{ranks_words(missing)} of 0-{max(timings.ranks)} {'are' if len(missing) > 1 else 'is'} not in "
                    "the evidence",
                    how="give the files of all ranks; who is not seen cannot be ruled out",
                )
            )
        steps.append(replace(timings, world_size=max(timings.ranks) + 1) if missing else timings)
    return replace(reading, steps=tuple(steps), notes=(*reading.notes, *notes))


def _missing(timings: StepTimings) -> list[int]:
    ranks = set(timings.ranks)
    if timings.world_size is not None or not ranks or min(ranks) < 0:
        return []
    size = max(ranks) + 1
    if len(ranks) < MOST * size:
        return []
    return [rank for rank in range(size) if rank not in ranks]
