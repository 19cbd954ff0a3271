"""Every check of `oom`, by what it looks at."""

from __future__ import annotations

from distdoctor.oom.checks.all_estimate import ESTIMATE_CHECKS

OOM_CHECKS = (*ESTIMATE_CHECKS,)

OOM_CHECK_IDS = tuple(check.id for check in OOM_CHECKS)
