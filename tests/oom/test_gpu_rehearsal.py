"""What scripts/gpu_check.sh runs of `oom` on a GPU, rehearsed on the CPU: the same functions, with a debug model."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch, which programs are written in, is absent")

from distdoctor.oom.job import resolve  # noqa: E402
from distdoctor.oom.memory.log import Phase  # noqa: E402
from distdoctor.oom.training.build import why_not  # noqa: E402
from oom.test_snapshot_checks import full  # noqa: E402

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
GIB = 1 << 30
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a file of benchmarks/ or scripts/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))

    def named(name: str) -> ModuleType:
        return importlib.import_module(name)

    return named


# --- simulated beside measured -------------------------------------------------------------------------------


def test_every_job_can_be_built_and_has_a_name_of_its_own(module: Any) -> None:
    rows = module("oom_gpu_rows")
    for found in (rows.gpu_rows(), rows.cpu_rows()):
        assert len({row.name for row in found}) == len(found) > 15
        for row in found:
            job = resolve(row.settings)
            assert why_not(job) is None, row.name
            assert row.group is rows.Group.FAKE or job.mesh.num_ranks == 1, row.name
        assert {row.expandable_segments for row in found} == {True, False}


def test_on_the_cpu_both_agree_and_the_table_says_that_no_gpu_was_checked(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "oom_gpu.py"), "--only", "8, fused, expandable"]
    end = subprocess.run(
        [*command, "--json", str(file)], env=ENVIRON, capture_output=True, text=True, timeout=180
    )
    assert end.returncode == 0, end.stdout + end.stderr
    assert "not checked on a GPU" in end.stdout
    (row,) = json.loads(file.read_text())
    measured = row["measured"]
    assert measured["allocated"] == pytest.approx(measured["simulated_native"], rel=0.001)
    assert measured["attention"] == ["ScaledDotProductFlashAttentionForCpu"]
    assert measured["reserved"] is None
    assert row["simulated"]["reserved_expandable"] >= row["simulated"]["allocated"] > 0


class Allocator:
    """Stands for CUDA's allocator, with peaks that grow from phase to phase."""

    def __init__(self) -> None:
        self.peak = GIB
        self.allocated = 100 * MIB

    def memory_stats(self, _device: object) -> dict[str, int]:
        self.peak += 10 * MIB
        return {
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.peak": self.peak + 64 * MIB,
            "requested_bytes.all.peak": self.peak - 512,
            "num_alloc_retries": 2,
        }

    def clear_workspaces(self) -> None:
        self.allocated -= 40 * MIB

    def take_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, stand_in in {
            "set_device": lambda _: None,
            "init": lambda: None,
            "synchronize": lambda _: None,
            "reset_peak_memory_stats": lambda _: None,
            "mem_get_info": lambda _: (130 * GIB, 139 * GIB),
            "memory_reserved": lambda _: 8 * GIB,
            "memory_allocated": lambda _: self.allocated,
            "memory_stats": self.memory_stats,
            "get_device_name": lambda _: "a stand-in",
        }.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        settings = {"allocator_settings": {"expandable_segments": True, "max_split_size": 0}}
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: settings)
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", self.clear_workspaces, raising=False)


