"""The child that imports torch: every way in which an import can end, with real processes on fake packages."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdoctor.bounded_child import STEP_FD, ChildEnd, run_bounded
from distdoctor.env.collect import torch_probe
from distdoctor.env.collect.torch_probe import read_probe, start_torch_probe
from distdoctor.env.facts.torch import ProbeState, TorchProbe
from fake_torch import GOOD, write_torch

# Generous: two cores may be busy. Nothing here waits for it but the test of the limit itself, which takes 1 s.
LIMIT_S = 60.0


DISTRIBUTED = {"distributed.py": ""}


def probe(
    tmp_path: Path, code: str, modules: dict[str, str] = DISTRIBUTED, timeout_s: float = LIMIT_S
) -> TorchProbe:
    return start_torch_probe(sys.executable, write_torch(tmp_path, code, modules), timeout_s).result()


def test_half_a_torch_comes_to_the_end(tmp_path: Path) -> None:
    result = probe(tmp_path, GOOD)
    assert result.state is ProbeState.OK
    assert result.last_step == "done"
    assert (result.torch_version, result.cuda_build) == ("2.9.1+cu128", "12.8")
    assert result.nccl_version is None
    assert result.arch_list == ()


def test_architectures_and_nccl_come_from_the_private_functions(tmp_path: Path) -> None:
    native = "class _C:\n    _nccl_version = 1\n    _cuda_getArchFlags = staticmethod(lambda: 'sm_80 compute_90')\n"
    result = probe(
        tmp_path,
        GOOD + native,
        {
            "distributed.py": "is_available = is_nccl_available = lambda: True\n",
            "cuda/__init__.py": "",
            "cuda/nccl.py": "version = lambda: (2, 27, 5)\n",
        },
    )
    assert result.state is ProbeState.OK
    assert result.arch_list == ("sm_80", "compute_90")
    assert result.nccl_version == "2.27.5"
    assert result.nccl_available is True
    assert result.gloo_available is None


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    error = "libcudart.so.13: cannot open shared object file: No such file or directory"
    result = probe(tmp_path, f"raise ImportError({error!r})")
    assert result.state is ProbeState.RAISED
    assert result.error_type == "ImportError"
    assert result.missing_library == "libcudart.so.13"
    assert result.error_where == f"{tmp_path}/torch/__init__.py:1"
    assert result.last_step == "start"


def test_an_undefined_symbol_is_named_with_who_wants_it(tmp_path: Path) -> None:
    error = "/v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister"
    result = probe(tmp_path, f"raise ImportError({error!r})")
    assert result.undefined_symbol == "ncclCommRegister"
    assert result.symbol_wanted_by == "/v/torch/lib/libtorch_cuda.so"


def test_an_abort_is_named_with_its_place(tmp_path: Path) -> None:
    result = probe(tmp_path, "import os\n\nos.abort()\n")
    assert result.state is ProbeState.ABORTED
    assert result.signal_name == "SIGABRT"
    assert result.error_where == f"{tmp_path}/torch/__init__.py:3 in <module>"


def test_a_hang_ends_at_the_limit_and_is_named_with_its_place(tmp_path: Path) -> None:
    began = time.monotonic()
    result = probe(tmp_path, "import time\ntime.sleep(3600)\n", timeout_s=1.0)
    assert result.state is ProbeState.HUNG
    assert result.error_where == f"{tmp_path}/torch/__init__.py:2 in <module>"
    assert result.last_step == "start"
    assert result.error_text is None, "the abort was ours"
    assert time.monotonic() - began < LIMIT_S / 2


@pytest.mark.once
def test_a_hang_that_ignores_sigabrt_is_killed(tmp_path: Path) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGABRT, signal.SIG_IGN)\ntime.sleep(3600)\n"
    result = probe(tmp_path, code, timeout_s=1.0)
    assert result.state is ProbeState.HUNG
    assert result.error_where is None


def test_an_exit_with_code_0_half_way_is_no_success(tmp_path: Path) -> None:
    result = probe(tmp_path, "import os; os._exit(0)")
    assert result.state is ProbeState.EXITED_EARLY
    assert result.returncode == 0
    assert result.last_step == "start"


def test_sys_exit_counts_as_an_exit(tmp_path: Path) -> None:
    assert probe(tmp_path, "import sys; sys.exit(3)").state is ProbeState.EXITED_EARLY


def test_distributed_may_fail_where_torch_does_not(tmp_path: Path) -> None:
    result = probe(
        tmp_path,
        GOOD,
        {"distributed.py": "raise OSError('libmpi.so.40: cannot open shared object file: No such file')"},
    )
    assert result.state is ProbeState.RAISED
    assert result.last_step == "import torch"
    assert result.missing_library == "libmpi.so.40"


def test_a_folder_without_init_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    # -S would be needed to hide an installed torch, so a bare interpreter is asked.
    bare = "/usr/bin/python3"
    if (
        not Path(bare).exists()
        or subprocess.run([bare, "-c", "import torch"], capture_output=True).returncode == 0
    ):
        pytest.skip("needs a system python without torch")
    result = start_torch_probe(bare, environ, LIMIT_S).result()
    assert result.state is ProbeState.RAISED
    assert str(tmp_path) in (result.error_text or "")


def test_no_torch_at_all(tmp_path: Path) -> None:
    result = probe(tmp_path, "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    assert result.state is ProbeState.NOT_FOUND


def test_another_missing_module_is_not_a_missing_torch(tmp_path: Path) -> None:
    assert probe(tmp_path, "import no_such_module_here").state is ProbeState.RAISED


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    result = start_torch_probe(str(tmp_path / "python"), {}, LIMIT_S).result()
    assert result.state is ProbeState.BAD_INTERPRETER
    assert "does not start" in (result.error_text or "")


def test_a_flood_on_stderr_and_stdout_is_bounded(tmp_path: Path) -> None:
    flood = "import sys\nfor _ in range(2000):\n    sys.stderr.write('x' * 4096 + '\\n')\n    sys.stdout.write('y' * 4096)\n"
    result = probe(tmp_path, f"{flood}raise ImportError('at last')")
    assert result.error_text == "at last"


def test_warnings_that_rules_read_are_kept(tmp_path: Path) -> None:
    line = "UserWarning: Failed to initialize NumPy: _ARRAY_API not found"
    result = probe(tmp_path, f"import sys\nprint({line!r}, file=sys.stderr)\n{GOOD}")
    assert result.warnings == (line,)


def test_nothing_is_written_beside_the_package(tmp_path: Path) -> None:
    probe(tmp_path, GOOD + "import torch.other\n", {**DISTRIBUTED, "other.py": ""})
    assert not list(tmp_path.rglob("*.pyc"))
    assert not list(tmp_path.rglob("core*"))


def test_children_of_the_import_do_not_keep_us_waiting(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        + GOOD
    )
    began = time.monotonic()
    assert probe(tmp_path, code).state is ProbeState.OK
    assert time.monotonic() - began < LIMIT_S / 2


def test_the_variables_of_the_job_reach_the_child(tmp_path: Path) -> None:
    code = "import os\nassert os.environ['CUDA_VISIBLE_DEVICES'] == '3'\n" + GOOD
    environ = {**write_torch(tmp_path, code, DISTRIBUTED), "CUDA_VISIBLE_DEVICES": "3"}
    assert start_torch_probe(sys.executable, environ, LIMIT_S).result().state is ProbeState.OK


def test_the_script_can_be_run_by_its_path(tmp_path: Path) -> None:
    """Its own folder holds a module torch.py of ours, which must not be taken."""
    script = Path(torch_probe.__file__).with_name("torch_probe_child.py")
    environ = write_torch(tmp_path, GOOD, DISTRIBUTED)
    del environ["PYTHONSAFEPATH"]
    end = run_bounded([sys.executable, "-B", str(script), STEP_FD, "30"], environ, LIMIT_S)
    assert read_probe(end, timeout_s=None, source="test").torch_version == "2.9.1+cu128"


def test_a_step_that_was_cut_off_is_left_out() -> None:
    end = ChildEnd(
        returncode=-9, timed_out=False, duration_s=1, stdout="", stderr="", steps='{"step": "start"}\n{"ste'
    )
    result = read_probe(end, timeout_s=5, source="test")
    assert (result.state, result.last_step, result.signal_name) == (ProbeState.ABORTED, "start", "SIGKILL")


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed in this environment"
)
def test_the_real_torch_of_this_environment() -> None:
    result = start_torch_probe(sys.executable, dict(os.environ), LIMIT_S).result()
    assert result.state is ProbeState.OK
    assert result.torch_version
    assert result.gloo_available is not None
    assert any("libtorch_cpu" in path for path in result.mapped_libraries)


def test_a_python_that_is_too_old_is_said_so() -> None:
    stderr = '  File "<string>", line 12\nSyntaxError: future feature annotations is not defined\n'
    end = ChildEnd(returncode=1, timed_out=False, duration_s=0.1, stdout="", stderr=stderr)
    result = read_probe(end, timeout_s=5, source="test")
    assert result.state is ProbeState.BAD_INTERPRETER
    assert "too old" in (result.error_text or "")
