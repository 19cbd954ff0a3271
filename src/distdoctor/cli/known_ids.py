"""Ids that `--only` and `--ignore` may name: a misspelt one would silently check, or silence, nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.job import JOB_CHECKS
from distdoctor.env.expect import BASELINE_ID, EXPECTED_ID
from distdoctor.errors import UsageError
from distdoctor.nccl_bench.checks.all import BENCH_CHECKS

KNOWN_IDS = (
    *(check.id for check in ENV_CHECKS),
    *(check.id for check in JOB_CHECKS),
    *(check.id for check in BENCH_CHECKS),
    EXPECTED_ID,
    BASELINE_ID,
    "rank-missing",
    "host-missing",
    "compare-differs",
)


def check_ids(only: Iterable[str], ignore: Iterable[str]) -> None:
    """Raises UsageError for an id that no check has, with the nearest one. `--ignore` also takes globs and fingerprints."""
    for name in only:
        if name not in KNOWN_IDS:
            raise _unknown("--only", name)
    for name in ignore:
        if not any(fnmatchcase(known, name.partition(":")[0]) for known in KNOWN_IDS):
            raise _unknown("--ignore", name)


def _unknown(option: str, name: str) -> UsageError:
    near = difflib.get_close_matches(name, KNOWN_IDS, n=1)
    return UsageError(
        f"{option} {name}: no check has this id",
        hint=f"did you mean {near[0]}?" if near else "docs/checks/README.md lists all ids",
    )
