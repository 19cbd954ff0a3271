"""Which op, and which module, could not run under fake tensors?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.oom.tracking.tracker import OP_ATTRIBUTE

_OP = re.compile(r"\b(?:aten|c10d|_c10d_functional|prims|torchvision|fsdp|[a-z_]\w*)(?:::|\.)\w+(?:\.\w+)?")
_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """None: not known."""

    op: str | None = None
    module: str | None = None


def blame_of(error: BaseException) -> Blame:
    """Read from the exception: torch names the op in those of fake tensors (`func`), the tracker in all others by the
    attribute that it leaves on them."""
    op = module = None
    seen: BaseException | None = error
    while seen is not None:
        marked = getattr(seen, OP_ATTRIBUTE, None)
        if isinstance(marked, tuple):
            op, module = marked
        func = getattr(seen, "func", None)
        if func is not None and _OP.search(str(func)):
            op = str(func)
        seen = seen.__cause__ or seen.__context__
    return Blame(op=op[:_MAX] if op else None, module=module[:_MAX] if module else None)
