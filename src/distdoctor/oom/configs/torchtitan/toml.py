"""TorchTitan's TOML, of all its generations from April 2024 to February 2026."""

from __future__ import annotations

import re
import sys
from typing import Any

from distdoctor.errors import InputError
from distdoctor.oom.configs.commands.launch_claims import gpus_in_comment
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section, Value
from distdoctor.oom.configs.torchtitan.common import read_titan
from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Files of TorchTitan have two kilobytes. Our own bound.
MAX_CHARACTERS = 512 * 1024
_MAX_DEPTH = 20

_SECTION = re.compile(r"^[ \t]*\[[ \t]*([\w.\"'-]+)\s*\]", re.MULTILINE)
_OWN = frozenset(
    {"training", "parallelism", "activation_checkpoint", "lr_scheduler", "checkpoint", "job", "metrics"}
)


def sniff(path: str, text: str) -> float:
    """How much this looks like TorchTitan's TOML: 0 to 1."""
    if path.endswith((".py", ".json", ".sh", ".yaml", ".yml")):
        return 0.0
    sections = {name.split(".")[0] for name in _SECTION.findall(text[:200_000])}
    if "training" not in sections or len(sections & _OWN) < 2:
        return 0.0
    own = re.search(
        r"^[ \t]*(?:flavor|(?:tensor|pipeline|data|context|expert)_parallel\w*|local_batch_size|seq_len|selective_ac_option|"
        r"data_parallel_shard_degree)\s*=",
        text,
        re.MULTILINE,
    )
    return 0.95 if own else 0.4


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`. Raises InputError with the line when it is no TOML."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"`{path}` is too large for a configuration")
    try:
        content: dict[str, Any] = tomllib.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no TOMLDecodeError
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(
            f"`{path}` is not valid TOML: {what}", hint="TorchTitan cannot read it either"
        ) from None
    reading = Reading(path=path, family=ConfigFamily.TORCHTITAN)
    read_titan(reading, _section(content, "", lines_of_keys(text), 0))
    for number, line in enumerate(text.splitlines(), start=1):
        claim = gpus_in_comment(line.partition("#")[2]) if "#" in line else None
        if claim is not None:
            reading.note(
                f"a comment in line {number} says {claim}; that is no setting, and was not taken as one"
            )
            break
    return reading.done()


def lines_of_keys(text: str) -> dict[str, int]:
    """The line of each `key = value`, by its dotted name. tomllib itself does not tell lines."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\[?\s*([^\]#]+?)\s*\]", line)
        if header:
            section = header[1].replace('"', "").replace("'", "").replace(" ", "")
            continue
        key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if key:
            name = key[1].strip("\"'")
            lines.setdefault(f"{section}.{name}" if section else name, number)
    return lines


def _section(content: dict[str, Any], name: str, lines: dict[str, int], depth: int) -> Section:
    entries = {}
    for key, value in content.items():
        inner = f"{name}.{key}" if name else key
        entries[key] = Entry(name=inner, value=_value(value, inner, lines, depth), line=lines.get(inner))
    return Section(name=name, entries=entries, line=lines.get(name))


def _value(value: object, name: str, lines: dict[str, int], depth: int) -> Value:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return _section(value, name, lines, depth + 1)
    if isinstance(value, list):
        line = lines.get(name)
        return tuple(
            Entry(
                name=f"{name}[{number}]", value=_value(each, f"{name}[{number}]", lines, depth + 1), line=line
            )
            for number, each in enumerate(value[:1000])
        )
    if isinstance(value, (str, int, float, bool)):
        return value
    return str(value)  # dates and times
