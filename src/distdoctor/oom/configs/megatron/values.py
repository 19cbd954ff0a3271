"""Values of Megatron-LM's arguments, asked for by type. What cannot be read is kept as an open point."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.oom.configs.text.values import as_flag, as_int, as_number
from distdoctor.oom.facts.launch import Open

# `unfused # TODO …`: what YAML and shell files leave behind a value.
_COMMENT = re.compile(r"\s+#.*$")
_MAX_VALUE = 4096


@dataclass(slots=True)
class Arguments:
    """Arguments by name without dashes; `_` and `-` are the same."""

    raw: Mapping[str, str]
    open_points: list[Open] = field(default_factory=list)
    _by_name: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {
            name.lstrip("-").replace("_", "-"): _COMMENT.sub("", str(value)[:_MAX_VALUE]).strip()
            for name, value in self.raw.items()
        }

    def names(self) -> tuple[str, ...]:
        """All that were given."""
        return tuple(self._by_name)

    def has(self, name: str) -> bool:
        """Whether the argument was given and not switched off."""
        value = self._by_name.get(name)
        return value is not None and as_flag(value) is not False

    def flag(self, name: str) -> bool:
        """A switch; False when it is not there."""
        value = self._by_name.get(name)
        if value is None:
            return False
        return as_flag(value) is not False

    def text(self, name: str) -> str | None:
        """The value without quotes; None when it is not there."""
        value = self._by_name.get(name)
        if value is None:
            return None
        return value.strip("\"'").strip() or None

    def word(self, name: str) -> str | None:
        """The value in lower case."""
        value = self.text(name)
        return value.lower() if value is not None else None

    def words(self, name: str) -> tuple[str, ...]:
        """The values of an argument that takes several; brackets, quotes and commas are left out."""
        value = self.text(name) or ""
        return tuple(word for word in re.split(r"[\s,\[\]()'\"]+", value) if word)

    def integer(self, name: str, *, settles: str | None = None) -> int | None:
        """A whole number; None when it is absent or a variable, which is then an open point."""
        value = self.text(name)
        if value is None:
            return None
        number = as_int(value)
        if number is None:
            self._leave_open(name, value, settles)
        return number

    def number(self, name: str) -> float | None:
        """A number; None when it is absent or a variable, which is then an open point."""
        value = self.text(name)
        if value is None:
            return None
        number = as_number(value)
        if number is None:
            self._leave_open(name, value, None)
        return number

    def _leave_open(self, name: str, value: str, settles: str | None) -> None:
        self.open_points.append(
            Open(
                what=f"--{name}",
                why=f"`{value[:60]}` is no number",
                how=f"give the number for `--{name}`",
                settles=settles,
            )
        )
