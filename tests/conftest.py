"""Which tests run on one worker: those that look at what runs on this machine, and those that share a costly run."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples every time: a suite that gates a change must not fail for another reason than the change.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

# `--pid auto` and stopped ranks are found in /proc; ranks of a test beside them would be found as well.
LOOKS_AT_PROCESSES = ("tests/ranks/", "test_live_process", "test_env_ranks", "test_bench_runs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "once: of time, or of many examples of plain arithmetic; run on one version of Python alone",
    )


# Before pytest-xdist reads the groups; after it they would be without effect.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        if item.get_closest_marker("launch") or any(part in item.nodeid for part in LOOKS_AT_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))
        elif item.get_closest_marker("ranks"):
            # One file's tests look at runs that one fixture has made.
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
