"""The one gate that everything passes before it is shown, written or sent: secrets out, unseen characters shown.

Also bounds lengths and replaces numbers that JSON cannot hold. Idempotent: sealing twice changes nothing.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from distdoctor.report.escape import visible
from distdoctor.report.mask import SECRET, find_secrets, mask_text, mask_value
from distdoctor.report.model import (
    Action,
    Drain,
    Fact,
    Finding,
    Report,
    Series,
    Table,
    Tool,
    Verdict,
)
from distdoctor.report.secret_names import Secrecy, secrecy_of

__all__ = ["mask_text", "seal", "visible"]

T = TypeVar("T")

# Our own bounds: a screen of text for what is read, a line for everything else. A log pasted into a field would
# otherwise make every report as long as the log.
MAX_LINE_CHARS = 2_000
MAX_TEXT_CHARS = 8_000
MAX_TITLE_CHARS = 300
_CUT = "… (cut)"

_MULTILINE: frozenset[tuple[type, str]] = frozenset(
    (
        (Verdict, "summary"),
        (Finding, "explanation"),
        (Action, "command"),
        (Drain, "command"),
        (Table, "note"),
    )
)
_TITLES: frozenset[tuple[type, str]] = frozenset(
    ((Verdict, "title"), (Finding, "title"), (Table, "title"), (Series, "title"))
)

# JSON readers hold integers exactly up to 64 bits.
_MAX_INT = (1 << 63) - 1

# A secret seen beside its name is masked wherever else it stands alone, if it cannot be an ordinary word.
_MIN_LEARNT_CHARS = 8


def seal(report: Report) -> Report:
    """`report` fit to leave: every string masked and visible, lengths bounded, numbers finite.

    The number of masked secrets, addresses and home paths is added to `redaction.secrets_masked`.
    """
    sealer = _Sealer()
    sealed = sealer.walk(report, Report, "")
    while sealer.learnt:
        # What is masked now can make a neighbour look like a secret; so look until nothing changes.
        forgotten = sealer.forget_learnt(sealed)
        sealed = sealer.walk(forgotten, Report, "")
        if sealed is forgotten or sealed == forgotten:
            break
    if sealer.num_masked:
        redaction = replace(
            sealed.redaction, secrets_masked=sealed.redaction.secrets_masked + sealer.num_masked
        )
        sealed = replace(sealed, redaction=redaction)
    return sealed


class _Sealer:
    """Walks a report, remembering texts already cleaned (host names repeat thousands of times) and secrets."""

    def __init__(self) -> None:
        self.num_masked = 0
        self.learnt: set[str] = set()
        self._known: dict[tuple[str, bool, int], tuple[str, int]] = {}

    def walk(self, value: T, owner: type, field: str) -> T:
        return cast(T, self._walk(value, owner, field))

    def _walk(self, value: Any, owner: type, field: str) -> Any:
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self._clean(value, owner, field)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return value if abs(value) <= _MAX_INT else str(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, tuple):
            return self._walk_tuple(value, owner, field)
        if isinstance(value, dict):
            walked = {
                self._clean(key, owner, field): self._walk(each, owner, field) for key, each in value.items()
            }
            return {key: each for key, each in sorted(walked.items()) if each is not None}
        if isinstance(value, Struct):
            return self._walk_struct(value)
        raise TypeError(f"{owner.__name__}.{field} holds a {type(value).__name__}")

    def _walk_tuple(self, value: tuple[Any, ...], owner: type, field: str) -> tuple[Any, ...]:
        walked = tuple(self._walk(each, owner, field) for each in value)
        if all(new is old for new, old in zip(walked, value, strict=True)):
            return value
        return walked

    def _walk_struct(self, value: Struct) -> Struct:
        owner = type(value)
        changes = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            new = self._walk(old, owner, name)
            if new is not old:
                changes[name] = new
        walked = replace(value, **changes) if changes else value
        match walked:
            case Fact():
                return self._mask_fact(walked)
            case Table():
                return self._mask_table(walked)
            case Tool():
                return self._mask_argv(walked)
        return walked

    def _clean(self, text: str, owner: type, field: str) -> str:
        multiline = (owner, field) in _MULTILINE
        limit = (
            MAX_TITLE_CHARS if (owner, field) in _TITLES else MAX_TEXT_CHARS if multiline else MAX_LINE_CHARS
        )
        key = (text, multiline, limit)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._clean_new(text, multiline=multiline, limit=limit)
        cleaned, count = known
        self.num_masked += count
        return cleaned

    def _clean_new(self, text: str, *, multiline: bool, limit: int) -> tuple[str, int]:
        if len(text) > 4 * limit:
            # What lies beyond any bound need not be looked at; no word is cut, it might be half a secret.
            words = text[: 4 * limit].rsplit(None, 1)
            text = (words[0] if words else "") + " " * limit + "."
        cleaned = visible(text, multiline=multiline)
        total = 0
        # Masking can bring two things together that a second look would mask; so look until nothing changes.
        for _ in range(4):
            masked, secrets, others = find_secrets(cleaned)
            self.learnt.update(secret for secret in secrets if _can_be_learnt(secret))
            total += len(secrets) + others
            bounded = _bounded(masked, limit)
            if bounded == cleaned:
                break
            cleaned = bounded
        return cleaned, total

    def _mask_fact(self, fact: Fact) -> Fact:
        last = fact.key.rpartition(".")[2]
        if not isinstance(fact.value, str):
            return fact
        value, count = mask_value(last, fact.value)
        self._learn(fact.value, count)
        return replace(fact, value=value) if count else fact

    def _mask_table(self, table: Table) -> Table:
        """Masks columns with a secret-like name, and cells after a first cell that is such a name."""
        names = [column.name for column in table.columns]
        if not any(secrecy_of(name) is not Secrecy.NONE for name in names) and not any(
            row and isinstance(row[0], str) and secrecy_of(row[0]) is not Secrecy.NONE for row in table.rows
        ):
            return table
        rows = tuple(self._mask_row(names, row) for row in table.rows)
        return replace(table, rows=rows)

    def _mask_row(self, names: list[str], row: tuple[Any, ...]) -> tuple[Any, ...]:
        masked = []
        label = (
            row[0] if row and isinstance(row[0], str) and not any(char.isspace() for char in row[0]) else ""
        )
        for index, cell in enumerate(row):
            name = names[index] if index < len(names) else ""
            if secrecy_of(name) is Secrecy.NONE:
                name = label if index else ""
            if not isinstance(cell, str) or not name:
                masked.append(cell)
                continue
            value, count = mask_value(name, cell)
            self._learn(cell, count)
            masked.append(value)
        return tuple(masked)

    def _mask_argv(self, tool: Tool) -> Tool:
        argv = list(tool.argv)
        for index in range(1, len(argv)):
            option = argv[index - 1]
            if not option.startswith("--") or argv[index].startswith("-"):
                continue
            value, count = mask_value(option, argv[index])
            self._learn(argv[index], count)
            argv[index] = value
        return replace(tool, argv=tuple(argv)) if tuple(argv) != tool.argv else tool

    def _learn(self, value: str, count: int) -> None:
        self.num_masked += count
        if count and _can_be_learnt(value):
            self.learnt.add(value)

    def forget_learnt(self, report: Report) -> Report:
        """`report` without the secrets that stood beside their name somewhere and alone elsewhere."""
        return cast(Report, self._forget(report, _any_of(self.learnt)))

    def _forget(self, value: Any, pattern: re.Pattern[str]) -> Any:
        if isinstance(value, str) and not isinstance(value, Enum):
            forgotten, count = pattern.subn(SECRET, value)
            self.num_masked += count
            return forgotten if count else value
        if isinstance(value, tuple):
            new = tuple(self._forget(each, pattern) for each in value)
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        if isinstance(value, Struct):
            changes = {}
            for name in value.__struct_fields__:
                old = getattr(value, name)
                each = self._forget(old, pattern)
                if each is not old:
                    changes[name] = each
            return replace(value, **changes) if changes else value
        return value


def _any_of(secrets: set[str]) -> re.Pattern[str]:
    return re.compile(
        "|".join(re.escape(each) for each in sorted(secrets, key=lambda each: (-len(each), each)))
    )


def _can_be_learnt(secret: str) -> bool:
    has_digit = any(char.isdigit() for char in secret)
    has_letter = any(char.isalpha() for char in secret)
    return len(secret) >= _MIN_LEARNT_CHARS and has_digit and has_letter and SECRET not in secret


def _bounded(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    cut = text[: limit - len(_CUT)]
    # Never leave half a placeholder.
    opened = cut.rfind("[")
    if opened >= 0 and "]" not in cut[opened:] and len(cut) - opened < 10:
        cut = cut[:opened]
    return cut + _CUT
