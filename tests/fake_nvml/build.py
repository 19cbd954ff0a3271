"""Compiles the double of libnvidia-ml.so.1; needs gcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "fake_nvml.c"


def build_fake_nvml(folder: Path) -> Path:
    """Folder that holds libnvidia-ml.so.1 (a link to a file with a version). Skips the test without gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("the double of libnvidia-ml is compiled with gcc, which is not installed")
    real = folder / "libnvidia-ml.so.570.86.15"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", str(real), str(SOURCE)], check=True, timeout=60)
    (folder / "libnvidia-ml.so.1").symlink_to(real.name)
    return folder
