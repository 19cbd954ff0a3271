"""One word on its way through expansion, quote removal and splitting into fields."""

from __future__ import annotations

import re
from typing import Protocol

from distdoctor.oom.configs.shell.values import Value, split_fields

_UNBRACED = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]")


class Expansions(Protocol):
    """What the parts of a word that begin with `$` or a backtick stand for."""

    def substitution(self, command: str) -> str:
        """Of `$(command)`."""

    def arithmetic(self, expression: str) -> str:
        """Of `$((expression))`."""

    def braced(self, inside: str) -> tuple[Value, bool]:
        """Of `${inside}`, and whether it stands for separate fields even within quotes (`${A[@]}`)."""


class WordFields:
    """Reads one word. Without `splits` the result is one field: the value of an assignment, one side of a test."""

    def __init__(self, expansions: Expansions, *, splits: bool = True) -> None:
        self._expansions = expansions
        self._splits = splits
        self._done: list[str] = []
        self._current: str | None = None

    def read(self, raw: str) -> list[str]:
        """The fields of a word as it stands in the script."""
        at = 0
        while at < len(raw):
            character = raw[at]
            if character == "\\":
                if raw[at + 1 : at + 2] not in ("", "\n"):
                    self._add(raw[at + 1])
                at += 2
            elif character == "'":
                end = raw.find("'", at + 1)
                end = len(raw) if end < 0 else end
                self._add(raw[at + 1 : end])
                at = end + 1
            elif character == '"':
                at = self._double_quoted(raw, at + 1)
            elif character in "$`":
                value, separate, at = self._expansion(raw, at)
                self._put(value, quoted=not self._splits, separate=separate)
            else:
                end = at + 1
                while end < len(raw) and raw[end] not in "\\'\"$`":
                    end += 1
                self._add(raw[at:end])
                at = end
        if self._current is not None:
            self._done.append(self._current)
        return self._done

    def read_document(self, body: str) -> str:
        """The text of a here-document: quotes stay, and it is not split."""
        self._current = ""
        self._double_quoted(body, 0, ends_at_quote=False)
        return self._current if not self._done else " ".join([*self._done, self._current])

    def _add(self, text: str) -> None:
        self._current = (self._current or "") + text

    def _double_quoted(self, raw: str, at: int, *, ends_at_quote: bool = True) -> int:
        self._add("")
        while at < len(raw):
            character = raw[at]
            if character == '"' and ends_at_quote:
                return at + 1
            if character == "\\":
                following = raw[at + 1 : at + 2]
                if following in ("$", "`", "\\", '"'):
                    self._add(following)
                elif following != "\n":
                    self._add(f"\\{following}")
                at += 2
            elif character in "$`":
                value, separate, at = self._expansion(raw, at)
                self._put(value, quoted=True, separate=separate)
            else:
                end = at + 1
                while end < len(raw) and raw[end] not in '\\"$`':
                    end += 1
                self._add(raw[at:end])
                at = end
        return at

    def _put(self, value: Value, *, quoted: bool, separate: bool) -> None:
        if isinstance(value, list):
            if not quoted:
                value = " ".join(value)
            elif separate and self._splits:
                self._put_fields(value)
                return
            else:
                value = " ".join(value)
        if quoted:
            self._add(value)
            return
        fields = split_fields(value)
        if value[:1].isspace() and self._current is not None:
            self._done.append(self._current)
            self._current = None
        self._put_fields(fields)
        if value[-1:].isspace() and self._current is not None:
            self._done.append(self._current)
            self._current = None

    def _put_fields(self, fields: list[str]) -> None:
        if not fields:
            return
        self._add(fields[0])
        for following in fields[1:]:
            self._done.append(self._current or "")
            self._current = following

    def _expansion(self, raw: str, at: int) -> tuple[Value, bool, int]:
        """The value of what begins with `$` or a backtick at `at`, and where it ends."""
        expansions = self._expansions
        if raw[at] == "`":
            end = raw.find("`", at + 1)
            end = len(raw) if end < 0 else end
            return expansions.substitution(raw[at + 1 : end]), False, end + 1
        closed = _balanced_end(raw, at + 1) if raw[at + 1 : at + 2] in ("(", "{") else None
        if closed and raw.startswith("$((", at) and raw[closed - 2 : closed] == "))":
            return expansions.arithmetic(raw[at + 3 : closed - 2]), False, closed
        if raw.startswith("$(", at):
            end = closed or len(raw)
            return expansions.substitution(raw[at + 2 : end - 1]), False, end
        if raw.startswith("${", at):
            end = closed or len(raw)
            value, separate = expansions.braced(raw[at + 2 : end - 1])
            return value, separate, end
        if raw.startswith("$'", at):
            end = raw.find("'", at + 2)
            end = len(raw) if end < 0 else end
            return raw[at + 2 : end].replace("\\n", "\n").replace("\\t", "\t"), False, end + 1
        if match := _UNBRACED.match(raw, at + 1):
            value, separate = expansions.braced(match[0])
            return value, separate, match.end()
        return "$", False, at + 1


def _balanced_end(text: str, at: int) -> int | None:
    """Where the bracket that opens at `at` is closed: the position after its partner. Quotes are respected."""
    opening = text[at]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    position = at
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "'" and opening == "(":
            end = text.find("'", position + 1)
            position = end if end > 0 else position
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return None
