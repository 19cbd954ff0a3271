"""A frame of a traceback as words."""

from __future__ import annotations

from distdoctor.oom.facts.events import Frame


def words(frame: Frame) -> str:
    """Function and line of code."""
    return f"{frame.function} {frame.code}"
