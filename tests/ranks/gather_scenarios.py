"""What forked ranks do in the gathering tests."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from distdoctor.ranks.gather import Gathered, Gathering
from distdoctor.ranks.identity import detect_identity


def everybody_reports(rank: int, world_size: int, folder: str) -> dict[str, Any] | None:
    tempfile.tempdir = folder
    gathering = Gathering(detect_identity(os.environ, "host-a"), folder=None, deadline_s=60)
    gathering.announce()
    gathering.submit(json.dumps({"rank": rank, "filler": "x" * 10_000}).encode())
    outcome = gathering.conclude()
    if not isinstance(outcome, Gathered):
        return None
    gathering.finish(0)
    return {"ranks": sorted(outcome.payloads), "complete": outcome.complete}
