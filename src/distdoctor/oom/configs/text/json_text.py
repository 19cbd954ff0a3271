"""JSON as sections with lines. What DeepSpeed's hjson reader tolerates (comments, trailing commas) is read, and told.

Python's json module gives no lines, hence this reader. Depth and size are bounded; nothing is constructed but
strings, numbers, booleans, None, sections and tuples.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, field

from distdoctor.errors import InputError
from distdoctor.oom.configs.text.tree import Entry, Section, Value

# Deeper or larger than any configuration that people write. Our own bounds.
MAX_DEPTH = 64
MAX_ENTRIES = 100_000
MAX_JSON_CHARACTERS = 4_000_000

_SKIP = re.compile(r"(?:\s+|//[^\n]*|#[^\n]*|/\*.*?\*/)+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_BARE = re.compile(r"[^\s,:\[\]{}\"]+")
_WORDS: dict[str, Value] = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}


def begins_with_object(text: str) -> bool:
    """Whether an opening brace is the first thing after comments; a script's `#!` is no comment of JSON."""
    text = text.lstrip("\ufeff")
    found = _SKIP.match(text)
    start = found.end() if found else 0
    return text[start : start + 1] == "{" and not text.startswith("#!")


@dataclass(slots=True)
class _Reader:
    text: str
    path: str
    place: int = 0
    num_entries: int = 0
    lenient: set[str] = field(default_factory=set)
    line_ends: list[int] = field(default_factory=list)

    def fail(self, what: str) -> InputError:
        return InputError(
            f"`{self.path}` is not valid JSON: {what}, line {self.line()}",
            hint="the launcher cannot read it either; `python3 -m json.tool FILE` shows the place",
        )

    def line(self) -> int:
        if not self.line_ends:
            self.line_ends = [found.start() for found in re.finditer("\n", self.text)] or [len(self.text)]
        return bisect_left(self.line_ends, self.place) + 1

    def skip(self) -> None:
        found = _SKIP.match(self.text, self.place)
        if found:
            if found.group().strip():
                self.lenient.add("comments")
            self.place = found.end()

    def peek(self) -> str:
        self.skip()
        return self.text[self.place : self.place + 1]

    def value(self, name: str, depth: int) -> Value:
        self.num_entries += 1
        if depth > MAX_DEPTH or self.num_entries > MAX_ENTRIES:
            raise self.fail("too deep or too large for a configuration")
        mark = self.peek()
        if mark == "{":
            return self.section(name, depth)
        if mark == "[":
            return self.array(name, depth)
        if mark == '"':
            return self.string()
        return self.bare()

    def string(self) -> str:
        found = _STRING.match(self.text, self.place)
        if not found:
            raise self.fail("a string does not end")
        self.place = found.end()
        try:
            text: str = json.loads(found.group(), strict=False)
        except ValueError:
            return found.group()[1:-1]
        return text

    def bare(self) -> Value:
        found = _BARE.match(self.text, self.place)
        if not found:
            raise self.fail("it ends too early" if not self.peek() else f"unexpected `{self.peek()}`")
        word = found.group()
        if word in _WORDS:
            if word[0].isupper():
                self.lenient.add("Python words such as True")
            self.place = found.end()
            return _WORDS[word]
        if word in ("NaN", "Infinity", "-Infinity"):
            self.place = found.end()
            return word
        try:
            number = int(word) if re.fullmatch(r"-?\d{1,30}", word) else float(word)
        except ValueError:
            raise self.fail(f"unexpected `{word[:40]}`") from None
        self.place = found.end()
        return number

    def array(self, name: str, depth: int) -> tuple[Entry, ...]:
        self.place += 1
        found: list[Entry] = []
        while True:
            mark = self.peek()
            if mark == "]":
                self.place += 1
                return tuple(found)
            line = self.line()
            inner = f"{name}[{len(found)}]"
            found.append(Entry(name=inner, value=self.value(inner, depth + 1), line=line))
            self.separator("]")

    def section(self, name: str, depth: int) -> Section:
        start = self.line()
        self.place += 1
        entries: dict[str, Entry] = {}
        replaced: list[Entry] = []
        while True:
            mark = self.peek()
            if mark == "}":
                self.place += 1
                return Section(name=name, entries=entries, line=start, repeated=tuple(replaced))
            if mark != '"':
                raise self.fail(
                    "it ends too early" if not mark else f"a key in quotes is missing before `{mark}`"
                )
            line = self.line()
            key = self.string()
            if self.peek() != ":":
                raise self.fail(f'a colon is missing after "{key[:40]}"')
            self.place += 1
            inner = f"{name}.{key}" if name else key
            if key in entries:
                replaced.append(entries.pop(key))
            entries[key] = Entry(name=inner, value=self.value(inner, depth + 1), line=line)
            self.separator("}")

    def separator(self, end: str) -> None:
        mark = self.peek()
        if mark == ",":
            self.place += 1
            if self.peek() == end:
                self.lenient.add("a comma before the closing bracket")
        elif mark != end:
            raise self.fail("it ends too early" if not mark else f"a comma is missing before `{mark}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonText:
    """The root section, and what plain JSON would refuse."""

    root: Section
    lenient: tuple[str, ...] = ()


def read_json(text: str, path: str) -> JsonText:
    """The JSON object in `text`. Raises InputError with the line when it is none."""
    if len(text) > MAX_JSON_CHARACTERS:
        raise InputError(f"`{path}` is too large for a configuration")
    reader = _Reader(text=text, path=path)
    if reader.peek() != "{":
        raise InputError(f"`{path}` holds no JSON object")
    root = reader.section("", 0)
    if reader.peek():
        raise reader.fail(f"something follows the closing bracket: `{reader.peek()}`")
    return JsonText(root=root, lenient=tuple(sorted(reader.lenient)))
