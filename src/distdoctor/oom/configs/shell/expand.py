"""Expansions of the shell over known and unknown variables: words, `$((N * 8))`, `$(cat <<EOF)`, here-documents.

No command is run: `$(hostname)` is an unknown with that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from distdoctor.oom.configs.shell.arithmetic import evaluate
from distdoctor.oom.configs.shell.fields import WordFields
from distdoctor.oom.configs.shell.parameters import Parameters
from distdoctor.oom.configs.shell.values import Marks, Unknown, UnknownKind, Value, is_plain
from distdoctor.oom.configs.shell.variables import MAX_DEPTH, Variables

_CAT_DOCUMENT = re.compile(r"\s*cat\s*<<(-?)\s*(['\"\\]?)([\w.-]+)['\"]?[ \t]*\n(.*)", re.DOTALL)
_ECHO = re.compile(r"\s*echo\s+(?:-[neE]+\s+)*([^|;&<>`]*)\s*", re.DOTALL)
_ECHO_BC = re.compile(r"\s*echo\s+[\"']?([^|;&<>`\"']*)[\"']?\s*\|\s*bc(?:\s+-l)?\s*")
_EXPR = re.compile(r"\s*expr\s+([^|;&<>`]*)\s*")


class Expander(Variables):
    """Variables of a script while it is read, and the expansion of words over them."""

    def __init__(self, marks: Marks, classify: Callable[[str], Unknown], line: Callable[[], int]) -> None:
        super().__init__(marks, classify, line)
        self._parameters = Parameters(self, self.text, self.arithmetic)

    def fields(self, raw: str) -> list[str]:
        """A word of a command line, expanded and split into fields."""
        return WordFields(self).read(raw)

    def text(self, raw: str) -> str:
        """A word expanded without splitting: the value of an assignment, one side of a test."""
        return " ".join(WordFields(self, splits=False).read(raw))

    def document(self, body: str) -> str:
        """The text of a here-document: `$` expands, quotes do not."""
        return WordFields(self, splits=False).read_document(body)

    def braced(self, inside: str) -> tuple[Value, bool]:
        """`${inside}` and whether it stands for separate fields even within quotes (`${A[@]}`)."""
        return self._parameters.braced(inside)

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

    def substitution(self, command: str) -> str:
        """`$(command)`: known for what only formats text, otherwise a mark."""
        if self.depth < MAX_DEPTH:
            self.depth += 1
            try:
                known = self._known_output(command)
            finally:
                self.depth -= 1
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
