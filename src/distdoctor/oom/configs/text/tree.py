"""A configuration as nested sections whose entries know their dotted name and their line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from distdoctor.oom.facts.launch import ConfigKey

# Longer values are cut where they are shown.
MAX_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A mapping: its entries by key, in the order of the file; of a key that stands twice the last one counts."""

    name: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    line: int | None = None
    repeated: tuple[Entry, ...] = ()
    """Entries that a later one of the same key replaced."""

    def get(self, key: str) -> Entry | None:
        """The entry, or None when the key is absent."""
        return self.entries.get(key)

    def first(self, *keys: str) -> Entry | None:
        """The first of these keys that is there."""
        return next((self.entries[key] for key in keys if key in self.entries), None)

    def section(self, key: str) -> Section:
        """The section below `key`; an empty one when it is absent or holds something else."""
        entry = self.entries.get(key)
        if entry is not None and isinstance(entry.value, Section):
            return entry.value
        return Section(name=f"{self.name}.{key}" if self.name else key)

    def at(self, *keys: str) -> Entry | None:
        """The entry below nested sections."""
        section = self
        for key in keys[:-1]:
            section = section.section(key)
        return section.get(keys[-1])

    def items(self, key: str) -> tuple[Entry, ...]:
        """The elements of the list below `key`; () when it is absent or no list."""
        entry = self.entries.get(key)
        return entry.value if entry is not None and isinstance(entry.value, tuple) else ()

    def sections(self, key: str) -> tuple[Section, ...]:
        """Those elements of the list below `key` that are mappings."""
        return tuple(each.value for each in self.items(key) if isinstance(each.value, Section))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries


Value = str | int | float | bool | None | Section | tuple["Entry", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key with its value, or one element of a list."""

    name: str
    """Dotted, from the root: `zero_optimization.stage`, `containers[0].image`."""
    value: Value
    line: int | None = None

    def key(self) -> ConfigKey:
        """How the report shows it."""
        return ConfigKey(name=self.name, value=shown(self.value), line=self.line)


def shown(value: Value) -> str:
    """A value as people read it, bounded."""
    if isinstance(value, Section):
        text = "{" + ", ".join(f"{key}: {shown(each.value)}" for key, each in value.entries.items()) + "}"
    elif isinstance(value, tuple):
        text = "[" + ", ".join(shown(each.value) for each in value[:8]) + (", …]" if len(value) > 8 else "]")
    elif value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float) and abs(value) < 10**15 and value == int(value):
        text = str(int(value))
    else:
        text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def walk(section: Section) -> Iterator[Entry]:
    """Every entry below `section`, sections and lists included, in the order of the file."""
    for entry in section.entries.values():
        yield from _below(entry)


def _below(entry: Entry) -> Iterator[Entry]:
    yield entry
    if isinstance(entry.value, Section):
        yield from walk(entry.value)
    elif isinstance(entry.value, tuple):
        for each in entry.value:
            yield from _below(each)


def repeated(section: Section) -> Iterator[Entry]:
    """Every entry, at any depth, that a later one of the same key replaced."""
    yield from section.repeated
    for entry in walk(section):
        if isinstance(entry.value, Section):
            yield from entry.value.repeated
