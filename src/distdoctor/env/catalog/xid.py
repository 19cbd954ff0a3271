"""What an Xid number means, how bad it is, and what to do. Data in xid.json; its sources are named there."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table
from distdoctor.report.model import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One row. `kind`: "application", "victim", "memory", "link", "bus", "firmware", "driver", "recovery"."""

    code: int
    title: str
    """Goes behind "GPU …": "fell off the PCIe bus"."""
    meaning: str
    kind: str
    severity: Severity
    action: str


@functools.cache
def xid_table() -> dict[int, Xid]:
    """Every known Xid by its number."""
    table: dict[int, Xid] = {}
    for row in read_table("xid")["xids"]:
        for code in (row["code"], *row.get("also", ())):
            table[code] = Xid(
                code=code,
                title=row["title"],
                meaning=row["meaning"],
                kind=row["kind"],
                severity=Severity(row["severity"]),
                action=row["action"],
            )
    return table


def xid_of(code: int) -> Xid | None:
    """The row for `code`, or None for a number that the catalogue does not have."""
    return xid_table().get(code)
