"""What an installation puts into somebody's environment: our package and data, and nothing that runs by itself."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytest.importorskip("hatchling", reason="the wheel is built with hatchling (extra dev)")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_nothing_runs_by_itself(names: list[str]) -> None:
    assert not [name for name in names if name.endswith(".pth") or "sitecustomize" in name]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"distdoctor"}


def test_data_comes_along(names: list[str]) -> None:
    source = ROOT / "src"
    data = [
        path.relative_to(source).as_posix()
        for path in (source / "distdoctor").rglob("*")
        if path.is_file() and path.suffix in (".json", ".html", ".css", ".svg", ".typed", ".j2")
    ]
    assert "distdoctor/report/report.schema.json" in data
    assert set(data) <= set(names)
