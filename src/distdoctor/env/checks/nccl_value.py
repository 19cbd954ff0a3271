"""Values that the reader of a variable does not take as they were meant: words where a number is read, and so on."""

from __future__ import annotations

import re

from distdoctor.env.catalog.variables import (
    NcclVariable,
    TorchVariable,
    last_torch_version,
    nccl_variables,
    renamed_torch_variables,
    torch_variables,
)
from distdoctor.env.checks.nccl_risk import Risk
from distdoctor.env.checks.nccl_view import NcclView, nccl_number, number_has_rest, shown
from distdoctor.env.distance import edit_distance
from distdoctor.env.facts.variables import Setting
from distdoctor.env.versions import at_least, parse_version
from distdoctor.report.model import Confidence, Severity

_STRTOLL = "NVIDIA/nccl, src/misc/param.cc: strtoll(3)"
_CVAR = "torch, c10d/Utils.hpp: getCvarBool, getCvarInt"
_BOOL_WORDS = ("1", "y", "yes", "t", "true", "0", "n", "no", "f", "false")
_ALGORITHMS = ("ring", "tree", "collnet", "collnetchain", "collnetdirect", "nvls", "nvlstree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def misread(view: NcclView, setting: Setting) -> Risk | None:
    """Why the value does not mean what it says; None when it is taken as written."""
    name, value = setting.name, setting.value
    if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0] and _is_ours(name):
        return _quoted(name, value)
    if name in ("NCCL_ALGO", "NCCL_PROTO"):
        return _bad_tokens(view, name, value)
    if name in _ALLOCATOR:
        return _bad_allocator_key(view, name, value)
    variable = nccl_variables().get(name)
    if variable is not None:
        return _nccl_value(view, variable, value)
    torch = torch_variables().get(name) or renamed_torch_variables().get(name)
    return _torch_value(torch, name, value) if torch is not None else None


def _is_ours(name: str) -> bool:
    return name in nccl_variables() or name in torch_variables()


def _quoted(name: str, value: str) -> Risk:
    return Risk(
        severity=Severity.WARNING,
        title=f"The quotes are part of the value of {name}"[:80],
        why=f"The value is {shown(value)} with its quotes: an env file or nccl.conf does not remove them, only a shell does.",
        source="Docker's --env-file and NCCL's configuration file take the rest of the line as it stands",
        advice="Write the value without quotes",
        command=f"{name}={value[1:-1]}",
    )


def _nccl_value(view: NcclView, variable: NcclVariable, value: str) -> Risk | None:
    if variable.kind in ("flag", "integer"):
        return _not_a_number(view, variable, value)
    if variable.kind == "choice" and value and value.strip().upper() not in variable.choices:
        return Risk(
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM if view.catalog_is_older else Confidence.HIGH,
            title=f"{variable.name} does not know the value {shown(value)[:24]}"[:80],
            why=f"It takes {', '.join(variable.choices)}. Anything else is passed over, so the default is in force.",
            source="NCCL user guide, environment variables",
            advice="Use one of these values",
        )
    return None


def _not_a_number(view: NcclView, variable: NcclVariable, value: str) -> Risk | None:
    """NCCL_IB_DISABLE=true is 0, NCCL_BUFFSIZE=4M is 4: strtoll stops at the first other letter, without error."""
    if not value or not number_has_rest(value):
        return None
    number = nccl_number(value)
    effect = f"NCCL reads {variable.name}={shown(value)} as {number}"
    if variable.kind == "flag" and number == 0:
        effect += ", which is off"
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM if view.catalog_is_older else Confidence.HIGH,
        title=f"{variable.name}={shown(value)[:16]} is read as {number}"[:80],
        why=f"{effect}: it takes the leading digits and reports no error when there are none.",
        source=_STRTOLL,
        advice="Write a plain number"
        + (": 1 for on, 0 for off" if variable.kind == "flag" else ", without a unit"),
    )


def _bad_tokens(view: NcclView, name: str, value: str) -> Risk | None:
    known = _ALGORITHMS if name == "NCCL_ALGO" else _PROTOCOLS
    tokens = [
        token.strip().lstrip("^").lower()
        for part in value.split(";")
        for token in part.rpartition(":")[2].split(",")
        if token.strip()
    ]
    wrong = [token for token in tokens if token not in known]
    if not wrong:
        return None
    fails = at_least(view.nccl, "2.24")
    return Risk(
        severity=Severity.CRITICAL if fails and not view.catalog_is_older else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title=f"{name} names {shown(wrong[0])[:24]}, which NCCL does not know"[:80],
        why=(
            f"Known are {', '.join(known)}. "
            + (
                "Since 2.24 an unknown one is an error at the start."
                if fails is not False
                else "It is passed over."
            )
        ),
        source="NCCL user guide, NCCL_ALGO and NCCL_PROTO",
        advice="Correct it, or remove the variable",
    )


def _torch_value(variable: TorchVariable, name: str, value: str) -> Risk | None:
    bad = (
        (variable.kind == "c10d_bool" and value.lower() not in _BOOL_WORDS)
        or (variable.kind == "c10d_int" and re.match(r"\s*[+-]?\d", value) is None)
        or (variable.kind == "choice" and value.upper() not in variable.choices)
    )
    if not bad:
        return None
    wanted = {
        "c10d_bool": "1, y, yes, t, true, 0, n, no, f or false",
        "c10d_int": "a number",
        "choice": ", ".join(variable.choices),
    }[variable.kind]
    return Risk(
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        title=f"torch refuses {name}={shown(value)[:20]}"[:80],
        why=f"It takes {wanted}; with anything else `init_process_group` raises an error.",
        source=_CVAR,
        advice="Correct the value, or remove the variable",
    )


def _bad_allocator_key(view: NcclView, name: str, value: str) -> Risk | None:
    """torch raises on an unknown key when it first allocates; keys that are newer than the catalog are not accused."""
    known = torch_variables()["PYTORCH_ALLOC_CONF"].keys
    flat = re.sub(r"\[[^\]]*\]", "", value)
    keys = [part.partition(":")[0].strip() for part in flat.split(",") if part.strip()]
    wrong = [key for key in keys if key not in known]
    if not wrong:
        return None
    near = next((each for each in known if edit_distance(wrong[0], each, 2) <= 2), None)
    last = parse_version(last_torch_version())
    newer = view.torch is None or last is None or view.torch[:2] > last
    return Risk(
        severity=Severity.CRITICAL if near else Severity.WARNING,
        confidence=Confidence.LOW if newer and not near else Confidence.MEDIUM,
        title=f"{name} has a key that torch does not know: {shown(wrong[0])[:20]}"[:80],
        why="torch raises an error on an unknown key at the first allocation."
        + (f" {near} was probably meant." if near else " It may be newer or older than our list."),
        source=f"torch {last_torch_version()}, c10/core/AllocatorConfig.h",
        advice="Correct the key, or remove it",
    )