def test_peaks_are_kept_phase_by_phase_and_workspaces_apart(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs on the CPU, the counters are a stand-in: this tests our own handling, and no GPU."""
    Allocator().take_place(monkeypatch)
    child, rows = module("oom_gpu_child"), module("oom_gpu_rows")
    (row,) = (row for row in rows.cpu_rows() if row.name == "tiny FSDP2 8, full, foreach")
    job = resolve(replace(row.settings, seq_len=16))
    found = child.on_gpu(job, rows.Group.FAKE, torch.device("cpu"))
    phases = [(each.step, each.phase) for each in found.phases]
    assert phases[:2] == [(0, Phase.INITIALISATION), (1, Phase.DATA)]
    assert phases[-1] == (2, Phase.OPTIMIZER_STEP)
    assert found.allocated == found.phases[-1].allocated == max(each.allocated for each in found.phases)
    assert found.reserved - found.allocated == 64 * MIB
    assert found.workspaces == 40 * MIB
    assert found.outside_before == found.outside_after == GIB
    assert found.num_retries == 2
    assert found.allocator_settings == "expandable_segments=True"


def test_the_table_of_a_gpu_shows_differences_phases_and_what_is_missing(module: Any) -> None:
    messages, table = module("oom_gpu_messages"), module("oom_gpu_table")
    backward = messages.PhaseBytes(step=1, phase=Phase.BACKWARD, allocated=1040 * MIB, reserved=1100 * MIB)
    measured = messages.Measured(
        device="a GPU",
        torch="2.13.0",
        allocated=1040 * MIB,
        reserved=1100 * MIB,
        requested=1039 * MIB,
        phases=(backward,),
        workspaces=40 * MIB,
        outside_before=GIB,
        outside_after=GIB,
        attention=("ScaledDotProductFlashAttention",),
        norm="FusedRmsNorm",
    )
    simulated = messages.Simulated(
        allocated=1000 * MIB,
        reserved_fixed=1100 * MIB,
        reserved_expandable=1010 * MIB,
        phases=((1, Phase.BACKWARD, 900 * MIB), (1, Phase.RECOMPUTATION, 1000 * MIB)),
    )
    one = table.Compared(
        name="one",
        expandable_segments=False,
        group="fake",
        is_alone=True,
        measured=measured,
        simulated=simulated,
    )
    lost = table.Compared(
        name="lost",
        expandable_segments=False,
        group="fake",
        is_alone=False,
        measured=messages.Measured(error="not begun: out of time"),
        simulated=simulated,
    )
    text = table.markdown([one, lost], device="cuda", driver_says="a GPU, 81559 MiB")
    assert "not checked on a GPU" not in text
    assert "| one | fake | 1.016 | 0.977 | +4.00% | +0.00% | 1.074 | 1.074 | +0.00% |" in text
    assert "| one | 1 | backward | 1.016 | 0.977 | +4.00% |" in text
    assert "| one | 40.0 | 1.0 | 1.000 | 1.000 |" in text
    assert "- one: allocated 1.016 GiB, simulated 0.977 (+4.0%)" in text
    assert "- lost: not begun: out of time" in text
    assert "one: reserved" not in text


def test_nothing_is_begun_once_time_is_out(module: Any) -> None:
    main, rows = module("oom_gpu"), module("oom_gpu_rows")
    found = main.compare(rows.cpu_rows()[:2], "cpu", until=0.0)
    assert [each.measured.error for each in found] == ["not begun: out of time"] * 2
    assert not any(each.is_complete for each in found)


@pytest.mark.parametrize(
    ("told", "expected"),
    [("NVIDIA H200, 143771 MiB, 600 MiB", 4), ("NVIDIA A100, 81920 MiB", 2), ("A10, 23028 MiB", 1), ("", 1)],
)
def test_as_many_rows_at_once_as_the_gpu_has_room_for(module: Any, told: str, expected: int) -> None:
    assert module("oom_gpu").at_once(told) == expected


def test_settings_of_the_allocator_are_those_of_the_row_alone(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    main, row = module("oom_gpu"), module("oom_gpu_rows").cpu_rows()[0]
    assert "PYTORCH_CUDA_ALLOC_CONF" not in main.environ(row)
    with_them = main.environ(replace(row, expandable_segments=True))
    assert with_them["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"


def test_attention_that_writes_scores_is_not_taken_for_a_fused_kernel(module: Any) -> None:
    child = module("oom_gpu_child")
    q = torch.ones(1, 2, 8, 4, requires_grad=True)
    assert child.attention_kernel((q @ q.transpose(-1, -2)).softmax(-1) @ q).startswith("math: ")
    assert child.attention_kernel(torch.ones(2)) == "no gradient"
    fused = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert child.attention_kernel(fused.transpose(1, 2)).startswith("ScaledDotProduct")


# --- out of memory, below a limit ----------------------------------------------------------------------------


def test_a_rank_that_runs_out_is_read_back_as_it_was_counted(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = module("check_oom_limit")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    case = next(each for each in script.ON_CPU if each.phase == "optimizer step")
    assert script.check(case, tmp_path / "case") == []


def test_a_limit_that_is_too_high_is_said(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = module("check_oom_limit")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    case = script.Case(phase="forward", limit="2GiB", words=("--model", "tiny", "--seq-len", "16"))
    (complaint,) = script.check(case, tmp_path / "case")
    assert "not with 11" in complaint


def test_a_snapshot_is_read_by_oom_explain(module: Any, tmp_path: Path) -> None:
    """A snapshot as the allocator of CUDA writes one, made by a stand-in."""
    script = module("check_oom_limit")
    file, report = tmp_path / "oom-rank0-0-single.pickle", tmp_path / "explain.json"
    file.write_bytes(full().pickled())
    command = [sys.executable, "-m", "distdoctor", "oom", "explain", str(file), "-o", str(report)]
    subprocess.run(command, env=ENVIRON, capture_output=True, timeout=60)
    told = script.explained(json.loads(report.read_text()))
    assert told.phase == "activations"
    assert max(told.by_category, key=lambda name: told.by_category[name]) == "activations"
    counted = script.Told(phase="forward", by_category={"activations": 5.1, "optimizer states": 2.5})
    assert script.differences(counted, told, script.SAID_OF_CATEGORY.get, script.SAID_OF_PHASE.get) == []


def test_a_reading_that_differs_from_what_was_counted_is_said(module: Any) -> None:
    script = module("check_oom_limit")
    counted = script.Told(phase="backward", by_category={"activations": 30.0, "parameters": 5.0})
    wrong = script.Told(phase="optimizer step", by_category={"parameters": 30.0, "activations": 5.0})
    found = script.differences(counted, wrong, script.SAID_OF_CATEGORY.get, script.SAID_OF_PHASE.get)
    assert len(found) == 2
    assert "the reading says 'optimizer step'" in found[0]
    assert "activations held 86%; the reading finds 14%" in found[1]
    nothing = script.differences(
        counted, script.Told(), script.SAID_OF_CATEGORY.get, script.SAID_OF_PHASE.get
    )
    assert nothing == ["memory ended in 'backward'; the reading says 'nothing'", "no categories"]


def test_a_report_without_the_finding_tells_nothing(module: Any) -> None:
    script = module("check_oom_limit")
    assert script.reproduced({"findings": [{"id": "other", "evidence": []}]}) == script.Told()
    assert script.explained({"findings": [], "tables": []}) == script.Told()


# --- the script ----------------------------------------------------------------------------------------------


def test_stages_without_time_left_are_left_out_and_said(tmp_path: Path) -> None:
    environ = {**ENVIRON, "PYTHON": sys.executable, "STAGES": "^checkup$", "TOTAL_S": "5"}
    script = ["bash", str(ROOT / "scripts" / "gpu_check.sh"), str(tmp_path / "out")]
    end = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=120)
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert "checkup                left out: 5 s were used up" in summary, end.stderr
    assert "not checked on a GPU" in summary
    assert "oom_measure" not in summary
