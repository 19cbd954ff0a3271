"""Shell and sbatch scripts, read without running them: which commands they would start, with which words.

Assignments, arrays, defaults, integer arithmetic, functions, `if`, `case` and loops are followed in order as far
as the text decides them. What it does not decide stays visible: a variable that nothing sets, an argument of the
caller, the output of a command, words that only one branch adds. Sizes, depth and steps are bounded, and what is
not shell costs its line only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from distdoctor.oom.configs.shell.directives import (
    Comment,
    Directive,
    read_comments,
    read_directives,
    slurm_variables,
)
from distdoctor.oom.configs.shell.run import follow_script
from distdoctor.oom.configs.shell.state import Document
from distdoctor.oom.configs.shell.syntax import parse_shell
from distdoctor.oom.configs.shell.values import Condition, Token, Unknown, is_plain, without_private

# Launch scripts have some hundred lines; what is longer is no launch script, and its start is enough.
MAX_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command that the script would run, expanded. What `srun` or `bash -c` is given is part of it."""

    tokens: tuple[Token, ...]
    line: int
    condition: Condition | None = None
    """The branch that it runs in, where the script leaves open whether that branch is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable as it is at the end of the script, or where the commands are started."""

    name: str
    value: str
    line: int
    is_known: bool = True
    only_for: tuple[int, int] | None = None
    """Set for some commands alone (`A=1 torchrun …`): the first of them in `Script.commands`, and the one after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedFile:
    """A here-document: a file that the script writes, such as a DeepSpeed configuration."""

    text: str
    line: int
    target: str | None
    """The file it goes to, as written; None when it is the input of a command."""
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A statement that could not be read."""

    what: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What reading a script gave."""

    commands: tuple[Command, ...]
    variables: Mapping[str, Variable]
    directives: tuple[Directive, ...]
    unset: tuple[Unknown, ...]
    """Variables that are used and that the script does not set, each once, by their first use."""
    heredocs: tuple[EmbeddedFile, ...]
    comments: tuple[Comment, ...]
    condition_lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Variables that a condition took as empty because nothing sets them, with the lines of their first use."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables whose default was taken, with it: whoever runs the script may set them otherwise."""
    sources: tuple[str, ...] = ()
    """Files that it sources: what they set is not known here."""
    notes: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    """Statements that are no shell: bash would stop there."""

    def variables_at(self, line: int) -> dict[str, Variable]:
        """The variables of the command that begins in `line`: without those that only other commands get."""
        places = [at for at, each in enumerate(self.commands) if each.line == line]
        return {
            name: each
            for name, each in self.variables.items()
            if each.only_for is None or any(each.only_for[0] <= at < each.only_for[1] for at in places)
        }


def read_script(text: str) -> Script:
    """Reads a script. Never raises and runs nothing; what could not be read is in `notes` with its line."""
    notes: list[str] = []
    if len(text) > MAX_CHARACTERS:
        notes.append(f"only the first {MAX_CHARACTERS} characters were read")
    text = without_private(text[:MAX_CHARACTERS].replace("\r\n", "\n"))
    tree = parse_shell(text)
    directives = read_directives(text)
    state = follow_script(tree.nodes, slurm_variables(directives))
    errors = [*tree.errors, *state.errors]
    notes += [f"line {error.line} was not understood: {error.what}" for error in errors[:5]]
    if len(errors) > 5:
        notes.append(f"{len(errors) - 5} more lines were not understood")
    notes += state.notes
    return Script(
        commands=tuple(
            Command(
                tokens=tuple(state.marks.token(word, each.line) for word in each.fields),
                line=each.line,
                condition=each.condition,
            )
            for each in state.commands
        ),
        variables={
            name: Variable(
                name=name,
                value=state.marks.shown(value if isinstance(value, str) else " ".join(value)),
                line=state.lines.get(name, 0),
                is_known=is_plain(value if isinstance(value, str) else "".join(value)),
                only_for=state.only_for.get(name),
            )
            for name, value in state.expander.values.items()
            if name in state.lines
        },
        directives=_outside_documents(directives, state.documents) + tuple(state.more_directives),
        unset=tuple(state.unset.found.values()),
        heredocs=tuple(
            EmbeddedFile(
                text=state.marks.shown(each.text), line=each.line, target=each.target, command=each.command
            )
            for each in state.documents
        ),
        comments=read_comments(text),
        defaults=state.expander.defaults,
        condition_lines={name: tuple(lines) for name, lines in state.condition_lines.items()},
        sources=tuple(state.sources),
        notes=tuple(notes),
        refused=tuple(Refused(what=error.what, line=error.line) for error in errors),
    )


def _outside_documents(
    directives: tuple[Directive, ...], documents: Sequence[Document]
) -> tuple[Directive, ...]:
    """Without those that stand in a here-document: they belong to the script that is written there."""
    inside = {line for each in documents for line in range(each.line, each.line + each.text.count("\n") + 1)}
    return tuple(each for each in directives if each.line not in inside)
