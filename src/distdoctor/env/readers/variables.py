"""Environment variables in a text: `env | grep NCCL`, exports of a job script, the block of vLLM's collect_env."""

from __future__ import annotations

import ast
import re

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import Setting, VariableFacts
from distdoctor.report.model import SkipCause

# Only names that matter to distributed training are taken; others may hold secrets.
_RELEVANT = re.compile(
    r"(?:NCCL|TORCH|PYTORCH|CUDA|CUBLAS|GLOO|UCX|FI|NVSHMEM|OMP|MKL|HSA|HIP|ROCR|RCCL|NVIDIA|TORCHELASTIC|GPU)_[A-Z0-9_]+|"
    r"LD_LIBRARY_PATH|LD_PRELOAD|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|"
    r"NODE_RANK|KINETO_USE_DAEMON|PYTHONPATH|CONDA_PREFIX|NV_LIBNCCL_PACKAGE_VERSION"
)
_ASSIGNMENT = re.compile(
    r"(?P<name>[A-Z][A-Z0-9_]{2,80})=(?P<value>\"[^\"\n]{0,4000}\"|'[^'\n]{0,4000}'|[^\s;]{0,4000})"
)
_LINE = re.compile(
    r"^\s*(?:[-+]+\s*)?(?:\(\S+ pid=\d+\)\s*)?(?:export\s+|declare -x\s+|set(?:env)?\s+|env\s+|-[ex]\s+|--env[= ])?"
    r"(?=[A-Z][A-Z0-9_]{2,80}=)(?P<rest>.*)$"
)
_ALLOCATOR = re.compile(
    r"^[ \t]*Caching allocator config[ \t]*:[ \t]*(?P<value>\{.{0,2000}\})[ \t]*$", re.MULTILINE
)
_MAX_NAMES = 500

# Beside the values that a text does show: absence in a text is not absence in the process.
PARTIAL = Unread(
    cause=SkipCause.NOT_IN_EVIDENCE,
    reason="the text shows some variables of the job; others may be set",
    how="run `distdoctor env --pid PID` beside the job, or give the output of `env`",
)


def sniff(text: str) -> bool:
    """True when a relevant variable is assigned on a line of its own, or printed by collect_env."""
    return bool(_assignments(text) or _allocator(text))


def read(text: str, origin: str) -> VariableFacts | None:
    """The relevant variables; of a name set twice the last. None when the text has none. Never raises."""
    values = {**_allocator(text), **_assignments(text)}
    if not values:
        return None
    settings = tuple(
        Setting(name=name, value=value, origin="environment")
        for name, value in values.items()
        if name.startswith("NCCL_") and name != "NCCL_VERSION"
    )
    return VariableFacts(
        whose=origin,
        environment=values,
        settings=settings,
        sources={"environment": origin, "settings": origin},
        unread={"environment": PARTIAL},
    )


def read_scheduler(facts: VariableFacts, origin: str) -> SchedulerFacts | None:
    """Rank, world size and rendezvous address as torchrun's variables say; None when none of them is there."""
    names = {"rank": "RANK", "world_size": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "master_port": "MASTER_PORT",
             "local_world_size": "LOCAL_WORLD_SIZE"}  # fmt: skip
    numbers = {
        field: int(facts.environment[name])
        for field, name in names.items()
        if facts.environment.get(name, "").isdigit() and len(facts.environment[name]) < 8
    }
    address = facts.environment.get("MASTER_ADDR")
    if not numbers and address is None:
        return None
    return SchedulerFacts(
        **numbers,  # type: ignore[arg-type]
        master_addr=address,
        sources=dict.fromkeys((*numbers, "master_addr"), origin),
    )


def _assignments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if "=" not in line or (match := _LINE.match(line)) is None:
            continue
        rest = match["rest"]
        # "NCCL_DEBUG=INFO NCCL_IB_DISABLE=1 torchrun …": assignments until the first other word.
        while part := _ASSIGNMENT.match(rest):
            if _RELEVANT.fullmatch(part["name"]) and len(found) < _MAX_NAMES:
                found[part["name"]] = part["value"].strip("\"'")
            rest = rest[part.end() :].lstrip(" \t;")
    return found


def _allocator(text: str) -> dict[str, str]:
    """collect_env prints a Python dict of the allocator's variables."""
    match = _ALLOCATOR.search(text)
    if match is None:
        return {}
    try:
        values = ast.literal_eval(match["value"])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if isinstance(name, str) and isinstance(value, str)}
