"""What a file is, and which room reads it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.explain import (
    READERS,
    EvidenceReader,
    best_reader,
    explain,
    known_kinds,
    load_handler,
    sort_evidence,
)
from distdoctor.report.model import Report, Status, Tool, Verdict

KNOWN = {
    "report": b'{"tool":{"name":"distdoctor","version":"0.1.0","command":"env"},"verdict":{}}',
    "env": b"Collecting environment information...\nPyTorch version: 2.9.0\n",
}


def write(folder: Path, files: dict[str, bytes]) -> list[str]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [str(folder / name) for name in files]


def make_report(reader: EvidenceReader, files: Sequence[str]) -> Report:
    return Report(
        tool=Tool(name="distdoctor", version="0", command=reader.name),
        verdict=Verdict(status=Status.OK, title=f"{len(files)} files", summary=""),
    )


@pytest.mark.parametrize("name", KNOWN)
def test_each_reader_knows_its_own(name: str) -> None:
    reader = best_reader("x", KNOWN[name])
    assert reader is not None and reader.name == name


@pytest.mark.parametrize(
    "text",
    [
        b"| NVIDIA-SMI 570.1    Driver Version: 570.1 |", b"GPU 0: NVIDIA L4 (UUID: GPU-1)\n\t Link 0: 25 GB/s",
        b"\tGPU0\tGPU1\nGPU0\t X \tNV4", b"    Clocks Event Reasons\n        Idle : Active",
        b"Failed to initialize NVML: Unknown Error", b"CA 'mlx5_0'\n", b"Infiniband device 'mlx5_0' port 1 status:",
        b"NVRM: Xid (PCI:0000:01:00): 79, x", b"[    1.000000] usb", b"2: eth0: <UP> mtu 1500", b"NCCL_DEBUG=INFO\n",
        b"```\n> NCCL_DEBUG=INFO\n```", "| NVIDIA-SMI 570.1 ".encode("utf-16"),
    ],
)  # fmt: skip
def test_texts_of_hosts_go_to_env(text: bytes) -> None:
    reader = best_reader("x", text)
    assert reader is not None and reader.name == "env"


def test_files_are_sorted_and_unknown_ones_told_with_their_first_line(tmp_path: Path) -> None:
    paths = write(tmp_path, {"a.json": KNOWN["report"], "b.txt": KNOWN["env"], "c.txt": b"\x00\x01\nDear team,\n",
                             "d.bin": bytes(50)})  # fmt: skip
    found = sort_evidence(paths)
    assert [(reader.name, len(files)) for reader, files in found.by_reader] == [("report", 1), ("env", 1)]
    assert [file.why for file in found.unknown] == [
        f"`{paths[2]}` is of no kind that is known; it begins `Dear team,`",
        f"`{paths[3]}` is of no kind that is known, and has no readable line (.bin)",
    ]


def test_one_report_a_room(tmp_path: Path) -> None:
    paths = write(
        tmp_path, {"a.txt": KNOWN["env"], "b.txt": KNOWN["env"], "c.json": KNOWN["report"], "d": b"what\n"}
    )
    reports, unknown = explain(paths, make_report)
    assert [(report.tool.command, report.verdict.title) for report in reports] == [
        ("report", "1 files"), ("env", "2 files"),
    ]  # fmt: skip
    assert [Path(file.path).name for file in unknown] == ["d"]


def test_nothing_known_is_an_error_that_says_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it begins `what`") as caught:
        explain(write(tmp_path, {"a": b"what\n", "b": b"where\n"}), make_report)
    assert caught.value.hint == f"known kinds: {known_kinds()}"


def test_handlers_name_functions_that_are_there() -> None:
    for reader in READERS:
        assert callable(load_handler(reader)), reader.name


def test_rooms_are_named_and_not_imported() -> None:
    source = Path(str(importlib.import_module("distdoctor.explain").__file__)).read_text()
    assert "from distdoctor.env" not in source and "import distdoctor.env" not in source


def test_an_error_at_the_end_of_a_long_log_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    step = "step: 100 loss: 2.31 grad_norm: 0.9\n" * 40_000
    log.write_text(
        step
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.20 GiB is free.\n"
    )
    assert log.stat().st_size > 1 << 20
    found = sort_evidence([str(log)])
    assert [reader.name for reader, _ in found.by_reader] == ["oom"]
    assert found.unknown == ()
