"""Reports of any content, for properties: a strategy made from the model's own type hints."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any, Literal, Union

from hypothesis import strategies as st
from msgspec import Struct

from distdoctor.report.model import Report

# Pieces that secrets, markup and addresses are made of, so that generated text is not only noise.
FRAGMENTS = (
    "token=", "HF_TOKEN: ", "--api-key ", "password", "Authorization: Bearer ", "hf_", "AKIA", "ABCDEFGH12345678", "eyJhbGciOi.",
    "://user:", "@", "host.example.com", "/home/", "alice", "~bob/", '"', "'", "`", " ", "\n", "\t", "\x1b[31m", "\u202e", "\u200b",
    "|", "<script>", "](http://", "#1", "[secret]", "[user]", "…", "\\", "\\x1b", "-----BEGIN KEY-----", "10.0.0.1", "fe80::1",
    "node001", "gpu", "=", ":", ",", "$HOME", "0", "é", "\x00", "\ud800",
)  # fmt: skip

texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=8).map("".join)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the model."""
    if hint is str:
        return texts
    if hint is int:
        return st.integers(-(1 << 53), 1 << 53)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is bool:
        return st.booleans()
    if hint is type(None):
        return st.none()
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values_of, arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, values_of(arguments[1]), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if issubclass(hint, Struct):
        return structs_of(hint)
    raise TypeError(hint)


def structs_of(cls: type[Struct]) -> st.SearchStrategy[Any]:
    """Instances of a struct of the model."""
    hints = {name: hint for name, hint in typing.get_type_hints(cls).items() if name != "schema_version"}
    return st.fixed_dictionaries({name: values_of(hint) for name, hint in hints.items()}).map(
        lambda fields: cls(**fields)
    )


reports: st.SearchStrategy[Report] = structs_of(Report)
