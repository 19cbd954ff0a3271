"""What ranks leave in the store, read back; what a peer must not send is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.errors import DistdoctorError
from distdoctor.nccl_bench.own_log import OwnLog, unpack_log
from distdoctor.nccl_bench.pair_record import decode_matrix, encode_pair
from distdoctor.ranks.greeting import Hello, Layout, decode, encode, places_of
from distdoctor.ranks.identity import detect_identity
from distdoctor.ranks.meeting import meeting_of


def test_visits_of_a_pair_become_its_best_time_and_repeats() -> None:
    text = encode_pair(0, 1, [30.0, 20.0], confirms=False, concurrent_pairs=1)
    text += encode_pair(0, 1, [25.0, 21.0], confirms=True, concurrent_pairs=1)
    text += encode_pair(1, 0, [40.0], confirms=False, concurrent_pairs=2)
    matrix = decode_matrix(text.encode(), size_bytes=1024, ranks=(0, 1), planned=2, is_sampled=False)
    assert matrix is not None
    there, back = matrix.pairs
    assert (there.best_us, there.confirmed) == (20.0, True)
    assert (back.source, back.best_us, back.concurrent_pairs, back.confirmed) == (1, 40.0, 2, False)
    assert matrix.complete


def test_half_a_matrix_says_that_it_is_not_complete() -> None:
    text = encode_pair(0, 1, [30.0], confirms=False, concurrent_pairs=1)
    matrix = decode_matrix(text.encode(), size_bytes=1, ranks=(0, 1), planned=2, is_sampled=False)
    assert matrix is not None and not matrix.complete


@given(st.binary(max_size=400))
def test_any_bytes_give_a_matrix_of_known_ranks_or_none(data: bytes) -> None:
    matrix = decode_matrix(data, size_bytes=1, ranks=(0, 1), planned=2, is_sampled=False)
    for pair in matrix.pairs if matrix is not None else ():
        assert {pair.source, pair.target} <= {0, 1} and pair.best_us > 0


@pytest.mark.parametrize("entry", ["0 1 - 1 nan;", "0 1 - 1 -3;", "0 7 - 1 3;", "0 1 zz 1 3;", "0 1 - x 3;"])
def test_nonsense_entries_are_left_out(entry: str) -> None:
    assert decode_matrix(entry.encode(), size_bytes=1, ranks=(0, 1), planned=1, is_sampled=False) is None


@given(st.binary(max_size=200))
def test_a_message_of_a_peer_is_that_kind_or_nothing(data: bytes) -> None:
    assert decode(data, Hello) is None or isinstance(decode(data, Hello), Hello)


def test_a_message_that_is_too_long_is_not_read() -> None:
    data = encode(Hello(rank=0, host="a" * 20_000, local_rank=0))
    assert decode(data, Hello) is None
    assert decode(data, Hello, max_bytes=1 << 20) is not None


def test_hosts_of_one_name_are_told_apart_by_their_number_in_the_launch() -> None:
    layout = Layout(
        ranks=tuple(
            Hello(rank=rank, host=host, local_rank=0, node_rank=node)
            for rank, (host, node) in enumerate((("a", 0), ("a", 1), ("b", 2)))
        )
    )
    assert [place.host for place in places_of(layout)] == ["a/0", "a/1", "b"]


def test_under_torchrun_its_agent_serves_the_store() -> None:
    environ = {
        "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1234", "TORCHELASTIC_RUN_ID": "x",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip
    meeting = meeting_of(detect_identity(environ, "h"), environ)
    assert (meeting.address, meeting.port, meeting.serves) == ("h", 1234, False)


def test_without_it_rank_0_serves_the_store() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1234"}
    assert meeting_of(detect_identity(environ, "h"), environ).serves
    environ["RANK"] = "1"
    assert not meeting_of(detect_identity(environ, "h"), environ).serves


def test_slurm_tasks_meet_on_the_first_host_at_a_port_of_their_job() -> None:
    environ = {
        "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4",
        "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "node[07-08]", "SLURM_JOB_NODELIST": "node[07-08]",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    }  # fmt: skip
    meeting = meeting_of(detect_identity(environ, "node08"), environ)
    assert (meeting.address, meeting.port, meeting.serves) == ("node07", 23456, False)


def test_ranks_without_a_meeting_point_are_told_the_variables() -> None:
    environ = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    with pytest.raises(DistdoctorError) as caught:
        meeting_of(detect_identity(environ, "h"), environ)
    assert "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT" in (caught.value.hint or "")


def test_one_process_alone_meets_nobody() -> None:
    assert meeting_of(detect_identity({}, "h"), {}).port == 0


def test_nccls_log_is_asked_for_and_read_back() -> None:
    environ: dict[str, str] = {}
    log = OwnLog(environ)
    assert environ["NCCL_DEBUG"] == "INFO"
    with open(environ["NCCL_DEBUG_FILE"].replace("%p", "7"), "w") as stream:
        stream.write("h:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n")
    assert "2.28.9" in unpack_log(log.packed())
    log.remove()
    assert log.packed() == b""


def test_a_log_that_the_user_asked_for_is_left_alone() -> None:
    environ = {"NCCL_DEBUG": "WARN"}
    assert OwnLog(environ).packed() == b""
    assert environ == {"NCCL_DEBUG": "WARN"}


@given(st.binary(max_size=100))
def test_any_bytes_are_a_log_or_none(data: bytes) -> None:
    assert isinstance(unpack_log(data), str)
