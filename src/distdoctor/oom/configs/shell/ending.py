"""Where a script ends: `exit`, `return`, and functions that are named for it (`usage`, `die`)."""

from __future__ import annotations

from distdoctor.oom.configs.shell.tree import Group, Node, Simple, command_name

_ENDS = frozenset(
    {"exit", "return", "usage", "die", "fail", "print_usage", "show_help", "help", "err", "error"}
)


class ScriptEndsError(Exception):
    """`exit`, or `return` at the top."""


class FunctionReturnsError(Exception):
    """`return` within a function."""


def body_ends_script(body: list[Node]) -> bool:
    """Whether one of the statements ends the script."""
    return any(ends_script(node) for node in body)


def ends_script(node: Node) -> bool:
    """Whether the script ends with this statement."""
    if isinstance(node, Group):
        return body_ends_script(node.body)
    return isinstance(node, Simple) and command_name(node) in _ENDS
