"""What a rank had allocated, as a file for programs: the tracker's log, JSON, compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import MemoryLog


def write_log(path: Path, log: MemoryLog, categories: Sequence[Category]) -> None:
    """Write the log; events are [storage, bytes, place], 0 bytes when a storage died. Raises OSError."""
    storages = [
        {**asdict(storage), "category": category.value}
        for storage, category in zip(log.storages, categories, strict=True)
    ]
    document = {
        "about": "distdoctor: storages of one rank. events: [index of storage, bytes from now on, index of place]",
        "places": [asdict(place) for place in log.places],
        "storages": storages,
        "events": [[event.storage, event.num_bytes, event.place] for event in log.events],
    }
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        json.dump(document, stream)
