"""What Megatron-LM's timers hold: own work, waiting, moving data, or all in one.

Read from megatron/core/timers.py, pipeline_parallel/schedules.py, training.py; 2022 to 2026:
- A timer synchronises the device when it starts and when it stops, so it holds all that runs meanwhile, on every
  stream. Values are sums over micro-batches, divided by the iterations of the log interval.
- forward-compute and backward-compute exclude sending to and receiving from other pipeline stages, which have timers
  of their own. They include the collectives of tensor, context and expert parallelism and of sharded parameters;
  backward-compute also gradient reduction that overlaps it. So they are own work only where the printed arguments
  rule all that out, else walls.
- Without them (`--timing-log-level 1`) waiting for other stages and inside of layers is in forward-backward, in one
  with the work. Then all-grads-sync is not all of the waiting, and the iteration less it is no work of a rank: it is as
  long on all ranks, whoever is slow.
- batch-generator lies inside forward-compute. It holds a broadcast when tensor parallel is above 1; without, it is
  the data loader, and is taken out of forward.
- all-reduce, reduce-scatter and all-gather timers hold waiting and transfer in one. With `barrier_with_L1_time` (the
  default) all ranks meet in a barrier before these timers start: then they hold the transfer alone, and the waiting
  is in no timer.
- The iteration's own time is taken behind a barrier of all ranks, so it is the STEP of each of them.
- optimizer is a wall: gradient clipping and the check for infinities inside it are collectives. Its copies and the
  inner step are own work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.logs.megatron_args import MegatronArguments

_OWN_OPTIMIZER = (
    "optimizer-copy-to-main-grad",
    "optimizer-inner-step",
    "optimizer-copy-main-to-model-params",
)


def kind_of(name: str) -> str | None:
    """Timers that mean the same for us; None: not part of an iteration, or a sum of others."""
    if name == "batch-generator":
        return "data"
    if name in ("forward-compute", "backward-compute"):
        return name.removesuffix("-compute")
    if name in _OWN_OPTIMIZER:
        return "optimizer"
    if name.endswith(("-send", "-recv")):
        return "peers"
    if name.endswith(("all-reduce", "reduce-scatter", "all-gather", "grads-sync")):
        return "sync"
    return None


def sections_of(
    times: dict[str, NDArray[np.float32]], arguments: MegatronArguments, what: str
) -> tuple[dict[Section, NDArray[np.float32]], tuple[Note, ...]]:
    """Timers, (ranks, steps) in ms by kind, as sections, and what they cannot show."""
    sections: dict[Section, NDArray[np.float32]] = {}
    notes: list[Note] = []
    inside = arguments.groups_inside_compute()
    overlapped = arguments.flag("overlap_grad_reduce")
    tp = arguments.size("tensor_model_parallel")
    data = times.get("data")
    if data is not None and tp == 1:
        sections[Section.DATA] = data
    if "forward" in times:
        own = times["forward"]
        if Section.DATA in sections and data is not None:
            own = np.maximum(own - np.nan_to_num(data), 0)
        sections[Section.FORWARD if inside == "" else Section.FORWARD_WALL] = own
    if "backward" in times:
        is_own = inside == "" and overlapped is False
        sections[Section.BACKWARD if is_own else Section.BACKWARD_WALL] = times["backward"]
    if "optimizer" in times:
        sections[Section.OPTIMIZER] = times["optimizer"]
    if "step" in times:
        sections[Section.STEP] = times["step"]
    barrier = arguments.flag("barrier_with_L1_time") is True
    sync, peers = times.get("sync"), times.get("peers")
    if "forward" in times or "backward" in times:
        if barrier and sync is not None:
            sections[Section.TRANSFER] = sync
        elif sync is not None:
            peers = sync if peers is None else _added(sync, peers)
        # Where forward and backward hold waiting for all peers, it is not all of the waiting.
        if peers is not None and not arguments.waits_for_its_peers_inside():
            sections[Section.COMM] = peers
    if inside is None and ("forward" in times or "backward" in times):
        lacking = arguments.unknown()
        known = arguments.num_seen or arguments.values
        why = (
            f"the job's arguments in it lack {', '.join(lacking)}"
            if known
            else "the job's arguments are not in it"
        )
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"{what}: {why}, so forward and backward may hold collectives and prove nothing of a rank",
                how="give the log from its first line on, all ranks in one file: rank 0 prints the arguments at the start, "
                "the last rank the timers",
            )
        )
    elif inside:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"{what}: forward and backward hold collectives ({inside}): ranks that work on one part of the "
                "batch look equally slow",
            )
        )
    elif overlapped and "backward" in times:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"{what}: gradients are reduced during backward (overlap_grad_reduce), so backward holds waiting",
            )
        )
    if barrier and (sync is not None):
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"{what}: all ranks meet in a barrier before collectives are timed (barrier_with_L1_time), so the "
                "waiting is in no timer",
                how="run with `--no-barrier-with-level-1-timing`",
            )
        )
    return sections, tuple(notes)


def _added(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    total = np.nan_to_num(one) + np.nan_to_num(other)
    total[np.isnan(one) & np.isnan(other)] = np.nan
    return total
