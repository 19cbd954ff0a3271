"""What each type of operation is, by its name in the trace, and who takes part in it."""

from __future__ import annotations

from enum import Enum

from distdoctor.straggler.facts.sections import Section


class Group(Enum):
    """Whom an operation that communicates has to wait for."""

    FROM_BEFORE = "the stage before, same replica"
    FROM_AFTER = "the stage after, same replica"
    REPLICAS = "all replicas of the stage"
    ENDS = "the first and the last stage, same replica"
    ALL = "all workers"
    UNSEEN = "workers that have no rows of their own"


# Own work. With tensor parallelism the collectives of the tensor-parallel group lie inside forward and backward: they
# are own work of the group as long as a row stands for the whole group.
COMPUTE = {
    "forward-compute": Section.FORWARD,
    "backward-compute": Section.BACKWARD,
    "backward-wgrad-compute": Section.BACKWARD,
    "optimizer": Section.OPTIMIZER,
    "optimizer-inner-step": Section.OPTIMIZER,
    "data-load": Section.DATA,
}

# "gc" marks when Python's collector ran, often with duration 0.
PARTS = {"gc": Section.GC}

# (which group, and for point-to-point operations whether it is the sending side)
COMM: dict[str, tuple[Group, bool]] = {
    "forward-send": (Group.FROM_AFTER, True),
    "forward-recv": (Group.FROM_BEFORE, False),
    "backward-send": (Group.FROM_BEFORE, True),
    "backward-recv": (Group.FROM_AFTER, False),
    "grads-reduce-scatter": (Group.REPLICAS, False),
    "grads-reduce-scatter-nonoverlapping": (Group.REPLICAS, False),
    "separate-grads-all-reduce": (Group.REPLICAS, False),
    "params-all-gather": (Group.REPLICAS, False),
    "params-all-gather-nonoverlapping": (Group.REPLICAS, False),
    "embedding-grads-all-reduce": (Group.ENDS, False),
    # Clipping reduces the norm over all workers, then scales: it begins when the last one has come.
    "optimizer-clip-main-grad": (Group.ALL, False),
    # Inside the tensor-parallel group, of which a trace shows one worker.
    "layernorm-grads-all-reduce": (Group.UNSEEN, False),
    "forward-send-backward-recv": (Group.UNSEEN, False),
    "backward-send-forward-recv": (Group.UNSEEN, False),
    "tp-reducescatter": (Group.UNSEEN, False),
    "tp-allgather": (Group.UNSEEN, False),
    "tp-allreduce": (Group.UNSEEN, False),
    "data-sync": (Group.UNSEEN, False),
}


def is_known(name: str) -> bool:
    """Whether an operation of this name is counted anywhere."""
    return name in COMPUTE or name in PARTS or name in COMM
