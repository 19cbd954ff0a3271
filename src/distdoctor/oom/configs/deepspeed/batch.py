"""DeepSpeed's three batch sizes and the number of ranks that they demand.

runtime/config.py, `_batch_assertion`: train_batch_size = micro-batch x accumulation x data-parallel ranks, and the
job stops when that does not hold. Of a missing size DeepSpeed derives the rest (`_set_batch_related_parameters`).
"""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section
from distdoctor.oom.facts.launch import Defect

_TOTAL, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def read_batch(reading: Reading, root: Section, *, tp: int) -> None:
    """Fill in the batch sizes, and say which number of ranks they allow."""
    total = reading.fill("global_batch", root.get(_TOTAL))
    micro = reading.fill("micro_batch", root.get(_MICRO))
    steps = reading.fill("accumulation_steps", root.get(_STEPS))
    keys = tuple(root.get(name) for name in (_TOTAL, _MICRO, _STEPS))
    if total is None:
        _without_total(reading, root, micro)
        return
    if micro is None and steps is None:
        reading.say("batch", f"{total} = micro-batch x accumulation x data-parallel ranks", *keys)
        if _MICRO not in root and _STEPS not in root:
            reading.say(
                "batch", "neither micro-batch nor accumulation is given: the micro-batch is the total / ranks"
            )
        reading.leave_open("the number of ranks", "the launcher decides", settles="world_size")
        return
    known = (micro or 1) * (steps or 1)
    if total % known:
        parts = " x ".join(str(each) for each in (micro, steps) if each is not None)
        reading.defect(
            Defect.BATCH_DOES_NOT_DIVIDE,
            f"train_batch_size {total} is no multiple of {parts}",
            *keys,
            why="train_batch_size = micro-batch x accumulation x data-parallel ranks; DeepSpeed checks it at start "
            "and stops. No number of ranks makes this true.",
            fix=f"set `{_TOTAL}` to micro-batch x accumulation x ranks, or leave it out",
            stops=True,
        )
        return
    rest = total // known
    if micro is not None and steps is not None:
        _ranks(reading, root, sizes=(total, micro, steps), ranks=rest, tp=tp)
        return
    left = "grad_acc x DP ranks" if steps is None else "micro-batch x DP ranks"
    shown = f"{micro} x grad_acc x ranks" if steps is None else f"{steps} x micro-batch x ranks"
    reading.say("batch", f"{total} = {shown}: {left} = {rest}", *keys)
    reading.leave_open(
        "the number of ranks",
        f"the launcher decides; {left} = {rest}, so the data-parallel ranks must divide {rest}",
        settles="world_size",
    )


def _without_total(reading: Reading, root: Section, micro: int | None) -> None:
    if micro is not None:
        reading.say("batch", f"micro-batch {micro} on each data-parallel rank", root.get(_MICRO))
    elif _MICRO not in root and _TOTAL not in root:
        reading.leave_open("the micro-batch", "the file gives no batch size", settles="micro_batch")
    reading.leave_open("the number of ranks", "the launcher decides", settles="world_size")


def _ranks(reading: Reading, root: Section, *, sizes: tuple[int, int, int], ranks: int, tp: int) -> None:
    """All three are given: they determine the data-parallel degree."""
    total, micro, steps = sizes
    keys = tuple(root.get(name) for name in (_TOTAL, _MICRO, _STEPS))
    reading.say("batch", f"{total} = {micro} x {steps} x {ranks}: {ranks} data-parallel ranks", *keys)
    reading.set("world_size", ranks * tp, root.get(_TOTAL), implied=True)
    if tp > 1:
        reading.say("mesh", f"{ranks} data-parallel x {tp} tensor-parallel ranks = {ranks * tp}", *keys)
    else:
        reading.note(
            f"{ranks} ranks, unless the training script adds tensor or pipeline parallelism: then {ranks} x those"
        )
