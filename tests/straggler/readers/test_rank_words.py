"""Ranks in notes: as ranges, the first ones of many, and those that are missing."""

from __future__ import annotations

import numpy as np

from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.rank_words import missing_ranks, named_ranks, shown_ranks


def test_ranks_are_ranges_in_order_and_the_first_ones_of_many() -> None:
    assert shown_ranks([8, 1, 0, 2]) == "0-2,8"
    assert shown_ranks(range(0, 400, 2)) == ",".join(map(str, range(0, 128, 2))) + "…"


def test_one_rank_is_named_in_the_singular() -> None:
    assert named_ranks({3: "twice"}) == "rank 3"
    assert named_ranks([3, 3]) == "rank 3"
    assert named_ranks([3, 5]) == "ranks 3,5"


def test_missing_ranks_are_one_note_and_none_when_nobody_is_missing() -> None:
    (note,) = missing_ranks([0, 2], 5)
    assert (note.kind, note.text) == (NoteKind.MISSING_RANKS, "3 of 5 ranks have no file here: 1,3-4")
    assert missing_ranks([0, 1], 2) == []
    assert missing_ranks([0, 1], None) == []


def test_rows_are_wanted_as_single_steps_are() -> None:
    options = ReadOptions(first_step=2, last_step=4)
    steps = np.arange(7)
    assert options.wants_each(steps).tolist() == [options.wants(step) for step in steps.tolist()]
    assert ReadOptions().wants_each(steps).all()
