"""Parameter expansion: `${A}`, `${A:-b}`, `${#A}`, `${ARGS[@]}`, `${A%.json}`, `${A/from/to}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate

from distdoctor.oom.configs.shell.values import EMPTY_AS_IT_STANDS, UnknownKind, Value, is_plain
from distdoctor.oom.configs.shell.variables import MAX_DEPTH, Variables

_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([#!]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(\[[^\]]*\])?(.*)", re.DOTALL)


class Parameters:
    """What stands within `${…}`, over a script's variables. `text` and `arithmetic` expand what is nested in it."""

    def __init__(
        self, variables: Variables, text: Callable[[str], str], arithmetic: Callable[[str], str]
    ) -> None:
        self._variables = variables
        self._text = text
        self._arithmetic = arithmetic

    def braced(self, inside: str) -> tuple[Value, bool]:
        """`${inside}` and whether it stands for separate fields even within quotes (`${A[@]}`)."""
        match = _BRACED.fullmatch(inside)
        if match is None or self._variables.depth >= MAX_DEPTH:
            return self._variables.unknown(f"${{{inside[:30]}}}", UnknownKind.COMMAND), False
        prefix, name, index, rest = match[1], match[2], match[3], match[4]
        if prefix == "#" and not rest:
            return self._length(name, index), False
        if prefix == "!":
            return self._indirect(name, index, rest)
        self._variables.depth += 1
        try:
            return self._parameter(name, index, rest)
        finally:
            self._variables.depth -= 1

    def _length(self, name: str, index: str | None) -> str:
        value = self._variables.values.get(name)
        if index in ("[@]", "[*]") and isinstance(value, list):
            plain = all(is_plain(item) for item in value)
            return (
                str(len(value))
                if plain
                else self._variables.unknown(f"${{#{name}{index}}}", UnknownKind.COMMAND)
            )
        text = self._variables.value_of(name)
        return (
            str(len(text))
            if is_plain(text)
            else self._variables.unknown(f"${{#{name}}}", UnknownKind.COMMAND)
        )

    def _indirect(self, name: str, index: str | None, rest: str) -> tuple[Value, bool]:
        target = self._variables.scalar(name)
        if target is not None and is_plain(target) and _NAME.fullmatch(target) and index is None and not rest:
            return self._variables.value_of(target), False
        return self._variables.unknown(f"${{!{name}}}", UnknownKind.COMMAND), False

    def _parameter(self, name: str, index: str | None, rest: str) -> tuple[Value, bool]:
        value, separate = self._element(name, index)
        if not rest:
            return (
                self._variables.marks.mark(self._variables.why_unset(name)) if value is None else value
            ), separate
        operator = re.match(r":?[-=+?]", rest)
        if operator is not None:
            return self._default(name, value, separate, operator[0], rest[operator.end() :])
        if value is None:
            return self._variables.marks.mark(self._variables.why_unset(name)), False
        if rest.startswith(":"):
            return self._slice(value, rest[1:], name), separate
        if isinstance(value, list):
            return [self._edited(item, rest, name) for item in value], separate
        return self._edited(value, rest, name), separate

    def _element(self, name: str, index: str | None) -> tuple[Value | None, bool]:
        if name in ("@", "*"):
            return (list(self._variables.arguments) if self._variables.arguments is not None else None), True
        if name.isdigit():
            return self._argument(int(name)), False
        value = self._variables.values.get(name)
        if index in ("[@]", "[*]"):
            if value is None:
                return None, False
            return ([value] if isinstance(value, str) else list(value)), index == "[@]"
        if index is not None and isinstance(value, list):
            key = self._text(index[1:-1])
            named = [item for item in value if item.startswith(f"[{key}]=")]
            if named:  # `declare -A SIZES=([7b]=32 [70b]=80)`
                return named[-1].partition("]=")[2], False
            at = self._arithmetic(index[1:-1])
            if not re.fullmatch(r"-?\d{1,5}", at) or not all(is_plain(item) for item in value):
                return self._variables.unknown(f"${{{name}{index}}}", UnknownKind.COMMAND), False
            position = int(at)
            return (value[position] if -len(value) <= position < len(value) else None), False
        if isinstance(value, list):
            return (value[0] if value else ""), False
        return value, False

    def _argument(self, number: int) -> str | None:
        if number == 0 or self._variables.arguments is None or number > len(self._variables.arguments):
            return None
        return self._variables.arguments[number - 1]

    def _default(
        self, name: str, value: Value | None, separate: bool, operator: str, raw: str
    ) -> tuple[Value, bool]:
        text = " ".join(value) if isinstance(value, list) else value
        sole = self._variables.marks.sole_unknown(text) if text is not None else None
        is_empty = text is None or (operator[0] == ":" and text == "")
        if sole is not None and operator[0] == ":":
            is_empty = sole.kind in EMPTY_AS_IT_STANDS
        kind = operator[-1]
        if kind == "+":
            if text is None and self._variables.why_unset(name).kind not in EMPTY_AS_IT_STANDS:
                return self._variables.unknown(f"${{{name}:+…}}", UnknownKind.ENVIRONMENT), False
            return ("" if is_empty else self._text(raw)), False
        if not is_empty and value is not None:
            return value, separate
        if kind == "?":
            return self._variables.unknown(name, UnknownKind.GIVEN), False
        default = self._variables.bounded(self._text(raw), name)
        if kind == "=" and not name.isdigit():
            self._variables.values[name] = default
        if len(self._variables.defaults) < 200:
            self._variables.defaults[name] = self._variables.marks.shown(default)[:200]
        return default, False

    def _slice(self, value: Value, text: str, name: str) -> Value:
        bounds = [self._arithmetic(part) if part.strip() else "0" for part in text.split(":", 1)]
        plain = is_plain("".join(value)) and all(re.fullmatch(r"-?\d{1,6}", bound) for bound in bounds)
        if not plain:
            return self._variables.unknown(f"${{{name}:{text[:20]}}}", UnknownKind.COMMAND)
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
            return self._variables.unknown(f"${{{name}{rest[:20]}}}", UnknownKind.COMMAND)
        if match := re.fullmatch(r"(##?|%%?)(.*)", rest, re.DOTALL):
            pattern = self._text(match[2])
            if is_plain(pattern) and len(pattern) <= 100 and pattern.count("*") <= 2:
                return _trimmed(text, match[1], pattern)
        elif match := re.fullmatch(r"(//?)((?:[^/\\]|\\.)*)/?(.*)", rest, re.DOTALL):
            pattern, new = self._text(match[2]), self._text(match[3])
            if is_plain(pattern + new) and pattern and not re.search(r"[*?\[]", pattern):
                return self._variables.bounded(
                    text.replace(pattern, new, -1 if match[1] == "//" else 1), name
                )
        return self._variables.unknown(f"${{{name}{rest[:20]}}}", UnknownKind.COMMAND)


def _trimmed(text: str, operator: str, pattern: str) -> str:
    matches = re.compile(translate(pattern)).match
    from_start = operator[0] == "#"
    lengths = range(len(text) + 1)
    for length in lengths if len(operator) == 1 else reversed(lengths):
        piece = text[:length] if from_start else text[len(text) - length :]
        if matches(piece):
            return text[length:] if from_start else text[: len(text) - length]
    return text
