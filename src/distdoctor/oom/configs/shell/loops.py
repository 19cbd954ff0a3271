"""`for`, `while` and `until`, each followed once, and `( … )`, which keeps its variables to itself."""

from __future__ import annotations

from contextlib import suppress

from distdoctor.oom.configs.shell.branches import Branches
from distdoctor.oom.configs.shell.ending import ScriptEndsError
from distdoctor.oom.configs.shell.state import Follower, ScriptState
from distdoctor.oom.configs.shell.tree import Group, Loop
from distdoctor.oom.configs.shell.values import Alternative, Unknown, UnknownKind, is_plain


class Loops:
    """Follows loops and groups."""

    def __init__(self, state: ScriptState, follower: Follower, branches: Branches) -> None:
        self._state = state
        self._follower = follower
        self._branches = branches

    def loop(self, node: Loop) -> None:
        """The body once; a variable with several values is unknown in it."""
        if node.kind in ("while", "until"):
            verdict = self._branches.condition(node.condition).value
            if verdict is (node.kind == "until"):
                return
            if verdict is None:
                self._branches.alternatives([(node.body, f"{node.kind} loop", node.line)], has_else=False)
            else:
                self._follower.follow_all(node.body)
            return
        values = [value for word in node.words for value in self._state.expander.fields(word.raw)][:200]
        if node.kind == "for((":
            self._state.assign(node.name, self._state.expander.unknown(node.name, UnknownKind.LOOP))
            self._branches.alternatives([(node.body, "for loop", node.line)], has_else=False)
            return
        if len(values) == 1 and is_plain(values[0]):
            self._state.assign(node.name, values[0])
        else:
            alternatives = tuple(
                Alternative(value=self._state.marks.shown(value), line=node.line) for value in values[:20]
            )
            loop = Unknown(name=node.name, kind=UnknownKind.LOOP, line=node.line, alternatives=alternatives)
            self._state.assign(node.name, self._state.marks.mark(loop))
        self._follower.follow_all(node.body)

    def group(self, node: Group) -> None:
        """`{ … }`, or `( … )`, after which the variables are what they were."""
        if not node.is_subshell:
            self._follower.follow_all(node.body)
            return
        before = dict(self._state.expander.values)
        with suppress(ScriptEndsError):
            self._follower.follow_all(node.body)
        self._state.expander.values = before
