"""Which tests run on one worker: those that look at what runs on this machine, and those that share a costly run."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import settings

# The same examples every time, however busy the machine is: a suite that gates a change must not fail for another reason than the change.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")

# Whoever runs the suite in the background, or under nohup, has these ignored, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# `--pid auto` and stopped ranks are found in /proc; ranks of a test beside them would be found as well. What is
# launched is timed, and ranks of two launches would wait for a processor rather than for one another.
ONE_AFTER_ANOTHER = (
    "tests/ranks/",
    "tests/cli/test_env_ranks.py",
    "tests/cli/test_nccl_bench.py",
    "tests/env/test_live_process.py",
    "tests/nccl_bench/test_bench_runs.py",
    "tests/nccl_bench/test_slow_link_hosts.py",
    "tests/oom/test_reproduce_launch.py",
)

# Tests of these files look at what is made once: runs of ranks, syntax trees, a wheel.
SHARED_RUNS = (
    "tests/oom/test_reproduce_runs.py",
    "tests/oom/test_simulate_own_module.py",
    "tests/test_architecture.py",
    "tests/test_wheel.py",
)


def group_of(nodeid: str) -> str:
    """Tests with the same answer run on one worker."""
    file = nodeid.partition("::")[0]
    if file.startswith(ONE_AFTER_ANOTHER):
        return "processes"
    return file if file in SHARED_RUNS else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadgroup`, by file: the mark `xdist_group` of pytest-xdist 3.8 is without effect under pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Together(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-and-last",
        action="store_true",
        help="of a test with many sets of parameters run two: where only Python differs, the others tell nothing new",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "once: of time, or of many examples of what is the same everywhere; run on one version of Python alone",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("launch") and group_of(item.nodeid) != "processes":
            raise pytest.UsageError(f"{item.nodeid} launches ranks: its file belongs in ONE_AFTER_ANOTHER")
    if config.getoption("first_and_last"):
        items[:] = first_and_last(items)


def first_and_last(items: list[pytest.Item]) -> list[pytest.Item]:
    """Each test with its first and its last set of parameters."""
    sets: dict[str, list[pytest.Item]] = {}
    for item in items:
        sets.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for group in sets.values() for item in dict.fromkeys((group[0], group[-1]))]
