"""Ids that `--only` and `--ignore` may name: a misspelt one would silently check, or silence, nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from distdoctor.errors import UsageError

# Findings of no check: of gathering, comparing and expected values.
_OTHERS = ("rank-missing", "host-missing", "compare-differs")


def known_ids() -> tuple[str, ...]:
    """Every id, of all commands. Imports all checks, so it is asked only when an id was given."""
    from distdoctor.env.checks.all import ENV_CHECKS
    from distdoctor.env.checks.job import JOB_CHECKS
    from distdoctor.env.expect import BASELINE_ID, EXPECTED_ID
    from distdoctor.nccl_bench.checks.all import BENCH_CHECKS
    from distdoctor.oom.checks.all import OOM_CHECK_IDS
    from distdoctor.straggler.checks.all import STRAGGLER_CHECKS

    return (
        *(check.id for check in ENV_CHECKS),
        *(check.id for check in JOB_CHECKS),
        *(check.id for check in BENCH_CHECKS),
        *OOM_CHECK_IDS,
        *(check.id for check in STRAGGLER_CHECKS),
        EXPECTED_ID,
        BASELINE_ID,
        *_OTHERS,
    )


def check_ids(only: Iterable[str], ignore: Iterable[str]) -> None:
    """Raises UsageError for an id that no check has, with the nearest one. `--ignore` also takes globs and fingerprints."""
    only, ignore = tuple(only), tuple(ignore)
    if not only and not ignore:
        return
    known = known_ids()
    for name in only:
        if name not in known:
            raise _unknown("--only", name, known)
    for name in ignore:
        if not any(fnmatchcase(each, name.partition(":")[0]) for each in known):
            raise _unknown("--ignore", name, known)


def _unknown(option: str, name: str, known: tuple[str, ...]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1)
    return UsageError(
        f"{option} {name}: no check has this id",
        hint=f"did you mean {near[0]}?" if near else "docs/checks/README.md lists all ids",
    )
