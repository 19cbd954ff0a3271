"""Every check of `oom`, by what it looks at."""

from __future__ import annotations

from distdoctor.oom.checks.all_config import CONFIG_CHECKS
from distdoctor.oom.checks.all_estimate import ESTIMATE_CHECKS
from distdoctor.oom.checks.all_explain import EXPLAIN_CHECKS
from distdoctor.oom.checks.all_snapshot import SNAPSHOT_CHECKS
from distdoctor.oom.explain_changes import ID as CHANGED_ID

OOM_CHECK_IDS: tuple[str, ...] = (
    *(check.id for check in ESTIMATE_CHECKS),
    *(check.id for check in CONFIG_CHECKS),
    *(check.id for check in EXPLAIN_CHECKS),
    *(check.id for check in SNAPSHOT_CHECKS),
    CHANGED_ID,
)
