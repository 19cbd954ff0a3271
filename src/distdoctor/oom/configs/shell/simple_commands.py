"""Simple commands: what the shell does itself, functions of the script, and what it would start.

An ordinary command is taken to succeed.
"""

from __future__ import annotations

from distdoctor.oom.configs.shell.assigning import arithmetic_command, assign, assigning_builtin, declare
from distdoctor.oom.configs.shell.conditions import TESTS, Verdict, judge_test
from distdoctor.oom.configs.shell.ending import FunctionReturnsError, ScriptEndsError
from distdoctor.oom.configs.shell.nested_scripts import NestedScripts
from distdoctor.oom.configs.shell.state import MAX_CALLS, Follower, ScriptState
from distdoctor.oom.configs.shell.tree import Simple, Word, command_name

_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_STARTS_NOTHING = frozenset(
    (
        "set",
        "shopt",
        "echo",
        "printf",
        "cd",
        "shift",
        "trap",
        "ulimit",
        "break",
        "continue",
        "wait",
        "read",
        "mapfile",
        "readarray",
        "module",
        "ml",
    )
)


class SimpleCommands:
    """Follows one command with its words and assignments."""

    def __init__(self, state: ScriptState, follower: Follower) -> None:
        self._state = state
        self._follower = follower
        self._nested = NestedScripts(state, follower)

    def simple(self, node: Simple) -> Verdict:
        """Follows the command; whether it succeeds."""
        if not node.words:
            for assignment in node.assignments:
                assign(self._state, assignment)
            return Verdict(True)
        name = command_name(node)
        if name in TESTS:
            words = [word.raw for word in node.words[1:] if isinstance(word, Word)]
            if name == "[" and words and words[-1] == "]":
                words.pop()
            return judge_test(words, self._state.expander)
        if name in _DECLARES:
            declare(self._state, node)
            return Verdict(True)
        names = [assignment.name for assignment in node.assignments]
        before = {
            name: self._state.expander.values[name] for name in names if name in self._state.expander.values
        }
        for assignment in node.assignments:
            assign(self._state, assignment)
        first = len(self._state.commands)
        try:
            return self._external(node)
        finally:
            if len(self._state.commands) > first:
                self._state.only_for.update(
                    {name: (first, len(self._state.commands)) for name in names if name not in before}
                )
            # `A=1 command` sets A for that command alone, but readers ask for it: it stays unless it was set before.
            self._state.expander.values.update(before)

    def _external(self, node: Simple) -> Verdict:
        fields: list[str] = []
        for word in node.words:
            if isinstance(word, Word):
                fields += self._state.expander.fields(word.raw)
            elif isinstance(word.value, Word):
                sign = "+=" if word.appends else "="
                fields.append(f"{word.name}{sign}{self._state.expander.text(word.value.raw)}")
        self._nested.read_documents(node, fields)
        first = fields[0] if fields else ""
        match first:
            case ":" | "true":
                return Verdict(True)
            case "false":
                return Verdict(False)
            case "exit":
                raise ScriptEndsError
            case "return":
                raise FunctionReturnsError
            case "unset":
                for each in fields[1:]:
                    self._state.expander.values.pop(each, None)
                return Verdict(True)
            case _ if first in _STARTS_NOTHING:
                if first in ("module", "ml"):
                    self._state.sources.append(self._state.marks.shown(" ".join(fields[:3])))
                assigning_builtin(self._state, node, fields)
                return Verdict(True)
            case "source" | ".":
                self._state.sources.append(self._state.marks.shown(" ".join(fields[1:2])) or "a file")
                return Verdict(True)
            case "let":
                for each in fields[1:]:
                    arithmetic_command(self._state, each)
                return Verdict(True)
            case "eval" | "exec" | "command" | "nohup" | "sudo":
                if first == "eval":
                    self._nested.run(" ".join(fields[1:]), [], node.line)
                    return Verdict(True)
                fields = fields[1:]
        if first in ("ssh", "pdsh", "clush") and len(fields) > 2 and " " in fields[-1].strip():
            self._nested.run(fields[-1], fields[:-1], node.line)
            return Verdict(True)
        if first in self._state.functions:
            self._call(first, fields[1:])
            return Verdict(True)
        if self._nested.script_in(fields, node.line) or not fields:
            return Verdict(True)
        self._state.start(fields, node.line)
        return Verdict(True)

    def _call(self, name: str, arguments: list[str]) -> None:
        if self._state.calls >= MAX_CALLS:
            return
        outer, self._state.expander.arguments = self._state.expander.arguments, arguments
        self._state.calls += 1
        try:
            self._follower.follow(self._state.functions[name])
        except FunctionReturnsError:
            pass
        finally:
            self._state.calls -= 1
            self._state.expander.arguments = outer
