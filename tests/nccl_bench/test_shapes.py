"""Sizes are rounded as nccl-tests rounds them, and memory is predicted before it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.errors import UsageError
from distdoctor.nccl_bench.definitions import BARRIER, BY_NAME, NAMES
from distdoctor.nccl_bench.dtypes import DTYPES, OPS, dtype_named, op_named
from distdoctor.nccl_bench.memory import predicted_bytes
from distdoctor.nccl_bench.shapes import (
    actual_size_bytes,
    most_units,
    natural_places,
    part_elements,
    uneven_units,
)
from distdoctor.ranks.host_memory import host_available_bytes


@pytest.mark.parametrize(
    ("collective", "asked", "num_ranks", "element_bytes", "actual"),
    [
        # First rows of nccl-tests' tables: all_gather from 8 bytes on 8 ranks begins with sizes of 0.
        ("all_gather", 8, 8, 4, 0),
        ("all_gather", 64, 8, 4, 0),
        ("all_gather", 128, 8, 4, 128),
        ("reduce_scatter", 256, 8, 4, 256),
        ("reduce_scatter", 1000, 3, 4, 960),
        ("all_to_all", 1 << 20, 3, 4, 1048560),
        ("gather", 100, 2, 2, 96),
        ("scatter", 100, 2, 1, 96),
        ("all_gather", 100, 2, 8, 96),
        ("all_reduce", 1001, 8, 4, 1000),
        ("all_reduce", 3, 8, 4, 0),
        ("sendrecv", 1002, 8, 4, 1000),
        ("broadcast", 1 << 30, 7, 2, 1 << 30),
        (BARRIER, 1024, 8, 4, 0),
    ],
)
def test_sizes_are_rounded_as_nccl_tests_does(
    collective: str, asked: int, num_ranks: int, element_bytes: int, actual: int
) -> None:
    assert actual_size_bytes(collective, asked, num_ranks, element_bytes) == actual


@given(
    st.sampled_from(NAMES),
    st.integers(0, 1 << 34),
    st.integers(1, 20_000),
    st.sampled_from([each.bytes for each in DTYPES]),
)
def test_no_more_is_measured_than_was_asked_for_and_parts_are_aligned(
    collective: str, asked: int, num_ranks: int, element_bytes: int
) -> None:
    actual = actual_size_bytes(collective, asked, num_ranks, element_bytes)
    assert 0 <= actual <= asked
    if BY_NAME[collective].is_split:
        assert part_elements(collective, asked, num_ranks, element_bytes) * element_bytes % 16 == 0
    for in_place in natural_places(collective):
        assert predicted_bytes(collective, asked, num_ranks, in_place) >= actual


@given(st.integers(1, 300))
def test_uneven_splits_send_as_much_as_they_receive_and_nobody_nothing(num_ranks: int) -> None:
    units = [uneven_units(position, num_ranks) for position in range(num_ranks)]
    for position in range(num_ranks):
        assert sum(units[position]) == sum(row[position] for row in units)
        assert [row[position] for row in units] == list(units[position])
    assert min(map(min, units)) > 0
    assert most_units(num_ranks) == max(map(sum, units))
    if num_ranks > 1:
        assert len(set(units[0])) > 1


@pytest.mark.parametrize(
    ("collective", "in_place", "needed"),
    [
        ("all_reduce", True, 1000),
        ("all_gather", False, 1250),
        ("all_gather", True, 1000),
        ("reduce_scatter", False, 1250),
        ("gather", False, 1250),
        ("all_to_all", False, 2000),
        ("sendrecv", False, 2000),
        (BARRIER, True, 0),
    ],
)
def test_memory_is_that_of_the_rank_that_needs_most(collective: str, in_place: bool, needed: int) -> None:
    assert predicted_bytes(collective, 1000, 4, in_place) == needed


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       32000000 kB\nMemAvailable:   16000000 kB\n"


def test_the_kernels_estimate_is_what_a_bare_host_has(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n"})
    assert host_available_bytes(root) == 16_000_000 * 1024


def test_a_container_has_what_its_cgroup_leaves(tmp_path: Path) -> None:
    pod = "sys/fs/cgroup/kubepods/pod1"
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/kubepods/pod1\n",
            f"{pod}/memory.max": "1000000\n",
            f"{pod}/memory.current": "700000\n",
            f"{pod}/memory.stat": "anon 500000\ninactive_file 100000\n",
            "sys/fs/cgroup/kubepods/memory.max": "max\n",
            "sys/fs/cgroup/kubepods/memory.current": "900000\n",
        },
    )
    assert host_available_bytes(root) == 400_000
    (root / "sys/fs/cgroup/kubepods/memory.max").write_text("950000\n")
    assert host_available_bytes(root) == 50_000


def test_version_1_of_cgroups_is_read_too(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/slurm/job_7"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "9:cpuset:/slurm\n4:memory:/slurm/job_7\n0::/init.scope\n",
            f"{folder}/memory.limit_in_bytes": "5000\n",
            f"{folder}/memory.usage_in_bytes": "6000\n",
        },
    )
    assert host_available_bytes(root) == 0


def test_nothing_readable_is_unknown(tmp_path: Path) -> None:
    assert host_available_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fp32", "float32"),
        ("FLOAT", "float32"),
        ("half", "float16"),
        ("bf16", "bfloat16"),
        ("torch.bfloat16", "bfloat16"),
        ("fp8", "float8_e4m3fn"),
        ("e5m2", "float8_e5m2"),
        ("long", "int64"),
        ("byte", "uint8"),
        ("bool", "bool"),
    ],
)
def test_types_are_known_by_the_names_people_use(text: str, name: str) -> None:
    assert dtype_named(text).name == name


def test_reductions_are_known_by_the_names_people_use() -> None:
    assert [op_named(op.upper()) for op in OPS] == list(OPS)
    assert (op_named("prod"), op_named("mean")) == ("product", "avg")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="`float31` is not known") as error:
        dtype_named("float31")
    assert error.value.hint == "did you mean float32?"
    with pytest.raises(UsageError) as error:
        op_named("summ")
    assert error.value.hint == "did you mean sum?"
    with pytest.raises(UsageError) as error:
        dtype_named("zzzz")
    assert error.value.hint is not None
    assert "bfloat16" in error.value.hint
