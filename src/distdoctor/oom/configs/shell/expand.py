"""Expansions of the shell over known and unknown variables: `${A:-b}`, `$((N * 8))`, `${ARGS[@]}`, `$(cat <<EOF)`.

No command is run: `$(hostname)` is an unknown with that name. Sizes are bounded, so that nine lines that double a
variable end in "too long", not in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from distdoctor.oom.configs.shell.arithmetic import evaluate
from distdoctor.oom.configs.shell.values import (
    EMPTY_AS_IT_STANDS,
    Marks,
    Unknown,
    UnknownKind,
    is_plain,
    split_fields,
)

# One value; the longest argument strings of real launch scripts have some 10,000 characters.
MAX_VALUE = 100_000

# Everything that a script's expansions may produce together.
MAX_PRODUCED = 3_000_000

_MAX_DEPTH = 12
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([#!]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(\[[^\]]*\])?(.*)", re.DOTALL)
_CAT_DOCUMENT = re.compile(r"\s*cat\s*<<(-?)\s*(['\"\\]?)([\w.-]+)['\"]?[ \t]*\n(.*)", re.DOTALL)
_ECHO = re.compile(r"\s*echo\s+(?:-[neE]+\s+)*([^|;&<>`]*)\s*", re.DOTALL)
_ECHO_BC = re.compile(r"\s*echo\s+[\"']?([^|;&<>`\"']*)[\"']?\s*\|\s*bc(?:\s+-l)?\s*")
_EXPR = re.compile(r"\s*expr\s+([^|;&<>`]*)\s*")

Value = str | list[str]


class Expander:
    """Variables of a script while it is read, and the expansion of words over them."""

    def __init__(self, marks: Marks, classify: Callable[[str], Unknown], line: Callable[[], int]) -> None:
        self.marks = marks
        self.variables: dict[str, Value] = {}
        self.defaults: dict[str, str] = {}
        """Variables whose default was taken (`${TP:-1}`): whoever runs the script may set them."""
        self.arguments: list[str] | None = None
        """Of the function or `bash -c` that is being read; None at the top, where only the caller knows them."""
        self._classify = classify
        self._line = line
        self._produced = 0
        self._depth = 0

    # -- what callers use

    def fields(self, raw: str) -> list[str]:
        """A word of a command line, expanded and split into fields."""
        return _Fields(self).read(raw)

    def text(self, raw: str) -> str:
        """A word expanded without splitting: the value of an assignment, one side of a test."""
        return " ".join(_Fields(self, splits=False).read(raw))

    def document(self, body: str) -> str:
        """The text of a here-document: `$` expands, quotes do not."""
        return _Fields(self, splits=False).read_document(body)

    def scalar(self, name: str) -> str | None:
        """The value of a variable (an array's first element), or None when nothing set it."""
        value = self.variables.get(name)
        if isinstance(value, list):
            return value[0] if value else ""
        return value

    def unknown(self, name: str, kind: UnknownKind) -> str:
        """A mark for something that cannot be known."""
        return self.marks.mark(Unknown(name=name, kind=kind, line=self._line()))

    def bounded(self, text: str, name: str) -> str:
        """`text`, or a mark when it or all text so far is too long."""
        self._produced += len(text)
        if len(text) > MAX_VALUE or self._produced > MAX_PRODUCED:
            return self.unknown(name, UnknownKind.TOO_LONG)
        return text

    def arithmetic(self, expression: str) -> str:
        """The value of `$(( expression ))` as text, or a mark that says which variable is missing."""
        expanded = self.text(expression) if "$" in expression else expression
        missing: list[Unknown] = list(self.marks.unknowns_in(expanded))

        def lookup(name: str) -> int | None:
            text = self.value_of(name)
            if not is_plain(text):
                missing.extend(self.marks.unknowns_in(text))
                return None
            text = text.strip().replace("_", "")
            return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None

        value = evaluate(expanded, lookup) if is_plain(expanded) else None
        if value is not None:
            return str(value)
        kind = missing[0].kind if missing else UnknownKind.COMMAND
        return self.unknown(f"$(({expression.strip()[:60]}))", kind)

    def value_of(self, name: str) -> str:
        """The value of a variable, or the mark of why it is unknown."""
        known = self.scalar(name)
        return known if known is not None else self.marks.mark(self._classify(name))

    def substitution(self, command: str) -> str:
        """`$(command)`: known for what only formats text, otherwise a mark."""
        if self._depth < _MAX_DEPTH:
            self._depth += 1
            try:
                known = self._known_output(command)
            finally:
                self._depth -= 1
            if known is not None:
                return self.bounded(known.rstrip("\n"), "$(…)")
        shown = " ".join(command.split())
        return self.unknown(f"$({shown[:40]}{'…' if len(shown) > 40 else ''})", UnknownKind.COMMAND)

    def _known_output(self, command: str) -> str | None:
        if match := _CAT_DOCUMENT.fullmatch(command):
            lines = match[4].split("\n")
            if match[1]:
                lines = [line.lstrip("\t") for line in lines]
            for at, line in enumerate(lines):
                if line.strip() == match[3]:
                    body = "\n".join(lines[:at])
                    return body if match[2] else self.document(body)
            return None
        if match := _ECHO_BC.fullmatch(command):
            return self.arithmetic(match[1])
        if match := _EXPR.fullmatch(command):
            return self.arithmetic(re.sub(r"\\(.)", r"\1", match[1]).replace("'", "").replace('"', ""))
        if match := _ECHO.fullmatch(command):
            if "$(" in match[1] or "*" in match[1]:
                return None
            return " ".join(self.fields(match[1])) if match[1].strip() else ""
        return None

    # -- ${…}

    def braced(self, inside: str) -> tuple[Value, bool]:
        """`${inside}` and whether it stands for separate fields even within quotes (`${A[@]}`)."""
        match = _BRACED.fullmatch(inside)
        if match is None or self._depth >= _MAX_DEPTH:
            return self.unknown(f"${{{inside[:30]}}}", UnknownKind.COMMAND), False
        prefix, name, index, rest = match[1], match[2], match[3], match[4]
        if prefix == "#" and not rest:
            return self._length(name, index), False
        if prefix == "!":
            return self._indirect(name, index, rest)
        self._depth += 1
        try:
            return self._parameter(name, index, rest)
        finally:
            self._depth -= 1

    def _length(self, name: str, index: str | None) -> str:
        value = self.variables.get(name)
        if index in ("[@]", "[*]") and isinstance(value, list):
            plain = all(is_plain(item) for item in value)
            return str(len(value)) if plain else self.unknown(f"${{#{name}{index}}}", UnknownKind.COMMAND)
        text = self.value_of(name)
        return str(len(text)) if is_plain(text) else self.unknown(f"${{#{name}}}", UnknownKind.COMMAND)

    def _indirect(self, name: str, index: str | None, rest: str) -> tuple[Value, bool]:
        target = self.scalar(name)
        if target is not None and is_plain(target) and _NAME.fullmatch(target) and index is None and not rest:
            return self.value_of(target), False
        return self.unknown(f"${{!{name}}}", UnknownKind.COMMAND), False

    def _parameter(self, name: str, index: str | None, rest: str) -> tuple[Value, bool]:
        value, separate = self._element(name, index)
        if not rest:
            return (self.marks.mark(self._classify(name)) if value is None else value), separate
        operator = re.match(r":?[-=+?]", rest)
        if operator is not None:
            return self._default(name, value, separate, operator[0], rest[operator.end() :])
        if value is None:
            return self.marks.mark(self._classify(name)), False
        if rest.startswith(":"):
            return self._slice(value, rest[1:], name), separate
        if isinstance(value, list):
            return [self._edited(item, rest, name) for item in value], separate
        return self._edited(value, rest, name), separate

    def _element(self, name: str, index: str | None) -> tuple[Value | None, bool]:
        if name in ("@", "*"):
            return (list(self.arguments) if self.arguments is not None else None), True
        if name.isdigit():
            return self._argument(int(name)), False
        value = self.variables.get(name)
        if index in ("[@]", "[*]"):
            if value is None:
                return None, False
            return ([value] if isinstance(value, str) else list(value)), index == "[@]"
        if index is not None and isinstance(value, list):
            key = self.text(index[1:-1])
            named = [item for item in value if item.startswith(f"[{key}]=")]
            if named:  # `declare -A SIZES=([7b]=32 [70b]=80)`
                return named[-1].partition("]=")[2], False
            at = self.arithmetic(index[1:-1])
            if not re.fullmatch(r"-?\d{1,5}", at) or not all(is_plain(item) for item in value):
                return self.unknown(f"${{{name}{index}}}", UnknownKind.COMMAND), False
            position = int(at)
            return (value[position] if -len(value) <= position < len(value) else None), False
        if isinstance(value, list):
            return (value[0] if value else ""), False
        return value, False

    def _argument(self, number: int) -> str | None:
        if number == 0 or self.arguments is None or number > len(self.arguments):
            return None
        return self.arguments[number - 1]

    def _default(
        self, name: str, value: Value | None, separate: bool, operator: str, raw: str
    ) -> tuple[Value, bool]:
        text = " ".join(value) if isinstance(value, list) else value
        sole = self.marks.sole_unknown(text) if text is not None else None
        is_empty = text is None or (operator[0] == ":" and text == "")
        if sole is not None and operator[0] == ":":
            is_empty = sole.kind in EMPTY_AS_IT_STANDS
        kind = operator[-1]
        if kind == "+":
            if text is None and self._classify(name).kind not in EMPTY_AS_IT_STANDS:
                return self.unknown(f"${{{name}:+…}}", UnknownKind.ENVIRONMENT), False
            return ("" if is_empty else self.text(raw)), False
        if not is_empty and value is not None:
            return value, separate
        if kind == "?":
            return self.marks.mark(Unknown(name=name, kind=UnknownKind.GIVEN, line=self._line())), False
        default = self.bounded(self.text(raw), name)
        if kind == "=" and not name.isdigit():
            self.variables[name] = default
        if len(self.defaults) < 200:
            self.defaults[name] = self.marks.shown(default)[:200]
        return default, False

    def _slice(self, value: Value, text: str, name: str) -> Value:
        bounds = [self.arithmetic(part) if part.strip() else "0" for part in text.split(":", 1)]
        plain = is_plain("".join(value)) and all(re.fullmatch(r"-?\d{1,6}", bound) for bound in bounds)
        if not plain:
            return self.unknown(f"${{{name}:{text[:20]}}}", UnknownKind.COMMAND)
        start = int(bounds[0])
        if len(bounds) == 1:
            return value[start:]
        length = int(bounds[1])
        return value[start : start + length] if length >= 0 else value[start:length]

    def _edited(self, text: str, rest: str, name: str) -> str:
        """`${name#pattern}`, `%`, `/from/to`, `^^`, `,,`. Unknown when the pattern is not a simple one."""
        if rest in ("^^", ",,"):
            return text.upper() if rest == "^^" else text.lower()
        if not is_plain(text) or len(text) > 4000:
            return self.unknown(f"${{{name}{rest[:20]}}}", UnknownKind.COMMAND)
        if match := re.fullmatch(r"(##?|%%?)(.*)", rest, re.DOTALL):
            pattern = self.text(match[2])
            if is_plain(pattern) and len(pattern) <= 100 and pattern.count("*") <= 2:
                return _trimmed(text, match[1], pattern)
        elif match := re.fullmatch(r"(//?)((?:[^/\\]|\\.)*)/?(.*)", rest, re.DOTALL):
            pattern, new = self.text(match[2]), self.text(match[3])
            if is_plain(pattern + new) and pattern and not re.search(r"[*?\[]", pattern):
                return self.bounded(text.replace(pattern, new, -1 if match[1] == "//" else 1), name)
        return self.unknown(f"${{{name}{rest[:20]}}}", UnknownKind.COMMAND)


def _trimmed(text: str, operator: str, pattern: str) -> str:
    matches = re.compile(translate(pattern)).match
    from_start = operator[0] == "#"
    lengths = range(len(text) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        piece = text[:length] if from_start else text[len(text) - length :]
        if matches(piece):
            return text[length:] if from_start else text[: len(text) - length]
    return text


class _Fields:
    """One word on its way through expansion, quote removal and splitting."""

    def __init__(self, expander: Expander, *, splits: bool = True) -> None:
        self._expander = expander
        self._splits = splits
        self._done: list[str] = []
        self._current: str | None = None

    def read(self, raw: str) -> list[str]:
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
        expander = self._expander
        if raw[at] == "`":
            end = raw.find("`", at + 1)
            end = len(raw) if end < 0 else end
            return expander.substitution(raw[at + 1 : end]), False, end + 1
        closed = balanced_end(raw, at + 1) if raw[at + 1 : at + 2] in ("(", "{") else None
        if closed and raw.startswith("$((", at) and raw[closed - 2 : closed] == "))":
            return expander.arithmetic(raw[at + 3 : closed - 2]), False, closed
        if raw.startswith("$(", at):
            end = closed or len(raw)
            return expander.substitution(raw[at + 2 : end - 1]), False, end
        if raw.startswith("${", at):
            end = closed or len(raw)
            value, separate = expander.braced(raw[at + 2 : end - 1])
            return value, separate, end
        if raw.startswith("$'", at):
            end = raw.find("'", at + 2)
            end = len(raw) if end < 0 else end
            return raw[at + 2 : end].replace("\\n", "\n").replace("\\t", "\t"), False, end + 1
        if match := re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]").match(raw, at + 1):
            value, separate = expander.braced(match[0])
            return value, separate, match.end()
        return "$", False, at + 1


def balanced_end(text: str, at: int) -> int | None:
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
