"""Rows of real jobs with a known slow rank, where the folder of cases lies beside the project."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.pack import pack
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from distdoctor.straggler.readers.packed import PACKED_FILES
from straggler.readers.row_builders import only, read, sniffed, why_not

CASES = Path(__file__).parents[4] / "shared" / "cases" / "straggler" / "own_gloo_ddp"

pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="no ../shared/cases beside the project: real jobs are not tested"
)

# Where rank 2 was made slow, and by which section that shows.
SLOW_RANK = 2
SHOWS = {"fwd": Section.FORWARD, "bwd": Section.BACKWARD, "data": Section.DATA}


def files(run: str) -> list[str]:
    return [str(path) for path in sorted((CASES / run).glob("*.jsonl"))]


@pytest.mark.parametrize("run", ["none", "fwd", "bwd", "data", "gc"])
def test_names_without_units_are_refused_unless_a_unit_is_given(run: str) -> None:
    paths = files(run)
    assert sniffed(JSON_ROWS, paths[0]) > 0.5
    assert "have no unit" in why_not(read(JSON_ROWS, paths[0]))
    timings = only(read(JSON_ROWS, *paths, unit="ms"))
    assert timings.ranks == (0, 1, 2, 3) and timings.num_steps == 60


@pytest.mark.parametrize("run", sorted(SHOWS))
def test_the_slow_rank_has_more_own_time_and_less_waiting(run: str) -> None:
    sections = only(read(JSON_ROWS, *files(run), unit="ms")).sections
    own, wait = np.nanmedian(sections[SHOWS[run]], axis=1), np.nanmedian(sections[Section.WAIT], axis=1)
    assert int(np.argmax(own)) == SLOW_RANK and int(np.argmin(wait)) == SLOW_RANK
    # The wall time does not show it.
    wall = np.nanmedian(sections[Section.STEP], axis=1)
    assert wall[SLOW_RANK] < 1.02 * np.median(wall)


def test_a_real_job_is_packed_and_read_back(tmp_path: Path) -> None:
    direct = only(read(JSON_ROWS, *files("bwd"), unit="ms"))
    packed = only(
        read(PACKED_FILES, *pack(files("bwd"), str(tmp_path / "p"), ReadOptions(unit="ms")).written)
    )
    for section in direct.sections:
        np.testing.assert_array_equal(direct.sections[section], packed.sections[section])
