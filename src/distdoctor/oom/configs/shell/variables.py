"""The variables of a script while it is read: what each holds, or the mark of why that is unknown.

Sizes are bounded, so that nine lines that double a variable end in "too long", not in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from distdoctor.oom.configs.shell.values import Marks, Unknown, UnknownKind, Value

# One value; the longest argument strings of real launch scripts have some 10,000 characters.
MAX_VALUE = 100_000

# Everything that a script's expansions may produce together.
MAX_PRODUCED = 3_000_000

# Expansions within expansions.
MAX_DEPTH = 12


class Variables:
    """Variables, arguments and taken defaults, without any expansion."""

    def __init__(self, marks: Marks, classify: Callable[[str], Unknown], line: Callable[[], int]) -> None:
        self.marks = marks
        self.values: dict[str, Value] = {}
        self.defaults: dict[str, str] = {}
        """Variables whose default was taken (`${TP:-1}`): whoever runs the script may set them."""
        self.arguments: list[str] | None = None
        """Of the function or `bash -c` that is being read; None at the top, where only the caller knows them."""
        self.depth = 0
        """How many expansions the one being read stands within."""
        self._classify = classify
        self._line = line
        self._produced = 0

    def scalar(self, name: str) -> str | None:
        """The value of a variable (an array's first element), or None when nothing set it."""
        value = self.values.get(name)
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

    def why_unset(self, name: str) -> Unknown:
        """What is known about a variable that nothing set so far."""
        return self._classify(name)

    def value_of(self, name: str) -> str:
        """The value of a variable, or the mark of why it is unknown."""
        known = self.scalar(name)
        return known if known is not None else self.marks.mark(self.why_unset(name))
