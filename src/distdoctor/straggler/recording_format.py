"""Names and versions of our own recording of a job's timing: what the recorder writes and the reader reads.

The format is told in docs/straggler-recording.md. No numpy here: this module is imported inside the user's job.
"""

from __future__ import annotations

from distdoctor.straggler.facts.sections import Section

# First key of the header line of each kind of file, with the version of the format.
TIMING_KEY = "distdoctor_timing"
COLLECTIVES_KEY = "distdoctor_collectives"
TIMING_VERSION = 1
COLLECTIVES_VERSION = 1

TIMING_SUFFIX = ".timing.jsonl"
COLLECTIVES_SUFFIX = ".collectives.jsonl"

STEP_COLUMN = "step"
START_COLUMN = "start_ms"
"""When the step began: milliseconds since `started_utc` of the header, by the host's clock."""

# Columns of the rows of a collectives file, in this order unless its header says otherwise.
COLLECTIVE_COLUMNS = ("step", "group", "op", "seq", "duration_us", "bytes")

# Kinds of events between the rows.
EVENT_RESTART = "restart"
EVENT_COLLECTIVES = "collectives"
EVENT_GROUPS = "groups"
EVENT_TELEMETRY = "telemetry"
EVENT_NOTE = "note"
EVENT_OVERHEAD = "overhead"
EVENT_END = "end"


def timing_file(rank: int) -> str:
    """Name of the file of one rank's steps."""
    return f"rank-{rank}{TIMING_SUFFIX}"


def collectives_file(rank: int) -> str:
    """Name of the file of one rank's collectives."""
    return f"rank-{rank}{COLLECTIVES_SUFFIX}"


def section_column(section: Section) -> str:
    """Name of the column of a section: whole microseconds, null where it was not measured."""
    return f"{section.value}_us"


SECTION_OF_COLUMN = {section_column(section): section for section in Section}
