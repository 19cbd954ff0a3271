"""The finding about a failed import: which cause is named, who should act, and what is left open."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.torch_import import check_torch_import
from distdoctor.env.collect.torch_probe import start_torch_probe
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuFacts
from distdoctor.env.facts.nccl import NcclFacts, NcclLibrary
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.torch import ProbeState, PythonFacts, TorchFacts, TorchProbe
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Confidence, Severity, SkipCause, Team
from fake_torch import write_torch

PYTHON = PythonFacts(
    executable="/venv/bin/python",
    chosen_by="--python",
    distributions={"torch": "2.9.1", "nvidia-nccl-cu12": "2.27.5"},
)
TORCH = TorchFacts(
    found=True,
    path="/venv/lib/python3.12/site-packages/torch",
    version="2.9.1+cu128",
    cuda_build="12.8",
    is_cpu_build=False,
    is_local=False,
    has_native_code=True,
    required_nvidia={"nvidia-nccl-cu12": "2.27.5", "nvidia-cuda-runtime-cu12": "12.8.90"},
)


def facts(text: str, error_type: str = "ImportError", **sections: object) -> EnvFacts:
    probe = TorchProbe(state=ProbeState.RAISED, last_step="start", error_type=error_type, error_text=text)
    return EnvFacts(
        **{"host_name": "host-a", "python": PYTHON, "torch": TORCH, "torch_probe": probe, **sections}
    )  # type: ignore[arg-type]


def found(environment: EnvFacts) -> Found:
    outcome = check_torch_import(environment)[0]
    assert isinstance(outcome, Found)
    assert len(outcome.title) <= 80
    return outcome


def commands(outcome: Found) -> str:
    return "\n".join(action.command or "" for action in outcome.actions)


# Message of the exception → words of the title.
CAUSES = [
    (
        "libcudart.so.12: cannot open shared object file: No such file or directory",
        "libcudart.so.12 is missing",
    ),
    ("libcuda.so.1: cannot open shared object file: No such file or directory", "libcuda.so.1 is missing"),
    (
        "libfoobar.so.3: cannot open shared object file: No such file or directory",
        "libfoobar.so.3 is missing",
    ),
    ("/v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommShrink", "older NCCL"),
    (
        "/v/nvidia/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        "nvJitLink",
    ),
    ("/v/torch/lib/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", "MKL"),
    ("/v/torch/lib/libtorch_cuda.so: undefined symbol: cudnnGetLibConfig", "cuDNN"),
    ("/v/torch/lib/libtorch_cuda.so: undefined symbol: cudaGetDriverEntryPointByVersion", "CUDA runtime"),
    ("/v/torch/lib/libtorch_cuda.so: undefined symbol: cublasLtGetVersion", "CUDA library"),
    ("/v/torch/lib/libc10_cuda.so: undefined symbol: cuMemCreate", "driver's library"),
    ("/v/torch/lib/libtorch_python.so: undefined symbol: _PyCode_GetExtra", "another Python version"),
    ("/v/torch/lib/libtorch_cuda.so: undefined symbol: _ZN3c104impl3cow11deleter", "two versions"),
    (
        "/v/site-packages/flash_attn_2_cuda.so: undefined symbol: _ZNK3c106SymIntltEl",
        "another torch: flash_attn_2",
    ),
    ("/v/torch/lib/libtorch_cuda.so: undefined symbol: MPI_Win_get", "another MPI"),
    ("/v/torch/lib/libx.so: undefined symbol: zzz_unknown", "misses a symbol"),
    (
        "/lib/libc.so.6: version `GLIBC_2.32' not found (required by /v/torch/lib/libtorch_cpu.so)",
        "C library is older than 2.32",
    ),
    (
        "/usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /v/torch/lib/x.so)",
        "GLIBCXX_3.4.30",
    ),
    ("/v/torch/lib/libgomp.so.1: cannot allocate memory in static TLS block", "static TLS"),
    ("/v/torch/lib/libtorch.so: wrong ELF class: ELFCLASS32", "another processor"),
    ("/v/torch/lib/libtorch.so: file too short", "damaged"),
    (
        "/v/torch/lib/libtorch.so: failed to map segment from shared object: Operation not permitted",
        "may not be mapped",
    ),
    ("numpy.core.multiarray failed to import", "NumPy"),
    ("No module named 'typing_extensions'", "typing_extensions is missing"),
    ("No module named 'torch._C'", "incomplete"),
    (
        "partially initialized module 'torch' has no attribute 'Tensor' (most likely due to a circular import)",
        "incomplete",
    ),
    (
        "cannot import name 'randint' from partially initialized module 'random' (/job/random.py)",
        "hides the Python module random",
    ),
    ("something that nobody has seen", "ImportError is raised"),
]


@pytest.mark.parametrize(("text", "title"), CAUSES, ids=[title for _, title in CAUSES])
def test_each_cause_is_named_and_the_message_stays_verbatim(text: str, title: str) -> None:
    outcome = found(facts(text))
    assert title in outcome.title
    assert outcome.severity is Severity.CRITICAL
    assert text in outcome.evidence[0].text
    assert outcome.actions
    assert outcome.explanation


def test_a_missing_wheel_library_is_installed_in_the_pinned_version() -> None:
    outcome = found(facts("libcudart.so.12: cannot open shared object file: No such file or directory"))
    assert "/venv/bin/python -m pip install" in commands(outcome)
    assert "nvidia-cuda-runtime-cu12==12.8.90" in commands(outcome)


def test_a_missing_driver_library_is_the_platforms() -> None:
    outcome = found(facts("libcuda.so.1: cannot open shared object file: No such file or directory"))
    assert outcome.actions[0].team is Team.PLATFORM
    assert "pip install" not in commands(outcome)


def test_the_shadowing_libnccl_is_named() -> None:
    library = NcclLibrary(
        path="/usr/lib/libnccl.so.2", real_path="/usr/lib/libnccl.so.2.18.1", version="2.18.1", cuda="12.1", owner=None, found_by="LD_LIBRARY_PATH",
    )  # fmt: skip
    outcome = found(
        facts(
            "/v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommShrink",
            nccl=NcclFacts(libraries=(library,), predicted_path="/usr/lib/libnccl.so.2"),
            variables=VariableFacts(environment={"LD_LIBRARY_PATH": "/usr/lib"}, whose="this shell"),
        )
    )
    text = " ".join(each.text for each in outcome.evidence)
    assert "/usr/lib/libnccl.so.2 is NCCL 2.18.1" in text
    assert "since NCCL 2.27.3" in text
    assert "LD_LIBRARY_PATH=/usr/lib" in text
    assert outcome.cause_class == "env:nccl_conflict"


def test_of_two_nccl_wheels_the_one_that_torch_pins_is_kept() -> None:
    python = PythonFacts(
        executable="/venv/bin/python",
        distributions={"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.29.7"},
    )
    outcome = found(facts("/v/libtorch_cuda.so: undefined symbol: ncclCommShrink", python=python))
    assert "uninstall -y nvidia-nccl-cu13" in commands(outcome)
    assert "nvidia-nccl-cu12==2.27.5" in commands(outcome)


def test_two_nccl_wheels_explain_an_error_that_is_not_shown_with_medium_confidence() -> None:
    python = PythonFacts(distributions={"nvidia-nccl-cu12": "2.29.3", "nvidia-nccl-cu13": "2.29.7"})
    outcome = found(facts("it does not say why", python=python, origin="ticket.txt"))
    assert outcome.cause_class == "env:nccl_conflict"
    assert outcome.confidence is Confidence.MEDIUM


def test_a_local_folder_is_blamed_only_when_it_is_there() -> None:
    local = TorchFacts(
        found=True, path="/job/torch", is_local=True, shadowed_path="/venv/x/torch", has_native_code=False
    )
    outcome = found(facts("No module named 'torch._C'", torch=local))
    assert "hides the installed one" in outcome.title
    assert any("/job/torch" in each.text for each in outcome.evidence)
    assert "hides the installed one" not in found(facts("No module named 'torch._C'")).title


@pytest.mark.parametrize(
    ("probe", "title"),
    [
        (TorchProbe(state=ProbeState.ABORTED, signal_name="SIGILL", returncode=-4), "SIGILL"),
        (TorchProbe(state=ProbeState.ABORTED, signal_name="SIGKILL", returncode=-9), "SIGKILL"),
        (TorchProbe(state=ProbeState.EXITED_EARLY, last_step="start", returncode=0), "exits with code 0"),
        (TorchProbe(state=ProbeState.HUNG, timeout_s=60, error_where="/a/b.py:3 in f"), "within 60 s"),
    ],
)
def test_other_ends(probe: TorchProbe, title: str) -> None:
    outcome = found(EnvFacts(python=PYTHON, torch=TORCH, torch_probe=probe))
    assert title in outcome.title
    assert outcome.severity is Severity.CRITICAL


def test_a_symbol_lookup_error_that_ends_the_process_is_still_explained() -> None:
    text = "python: symbol lookup error: /v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister"
    probe = TorchProbe(state=ProbeState.EXITED_EARLY, returncode=127, error_text=text)
    assert "older NCCL" in found(EnvFacts(python=PYTHON, torch=TORCH, torch_probe=probe)).title


def test_a_working_import_passes() -> None:
    probe = TorchProbe(state=ProbeState.OK, torch_version="2.9.1", import_s=1.25)
    (outcome,) = check_torch_import(EnvFacts(torch_probe=probe))
    assert outcome == Passed(detail="torch 2.9.1 was imported in 1.2 s")


def test_numpy_that_does_not_fit_is_a_warning_beside_a_working_import() -> None:
    line = "UserWarning: Failed to initialize NumPy: _ARRAY_API not found"
    python = PythonFacts(distributions={"numpy": "2.1.0"})
    outcome = found(EnvFacts(python=python, torch_probe=TorchProbe(state=ProbeState.OK, warnings=(line,))))
    assert (outcome.key, outcome.severity) == ("numpy", Severity.WARNING)
    assert "numpy<2" in commands(outcome)


# ---- no torch, no interpreter, no evidence


def no_torch(chosen_by: str, **sections: object) -> EnvFacts:
    python = PythonFacts(
        executable="/opt/dd/bin/python", chosen_by=chosen_by, also_looked_at=("/usr/bin/python3",)
    )
    probe = TorchProbe(state=ProbeState.NOT_FOUND)
    return EnvFacts(**{"python": python, "torch": TorchFacts(found=False), "torch_probe": probe, **sections})  # type: ignore[arg-type]


def test_no_torch_in_the_python_that_was_named_is_critical() -> None:
    assert found(no_torch("--python")).severity is Severity.CRITICAL


def test_no_torch_in_our_own_python_asks_for_the_jobs() -> None:
    outcome = found(no_torch("runs distdoctor", gpus=GpuFacts(num_pci_gpus=8)))
    assert outcome.severity is Severity.WARNING
    assert "--python" in commands(outcome)
    assert any("/usr/bin/python3" in each.text for each in outcome.evidence)


def test_a_rank_without_torch_is_a_warning() -> None:
    assert found(no_torch("runs distdoctor", scheduler=SchedulerFacts(rank=0))).severity is Severity.WARNING


def test_where_nothing_asks_for_torch_it_is_an_info_and_stays_unseen() -> None:
    outcomes = check_torch_import(no_torch("runs distdoctor", gpus=GpuFacts(num_pci_gpus=0, devices=())))
    assert isinstance(outcomes[0], Found)
    assert outcomes[0].severity is Severity.INFO
    assert isinstance(outcomes[1], NotSeen)


def test_no_torch_is_told_without_the_child_too() -> None:
    facts = EnvFacts(python=PythonFacts(chosen_by="--python"), torch=TorchFacts(found=False))
    assert found(facts).severity is Severity.CRITICAL


def test_a_wrong_path_is_unseen_not_a_fault_of_the_job() -> None:
    unread = Unread(cause=SkipCause.ABSENT, reason="/x/python: there is no such file")
    outcome = check_torch_import(EnvFacts(python=PythonFacts(unread={"executable": unread})))
    assert outcome == [NotSeen(unread=unread)]


def test_a_python_that_does_not_start_in_time_is_a_fault() -> None:
    unread = Unread(cause=SkipCause.TIMED_OUT, reason="/nfs/bin/python did not answer in 5 s")
    outcome = found(EnvFacts(python=PythonFacts(unread={"executable": unread})))
    assert outcome.severity is Severity.CRITICAL


def test_without_the_import_nothing_is_claimed() -> None:
    why = Unread(cause=SkipCause.NOT_ASKED, reason="torch was not imported")
    outcome = check_torch_import(EnvFacts(torch=TORCH, unread={"torch_probe": why}))
    assert outcome == [NotSeen(unread=why)]
    (text,) = check_torch_import(EnvFacts(origin="ticket.txt"))
    assert isinstance(text, NotSeen)


def test_a_failing_collect_env_is_no_failing_import() -> None:
    probe = TorchProbe(
        state=ProbeState.RAISED,
        last_step="collect_env",
        error_type="IndexError",
        error_text="list index out of range",
    )
    (outcome,) = check_torch_import(EnvFacts(origin="ticket.txt", torch_probe=probe))
    assert isinstance(outcome, NotSeen)


@pytest.mark.parametrize(
    ("code", "title"),
    [
        (
            "raise ImportError('libcudart.so.13: cannot open shared object file: No such file or directory')",
            "libcudart.so.13 is missing",
        ),
        (
            "raise ImportError('/v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister')",
            "older NCCL",
        ),
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os._exit(0)", "exits with code 0"),
    ],
)
def test_from_the_child_to_the_finding(tmp_path: Path, code: str, title: str) -> None:
    probe = start_torch_probe(sys.executable, write_torch(tmp_path, code), 60.0).result()
    outcome = found(EnvFacts(python=PythonFacts(executable=sys.executable), torch_probe=probe))
    assert title in outcome.title
    assert str(tmp_path) in " ".join(each.text for each in outcome.evidence) or "_exit" in code
    assert os.path.exists(sys.executable)


def test_numpy_that_is_not_there_is_no_misfit() -> None:
    line = "UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally at tensor_numpy.cpp:84.)"
    probe = TorchProbe(state=ProbeState.OK, torch_version="2.13.0+cpu", warnings=(line,))
    found, passed = check_torch_import(EnvFacts(torch_probe=probe))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert "not installed" in found.title
    assert isinstance(passed, Passed)
