"""`if`, `case`, `&&` and `||`. A condition that the text decides is followed; otherwise every branch is followed on a
copy of the variables, and what differs afterwards is marked."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial

from distdoctor.oom.configs.shell.conditions import Verdict, is_decidable
from distdoctor.oom.configs.shell.ending import (
    FunctionReturnsError,
    ScriptEndsError,
    body_ends_script,
    ends_script,
)
from distdoctor.oom.configs.shell.merge import merged
from distdoctor.oom.configs.shell.state import Follower, ScriptState
from distdoctor.oom.configs.shell.tree import AndOr, Bracket, Case, If, Node, Simple, Word
from distdoctor.oom.configs.shell.values import EMPTY_AS_IT_STANDS, Condition, Unknown, Value, is_plain


class Branches:
    """Follows what runs only under a condition."""

    def __init__(self, state: ScriptState, follower: Follower) -> None:
        self._state = state
        self._follower = follower
        self._num_groups = 0

    def and_or(self, node: AndOr) -> Verdict:
        """`first && second || third`."""
        verdict = self._follower.follow(node.first)
        for operator, following in node.rest:
            runs_on = operator == "&&"
            if verdict.value is (not runs_on):
                continue
            if verdict.value is None:
                self._each(
                    [(partial(self._follower.follow, following), "a condition", node.line)], has_else=False
                )
                continue
            if verdict.hinges_on and ends_script(following):
                self._state.unset.give(verdict.hinges_on)
                verdict = Verdict(None)
                continue
            verdict = self._follower.follow(following)
        return verdict

    def if_(self, node: If, *, again: bool = False) -> bool | None:
        """Whether it succeeds. `again`: once a branch that ends the script has told what the caller must give."""
        maybe: list[tuple[list[Node], str, int]] = []
        hinges_on: list[Unknown] = []
        for condition, body, line in node.branches:
            verdict = Verdict(True)
            if condition is not None:
                verdict = self.condition(condition)
                hinges_on += verdict.hinges_on
                for each in verdict.hinges_on:
                    self._state.condition_lines.setdefault(each.name, []).append(each.line)
            if verdict.value is False:
                continue
            if verdict.value is True and hinges_on and body_ends_script(body) and not again:
                self._state.unset.give(hinges_on)
                return self.if_(node, again=True)
            if verdict.value is True and not maybe:
                return self._follower.follow_all(body)
            maybe.append((body, _condition_text(condition), line))
            if verdict.value is True:
                self.alternatives(maybe, has_else=True)
                return None
        if maybe:
            self.alternatives(maybe, has_else=False)
            return None
        return True

    def condition(self, nodes: list[Node]) -> Verdict:
        """Follows the statements of a condition and judges it."""
        verdict = Verdict(True)
        for node in nodes:
            verdict = self._follower.follow(node)
            if not is_decidable(node):
                verdict = Verdict(None)  # whether an ordinary command succeeds is for the machine to say
        return verdict

    def alternatives(self, bodies: list[tuple[list[Node], str, int]], *, has_else: bool) -> None:
        """Follows bodies of which one may run; each comes with its condition as text and its line."""
        runs: list[tuple[Callable[[], object], str, int]] = [
            (partial(self._follower.follow_all, body), text, line) for body, text, line in bodies
        ]
        self._each(runs, has_else=has_else)

    def _each(self, runs: list[tuple[Callable[[], object], str, int]], *, has_else: bool) -> None:
        """Follows every branch on its own copy of the variables, then joins what came of it."""
        self._num_groups += 1
        before = dict(self._state.expander.values)
        outcomes: list[tuple[dict[str, Value], Condition | None]] = []
        conditions = []
        for number, (run, text, line) in enumerate(runs):
            condition = Condition(group=self._num_groups, branch=number, num_branches=0, text=text, line=line)
            conditions.append(condition)
            self._state.expander.values = dict(before)
            self._state.conditions.append(condition)
            try:
                run()
            except (ScriptEndsError, FunctionReturnsError):
                pass  # nothing follows it
            else:
                outcomes.append((self._state.expander.values, condition))
            finally:
                self._state.conditions.pop()
        if not has_else:
            outcomes.append((before, None))
        for condition in conditions:
            condition.num_branches = len(outcomes)
        self._state.expander.values = merged(
            before, outcomes, self._state.marks, self._state.line, self._state.lines
        )
        if not outcomes:
            raise ScriptEndsError

    def case(self, node: Case) -> None:
        """The arm that fits, or all of them where the word is unknown."""
        text = self._state.expander.text(node.word.raw)
        unknowns = self._state.marks.unknowns_in(text)
        if is_plain(text) or all(each.kind in EMPTY_AS_IT_STANDS for each in unknowns):
            value = text if is_plain(text) else ""
            for patterns, body, _ in node.arms:
                if any(self._matches(value, pattern) for pattern in patterns):
                    if unknowns and body_ends_script(body):
                        self._state.unset.give(list(unknowns))
                        break
                    self._follower.follow_all(body)
                    return
            else:
                return
        bodies = [
            (body, f"{node.word.raw} is {'|'.join(patterns)}"[:80], line)
            for patterns, body, line in node.arms
        ]
        catches_all = any("*" in patterns for patterns, _, _ in node.arms)
        if bodies:
            self.alternatives(bodies, has_else=catches_all)

    def _matches(self, value: str, pattern: str) -> bool:
        expanded = self._state.expander.text(pattern)
        if not is_plain(expanded) or len(expanded) > 200 or expanded.count("*") > 3:
            return False
        return fnmatchcase(value[:2000], expanded)


def _condition_text(nodes: list[Node] | None) -> str:
    if nodes is None:
        return "else"
    texts = []
    for node in nodes:
        if isinstance(node, Bracket):
            texts.append(f"{node.kind} {node.text.strip()} {']]' if node.kind == '[[' else '))'}")
        elif isinstance(node, Simple):
            texts.append(" ".join(word.raw for word in node.words if isinstance(word, Word)))
    return "; ".join(texts)[:80] or "a condition"
