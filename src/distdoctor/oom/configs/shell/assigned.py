"""Every assignment that a script holds anywhere, taken or not: so that a variable set in the wrong branch is told
from one that nothing sets."""

from __future__ import annotations

from distdoctor.oom.configs.shell.tree import (
    AndOr,
    Assignment,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    Simple,
    Word,
)
from distdoctor.oom.configs.shell.values import Alternative

_MAX_ALTERNATIVES = 8


def assignments_in(nodes: list[Node]) -> dict[str, tuple[Alternative, ...]]:
    """Variables with the values that the script gives them somewhere, as written."""
    found: dict[str, tuple[Alternative, ...]] = {}
    open_nodes = list(reversed(nodes))
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, Simple):
            for assignment in [*node.assignments, *node.words]:
                _note(assignment, found)
        else:
            open_nodes += reversed(_inside(node))
    return found


def _note(assignment: Assignment | Word, found: dict[str, tuple[Alternative, ...]]) -> None:
    if isinstance(assignment, Word):
        # : "${NAME:=value}"
        text = assignment.raw.strip('"')
        if not (text.startswith("${") and ("=" in text)):
            return
        name, separator, value = text[2:-1].partition("=")
        name = name.rstrip(":")
        if not separator or not name.isidentifier():
            return
        alternative = Alternative(value=value[:80], line=assignment.line)
    else:
        name = assignment.name
        value = assignment.value.raw.strip("\"'") if isinstance(assignment.value, Word) else "(…)"
        alternative = Alternative(value=value[:80], line=assignment.line)
    before = found.get(name, ())
    if len(before) < _MAX_ALTERNATIVES:
        found[name] = (*before, alternative)


def _inside(node: Node) -> list[Node]:
    match node:
        case Pipeline():
            return node.parts
        case AndOr():
            return [node.first, *(each for _, each in node.rest)]
        case If():
            return [each for condition, body, _ in node.branches for each in [*(condition or []), *body]]
        case Case():
            return [each for _, body, _ in node.arms for each in body]
        case Loop():
            return [*node.condition, *node.body]
        case Group():
            return node.body
        case Function():
            return [node.body]
        case _:
            return []
