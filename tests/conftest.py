"""Tests that start rank processes run one after the other: they look at what runs on this machine."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples every time: a suite that gates a change must not fail for another reason than the change.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

# `--pid auto` and stopped ranks are found in /proc; ranks of a test beside them would be found as well.
LOOKS_AT_PROCESSES = ("tests/ranks/", "test_live_process", "test_env_ranks", "test_bench_runs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("launch") or any(part in item.nodeid for part in LOOKS_AT_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))
