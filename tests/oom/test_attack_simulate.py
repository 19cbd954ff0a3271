"""`oom simulate` is interrupted, killed, and asked for nonsense: it ends at once, in words, and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

WITHIN_S = 60.0
HANGS = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A simulation whose user's module hangs as it is imported, and the child that does."""
    pytest.importorskip("torch")
    (tmp_path / "hangs.py").write_text(HANGS)
    process = subprocess.Popen(
        [sys.executable, "-m", "distdoctor", "oom", "simulate", "--module", "hangs:build"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, psutil.Process(_number_in(tmp_path / "pid"))
    finally:
        process.kill()
        process.communicate()


def _number_in(path: Path) -> int:
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.05)
    raise TimeoutError(f"{path} was not written")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_its_children_at_once(
    hanging: tuple[subprocess.Popen[str], psutil.Process], number: signal.Signals, code: int
) -> None:
    process, child = hanging
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(WITHIN_S) == code
    assert time.monotonic() - began < WITHIN_S / 3
    child.wait(5)


def test_a_child_does_not_outlive_whoever_was_killed(
    hanging: tuple[subprocess.Popen[str], psutil.Process],
) -> None:
    process, child = hanging
    process.kill()
    child.wait(10)
    assert not child.is_running()


@pytest.mark.parametrize("timeout", ["nan", "inf", "-1", "0", "1e300"])
def test_a_time_that_is_none_is_a_usage_error(timeout: str) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "distdoctor", "oom", "simulate", "--model", "tiny", "--timeout", timeout],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert found.returncode == 2
    assert "--timeout" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("simulate", "--params", "8B"), 2),
        # What is found by formula stays.
        (("fit", "--params", "70B", "--on", "8xa100-40gb"), 0),
    ],
)
def test_a_number_of_parameters_alone_is_no_bug(arguments: tuple[str, ...], code: int) -> None:
    if arguments[0] == "simulate":
        pytest.importorskip("torch")
    found = subprocess.run(
        [sys.executable, "-m", "distdoctor", "oom", *arguments, "--fail-on", "never"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "bug" not in found.stderr
    assert found.returncode == code


def test_muon_is_not_blamed_on_torch() -> None:
    pytest.importorskip("torch")
    from distdoctor.oom.job import resolve
    from distdoctor.oom.models.presets import preset
    from distdoctor.oom.settings import Optimizer, Settings
    from distdoctor.oom.training.base import CannotRunError
    from distdoctor.oom.training.optimizers import optimizer_class

    with pytest.raises(CannotRunError, match="estimated only"):
        optimizer_class(resolve(Settings(model=preset("tiny"), optimizer=Optimizer.MUON)))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "ended by signal 9 (SIGKILL); too little memory on this host?"),
        (signal.SIGSEGV, "ended by signal 11 (SIGSEGV)"),
    ],
)
def test_only_a_kill_suggests_too_little_memory(tmp_path: Path, number: signal.Signals, words: str) -> None:
    from distdoctor.oom.simulation.children import simulate_module
    from distdoctor.oom.simulation.own_job import own_module_of

    pytest.importorskip("torch")
    (tmp_path / "dies.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\n")
    module = own_module_of("dies:build", folder=str(tmp_path))
    simulation = simulate_module(module, timeout_s=WITHIN_S, checks_itself=False)
    assert simulation.failures[0].reason.endswith(words)


def test_enough_micro_batches_are_simulated_for_replicas_of_shards() -> None:
    """FSDP2 keeps what the micro-batch before had summed until it is summed over the replicas."""
    pytest.importorskip("torch")
    from distdoctor.oom.job import resolve
    from distdoctor.oom.models.flags import model_from_options
    from distdoctor.oom.settings import DataParallel, Settings
    from distdoctor.oom.simulation.child.simulate import simulate_role
    from distdoctor.oom.simulation.roles import roles_of

    job = resolve(
        Settings(
            model=model_from_options(layers=1, hidden=64, heads=4, vocab=128),
            world_size=4,
            dp_replicate=2,
            strategy=DataParallel.FSDP,
            accumulation_steps=5,
            seq_len=16,
        )
    )
    (role,) = roles_of(job)
    few, whole = (simulate_role(job, role, fold=fold).peak.num_bytes for fold in (True, False))
    assert few == whole
