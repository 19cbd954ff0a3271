"""Every check of `oom`, by what it looks at."""

from __future__ import annotations

from distdoctor.oom.checks.config.all import CONFIG_CHECKS
from distdoctor.oom.checks.estimate.all import ESTIMATE_CHECKS
from distdoctor.oom.checks.explain.all import EXPLAIN_CHECKS
from distdoctor.oom.checks.fit.all import FIT_CHECKS
from distdoctor.oom.checks.reproduce.all import REPRODUCE_CHECKS
from distdoctor.oom.checks.simulate.all import SIMULATION_CHECKS
from distdoctor.oom.checks.snapshot.all import SNAPSHOT_CHECKS
from distdoctor.oom.explain.changes import ID as CHANGED_ID

OOM_CHECK_IDS: tuple[str, ...] = (
    *(check.id for check in ESTIMATE_CHECKS),
    *(check.id for check in FIT_CHECKS),
    *(check.id for check in SIMULATION_CHECKS),
    *(check.id for check in REPRODUCE_CHECKS),
    *(check.id for check in CONFIG_CHECKS),
    *(check.id for check in EXPLAIN_CHECKS),
    *(check.id for check in SNAPSHOT_CHECKS),
    CHANGED_ID,
)
