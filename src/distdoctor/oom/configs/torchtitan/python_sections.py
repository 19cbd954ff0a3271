"""Parts of a configuration that Python calls make: `Trainer.Config(…)` is a section that knows what was called."""

from __future__ import annotations

import ast

from distdoctor.oom.configs.text.tree import Entry, Section, Value
from distdoctor.oom.configs.torchtitan.options import CALL


def is_configuration(section: Section) -> bool:
    """Whether the call made a whole job's configuration."""
    call = section.get(CALL)
    name = str(call.value) if call is not None else ""
    return name.endswith(("Config", "Trainer.Config")) and ("training" in section or "model_spec" in section)


def dotted_name(node: ast.expr) -> str:
    """The dotted name of a target or of what is called; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 20:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def with_value(section: Section, path: list[str], value: Value, line: int) -> Section:
    """`section` with one value replaced; sections on the way are made where they are missing."""
    key = path[0]
    entries = dict(section.entries)
    name = f"{section.name}.{key}" if section.name else key
    if len(path) > 1:
        old = entries.get(key)
        inner = old.value if old is not None and isinstance(old.value, Section) else Section(name=name)
        value = with_value(inner, path[1:], value, line)
    entries[key] = Entry(name=name, value=value, line=line)
    return Section(name=section.name, entries=entries, line=section.line)
