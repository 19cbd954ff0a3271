"""Known faults of NCCL releases, with the versions and the conditions under which they matter."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table
from distdoctor.env.versions import Version, at_least, below
from distdoctor.report.model import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """One fault: `when` names conditions (checks/nccl_known_bug.py knows them), all of which must hold."""

    id: str
    symptom: str
    fix: str
    source: str
    severity: Severity
    certain: bool
    """False: the conditions do not decide; never more than a lead."""
    first: str | None
    before: str | None
    when: Mapping[str, str | int | bool]

    def covers(self, version: Version) -> bool:
        """True when the release has the fault."""
        new_enough = self.first is None or at_least(version, self.first)
        old_enough = self.before is None or below(version, self.before)
        return bool(new_enough and old_enough)

    @property
    def versions(self) -> str:
        """The range in words: "2.14 to before 2.17.1"."""
        if self.first and self.before:
            return f"{self.first} to before {self.before}"
        return f"before {self.before}" if self.before else f"{self.first} and newer"


@functools.cache
def nccl_known_bugs() -> tuple[KnownBug, ...]:
    """The table, oldest first."""
    return tuple(
        KnownBug(
            id=row["id"],
            symptom=row["symptom"],
            fix=row["fix"],
            source=row["source"],
            severity=Severity(row["severity"]),
            certain=row["certain"],
            first=row.get("from"),
            before=row.get("before"),
            when=row["when"],
        )
        for row in read_table("nccl_known_bugs")["bugs"]
    )
