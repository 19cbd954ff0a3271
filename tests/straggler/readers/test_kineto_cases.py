"""Real traces with published answers. The folder stands beside the repository, or not."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from distdoctor.evidence import read_head
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.kineto import KINETO

CASES = Path(__file__).parents[4] / "shared" / "cases" / "straggler"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the folder of real cases is not here")


def read(*paths: Path) -> Reading:
    return KINETO.read([str(path) for path in paths], ReadOptions())


def last_arrivals(timings: CollectiveTimings) -> Counter[int]:
    """How often each rank spent the least time in a collective."""
    least: Counter[int] = Counter()
    for seq in np.unique(timings.seq):
        rows = np.flatnonzero(timings.seq == seq)
        least[int(timings.rank[rows[np.argmin(timings.duration_us[rows])]])] += 1
    return least


def test_last_arrivals_of_eight_real_ranks(tmp_path: Path) -> None:
    with tarfile.open(CASES / "param" / "dlrm_kineto.tar.gz") as archive:
        for member in archive.getmembers():
            source = archive.extractfile(member) if member.isfile() else None
            if source is not None:
                (tmp_path / Path(member.name).name).write_bytes(source.read())
    paths = sorted(tmp_path.glob("worker*.json"))
    reading = read(*paths)
    (timings,) = reading.collectives
    assert (len(np.unique(timings.rank)), len(timings.rank)) == (8, 64)
    assert last_arrivals(timings) == {7: 5, 5: 2, 4: 1}
    assert timings.end_s is not None
    for seq in np.unique(timings.seq):
        rows = timings.seq == seq
        assert np.ptp(timings.end_s[rows]) * 1e6 < 8
        # The rank that begins last is the one that spends the least time.
        starts = timings.end_s[rows] - timings.duration_us[rows] / 1e6
        assert (
            timings.rank[rows][np.argmax(starts)] == timings.rank[rows][np.argmin(timings.duration_us[rows])]
        )
    assert reading.steps[0].num_steps == 1


@pytest.mark.parametrize(("folder", "slow"), [("dev_kernel_slow3", 3), ("no_straggler", None)])
def test_a_slow_rank_has_more_compute_and_the_shortest_collectives(folder: str, slow: int | None) -> None:
    reading = read(*sorted((CASES / "own_synth_kineto" / folder).glob("*.gz")))
    compute = np.median(reading.steps[0].sections[Section.COMPUTE], axis=1)
    ratio = compute / np.median(compute)
    assert [rank for rank in range(8) if ratio[rank] > 1.1] == ([slow] if slow is not None else [])
    if slow is not None:
        assert last_arrivals(reading.collectives[0]) == {slow: 5}


def test_real_traces_of_several_versions_give_their_steps() -> None:
    hta = CASES / "hta"
    expected = {
        "nccl_data.json.gz": (0, [4, 5, 6], 2),
        "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (0, [101, 102, 103, 104, 105], 1),
        "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": (34, [551], 300),
        "rank_non_gpu.json.gz": (0, [1009], None),
        "distributed_info_not_found.json.gz": (-1, [1009], None),
        "mi250_minitoy_train_ROCm6_2_kineto.json.gz": (-1, [1], None),
    }
    for name, (rank, steps, world_size) in expected.items():
        timings = read(hta / name).steps[0]
        assert (timings.ranks, list(timings.steps), timings.world_size) == ((rank,), steps, world_size), name


def test_nccl_metadata_of_a_real_trace() -> None:
    (timings,) = read(CASES / "hta" / "nccl_data.json.gz").collectives
    counts = Counter(timings.ops[op] for op in timings.op)
    assert counts == {"all_reduce": 15, "broadcast": 6}
    assert timings.groups[0].ranks == (0, 1)
    assert 4 * 2_049_000 in timings.num_bytes


def test_modern_traces_without_collectives_say_so() -> None:
    for path in sorted((CASES / "tracelens").glob("*/*.gz")):
        reading = read(path)
        assert Section.COMPUTE in reading.steps[0].sections
        assert NoteKind.NOT_COLLECTIVE in [note.kind for note in reading.notes]


def test_only_traces_are_taken_for_traces() -> None:
    traces = [
        *CASES.glob("hta/*.gz"),
        *CASES.glob("tracelens/*/*.gz"),
        *CASES.glob("own_synth_kineto/*/*.gz"),
    ]
    for path in traces:
        assert KINETO.sniff(str(path), read_head(str(path), max_bytes=256 * 1024)) >= 0.9, path
    others = [path for path in CASES.rglob("*") if path.is_file() and path not in traces]
    assert others
    for path in others:
        assert KINETO.sniff(str(path), read_head(str(path), max_bytes=256 * 1024)) == 0.0, path
