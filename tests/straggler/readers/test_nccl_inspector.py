"""NCCL Inspector: durations by communicator, operation, serial number and global rank."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.nccl_inspector import NCCL_INSPECTOR
from straggler.readers.inspector_logs import DUMP_US, coll, header, line, metadata, write_job


def read(*paths: str | Path) -> Reading:
    return NCCL_INSPECTOR.read([str(path) for path in paths], ReadOptions())


def only(reading: Reading) -> CollectiveTimings:
    (timings,) = reading.collectives
    return timings


def kinds(reading: Reading) -> list[NoteKind]:
    return [note.kind for note in reading.notes if note.kind is not NoteKind.LIMITED]


def durations(timings: CollectiveTimings, rank: int, group: int = 0) -> dict[int, float]:
    rows = (timings.rank == rank) & (timings.group == group)
    return dict(zip(timings.seq[rows].tolist(), timings.duration_us[rows].tolist(), strict=True))


def test_each_rank_has_its_durations_with_its_host(tmp_path: Path) -> None:
    reading = read(*write_job(tmp_path, [[100, 110], [900, 910]], hosts=["node-1", "node-2"]))
    timings = only(reading)
    assert durations(timings, 0) == {0: 100.0, 1: 110.0}
    assert durations(timings, 1) == {0: 900.0, 1: 910.0}
    assert [(place.rank, place.host) for place in timings.places] == [(0, "node-1"), (1, "node-2")]
    assert timings.world_size == 2
    assert timings.ops == ("all_reduce",)
    assert timings.groups[0].ranks == (0, 1)
    assert set(timings.num_bytes.tolist()) == {1 << 20}
    assert set(timings.step.tolist()) == {-1}
    assert timings.end_s is None
    assert [entry.read for entry in reading.inputs] == [True, True]
    assert kinds(reading) == []


def test_a_log_is_known_by_sight_and_other_jsonl_is_not(tmp_path: Path) -> None:
    path = Path(write_job(tmp_path, [[100], [90]])[0])
    assert NCCL_INSPECTOR.sniff(path.name, path.read_bytes()) > 0.9
    assert (
        NCCL_INSPECTOR.sniff("a.jsonl", b'{"coll_perf":{"coll":"AllReduce","coll_exec_time_us":3}}\n') > 0.9
    )
    assert NCCL_INSPECTOR.sniff("a.jsonl", b'{"rank": 0, "step": 1, "forward": 3.1}\n') == 0.0


def test_each_operation_of_a_communicator_counts_for_itself(tmp_path: Path) -> None:
    """NCCL numbers all-reduces and all-gathers apart: number 0 of both are two collectives."""
    path = tmp_path / "a.log"
    head, meta = header("0xa", 0, 2), metadata("node-1", 7)
    path.write_text(
        line(head, meta, coll(0, 100)) + "\n" + line(head, meta, coll(0, 30, op="AllGather")) + "\n"
    )
    timings = only(read(path))
    assert len(timings.groups) == 2
    assert timings.group.tolist() == [0, 1]
    assert [timings.ops[op] for op in timings.op] == ["all_reduce", "all_gather"]


def test_ranks_inside_a_communicator_become_ranks_of_the_job(tmp_path: Path) -> None:
    """Data-parallel pairs (0, 2) and (1, 3): their ranks 0 and 1 are not the job's."""
    paths = []
    for rank in range(4):
        meta = metadata("node-1", 1000 + rank)
        path = tmp_path / f"{rank}.log"
        path.write_text(
            line(header("0xworld", rank, 4), meta, coll(0, 100 + rank))
            + "\n"
            + line(header(f"0xdp{rank % 2}", rank // 2, 2), meta, coll(0, 500 + rank, op="ReduceScatter"))
            + "\n"
        )
        paths.append(path)
    timings = only(read(*paths))
    groups = {group.name: number for number, group in enumerate(timings.groups)}
    second = groups["0xdp1 reduce_scatter"]
    assert timings.groups[second].ranks == (1, 3)
    assert durations(timings, 3, second) == {0: 503.0}
    assert durations(timings, 1, second) == {0: 501.0}


def test_without_a_communicator_of_all_ranks_the_numbers_are_said_to_be_ours(tmp_path: Path) -> None:
    """Pairs inside hosts and pairs across hosts, no world: order follows the communicators, not process ids."""
    paths = []
    for host in range(2):
        for local in range(2):
            # The process with the higher id is the first on its host.
            meta = metadata(f"node-{host}", 2000 - local)
            path = tmp_path / f"{host}{local}.log"
            path.write_text(
                line(header(f"0xtp{host}", local, 2), meta, coll(0, 10 * host + local + 1))
                + "\n"
                + line(header(f"0xdp{local}", host, 2), meta, coll(0, 100, op="AllGather"))
                + "\n"
            )
            paths.append(path)
    reading = read(*paths)
    timings = only(reading)
    assert timings.world_size is None
    assert [place.host for place in timings.places] == ["node-0", "node-0", "node-1", "node-1"]
    first = next(number for number, group in enumerate(timings.groups) if group.name == "0xtp1 all_reduce")
    assert timings.groups[first].ranks == (2, 3)
    assert durations(timings, 2, first) == {0: 11.0}
    assert any("no communicator holds all 4 processes" in note.text for note in reading.notes)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    paths = write_job(tmp_path, [[100], [100], [100], [100]])
    reading = read(paths[0], paths[3])
    assert only(reading).world_size == 4
    (note,) = [note for note in reading.notes if note.kind is NoteKind.MISSING_RANKS]
    assert "2 of 4 ranks" in note.text and "1-2" in note.text


def test_the_newest_format_tells_header_once_for_a_batch(tmp_path: Path) -> None:
    meta = metadata("node-1", 9, version="v4.3")
    stats = {"coll_records": 2, "coll_dropped_total": 0, "p2p_records": 1}
    other = {"coll_records": 1, "coll_dropped_total": 7, "p2p_records": 0}
    point = {"p2p": "Send", "p2p_sn": 4, "p2p_peer": 1, "p2p_msg_size_bytes": 9000, "p2p_exec_time_us": 12}
    records = [
        {"header": header("0xa", 1, 2), "metadata": meta, "dump_stats": stats},
        {"coll_perf": coll(0, 11, coll_algo="RING", coll_proto="LL")},
        {"coll_perf": coll(1, 12)},
        {"p2p_perf": point},
        {"header": header("0xb", 0, 2), "metadata": meta, "dump_stats": other},
        {"coll_perf": coll(5, 13)},
        # Beyond what the line before promised: whose it is, is not known.
        {"coll_perf": coll(6, 14)},
    ]
    path = tmp_path / "node-1-pid9.log"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    reading = read(path)
    timings = only(reading)
    assert timings.seq.tolist() == [0, 1, 5]
    assert [timings.groups[group].name.split()[0] for group in timings.group] == ["0xa", "0xa", "0xb"]
    texts = [note.text for note in reading.notes]
    assert any("1 records stand behind no line" in text for text in texts)
    assert any("7 collectives" in text and "overwritten" in text for text in texts)
    assert any("1 point-to-point records" in text for text in texts)


def test_times_of_day_come_from_verbose_logs_only(tmp_path: Path) -> None:
    traced = coll(
        0,
        41057,
        event_trace_ts={
            "coll_start_ts": 1752867229235059,
            "coll_stop_ts": 1752867229235064,
            "kernel_events": [
                {"channel_id": 0, "kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275811},
                {"channel_id": 1, "kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275900},
            ],
        },
    )
    path = tmp_path / "a.log"
    head, meta = header("0xa", 0, 2), metadata("node-1", 7)
    path.write_text(
        line(head, meta, coll(1, 5))
        + "\n"
        + line(head, meta, traced)
        + "\n"
        + line(head, meta, coll(2, 5))
        + "\n"
    )
    timings = only(read(path))
    assert timings.end_s is not None
    assert np.isnan(timings.end_s[[0, 2]]).all()
    assert timings.end_s[1] == pytest.approx(1752867229.2759)


def test_a_copied_file_counts_once(tmp_path: Path) -> None:
    paths = write_job(tmp_path, [[100, 110], [900, 910]])
    packed = tmp_path / "copy.log.gz"
    packed.write_bytes(gzip.compress(Path(paths[0]).read_bytes()))
    reading = read(*paths, packed)
    assert len(only(reading).seq) == 4
    assert NoteKind.DUPLICATE_RANKS in kinds(reading)


def test_a_cut_last_line_costs_only_itself(tmp_path: Path) -> None:
    path = Path(write_job(tmp_path, [[100, 110, 120], [1, 2, 3]])[0])
    path.write_text(path.read_text()[:-40])
    reading = read(path)
    assert only(reading).seq.tolist() == [0, 1]
    assert kinds(reading) == [NoteKind.MISSING_RANKS, NoteKind.CUT_SHORT]


def test_one_bad_file_costs_only_itself(tmp_path: Path) -> None:
    paths = write_job(tmp_path, [[100], [90]])
    binary = tmp_path / "binary.log"
    binary.write_bytes(bytes(range(256)) * 40)
    torn = tmp_path / "torn.log.gz"
    torn.write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    empty = tmp_path / "empty.log"
    empty.touch()
    reading = read(*paths, binary, torn, empty, tmp_path / "absent.log", tmp_path)
    assert len(only(reading).seq) == 2
    assert [entry.read for entry in reading.inputs] == [True, True, False, False, False, False, False]
    assert all(entry.why_not for entry in reading.inputs[2:])


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 10**18},
        {"rank": -1},
        {"n_ranks": 10**30},
        {"coll_sn": -1},
        {"coll_sn": 10**40},
        {"coll_exec_time_us": 0},
        {"coll_exec_time_us": 1e308},
        {"coll_exec_time_us": -5},
        {"coll_exec_time_us": "12"},
        {"coll_timing_source": "collective_cpu"},
        {"hostname": "x" * 5000},
        {"pid": -3},
    ],
)
def test_records_that_cannot_be_are_left_out(tmp_path: Path, change: dict[str, object]) -> None:
    record = json.loads(line(header("0xa", 0, 2), metadata("node-1", 7), coll(3, 100)))
    for part in record.values():
        part.update({key: value for key, value in change.items() if key in part})
    path = tmp_path / "a.log"
    good = line(header("0xa", 0, 2), metadata("node-1", 7), coll(4, 100))
    path.write_text(json.dumps(record) + "\n[[[[\nnull\n7\n" + good + "\n")
    reading = read(path)
    assert only(reading).seq.tolist() == [4]
    assert NoteKind.DROPPED_VALUES in kinds(reading)


def test_one_process_with_several_gpus_has_a_rank_for_each(tmp_path: Path) -> None:
    path = tmp_path / "node-1-pid7.log"
    meta = metadata("node-1", 7)
    path.write_text(
        "".join(line(header("0xa", rank, 4), meta, coll(0, 100 + rank)) + "\n" for rank in range(4))
    )
    timings = only(read(path))
    assert [durations(timings, rank)[0] for rank in range(4)] == [100.0, 101.0, 102.0, 103.0]
    assert timings.world_size == 4


def test_containers_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        meta = metadata("localhost", 1)
        path = tmp_path / f"{rank}.log"
        path.write_text(
            line(header("0xa", rank, 2), meta, coll(0, 100 + rank))
            + "\n"
            + line(header("0xb", rank, 2), meta, coll(0, 500 + rank))
            + "\n"
        )
        paths.append(path)
    timings = only(read(*paths))
    assert {group: durations(timings, 1, group) for group in (0, 1)} == {0: {0: 101.0}, 1: {0: 501.0}}


def test_runs_one_after_another_are_restarts_and_runs_at_once_are_mixed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    first = write_job(tmp_path / "a", [[100], [90]], comm="0xa")
    at_once = write_job(tmp_path / "b", [[100], [90]], comm="0xb", hosts=["node-8", "node-9"])
    later = tmp_path / "c" / "x.log"
    later.write_text(
        line(header("0xc", 0, 2), metadata("node-1", 5000, dumped_us=DUMP_US + 10**9), coll(0, 100)) + "\n"
    )
    assert NoteKind.MIXED_RUNS in kinds(read(*first, *at_once))
    reading = read(*first, later)
    assert NoteKind.RESTARTED in kinds(reading)
    assert len(reading.collectives) == 2


def write_parallel(
    folder: Path,
    *,
    parts: int = 2,
    size: int = 4,
    late_us: dict[int, int] | None = None,
    steps: int = 1,
    dumped_us: int = DUMP_US,
    name: str | None = None,
    start_pid: int = 1000,
) -> list[str]:
    """`parts` communicators of `size` ranks each, `parts` processes a host; no communicator joins them.

    `late_us`: by process, counted over hosts, how late it comes to each collective.
    """
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(parts * size):
        at, part = divmod(number, parts)
        mates = [other * parts + part for other in range(size)]
        late = late_us or {}
        waits = max(late.get(mate, 0) for mate in mates) - late.get(number, 0)
        head = header(f"0x{dumped_us}d{part}", at, size, name and f"{name}{part}")
        meta = metadata(f"node-{at}", start_pid + number, dumped_us=dumped_us + number)
        path = folder / f"node-{at}-pid{start_pid + number}.log"
        noise = np.random.default_rng(number).integers(0, 10, steps).tolist()
        path.write_text(
            "".join(line(head, meta, coll(seq, 800 + waits + noise[seq])) + "\n" for seq in range(steps))
        )
        paths.append(str(path))
    return paths


def test_groups_at_the_same_time_that_share_no_communicator_are_not_numbered_each_by_itself(
    tmp_path: Path,
) -> None:
    """Rank 1 of each communicator is another process: none of them may be taken for the job's rank 1."""
    reading = read(*write_parallel(tmp_path / "a"))
    timings = only(reading)
    assert [(place.rank, place.host) for place in timings.places] == [
        (rank, f"node-{rank // 2}") for rank in range(8)
    ]
    assert [group.ranks for group in timings.groups] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    (note,) = [note for note in reading.notes if note.kind is NoteKind.MIXED_RUNS]
    assert "2 groups of processes" in note.text and "not the launcher's" in note.text
    assert timings.source == "NCCL Inspector, ranks counted here"


def test_ranks_of_such_groups_that_have_no_file_are_counted(tmp_path: Path) -> None:
    reading = read(*write_parallel(tmp_path / "a")[:-1])
    assert only(reading).world_size == 8
    (note,) = [note for note in reading.notes if note.kind is NoteKind.MISSING_RANKS]
    assert "1 of 8 ranks" in note.text


def test_half_of_the_files_make_no_communicator_the_one_of_all(tmp_path: Path) -> None:
    timings = only(read(*write_parallel(tmp_path / "a")[:4]))
    assert [(place.rank, place.host) for place in timings.places] == [
        (rank, f"node-{rank // 2}") for rank in range(4)
    ]
    assert timings.world_size == 8


def test_restarts_of_such_groups_stay_apart(tmp_path: Path) -> None:
    paths = write_parallel(tmp_path / "a")
    paths += write_parallel(tmp_path / "b", dumped_us=DUMP_US + 10**8, start_pid=5000)
    reading = read(*paths)
    assert [len(timings.places) for timings in reading.collectives] == [8, 8]
    assert NoteKind.RESTARTED in kinds(reading)


def test_jobs_whose_communicators_are_named_as_those_of_all_ranks_keep_their_numbers(tmp_path: Path) -> None:
    first = write_parallel(tmp_path / "a", parts=1, name="default_pg:")
    second = write_parallel(
        tmp_path / "b", parts=1, dumped_us=DUMP_US + 1, start_pid=5000, name="default_pg:"
    )
    reading = read(*first, *second)
    assert [[place.rank for place in timings.places] for timings in reading.collectives] == [[0, 1, 2, 3]] * 2
    (note,) = [note for note in reading.notes if note.kind is NoteKind.MIXED_RUNS]
    assert "several jobs" in note.text


def test_ranks_of_one_host_late_in_parallel_groups_are_their_host(tmp_path: Path) -> None:
    """Ranks 4 to 7 wait for one of them where nothing was recorded: their number in each communicator is 1."""
    late = dict.fromkeys(range(4, 8), 2000)
    facts = analyse(read(*write_parallel(tmp_path / "a", parts=4, size=8, steps=100, late_us=late)))
    (judged,) = facts.judged
    assert [host.host for host in judged.judgement.hosts] == ["node-1"]
    assert {each.rank for each in judged.judgement.suspects} <= {4, 5, 6, 7}


def test_a_rank_that_is_late_in_one_of_parallel_groups_alone_is_told_with_its_host(tmp_path: Path) -> None:
    facts = analyse(read(*write_parallel(tmp_path / "a", parts=4, size=8, steps=100, late_us={5: 2000})))
    (judged,) = facts.judged
    assert [judged.timings.places[each.row].host for each in judged.judgement.accused] == ["node-1"]
    assert [each.rank for each in judged.judgement.accused] == [5]


def test_a_file_without_collectives_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    point = {"p2p": "Recv", "p2p_sn": 4, "p2p_peer": 1, "p2p_exec_time_us": 12}
    path.write_text(
        json.dumps({"header": header("0xa", 0, 2), "metadata": metadata("n", 1), "p2p_perf": point}) + "\n"
    )
    reading = read(path)
    assert reading.collectives == ()
    assert reading.inputs[0].read is False
    assert "point-to-point" in (reading.inputs[0].why_not or "")


def test_a_folder_read_twice_gives_the_same(tmp_path: Path) -> None:
    paths = write_job(tmp_path, [[100, 110], [900, 910]])
    again = tmp_path / "again"
    again.mkdir()
    for path in paths:
        shutil.copy(path, again)
    once = only(read(*paths))
    twice = only(read(*paths, *map(str, sorted(again.iterdir()))))
    assert sorted(
        zip(once.rank.tolist(), once.seq.tolist(), once.duration_us.tolist(), strict=True)
    ) == sorted(zip(twice.rank.tolist(), twice.seq.tolist(), twice.duration_us.tolist(), strict=True))
