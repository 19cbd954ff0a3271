"""A rank that keeps still tells what only it has met: nobody else would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_an_obstacle_of_one_rank_alone_is_told(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "distdoctor", "nccl-bench", "--baseline", str(tmp_path / "absent.json")],
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: ") and "absent.json" in ended.stderr
