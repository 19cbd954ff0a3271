"""Follows a script's statements in order over known and unknown variables. Nothing is executed."""

from __future__ import annotations

from distdoctor.oom.configs.shell.assigning import arithmetic_command
from distdoctor.oom.configs.shell.branches import Branches
from distdoctor.oom.configs.shell.conditions import Verdict, judge_test, test_words
from distdoctor.oom.configs.shell.ending import FunctionReturnsError, ScriptEndsError
from distdoctor.oom.configs.shell.loops import Loops
from distdoctor.oom.configs.shell.simple_commands import SimpleCommands
from distdoctor.oom.configs.shell.state import ScriptState
from distdoctor.oom.configs.shell.tree import (
    AndOr,
    Bracket,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    Simple,
)

# Statements followed, rounds of functions included; real scripts have some hundred.
MAX_STEPS = 20_000


def follow_script(nodes: list[Node], variables: dict[str, str]) -> ScriptState:
    """The state at the end of a script that begins with `variables`."""
    state = ScriptState(nodes, variables)
    try:
        _Statements(state).follow_all(nodes)
    except (ScriptEndsError, FunctionReturnsError):
        pass
    except (_TooMuchError, RecursionError):
        state.notes.append(f"the script does too much to be followed; reading stopped at line {state.line}")
    return state


class _TooMuchError(Exception):
    """More steps than any launch script needs."""


class _Statements:
    """Hands each statement to those who follow its kind."""

    def __init__(self, state: ScriptState) -> None:
        self._state = state
        self._branches = Branches(state, self)
        self._loops = Loops(state, self, self._branches)
        self._commands = SimpleCommands(state, self)
        self._steps = 0

    def follow_all(self, nodes: list[Node]) -> bool | None:
        """Follows statements in order; whether the last one succeeds."""
        status: bool | None = True
        for node in nodes:
            status = self.follow(node).value
        return status

    def follow(self, node: Node) -> Verdict:
        """Follows one statement."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooMuchError
        self._state.line = node.line
        match node:
            case Simple():
                return self._commands.simple(node)
            case Bracket():
                if node.kind == "[[":
                    return judge_test(test_words(node.text), self._state.expander)
                return arithmetic_command(self._state, node.text)
            case Pipeline():
                return self._pipeline(node)
            case AndOr():
                return self._branches.and_or(node)
            case If():
                return Verdict(self._branches.if_(node))
            case Case():
                self._branches.case(node)
            case Loop():
                self._loops.loop(node)
            case Group():
                self._loops.group(node)
            case Function():
                self._state.functions[node.name] = node.body
        return Verdict(True)

    def _pipeline(self, node: Pipeline) -> Verdict:
        verdict = Verdict(True)
        for part in node.parts:
            verdict = self.follow(part)
        if node.is_negated:
            verdict.value = None if verdict.value is None else not verdict.value
        return verdict if len(node.parts) == 1 else Verdict(None if node.is_negated else True)
