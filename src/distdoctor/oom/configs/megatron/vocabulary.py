"""The vocabulary of a model whose sizes are those of a published one, where the configuration leaves it to a tokenizer."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.models.presets import find_preset, preset_names
from distdoctor.oom.shape import Model, ModelShape


def with_published_vocabulary(model: Model) -> Model | None:
    """`model` with the vocabulary of the published models that have all its other sizes; None when they disagree, or
    there is none. A note says where the number is from."""
    shape = model.shape
    if shape is None or shape.vocab_size:
        return None
    found = [
        each for each in map(find_preset, preset_names()) if each is not None and _alike(each.shape, shape)
    ]
    sizes = {each.shape.vocab_size for each in found}
    if len(sizes) != 1:
        return None
    size = sizes.pop()
    names = " and ".join(each.name for each in found[:2])
    note = f"the vocabulary ({size:,}) is that of {names}, with the same sizes: the file does not say it"
    return replace(model, shape=replace(shape, vocab_size=size), notes=(*model.notes, note))


def _alike(one: ModelShape, other: ModelShape) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "num_layers",
            "hidden_size",
            "num_heads",
            "num_kv_heads",
            "ffn_size",
            "is_gated",
            "moe",
            "mla",
        )
    )
