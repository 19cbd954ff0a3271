"""Eight real ranks of one step with the right order of arrival, where the folder of cases is beside the project."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.analysis.collectives.arrivals import arrivals_of
from distdoctor.straggler.analysis.collectives.late_groups import late_groups
from distdoctor.straggler.analysis.collectives.links import slow_links
from distdoctor.straggler.analysis.collectives.match import match
from distdoctor.straggler.analysis.collectives.wait_matrix import wait_matrix
from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.kineto import KINETO

CASE = Path(__file__).parents[2].parent / "shared" / "cases" / "straggler" / "param" / "dlrm_kineto.tar.gz"

KERNELS = {"ncclKernel_AllReduce": "all_reduce", "ncclKernel_SendRecv": "send_recv"}


@pytest.fixture(scope="module")
def timings() -> CollectiveTimings:
    """The NCCL kernels of each rank, in their order: these traces tell neither groups nor numbers."""
    if not CASE.is_file():
        pytest.skip("no ../shared/cases beside the project: real arrivals are not tested")
    rows: list[tuple[int, int, int, float, float]] = []
    with tarfile.open(CASE) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is None:
                continue
            trace = json.loads(file.read())
            events = [each for each in trace["traceEvents"] if each.get("cat", "").lower() == "kernel"]
            kernels = sorted(
                (event["ts"], event["dur"], op)
                for event in events
                for start, op in KERNELS.items()
                if event["name"].startswith(start)
            )
            for seq, (begin, duration, op) in enumerate(kernels):
                number = list(KERNELS.values()).index(op)
                rows.append((trace["distributedInfo"]["rank"], seq, number, duration, begin + duration))
    rank, seq, op, duration, end = (np.asarray(column) for column in zip(*rows, strict=True))
    return CollectiveTimings(
        source="Kineto traces",
        places=tuple(Place(rank=each, host="host-a") for each in range(8)),
        groups=(Group(name="world", ranks=tuple(range(8))),),
        ops=tuple(KERNELS.values()),
        rank=rank.astype(np.int32),
        group=np.zeros(len(rank), np.int32),
        op=op.astype(np.int32),
        seq=seq.astype(np.int64),
        duration_us=duration.astype(np.float32),
        step=np.full(len(rank), 10, np.int64),
        num_bytes=np.full(len(rank), -1, np.int64),
        end_s=end / 1e6,
        world_size=8,
    )


def test_who_came_last_is_told_as_it_was(timings: CollectiveTimings) -> None:
    matched = match(timings)
    assert matched is not None
    told = arrivals_of(matched)

    assert told.num_collectives == 8
    assert {rank: int(n) for rank, n in zip(told.ranks, told.num_last, strict=True) if n} == {
        7: 5,
        5: 2,
        4: 1,
    }
    assert told.num.tolist() == [8] * 8


def test_the_reader_of_traces_leads_to_the_same_order_of_arrival(tmp_path: Path) -> None:
    if not CASE.is_file():
        pytest.skip("no ../shared/cases beside the project: real arrivals are not tested")
    paths = []
    with tarfile.open(CASE) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is not None:
                paths.append(tmp_path / Path(member.name).name)
                paths[-1].write_bytes(file.read())
    (read,) = KINETO.read([str(path) for path in sorted(paths)], ReadOptions()).collectives
    matched = match(read)
    assert matched is not None
    told = arrivals_of(matched)

    assert {rank: int(n) for rank, n in zip(told.ranks, told.num_last, strict=True) if n} == {
        7: 5,
        5: 2,
        4: 1,
    }


def test_one_step_gives_one_column_and_no_group_or_link(timings: CollectiveTimings) -> None:
    matched = match(timings)
    matrix = wait_matrix(timings)
    assert matched is not None
    assert matrix is not None

    assert matrix.late_ms.shape == (8, 1)
    assert late_groups(matrix, matched) == ()
    links = slow_links(matched)
    assert links.suspects == ()
    assert links.cannot_tell is not None
