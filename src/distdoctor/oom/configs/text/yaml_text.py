"""YAML as sections with lines. Nodes are composed and never constructed, so a file cannot make Python objects.

Read as the launchers read it (YAML 1.1, as PyYAML does), but for what a template leaves behind before somebody fills
it in: `{{ .Values.nodes }}`, a line with `$EXTRA_ENV` alone, `%NODES%`. Aliases are expanded up to a bound (a
"billion laughs" file is refused), merges (`<<`) are followed, tabs in the indentation are read and told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from distdoctor.errors import InputError
from distdoctor.oom.configs.text.tree import Entry, Section, Value

if TYPE_CHECKING:
    from yaml.nodes import Node

# Configurations are kilobytes; composing a megabyte of YAML takes some ten seconds. Our own bounds.
MAX_YAML_CHARACTERS = 512 * 1024
MAX_ENTRIES = 50_000
MAX_DEPTH = 64
MAX_DOCUMENTS = 200

# Bounded, so that a file of opening braces is not searched through for each of them.
_MOUSTACHE = re.compile(r"\{\{[^{}]{0,300}\}\}|\{%[^{}]{0,300}%\}")
_LONE_TEMPLATE = re.compile(r"^[ \t]*(?:\{\{.*\}\}|\{%.*%\}|\$\{?\w+\}?)[ \t]*(?:#.*)?$", re.MULTILINE)
# Plain scalars may not begin with these; templates of other tools do.
_ODD_START = re.compile(r"^([ \t]*(?:- )?(?:[\w.\"'/-]+:|-)[ \t]+)([%@`][^\n#\"']*)", re.MULTILINE)
_TABS = re.compile(r"^[ ]*\t[ \t]*", re.MULTILINE)

_TRUE = frozenset({"true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlText:
    """The documents that are mappings, and what a strict reader would refuse."""

    documents: tuple[Section, ...]
    lenient: tuple[str, ...] = ()
    """`tabs in the indentation, line 3`: the launcher's own reader stops there."""
    is_template: bool = False
    """Holds places that a template engine fills in."""


@lru_cache(maxsize=8)
def read_yaml(text: str, path: str) -> YamlText:
    """The YAML documents in `text`. Raises InputError with the line when there is none."""
    if len(text) > MAX_YAML_CHARACTERS:
        raise InputError(f"`{path}` is too large for a configuration")
    text = text.replace("\r\n", "\n")
    lenient: list[str] = []
    plain, templates = _without_templates(text)
    tab = _TABS.search(plain)
    if tab and not _composes(plain, path):
        lenient.append(f"a tab in the indentation, line {plain.count(chr(10), 0, tab.start()) + 1}")
        plain = _TABS.sub(lambda found: found.group().replace("\t", "  "), plain)
    try:
        nodes = _compose(plain, path)
    except InputError:
        mended = _LONE_TEMPLATE.sub("", plain)
        mended = _ODD_START.sub(lambda found: f"{found.group(1)}'{found.group(2).strip()}'", mended)
        if mended == plain:
            raise
        nodes = _compose(mended, path)
        templates = templates or {"": ""}
    reader = _Reader(path=path, templates=templates)
    sections = [reader.section(node, "", 0) for node in nodes if _is_mapping(node)]
    documents = tuple(each for each in sections if each)
    if not documents:
        raise InputError(f"`{path}` holds no YAML mapping")
    return YamlText(documents=documents, lenient=tuple(lenient), is_template=bool(templates))


def _without_templates(text: str) -> tuple[str, dict[str, str]]:
    """`{{ … }}` alone on a line is dropped (a directive), elsewhere it becomes a word that YAML accepts."""
    if "{{" not in text and "{%" not in text:
        return text, {}
    lines = "\n".join("" if _is_directive(line) else line for line in text.split("\n"))
    templates: dict[str, str] = {}

    def word(found: re.Match[str]) -> str:
        name = f"TEMPLATE{len(templates)}TEMPLATE"
        templates[name] = " ".join(found.group().split())
        return name + "\n" * found.group().count("\n")

    return _MOUSTACHE.sub(word, lines), templates


