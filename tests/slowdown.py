"""How slow is this machine? Deadlines in tests are multiplied by DISTDOCTOR_TEST_SLOWDOWN (default 1)."""

from __future__ import annotations

import os

SLOWDOWN = float(os.environ.get("DISTDOCTOR_TEST_SLOWDOWN", "1"))


def scaled(seconds: float) -> float:
    """`seconds` on a machine as slow as DISTDOCTOR_TEST_SLOWDOWN says."""
    return seconds * SLOWDOWN
