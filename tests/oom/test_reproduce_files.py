"""Snapshots of `oom reproduce`: nothing that is there is overwritten or written through."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.oom.models.presets import preset
from distdoctor.oom.reproduction.combinations import choose
from distdoctor.oom.reproduction.new_file import create_new_file
from distdoctor.oom.settings import Settings


def test_a_file_that_is_there_stays_and_another_name_is_taken(tmp_path: Path) -> None:
    (tmp_path / "oom-rank0.json.gz").write_text("of an earlier run")
    assert create_new_file(tmp_path, "oom-rank0", ".json.gz").name == "oom-rank0-2.json.gz"
    assert create_new_file(tmp_path, "oom-rank0", ".json.gz").name == "oom-rank0-3.json.gz"
    assert (tmp_path / "oom-rank0.json.gz").read_text() == "of an earlier run"


def test_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    (tmp_path / "snapshot.pickle").symlink_to(target)
    created = create_new_file(tmp_path, "snapshot", ".pickle")
    assert created.name == "snapshot-2.pickle"
    assert not target.exists()


def test_a_folder_that_is_gone_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        create_new_file(tmp_path / "gone", "snapshot", ".pickle")


def test_one_rank_alone_is_called_single() -> None:
    (only,) = choose((), num_ranks=1, said=Settings(model=preset("tiny")))
    assert only.name == "single"
