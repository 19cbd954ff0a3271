"""Which optimizer a DeepSpeed file names, and what it keeps for each parameter."""

from __future__ import annotations

from distdoctor.oom.configs.optimizers import named_optimizer
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import OptimizerLoop


def read_optimizer(reading: Reading, root: Section, stage: int | None) -> None:
    """Fill in the optimizer, and tell combinations with ZeRO that DeepSpeed refuses."""
    entry = root.section("optimizer").get("type")
    name = reading.word(entry, what="the optimizer")
    if entry is None or name is None:
        if entry is None:
            reading.leave_open("the optimizer", "the training script chooses it", settles="optimizer")
        return
    found = named_optimizer(name)
    if found is None or found.optimizer is None:
        note = found.note if found and found.note else "its states are not known here"
        reading.leave_open(f"the states of optimizer {shown_type(entry)}", note, settles="optimizer")
        return
    reading.set("optimizer", found.optimizer, entry)
    torch_adam = root.section("optimizer").section("params").get("torch_adam")
    if found.loop or (found.optimizer.value == "adamw" and not (torch_adam and as_flag(torch_adam.value))):
        reading.set("optimizer_loop", found.loop or OptimizerLoop.FUSED, entry)
    reading.say("optimizer", f"{shown_type(entry)}{f' ({found.note})' if found.note else ''}", entry)
    if found.is_onebit:
        reading.say(
            "optimizer",
            "a 1-bit optimizer: error-feedback buffers of about 1 to 2 fp32 copies of the parameters come on top",
            entry,
        )
        if stage:
            reading.defect(
                Defect.CONFLICT,
                f"{shown_type(entry)} does not work with ZeRO",
                entry,
                root.section("zero_optimization").get("stage"),
                why="1-bit optimizers need whole states on every rank; DeepSpeed asserts that ZeRO is off.",
                fix="set `zero_optimization.stage` to 0, or take Adam",
                stops=True,
            )
    untested = root.get("zero_allow_untested_optimizer")
    is_untested = found.optimizer.value in ("lamb", "sgd", "sgd-momentum") and not found.is_onebit
    if stage and is_untested and not (untested is not None and as_flag(untested.value)):
        reading.defect(
            Defect.CONFLICT,
            f"{shown_type(entry)} with ZeRO needs zero_allow_untested_optimizer",
            entry,
            untested,
            why="ZeRO is tested with Adam; with other optimizers DeepSpeed stops unless the file allows it.",
            fix='add `"zero_allow_untested_optimizer": true`',
            stops=True,
            sure=False,
        )


def shown_type(entry: Entry) -> str:
    """An optimizer's name as the file writes it."""
    return (as_word(entry.value) or "")[:40]
