"""Every check of `oom`, by what it looks at."""

from __future__ import annotations

from distdoctor.oom.checks.all_config import CONFIG_CHECKS
from distdoctor.oom.checks.all_estimate import ESTIMATE_CHECKS
from distdoctor.oom.checks.all_explain import EXPLAIN_CHECKS
from distdoctor.oom.checks.all_snapshot import SNAPSHOT_CHECKS
from distdoctor.oom.explain_changes import ID as CHANGED_ID

OOM_CHECKS = (*ESTIMATE_CHECKS, *CONFIG_CHECKS, *EXPLAIN_CHECKS, *SNAPSHOT_CHECKS)

OOM_CHECK_IDS = (*(check.id for check in OOM_CHECKS), CHANGED_ID)
