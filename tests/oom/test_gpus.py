from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import find_gpu_type, gpu_names, gpu_type, parse_cluster
from distdoctor.units import GIB, MIB


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("h100", "h100-80gb"),
        ("H100-80GB", "h100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("a100-80", "a100-80gb"),
        ("A100_40G", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GB200", "gb200"),
        ("Tesla T4", "t4"),
    ],
)
def test_a_gpu_is_found_by_the_names_of_people_and_of_drivers(word: str, name: str) -> None:
    assert gpu_type(word).name == name


@pytest.mark.parametrize(("word", "choices"), [("a100", ("40", "80")), ("V100", ("16", "32"))])
def test_a_name_of_two_memories_is_refused_with_both(word: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as raised:
        gpu_type(word)
    assert all(f"{word.lower()}-{each}gb" in raised.value.message for each in choices)
    assert find_gpu_type(word) is None


@pytest.mark.parametrize("name", gpu_names())
def test_capacity_is_a_little_less_than_nvidia_smi_shows(name: str) -> None:
    found = gpu_type(name)
    assert found.total_bytes <= found.largest_bytes <= 1.03 * found.total_bytes
    assert found.source
    if found.smi_bytes is not None:
        # 10 MiB: capacities are written with two decimals of a GiB.
        assert 0.93 * found.smi_bytes < found.total_bytes <= found.largest_bytes <= found.smi_bytes + 10 * MIB


@pytest.mark.parametrize(
    ("text", "num_gpus", "per_node", "name"),
    [
        ("16xh100-80gb", 16, None, "h100-80gb"),
        ("2x8xh100", 16, 8, "h100-80gb"),
        ("h100-80gb", None, None, "h100-80gb"),
        ("8 × H200", 8, None, "h200"),
        ("8*l40s", 8, None, "l40s"),
        ("H100:8", 8, None, "h100-80gb"),
        ("h100x8", 8, None, "h100-80gb"),
        ("8xmi250x", 8, None, "mi250x"),
        ("2xrtx-4090", 2, None, "rtx-4090"),
        ("16x80GiB", 16, None, "80GiB"),
        ("4x8x24gb", 32, 8, "24gb"),
    ],
)
def test_a_cluster_is_read_as_people_write_it(
    text: str, num_gpus: int | None, per_node: int | None, name: str
) -> None:
    cluster = parse_cluster(text)
    assert (cluster.num_gpus, cluster.gpus_per_node, cluster.type.name) == (num_gpus, per_node, name)


def test_a_plain_size_is_what_it_says() -> None:
    assert parse_cluster("16x80GiB").type.total_bytes == 80 * GIB
    assert parse_cluster("16x80GB").type.total_bytes == 80 * 10**9
    assert gpu_type("81559MiB").total_bytes == 81559 * MIB


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0xh100", "0 is no number"),
        ("-1xh100", "-1 is no number"),
        ("1.5xh100", "1.5 is no number"),
        ("9999999xh100", "more than any job"),
        ("3x2x8xh100", "3 numbers"),
        ("16x", "names no GPU type"),
        ("", "names no GPU type"),
        ("16x80", "no unit"),
        ("8x0GiB", "no memory of a GPU"),
        ("99999999GiB", "no memory of a GPU"),
        ("8xa100", "different memories"),
        ("h1000", "no GPU type"),
        ("x" * 10_000, "too long"),
    ],
)
def test_a_slip_is_told_with_an_example(text: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_cluster(text)
    assert says in raised.value.message
    assert raised.value.hint


def test_an_unknown_name_brings_near_ones() -> None:
    with pytest.raises(UsageError) as raised:
        gpu_type("rtx4099")
    assert "rtx-4090" in (raised.value.hint or "")


@settings(deadline=None)
@given(st.text(max_size=120))
def test_any_text_gives_a_cluster_or_a_usage_error(text: str) -> None:
    try:
        cluster = parse_cluster(text)
    except UsageError as problem:
        assert problem.hint
        return
    assert cluster.type.total_bytes > 0
    assert cluster.num_gpus is None or 0 < cluster.num_gpus <= 1_000_000


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 16), st.sampled_from(gpu_names()))
def test_nodes_times_gpus_is_the_number_of_gpus(nodes: int, per_node: int, name: str) -> None:
    cluster = parse_cluster(f"{nodes}x{per_node}x{name}")
    assert (cluster.num_gpus, cluster.gpus_per_node, cluster.type.name) == (nodes * per_node, per_node, name)
