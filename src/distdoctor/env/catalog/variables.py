"""Variables that NCCL, torch, torchrun, Gloo and CUDA read: names, kinds of values, versions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table
from distdoctor.env.versions import parse_version

NCCL_CONF_SOURCE = "NVIDIA/nccl, docs/userguide/source/env.rst and sources at 2.30.7"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclVariable:
    """One variable that NCCL reads or once read."""

    name: str
    kind: str
    """"flag" and "integer" are read with strtoll(3); "choice" is one of `choices`; "text" is anything."""
    accepted: str | None = None
    choices: tuple[str, ...] = ()
    first: str | None = None
    """First version that reads it; None: older than 2.3.5."""
    last: str | None = None
    """Last version that reads it; None: still read at the end of the catalog."""
    default: str | None = None
    documented: bool = False
    risk: str | None = None
    replaced_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchVariable:
    """One variable that torch, torchrun, Gloo or CUDA reads."""

    name: str
    group: str
    kind: str
    """"c10d_bool" and "c10d_int" raise on anything else; "choice" is one of `choices`; "text" is anything."""
    accepted: str | None = None
    choices: tuple[str, ...] = ()
    first: str | None = None
    """First torch version that reads it, where known."""
    old_names: tuple[str, ...] = ()
    """Names that torch still accepts in its place, up to the end of the catalog."""
    keys: tuple[str, ...] = ()
    """Keys of an allocator configuration."""
    default: str | None = None
    """None also when nobody has checked it."""
    risk: str | None = None


@functools.cache
def nccl_variables() -> Mapping[str, NcclVariable]:
    """Name → variable, of NCCL 2.3.5 to `last_nccl_version()`."""
    return {
        name: NcclVariable(name=name, **{**row, "choices": tuple(row.get("choices", ()))})
        for name, row in read_table("nccl_variables")["variables"].items()
    }


@functools.cache
def torch_variables() -> Mapping[str, TorchVariable]:
    """Name → variable, of torch up to `last_torch_version()`, and of torchrun, Gloo and CUDA."""
    variables = {}
    for name, row in read_table("torch_variables")["variables"].items():
        checked = row.get("default_checked", False)
        variables[name] = TorchVariable(
            name=name,
            group=row["group"],
            kind=row["kind"],
            accepted=row.get("accepted"),
            choices=tuple(row.get("choices", ())),
            first=row.get("first"),
            old_names=tuple(row.get("old_names", ())),
            keys=tuple(row.get("keys", ())),
            default=row.get("default") if checked else None,
            risk=row.get("risk"),
        )
    return variables


@functools.cache
def renamed_torch_variables() -> Mapping[str, TorchVariable]:
    """Old name → the variable that replaces it."""
    return {old: variable for variable in torch_variables().values() for old in variable.old_names}


def last_nccl_version() -> str:
    """The newest NCCL release whose names the catalog holds."""
    return str(read_table("nccl_variables")["last_version"])


def last_torch_version() -> str:
    """The newest torch release whose names the catalog holds."""
    return str(read_table("torch_variables")["last_version"])


def nccl_release_after(version: str) -> str | None:
    """The first public NCCL release after `version`, of those the catalog was made from."""
    bound = parse_version(version) or ()
    for tag in read_table("nccl_variables")["tags"]:
        if (parse_version(tag) or ()) > bound:
            return str(tag)
    return None


def reader_of(name: str) -> str | None:
    """Who reads an NCCL_ name that NCCL itself does not: a plugin, a build, a script. None: nobody known."""
    table = read_table("nccl_variables")
    if name in table["read_by_others"]:
        return str(table["read_by_others"][name])
    for prefix, reader in table["prefixes_read_by_others"].items():
        if name.startswith(prefix):
            return str(reader)
    return None


def read_by_nobody(name: str) -> str | None:
    """For a popular name that neither NCCL nor torch reads: what to use instead."""
    note = read_table("nccl_variables")["read_by_nobody"].get(name)
    return None if note is None else str(note)


def name_that_was_meant(name: str) -> str | None:
    """For a popular wrong name that no spelling rule would find: the right one."""
    meant = read_table("nccl_variables")["meant"].get(name)
    return None if meant is None else str(meant)
