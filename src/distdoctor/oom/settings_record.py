"""The settings of an estimate as a table of its report, for programs, and back from a report that may come from anywhere.

One row a field: `micro_batch | 4`, `model.shape.num_layers | 32`, `megatron.recompute_modules | core_attn,mlp`. What is
not said has no row. Reading believes nothing: names are those of the dataclasses, numbers are bounded, words are members
of their enums, and a name that is not known here is refused, for a setting that is skipped would be another job.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from distdoctor.errors import InputError, UsageError
from distdoctor.oom.catalog.gpus import Cluster, gpu_type
from distdoctor.oom.settings import Settings
from distdoctor.report.model import Column, Scalar, Table

TABLE = "oom-settings"
_GPU = "gpu."
# Sizes of models end at 10^7, numbers of parameters at 10^15 (oom/models/flags.py); nothing else is larger.
_MOST = 10**15
_MOST_LAYERS = 1024
_MAX_WORD = 400
_MAX_ROWS = 400
_MAX_ITEMS = 512
_TOUCHY = frozenset({"num_layers", "num_mtp_layers", "virtual_stages", "pp"})
"""Work grows with these, so they are bounded more tightly."""
_COUNTED = frozenset(
    {"num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_size", "vocab_size"}
    | {"num_experts", "experts_per_token", "expert_ffn_size", "every"}
)
"""Of these there is at least one."""


def settings_table(settings: Settings, cluster: Cluster | None) -> Table:
    """The record of one job."""
    rows = list(_rows("", settings))
    if cluster is not None:
        rows.append((f"{_GPU}type", cluster.type.name))
        if cluster.num_gpus is not None:
            rows.append((f"{_GPU}num_gpus", cluster.num_gpus))
        if cluster.gpus_per_node is not None:
            rows.append((f"{_GPU}gpus_per_node", cluster.gpus_per_node))
    return Table(
        name=TABLE,
        title="The settings, for `oom fit`",
        columns=(Column(name="setting"), Column(name="value")),
        rows=tuple(rows),
        place="data",
    )


def settings_of_table(table: Table, path: str) -> tuple[Settings, Cluster | None]:
    """The settings of a record. Raises InputError for what no record of ours holds."""
    if len(table.rows) > _MAX_ROWS:
        raise _unusable(path, f"{len(table.rows):,} rows")
    cells: dict[str, Scalar] = {}
    for row in table.rows:
        if len(row) != 2 or not isinstance(row[0], str) or row[0] in cells:
            raise _unusable(path, "a row that is no setting")
        cells[row[0]] = row[1]
    cluster = _cluster({key: cells.pop(key) for key in list(cells) if key.startswith(_GPU)}, path)
    settings = _built(Settings, "", cells, path)
    if cells:
        raise _unusable(path, f"`{next(iter(cells))[:60]}` is no setting that is known here")
    if not isinstance(settings, Settings):
        raise _unusable(path, "no setting at all")
    return settings, cluster


def _rows(prefix: str, value: Any) -> Iterator[tuple[Scalar, ...]]:
    """Any: fields have different types."""
    for field in fields(value):
        said = getattr(value, field.name)
        name = prefix + field.name
        if said is None or name == "model.notes":
            continue
        if is_dataclass(said):
            yield from _rows(f"{name}.", said)
        elif isinstance(said, Enum):
            yield name, str(said.value)
        elif isinstance(said, tuple):
            if said:
                yield name, ",".join(str(each) for each in said)
        else:
            yield name, said


def _built(kind: type, prefix: str, cells: dict[str, Scalar], path: str) -> Any:
    """An object of a dataclass from the cells below `prefix`, which are taken out; None where there are none."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}  # of the fields, whose types differ
    for field in fields(kind):
        name = prefix + field.name
        inner = _inner(hints[field.name])
        if is_dataclass(inner) and isinstance(inner, type):
            found = _built(inner, f"{name}.", cells, path)
            if found is not None:
                values[field.name] = found
        elif name in cells:
            values[field.name] = _value(inner, name, cells.pop(name), path)
    if not values and prefix:
        return None
    missing = [
        field.name
        for field in fields(kind)
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    for name in missing:
        if not _takes_none(hints[name]):
            raise _unusable(path, f"`{prefix}{name}` is missing")
        values[name] = None
    return kind(**values)


def _value(kind: Any, name: str, value: Scalar, path: str) -> Any:
    """`value` as what the field takes. Any: of each type that settings have."""
    last = name.rsplit(".", 1)[-1]
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        least = -1 if name == "dp_shard" else 1 if last in _COUNTED else 0
        if least <= value <= (_MOST_LAYERS if last in _TOUCHY else _MOST):
            return value
    if kind is float and isinstance(value, int | float) and _is_usual(value):
        return float(value)
    if isinstance(value, str) and len(value) <= _MAX_WORD * _MAX_ITEMS:
        if kind is str and len(value) <= _MAX_WORD:
            return value
        if isinstance(kind, type) and issubclass(kind, Enum):
            known = {str(each.value): each for each in kind}
            if value in known:
                return known[value]
        if typing.get_origin(kind) is tuple:
            return _items(kind, name, value, path)
    raise _unusable(path, f"`{name}` has a value that it cannot have")


def _is_usual(value: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= _MOST


def _items(kind: Any, name: str, value: str, path: str) -> tuple[Any, ...]:
    words = value.split(",")
    item = typing.get_args(kind)[0]
    if len(words) > _MAX_ITEMS or any(len(word) > _MAX_WORD for word in words):
        raise _unusable(path, f"`{name}` is too long")
    if item is str:
        return tuple(words)
    if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in words):
        raise _unusable(path, f"`{name}` has a value that it cannot have")
    numbers = tuple(int(word) for word in words)
    wanted = typing.get_args(kind)
    if Ellipsis not in wanted and len(numbers) != len(wanted):
        raise _unusable(path, f"`{name}` has {len(numbers)} values instead of {len(wanted)}")
    return numbers


def _cluster(cells: dict[str, Scalar], path: str) -> Cluster | None:
    if not cells:
        return None
    if unknown := cells.keys() - {f"{_GPU}{each}" for each in ("type", "num_gpus", "gpus_per_node")}:
        raise _unusable(path, f"`{min(unknown)[:60]}` is no setting that is known here")
    name = cells.get(f"{_GPU}type")
    try:
        found = gpu_type(name) if isinstance(name, str) else None
    except UsageError:
        found = None
    if found is None:
        raise _unusable(path, "a type of GPU that is not known here")
    numbers = {
        key: _value(int, key, cells[f"{_GPU}{key}"], path)
        for key in ("num_gpus", "gpus_per_node")
        if f"{_GPU}{key}" in cells
    }
    return Cluster(num_gpus=numbers.get("num_gpus"), gpus_per_node=numbers.get("gpus_per_node"), type=found)


def _inner(hint: Any) -> Any:
    """`int | None` -> int."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = [each for each in typing.get_args(hint) if each is not type(None)]
        return kinds[0]
    return hint


def _takes_none(hint: Any) -> bool:
    return typing.get_origin(hint) in (types.UnionType, typing.Union) and type(None) in typing.get_args(hint)


def _unusable(path: str, why: str) -> InputError:
    return InputError(
        f"the settings in `{path[:200]}` cannot be used: {why}",
        hint="make the report again with `oom estimate … -o x.json`, or give the options to `oom fit`",
    )
