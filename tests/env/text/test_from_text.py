"""Files of several kinds and several hosts, put together; hostile and torn ones, survived."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import run_checks
from distdoctor.env.from_text import facts_from_files, facts_from_text, members_of
from distdoctor.env.job import check_job
from distdoctor.env.readers.hosts import looks_like_host, split_hosts
from distdoctor.errors import InputError
from distdoctor.report.model import Severity

HERE = Path(__file__).parent
SAMPLES = sorted(HERE.glob("*.txt"))
XID = "NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=python3, GPU has fallen off the bus."


def table(driver: str = "570.10", pci: str = "00000000:18:00.0", time: str = "") -> str:
    return (
        f"{time}+-----+\n| NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: 12.8 |\n|=====|\n"
        f"|   0  NVIDIA H200          On  |   {pci} Off |                    0 |\n"
        "| N/A   30C    P0             90W / 700W |      10MiB / 143771MiB |      0%      Default |\n+-----+\n"
    )


def dump(driver: str = "570.10") -> str:
    return (
        "Collecting environment information...\nPyTorch version: 2.9.0+cu128\nCUDA used to build PyTorch: 12.8\n"
        f"ROCM used to build PyTorch: N/A\nGPU models and configuration: GPU 0: NVIDIA H200\n"
        f"Nvidia driver version: {driver}\n[pip3] torch==2.9.0\n"
    )


def test_kinds_pasted_one_after_another_are_one_host() -> None:
    text = f"{dump()}\n$ nvidia-smi\n{table()}\n$ dmesg | tail\n[99.000001] {XID}\nexport NCCL_DEBUG=INFO\n"
    (facts,) = facts_from_text(text, "ticket.txt")
    assert facts.torch is not None and facts.gpus is not None and facts.kernel_log is not None
    assert facts.variables is not None and facts.variables.value("NCCL_DEBUG") == "INFO"
    (gpu,) = facts.gpus.devices or ()
    assert (gpu.name, gpu.pci) == ("NVIDIA H200", "00000000:18:00.0")


@pytest.mark.parametrize(
    "headings",
    [
        ("## gpu-a", "## gpu-b"), ("=== gpu-a ===", "=== gpu-b ==="), ("==> logs/gpu-a.txt <==", "==> logs/gpu-b.txt <=="),
        ("----------------\ngpu-a\n----------------", "----------------\ngpu-b\n----------------"),
        ("root@gpu-a:~# collect", "root@gpu-b:~# collect"), ("[gpu-a]", "[gpu-b]"), ("**gpu-a**", "**gpu-b**"),
        ("Host: gpu-a", "Host: gpu-b"), ("hostname: gpu-a", "hostname: gpu-b"),
    ],
)  # fmt: skip
def test_headings_and_prompts_name_hosts(headings: tuple[str, str]) -> None:
    text = f"{headings[0]}\n{dump()}\n{headings[1]}\n{dump('560.1')}"
    facts = facts_from_text(text, "x")
    assert [each.host_name for each in facts] == ["gpu-a", "gpu-b"]


def test_numbered_nodes_are_named_so() -> None:
    facts = facts_from_text(f"Node 1 (10.0.0.1):\n{dump()}\nNode 2 (10.0.0.2):\n{dump()}", "x")
    assert [each.host_name for each in facts] == ["node 1", "node 2"]


@pytest.mark.parametrize(
    "text", ["nvidia-smi", "Environment", "Versions", "CUDA-12", "H100-SXM", "2.9.0", "step-3"]
)
def test_headings_of_sections_are_no_hosts(text: str) -> None:
    assert not looks_like_host(text)
    (facts,) = facts_from_text(f"## {text}\n{dump()}", "x")
    assert facts.host_name is None


def test_lines_with_pdsh_prefixes_are_sorted_by_host() -> None:
    text = "\n".join(
        f"{host}: {line}" for line in table().split("\n") for host in ("gpu-01", "gpu-02") if line
    )
    facts = facts_from_text(text, "x")
    assert [each.host_name for each in facts] == ["gpu-01", "gpu-02"]
    assert all(each.gpus is not None and len(each.gpus.devices or ()) == 1 for each in facts)


def test_tables_of_twin_hosts_without_names_are_not_merged() -> None:
    facts = facts_from_text(table() + "\nand the other one\n" + table(), "x")
    assert len(facts) == 2


def test_a_watch_loop_is_one_host() -> None:
    loop = "".join(table(time=f"Tue Mar  4 10:00:0{second} 2025\n") for second in range(3))
    assert len(facts_from_text(loop, "x")) == 1


def test_a_central_syslog_is_sorted_by_host() -> None:
    text = f"Mar  5 11:22:33 n-1 kernel: {XID}\nMar  5 11:22:34 n-2 kernel: usb 1-1: nothing\n"
    facts = facts_from_text(text, "x")
    assert [(each.host_name, len(each.kernel_log.events or ())) for each in facts if each.kernel_log] == [
        ("n-1", 1), ("n-2", 0),
    ]  # fmt: skip


def write(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [str(folder / name) for name in files]


def test_files_that_complement_each_other_are_one_host(tmp_path: Path) -> None:
    paths = write(tmp_path, {"env.txt": dump(), "smi.txt": table(), "dmesg.txt": f"[9.000001] {XID}\n"})
    facts, inputs = facts_from_files(paths)
    assert len(facts) == 1
    assert [(file.kind, file.read) for file in inputs] == [
        ("collect_env", True), ("nvidia-smi", True), ("kernel log", True),
    ]  # fmt: skip


def test_files_that_contradict_each_other_are_two_hosts(tmp_path: Path) -> None:
    facts, _ = facts_from_files(write(tmp_path, {"env.txt": dump("560.1"), "smi.txt": table("570.10")}))
    assert len(facts) == 2
    facts, _ = facts_from_files(write(tmp_path, {"a.txt": table(), "b.txt": table()}))
    assert len(facts) == 2


def test_files_and_folders_named_alike_name_their_hosts(tmp_path: Path) -> None:
    facts, _ = facts_from_files(write(tmp_path, {"gpu01.txt": table(), "gpu02.txt": table()}))
    assert [each.host_name for each in facts] == ["gpu01", "gpu02"]
    folder = tmp_path / "by-host"
    write(folder, {"node-a/smi.txt": table(), "node-a/env.txt": dump(), "node-b/smi.txt": table()})
    facts, _ = facts_from_files([str(folder)])
    assert sorted(str(each.host_name) for each in facts) == ["node-a", "node-b"]


def test_files_that_nobody_knows_are_named_and_leave_the_others_alone(tmp_path: Path) -> None:
    paths = write(tmp_path, {"smi.txt": table(), "poem.txt": "Roses are red\n", "empty.txt": ""})
    (tmp_path / "core").write_bytes(b"\x7fELF" + bytes(100))
    facts, inputs = facts_from_files([*paths, str(tmp_path / "core"), str(tmp_path / "missing.txt")])
    assert len(facts) == 1
    assert [file.read for file in inputs] == [True, False, False, False, False]
    assert [file.why_not for file in inputs[1:]] == [
        "of no kind that is known here; it begins `Roses are red`",
        f"`{paths[2]}` is empty",
        f"`{tmp_path / 'core'}` is an ELF binary or core file, not text",
        f"`{tmp_path / 'missing.txt'}` is not there",
    ]


def test_no_readable_file_at_all_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Roses") as caught:
        facts_from_files(write(tmp_path, {"poem.txt": "Roses are red\n"}))
    assert caught.value.hint is not None and "collect_env" in caught.value.hint


def test_dumps_of_two_hosts_are_compared() -> None:
    facts = facts_from_text(f"## gpu-a\n{dump()}\n## gpu-b\n{dump('560.1')}", "x")
    outcome = check_job(members_of(facts), ENV_CHECKS)
    assert any(finding.id == "job-versions-differ" for finding in outcome.findings)


HOSTILE = {
    "escapes": "\x1b]0;title\x07\x1b[31mGPU 0: \x1b[0m<script>alert(1)</script> (UUID: GPU-1)\n" + table(),
    "nul": "\x00".join(dump()),
    "bidi": "PyTorch version: \u202e2.9\u2066\nGPU models and configuration: \u200bGPU 0: <b>x</b>\n",
    "one long line": "PyTorch version: " + "9" * 10_000_000,
    "many columns": "| " * 100_000,
    "numbers": "GPU 99999999999999999999: x (UUID: GPU-1)\nLink 99: 1 GB/s\n0,1,9999999999999999999999,-;x\n",
    "json": '{"MESSAGE": [' + "1," * 50_000 + "1]}\n" + '{"MESSAGE":' * 5000,
    "deep allocator": "Caching allocator config: {" + "[" * 900 + "]" * 900 + "}\n",
    "cpus": "PyTorch version: 2.0\nCPU:\nNUMA node0 CPU(s): 0-99999999999,5-1,x\n",
    "stamps": "2024-99-99T99:99:99+9999 h kernel: x\n99999999999.1 h kernel: y\n9,9," + "9" * 400 + ",-;z\n",
    "csv": "index, name\n" + "9" * 5000 + ", x\n[N/A]\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_survived(name: str) -> None:
    for facts in facts_from_text(HOSTILE[name], "x"):
        run_checks(ENV_CHECKS, facts)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_text_torn_anywhere_is_survived(sample: Path) -> None:
    text = sample.read_text()
    for end in range(0, len(text), max(1, len(text) // 150)):
        for facts in facts_from_text(text[:end], "x") + facts_from_text(text[end:], "x"):
            run_checks(ENV_CHECKS, facts)


def test_a_small_dump_torn_at_every_offset_gives_no_alarm() -> None:
    text = dump() + table()
    for end in range(len(text)):
        for facts in facts_from_text(text[:end], "x"):
            findings, _, _ = run_checks(ENV_CHECKS, facts)
            loud = [each for each in findings if each.severity is not Severity.INFO]
            assert not loud, (text[max(0, end - 60) : end], loud)


LINES = [line for sample in SAMPLES for line in sample.read_text().split("\n") if line.strip()]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=60)), max_size=40))
def test_lines_in_any_order_are_survived(lines: list[str]) -> None:
    for facts in facts_from_text("\n".join(lines), "x"):
        run_checks(ENV_CHECKS, facts)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_survived(data: bytes) -> None:
    facts_from_text(data.decode("utf-8", "replace"), "x")
    split_hosts(data.decode("latin-1"))