def _is_directive(line: str) -> bool:
    return "{{" in line and not _MOUSTACHE.sub("", line).split("#")[0].strip(" \t-")


def _composes(text: str, path: str) -> bool:
    try:
        _compose(text, path)
    except InputError:
        return False
    return True


def _compose(text: str, path: str) -> list[Node]:
    import yaml

    hint = "the launcher cannot read it either; YAML is indented with spaces, and a value with `: ` or `#` needs quotes"
    nodes: list[Node] = []
    try:
        for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
            nodes.append(node)
            if len(nodes) > MAX_DOCUMENTS:
                break
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"`{path}` is not valid YAML: {error.problem}{where}", hint=hint) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise InputError(f"`{path}` is not valid YAML: {reason}", hint=hint) from None
    except RecursionError:
        raise InputError(f"`{path}` is nested too deeply for a configuration") from None
    return nodes


def _is_mapping(node: Node) -> bool:
    return getattr(node, "id", "") == "mapping"


@dataclass(slots=True)
class _Reader:
    path: str
    templates: dict[str, str] = field(default_factory=dict)
    num_entries: int = 0

    def value(self, node: Node, name: str, depth: int) -> Value:
        self.num_entries += 1
        if self.num_entries > MAX_ENTRIES or depth > MAX_DEPTH:
            raise InputError(
                f"`{self.path}` grows too large when its aliases are expanded, or is nested too deeply",
                hint="a configuration of people is far smaller; the file may be damaged or hostile",
            )
        if _is_mapping(node):
            return self.section(node, name, depth)
        if getattr(node, "id", "") == "sequence":
            return tuple(
                Entry(
                    name=f"{name}[{index}]",
                    value=self.value(each, f"{name}[{index}]", depth + 1),
                    line=each.start_mark.line + 1,
                )
                for index, each in enumerate(node.value)
            )
        return self.scalar(node)

    def section(self, node: Node, name: str, depth: int) -> Section:
        entries: dict[str, Entry] = {}
        replaced: list[Entry] = []
        merged: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            if getattr(key_node, "id", "") != "scalar":
                continue
            key = str(self.restored(key_node.value))
            if key_node.tag == "tag:yaml.org,2002:merge":
                if getattr(value_node, "id", "") != "scalar":
                    merged |= self.merged(value_node, name, depth)
                continue
            inner = f"{name}.{key}" if name else key
            if key in entries:
                replaced.append(entries.pop(key))
            entries[key] = Entry(
                name=inner,
                value=self.value(value_node, inner, depth + 1),
                line=key_node.start_mark.line + 1,
            )
        return Section(
            name=name,
            entries={**merged, **entries},
            line=node.start_mark.line + 1,
            repeated=tuple(replaced),
        )

    def merged(self, node: Node, name: str, depth: int) -> dict[str, Entry]:
        nodes: list[Node] = [node] if _is_mapping(node) else list(node.value)
        found: dict[str, Entry] = {}
        for each in reversed(nodes):
            if _is_mapping(each):
                value = self.value(each, name, depth + 1)
                if isinstance(value, Section):
                    found |= value.entries
        return found

    def restored(self, text: str) -> str:
        """The text with its template places as they stand in the file."""
        if "TEMPLATE" in text:
            for word, original in self.templates.items():
                text = text.replace(word, original) if word else text
        return text

    def scalar(self, node: Node) -> Value:
        text = self.restored(str(node.value))
        kind = node.tag.rsplit(":", 1)[-1]
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in _TRUE
        if kind == "int":
            return _int(text)
        if kind == "float":
            try:
                return float(text.replace("_", ""))
            except ValueError:
                return text
        return text


def _int(text: str) -> Value:
    """YAML 1.1 integers: decimal, 0x, 0b, octal with a leading 0; sexagesimal (12:30) stays text."""
    digits = text.replace("_", "")
    if len(digits) > 40:
        return text
    try:
        if re.fullmatch(r"[+-]?0[0-7]+", digits):
            return int(digits, 8)
        return int(digits, 0)
    except ValueError:
        return text
