"""What a collective's name says: does every rank need every other one, may some leave early, are there two ends only?"""

from __future__ import annotations

import re
from enum import IntEnum

# Of a name that is looked at.
_MAX_NAME = 200

# No rank has its result before the last rank has sent something.
_EVERYBODY = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
# The end of pipeline stages. NCCL runs all-to-alls as the same kind of kernel: SendRecv.
_POINT_TO_POINT = ("send", "recv", "receive", "p2p")


class OpClass(IntEnum):
    """Whether the order of arrival can be read from durations."""

    EVERYBODY = 0
    """The rank that comes last spends the least time."""
    OTHER = 1
    """Some ranks may leave before others come (broadcast, reduce, gather, scatter), or the name is not known: a short
    time does not mean that a rank came last."""
    POINT_TO_POINT = 2
    """Two ends, and waiting in it is the bubble of a pipeline. An all-to-all can hide behind the same name."""


def class_of(op: str) -> OpClass:
    """By the name as torch, NCCL or a kernel writes it: "all_reduce", "AllReduce", "_allgather_base", "nccl:send 0->1"."""
    name = re.sub(r"[^a-z0-9]", "", op[:_MAX_NAME].lower())
    if any(word in name for word in _EVERYBODY):
        return OpClass.EVERYBODY
    if any(word in name for word in _POINT_TO_POINT):
        return OpClass.POINT_TO_POINT
    return OpClass.OTHER
