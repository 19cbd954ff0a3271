"""What a shell script consists of: words, assignments, commands, branches, loops. Only names and lines, no meaning."""

from __future__ import annotations

from dataclasses import dataclass, field


class ShellSyntaxError(Exception):
    """A statement that is no shell, or is cut short."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


@dataclass(slots=True)
class Word:
    """A word as it stands: quotes and expansions unresolved."""

    raw: str
    line: int


@dataclass(slots=True)
class Assignment:
    """`NAME=word`, `NAME+=word`, `NAME=( words )` or `NAME[i]=word`."""

    name: str
    line: int
    value: Word | list[Word]
    appends: bool = False
    index: str | None = None


@dataclass(slots=True)
class HereDocument:
    """Text given to a command: `<<EOF` (expanded unless its delimiter is quoted) or `<<<`."""

    text: str
    line: int
    expands: bool


@dataclass(slots=True)
class Simple:
    """A command: assignments before it, its words (assignments among them for `declare`), its redirections."""

    line: int
    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word | Assignment] = field(default_factory=list)
    documents: list[HereDocument] = field(default_factory=list)
    output: Word | None = None


@dataclass(slots=True)
class Bracket:
    """`[[ … ]]` or `(( … ))`, its inside as one text."""

    line: int
    kind: str
    text: str


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`."""

    line: int
    parts: list[Node]
    is_negated: bool


@dataclass(slots=True)
class AndOr:
    """Pipelines joined by `&&` and `||`."""

    line: int
    first: Node
    rest: list[tuple[str, Node]]


@dataclass(slots=True)
class If:
    """Branches with their conditions; the last may have None, which is `else`."""

    line: int
    branches: list[tuple[list[Node] | None, list[Node], int]]


@dataclass(slots=True)
class Case:
    """Arms with their patterns."""

    line: int
    word: Word
    arms: list[tuple[list[str], list[Node], int]]


@dataclass(slots=True)
class Loop:
    """`for NAME in words`, `for ((…))`, `while` or `until`."""

    line: int
    kind: str
    body: list[Node]
    name: str = ""
    words: list[Word] = field(default_factory=list)
    condition: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """`{ … }` or `( … )`."""

    line: int
    body: list[Node]
    is_subshell: bool


@dataclass(slots=True)
class Function:
    """A function's definition."""

    line: int
    name: str
    body: Node


Node = Simple | Bracket | Pipeline | AndOr | If | Case | Loop | Group | Function


def command_name(node: Simple) -> str:
    """The first word as it stands; empty where there is none."""
    first = node.words[0] if node.words else None
    return first.raw if isinstance(first, Word) else ""
