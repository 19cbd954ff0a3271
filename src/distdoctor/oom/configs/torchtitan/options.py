"""Where an option of TorchTitan stands: under one of several names, in one of several sections."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.configs.text.tree import Entry, Section

CALL = "_call"
"""Key under which a section made of a Python call keeps the name that was called."""


@dataclass(slots=True, kw_only=True)
class Titan:
    """The options of one configuration."""

    root: Section

    def find(self, *names: str) -> Entry | None:
        """An option under any of its names, in whichever section it stood; null counts as absent."""
        for section in ("parallelism", "training", "experimental"):
            entry = self.root.section(section).first(*names)
            if entry is not None and entry.value is not None:
                return entry
        return None

    def at(self, section: str, *names: str) -> Entry | None:
        """An option of one section; null counts as absent."""
        entry = self.root.section(section).first(*names)
        return entry if entry is not None and entry.value is not None else None
