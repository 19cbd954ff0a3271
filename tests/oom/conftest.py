"""What several test files here share because it is slow to make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpool import ForkPool


@pytest.fixture(scope="session")
def training_pool() -> Iterator[ForkPool]:
    """Ranks that run the functions of training_ranks.py."""
    with ForkPool(torch=True, scenarios=Path(__file__).with_name("training_ranks.py")) as pool:
        yield pool
