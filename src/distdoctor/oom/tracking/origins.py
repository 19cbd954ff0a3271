"""Whose code asked for a tensor? Told by the files on the Python stack, innermost first."""

from __future__ import annotations

from types import FrameType

from distdoctor.oom.memory.log import Origin

# Deeper than any stack between an op and the module that calls it.
_MAX_FRAMES = 80

_COLLECTIVES = (
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/tensor/_redistribute.py",
    "/torch/distributed/tensor/_collective_utils.py",
    "/torch/distributed/tensor/placement_types.py",
    "/torch/distributed/pipelining/",
    "/torch/nn/parallel/distributed.py",
    "/torch/distributed/optim/zero_redundancy_optimizer.py",
    "/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
)
_UNSHARDED = ("/torch/distributed/fsdp/_fully_shard/",)
# Calculations with shapes of whole tensors, which no device ever holds.
_NOT_REAL = ("/torch/distributed/tensor/_sharding_prop.py",)
_STOPS = ("/torch/nn/modules/module.py", "/torch/utils/checkpoint.py", "/torch/autograd/graph.py")

_NOTHING, _STOP, _SKIP = object(), object(), object()
_known: dict[str, object] = {}


def origin_of_caller(frame: FrameType | None) -> Origin | None:
    """Whose code is running at `frame`; None: shapes are being reasoned about, and nothing is allocated for real."""
    found: Origin | None = None
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        name = frame.f_code.co_filename
        what = _known.get(name)
        if what is None:
            what = _known[name] = _classify(name)
        if what is _SKIP:
            return None
        if what is _STOP:
            break
        if found is None and isinstance(what, Origin):
            found = what
        frame = frame.f_back
    return found or Origin.PROGRAM


def _classify(name: str) -> object:
    for marks, meaning in (
        (_NOT_REAL, _SKIP),
        (_STOPS, _STOP),
        (_COLLECTIVES, Origin.COLLECTIVE),
        (_UNSHARDED, Origin.UNSHARDED),
        (("/torch/optim/",), Origin.OPTIMIZER),
    ):
        if any(mark in name for mark in marks):
            return meaning
    return _NOTHING
