"""What is known while a script is followed: its variables, and all that was collected so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from distdoctor.oom.configs.shell.assigned import assignments_in
from distdoctor.oom.configs.shell.conditions import Verdict
from distdoctor.oom.configs.shell.directives import Directive
from distdoctor.oom.configs.shell.expand import Expander
from distdoctor.oom.configs.shell.tree import Node, ShellSyntaxError
from distdoctor.oom.configs.shell.unset import UnsetVariables
from distdoctor.oom.configs.shell.values import Condition, Marks, Value

# Commands kept; a launch script starts a handful.
MAX_COMMANDS = 500

# Functions and scripts within one another.
MAX_CALLS = 12


@dataclass(slots=True)
class Started:
    """A command as it would be started: its fields still carry marks."""

    fields: list[str]
    line: int
    condition: Condition | None


@dataclass(slots=True)
class Document:
    """A here-document, expanded; still with marks."""

    text: str
    line: int
    target: str | None
    command: str


class Follower(Protocol):
    """Follows statements of any kind; each kind comes back to it with the statements that it holds."""

    def follow(self, node: Node) -> Verdict:
        """Follows one statement."""

    def follow_all(self, nodes: list[Node]) -> bool | None:
        """Follows statements in order; whether the last one succeeds."""


class ScriptState:
    """Variables and findings of one script at the statement that is being read."""

    def __init__(self, nodes: list[Node], variables: dict[str, str]) -> None:
        self.line = 0
        self.marks = Marks()
        self.sources: list[str] = []
        self.unset = UnsetVariables(assignments_in(nodes), self.sources)
        self.expander = Expander(
            self.marks, lambda name: self.unset.classify(name, self.line), lambda: self.line
        )
        self.expander.values.update(variables)
        self.lines: dict[str, int] = {}
        """Where each variable was set last."""
        self.only_for: dict[str, tuple[int, int]] = {}
        """Variables that stand before a command only: which of `commands` they are set for."""
        self.functions: dict[str, Node] = {}
        self.calls = 0
        """How many functions and scripts the statement stands within."""
        self.conditions: list[Condition] = []
        """Of the branches that it stands in, the outermost first."""
        self.condition_lines: dict[str, list[int]] = {}
        """Lines of conditions that took a variable as empty, by its name."""
        self.commands: list[Started] = []
        self.documents: list[Document] = []
        self.more_directives: list[Directive] = []
        self.notes: list[str] = []
        self.errors: list[ShellSyntaxError] = []
        """Of scripts within the script."""

    def assign(self, name: str, value: Value) -> None:
        """Sets a variable at the current line."""
        self.expander.values[name] = value
        self.lines[name] = self.line
        self.only_for.pop(name, None)

    def start(self, fields: list[str], line: int) -> None:
        """Notes a command that the script would start."""
        if len(self.commands) < MAX_COMMANDS:
            condition = self.conditions[-1] if self.conditions else None
            self.commands.append(Started(fields, line, condition))
