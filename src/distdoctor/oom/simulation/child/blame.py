"""Which op, and which module, could not run under fake tensors?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.oom.tracking.tracker import OP_ATTRIBUTE

_OP = re.compile(r"\b(?:aten|c10d|_c10d_functional|prims|torchvision|fsdp|[a-z_]\w*)(?:::|\.)\w+(?:\.\w+)?")
# What torch says of an op that DTensors cannot do (torch/distributed/tensor/_sharding_prop.py, _dispatch.py, 2.4 to 2.13).
_NOT_FOR_DTENSORS = re.compile(
    r"(aten\.\w+(?:\.\w+)?)(?: does not have a sharding strategy|: in-place operations that require placement)"
)
_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """None: not known."""

    op: str | None = None
    module: str | None = None
    refused: str | None = None
    """The op that DTensors cannot do, with fake tensors or with real ones."""


def blame_of(error: BaseException) -> Blame:
    """Read from the exception: torch names the op in those of fake tensors (`func`), the tracker in all others by the
    attribute that it leaves on them."""
    op = module = refused = None
    seen: BaseException | None = error
    while seen is not None:
        marked = getattr(seen, OP_ATTRIBUTE, None)
        if isinstance(marked, tuple):
            op, module = marked
        if (found := _NOT_FOR_DTENSORS.search(str(seen))) is not None:
            refused = found[1].removesuffix(".default")
        func = getattr(seen, "func", None)
        if func is not None and _OP.search(str(func)):
            op = str(func)
        seen = seen.__cause__ or seen.__context__
    return Blame(op=op[:_MAX] if op else None, module=module[:_MAX] if module else None, refused=refused)
