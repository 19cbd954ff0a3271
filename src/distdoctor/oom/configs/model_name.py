"""The model that a configuration names: its shape from our table, or its name alone, which leaves its sizes open."""

from __future__ import annotations

import re

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry
from distdoctor.oom.configs.text.values import as_word, template_in
from distdoctor.oom.models.presets import find_preset
from distdoctor.oom.shape import Model

# Weights stored in another type keep their shape.
_RETYPED = re.compile(r"[-_](?:de|un)quantized$", re.IGNORECASE)

_HOW = "`--model NAME`, or the model's config.json as another file"


def name_model(reading: Reading, entry: Entry | None) -> None:
    """Fill `settings.model` from a name such as `Qwen/Qwen3-8B`; an unknown name leaves an open point."""
    if entry is None:
        reading.leave_open("the model", "the file names none", settles="model", how_to=_HOW)
        return
    name = as_word(entry.value)
    if name is None:
        reading.leave_open("the model", f"`{entry.name}` is empty", settles="model", how_to=_HOW)
        return
    template = template_in(name)
    if template:
        reading.leave_open(
            "the model", f"`{entry.name}` holds {template}, filled in later", settles="model", how_to=_HOW
        )
        return
    found = find_preset(name) or find_preset(_RETYPED.sub("", name))
    if found is None:
        reading.say("model", name, entry)
        reading.leave_open(
            f"sizes of {name}",
            "the file names the model, and its name is not in our table",
            settles="model",
            how_to=_HOW,
        )
        return
    reading.set(
        "model",
        Model(
            name=found.name,
            source=f"preset {found.name}, named by `{entry.name}: {name}`",
            shape=found.shape,
            notes=found.notes,
        ),
        entry,
    )
    reading.say("model", f"{name}: sizes of the preset {found.name}", entry)
