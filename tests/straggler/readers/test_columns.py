"""What names of columns mean."""

from __future__ import annotations

import pytest

from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.columns import Role, column_of, rank_in_path


@pytest.mark.parametrize(
    ("name", "section", "unit"),
    [
        ("step_ms", Section.STEP, "ms"),
        ("Step Time (ms)", Section.STEP, "ms"),
        ("iter_time_s", Section.STEP, "s"),
        ("ms_per_step", Section.STEP, "ms"),
        ("elapsed_sec", Section.STEP, "s"),
        ("data_time", Section.DATA, None),
        ("t_data_ms", Section.DATA, "ms"),
        ("dataloader_us", Section.DATA, "us"),
        # Waiting for the data loader is no waiting for other ranks.
        ("data_wait_ms", Section.DATA, "ms"),
        ("input_wait_ms", Section.DATA, "ms"),
        ("train/fwd_ms", Section.FORWARD, "ms"),
        ("timings_ms.fwd", Section.FORWARD, "ms"),
        ("forwardMs", Section.FORWARD, "ms"),
        ("fwd_wall_ms", Section.FORWARD_WALL, "ms"),
        ("bwd [us]", Section.BACKWARD, "us"),
        ("bwd_local_ns", Section.BACKWARD, "ns"),
        ("bwd_own_msec", Section.BACKWARD, "ms"),
        ("bwd_wall_seconds", Section.BACKWARD_WALL, "s"),
        ("bwd_wait_ms", Section.WAIT, "ms"),
        ("comm_wait_ms", Section.WAIT, "ms"),
        ("sync_ms", Section.WAIT, "ms"),
        ("all_reduce_ms", Section.COMM, "ms"),
        ("nccl_time_us", Section.COMM, "us"),
        ("xfer_ms", Section.TRANSFER, "ms"),
        ("optim_ms", Section.OPTIMIZER, "ms"),
        ("gpu_time_ms", Section.COMPUTE, "ms"),
        ("fwd_bwd_ms", Section.COMPUTE, "ms"),
        ("h2d_us", Section.H2D, "us"),
        ("gc_ms", Section.GC, "ms"),
        ("ckpt_save_s", Section.CHECKPOINT, "s"),
        ("idle_ms", Section.IDLE, "ms"),
        ("log_ms", Section.OTHER, "ms"),
    ],
)
def test_a_name_of_a_time_is_known_with_its_unit(name: str, section: Section, unit: str | None) -> None:
    column = column_of(name)
    assert column is not None
    assert (column.role, column.section, column.unit) == (Role.TIME, section, unit)


@pytest.mark.parametrize("name", ["fwd_ms", "backward_ms", "bwd_ms", "compute_ms", "forward_compute_ms"])
def test_a_name_that_does_not_say_whether_waiting_is_inside_is_taken_as_such(name: str) -> None:
    column = column_of(name)
    assert column is not None
    assert column.said is Said.LOOSELY


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("rank", Role.RANK),
        ("globalRank", Role.RANK),
        ("hostname", Role.HOST),
        ("node", Role.HOST),
        ("local_rank", Role.LOCAL_RANK),
        ("gpu", Role.GPU),
        ("gpu_uuid", Role.GPU_UUID),
        ("world_size", Role.WORLD_SIZE),
        ("restart_count", Role.ATTEMPT),
        ("dp_rank", Role.COORD),
        ("stage", Role.COORD),
        ("tensor_model_parallel_rank", Role.COORD),
        ("timestamp", Role.CLOCK),
        ("time_ms", Role.CLOCK),
        ("global_step", Role.STEP_NUMBER),
        ("iteration", Role.STEP_NUMBER),
    ],
)
def test_a_name_of_something_else_is_known(name: str, role: Role) -> None:
    column = column_of(name)
    assert column is not None
    assert column.role is role


@pytest.mark.parametrize(
    "name", ["loss", "lr", "fwd_std_ms", "tokens_per_s", "step_min_ms", "dp_size", "", "x" * 999]
)
def test_a_name_that_means_nothing_here_is_not_guessed(name: str) -> None:
    assert column_of(name) is None


def test_columns_of_single_ranks_are_known() -> None:
    column, part = column_of("rank12_fwd_us"), column_of("r3_ms")
    assert column is not None and part is not None
    assert (column.rank, column.section, column.unit) == (12, Section.FORWARD, "us")
    assert (part.rank, part.section, part.unit) == (3, Section.STEP, "ms")


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("logs/rank3.jsonl", 3),
        ("logs/rank-3.csv", 3),
        ("rank_00003.log", 3),
        ("training.global_rank_12.20261130-1.jsonl", 12),
        ("run/rank_7/steps.csv", 7),
        ("run/local_rank3.csv", None),
        ("run/node_rank_1.csv", None),
        ("frank3.csv", None),
        ("steps.csv", None),
        ("rank99999999999.csv", None),
    ],
)
def test_the_rank_is_read_from_the_name_of_the_file(path: str, rank: int | None) -> None:
    assert rank_in_path(path) == rank
