"""What a shell variable may be when a script is read without running it: text with unknown parts in it.

An unknown part stands in the text as a mark, so that joining and splitting words keeps it where it belongs:
`--nnodes=` plus the mark of `$SLURM_NNODES` is still one word. Text that only some branch of the script adds
stands between two other marks. All marks are private-use characters; a script's own are replaced on reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_OPEN, _CLOSE = "\ue000", "\ue001"
_REGION, _REGION_ID_ENDS, _REGION_ENDS = "\ue002", "\ue003", "\ue004"

_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_REGION_MARKS = re.compile(f"{_REGION}\\d+{_REGION_ID_ENDS}|{_REGION_ENDS}")
_REGION_START = re.compile(f"{_REGION}(\\d+){_REGION_ID_ENDS}")
_SPLIT = re.compile(
    f"{_REGION}\\d+{_REGION_ID_ENDS}|{_REGION_ENDS}|[ \t\n]+|[^ \t\n{_REGION}{_REGION_ENDS}]+"
)
_PRIVATE = re.compile("[\ue000-\ue004]")


# A variable's: an array is a list.
Value = str | list[str]


class UnknownKind(str, Enum):
    """Why the value of a variable is not in the script."""

    NEVER_SET = "never set in the script"
    NOT_TAKEN = "set only in branches that are not taken"
    SOURCED = "may be set by a file that the script sources"
    SCHEDULER = "set by the scheduler"
    ENVIRONMENT = "taken from the environment"
    ARGUMENT = "an argument of the script"
    GIVEN = "the script insists that its caller gives it"
    COMMAND = "the output of a command"
    CHOICE = "depends on a condition"
    LOOP = "changes in a loop"
    TOO_LONG = "too long to be followed"


# As the script stands, these are empty; only its caller could change that.
EMPTY_AS_IT_STANDS = frozenset({UnknownKind.NEVER_SET, UnknownKind.NOT_TAKEN, UnknownKind.ARGUMENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One value that a variable has in one branch or one round of a loop."""

    value: str
    line: int


@dataclass(slots=True, kw_only=True)
class Unknown:
    """A part of a word whose text the script does not hold."""

    name: str
    """`NODES`, `1` for the first argument, or `$(hostname)`."""
    kind: UnknownKind
    line: int
    alternatives: tuple[Alternative, ...] = ()

    @property
    def shown(self) -> str:
        """As it stands in the script: `$NODES`, `$(hostname)`."""
        return self.name if self.name.startswith("$") else f"${self.name}"


@dataclass(slots=True, kw_only=True)
class Condition:
    """The branch that a word or a command depends on."""

    group: int
    """Branches of one `if` or `case` share it."""
    branch: int
    num_branches: int
    """With the silent one where there is no `else`."""
    text: str
    line: int
    is_nested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One word of a command, expanded. Unknown parts are shown as `$NAME`."""

    text: str
    line: int
    unknowns: tuple[Unknown, ...] = ()
    condition: Condition | None = None

    @property
    def is_known(self) -> bool:
        """Whether the text is what the command will see, whatever the caller and the machine do."""
        return not self.unknowns and self.condition is None

    @property
    def is_all_unknown(self) -> bool:
        """Whether nothing of it is known."""
        return len(self.unknowns) == 1 and self.text == self.unknowns[0].shown


class Marks:
    """The unknowns and the conditions of one script, by the numbers that their marks carry."""

    def __init__(self) -> None:
        self.unknowns: list[Unknown] = []
        self.conditions: list[Condition] = []

    def mark(self, unknown: Unknown) -> str:
        """The text that stands for `unknown`."""
        self.unknowns.append(unknown)
        return f"{_OPEN}{len(self.unknowns) - 1}{_CLOSE}"

    def text_of(self, unknown: Unknown) -> str:
        """The mark that stands for an unknown of this script."""
        number = next(at for at, each in enumerate(self.unknowns) if each is unknown)
        return f"{_OPEN}{number}{_CLOSE}"

    def in_branch(self, text: str, condition: Condition) -> str:
        """`text`, marked as added by one branch only."""
        self.conditions.append(condition)
        return f"{_REGION}{len(self.conditions) - 1}{_REGION_ID_ENDS}{text}{_REGION_ENDS}"

    def unknowns_in(self, text: str) -> tuple[Unknown, ...]:
        """The unknown parts of `text`, in order."""
        return tuple(self.unknowns[int(number)] for number in _MARK.findall(text))

    def sole_unknown(self, text: str) -> Unknown | None:
        """The unknown that `text` consists of, where it is nothing else."""
        match = _MARK.fullmatch(text)
        return self.unknowns[int(match[1])] if match else None

    def shown(self, text: str) -> str:
        """`text` for people: `$NAME` for an unknown part, the text of a branch plainly."""
        return _REGION_MARKS.sub("", _MARK.sub(lambda m: self.unknowns[int(m[1])].shown, text))

    def token(self, field: str, line: int) -> Token:
        """One field of a command as a token."""
        starts = _REGION_START.findall(field)
        condition = self.conditions[int(starts[0])] if starts else None
        if condition is not None and len(starts) > 1:
            condition.is_nested = True
        return Token(text=self.shown(field), line=line, unknowns=self.unknowns_in(field), condition=condition)


def without_private(text: str) -> str:
    """`text` without the characters that our marks are made of."""
    return _PRIVATE.sub("\ufffd", text)


def is_plain(text: str) -> bool:
    """Whether nothing in `text` is unknown or conditional."""
    return _OPEN not in text and _REGION not in text


def has_region(text: str) -> bool:
    """Whether some of `text` comes from one branch only."""
    return _REGION in text


def split_fields(text: str) -> list[str]:
    """`text` at its blanks, as the shell splits an unquoted expansion. Every field keeps the branch it is from."""
    fields: list[str] = []
    regions: list[str] = []
    current, has_text = "", False

    def end_field() -> None:
        nonlocal current, has_text
        if has_text:
            fields.append(current + _REGION_ENDS * len(regions))
        current, has_text = "".join(regions), False

    for match in _SPLIT.finditer(text):
        piece = match[0]
        if piece.startswith(_REGION):
            regions.append(piece)
            current += piece
        elif piece == _REGION_ENDS:
            if has_text:
                current += piece
            if regions:
                regions.pop()
            if not has_text:
                current = "".join(regions)
        elif piece[0] in " \t\n":
            end_field()
        else:
            current += piece
            has_text = True
    end_field()
    return fields
