"""A machine made of a folder: files under a temporary root, and answers to the few calls that are no files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distdoctor.env.collect.world import World


@dataclass(frozen=True, kw_only=True)
class FakeWorld(World):
    """A World below a folder; `file_systems` answers statvfs: path → (total bytes, free bytes)."""

    file_systems: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def statvfs(self, path: str) -> tuple[int, int]:
        if path not in self.file_systems:
            raise FileNotFoundError(2, os.strerror(2), path)
        return self.file_systems[path]


def make_world(root: Path, files: Mapping[str, str], **attributes: object) -> FakeWorld:
    """A FakeWorld whose tree holds `files` (absolute path → text). A text "-> target" makes a symbolic link.

    Tools: a file below /usr/bin is made executable, so that `run_tool` finds it.
    """
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            target.symlink_to(text[3:])
            continue
        target.write_text(text)
        if path.startswith("/usr/bin/"):
            target.chmod(0o755)
    return FakeWorld(root=root, tool_folders=(str(root / "usr/bin"),), **attributes)  # type: ignore[arg-type]
