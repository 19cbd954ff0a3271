"""What was each storage for? Decided after the program ended, from what it was labelled and where it lived.

A storage that outlived the forward pass that made it is a saved activation; one that did not is a temporary. What the
output layer and the loss make is counted as logits, in the backward pass too.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import MemoryLog, Origin, Phase, Place

# The output layer, as oom/training/model.py and most models call it.
OUTPUT_MODULES = ("output", "lm_head", "head", "embed_out")


@dataclass(slots=True)
class _Life:
    born: Place
    survived: bool = False


def categories_of(log: MemoryLog, *, output_modules: tuple[str, ...] = OUTPUT_MODULES) -> list[Category]:
    """One category for each storage of the log."""
    lives = _lives(log)
    outputs = frozenset(output_modules)
    has_loss = any(_is_of_output(place, outputs) for place in log.places)
    return [
        storage.label or _category(lives[number], storage.origin, outputs, has_loss=has_loss)
        for number, storage in enumerate(log.storages)
    ]


def _lives(log: MemoryLog) -> list[_Life]:
    """Where each storage was born, and whether it was still there when that phase ended."""
    nowhere = Place(step=0, phase=Phase.INITIALISATION)
    lives = [_Life(born=nowhere) for _ in log.storages]
    in_phase: set[int] = set()
    current: tuple[int, Phase, int | None] | None = None
    seen = bytearray(len(log.storages))
    for event in log.events:
        place = log.places[event.place]
        phase = (place.step, place.phase, place.micro_batch)
        if phase != current:
            for number in in_phase:
                lives[number].survived = True
            in_phase.clear()
            current = phase
        if event.num_bytes == 0:
            in_phase.discard(event.storage)
        elif not seen[event.storage]:
            seen[event.storage] = 1
            lives[event.storage].born = place
            in_phase.add(event.storage)
    for number in in_phase:
        lives[number].survived = True
    return lives


def _is_of_output(place: Place, outputs: frozenset[str]) -> bool:
    return place.module.rpartition(".")[2] in outputs or place.phase is Phase.LOSS


def _category(life: _Life, origin: Origin, outputs: frozenset[str], *, has_loss: bool) -> Category:
    place = life.born
    if origin is Origin.UNSHARDED:
        return Category.GATHERED
    of_output = _is_of_output(place, outputs)
    match place.phase:
        case Phase.DATA:
            return Category.INPUTS
        case Phase.INITIALISATION if life.survived and origin is Origin.PROGRAM:
            # What is being built and has no label yet.
            return Category.PARAMETERS
        case Phase.FORWARD | Phase.RECOMPUTATION | Phase.LOSS:
            if of_output:
                return Category.LOGITS
            if life.survived:
                return Category.ACTIVATIONS
        case Phase.BACKWARD:
            # The loss's own backward pass is of no module; neither is what a pipeline's other stages hand on.
            if of_output or (has_loss and not place.module and origin is Origin.PROGRAM):
                return Category.LOGITS
        case _:
            pass
    return Category.COMMUNICATION if origin is Origin.COLLECTIVE else Category.TEMPORARIES
