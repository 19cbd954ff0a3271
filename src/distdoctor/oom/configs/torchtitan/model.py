"""The model that a TorchTitan configuration names by family and flavor: `llama3` and `70B`."""

from __future__ import annotations

import re

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_word, template_in
from distdoctor.oom.models.presets import Preset, find_preset
from distdoctor.oom.shape import Model

# Flavors whose published model has another name (torchtitan/models/*/__init__.py).
_FLAVORS = {
    ("deepseek_v3", "16b"): "deepseek-v2-lite",
    ("deepseek_v3", "236b"): "deepseek-v2",
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("llama3", "1b"): "llama3.2-1b",
    ("llama3", "3b"): "llama3.2-3b",
}
_FAMILY_IN_PATH = re.compile(r"models/(\w+)/")
_HOW = "`--model NAME`, or the model's config.json as another file"


def read_model(reading: Reading, root: Section) -> None:
    """Fill in the model from `[model] name, flavor`, or from `model_registry("70B")` and where the file lies."""
    spec = root.get("model_spec")
    section = root.section("model")
    flavor = section.get("flavor") or _registered(root.section("model_spec"))
    family = section.get("name")
    if flavor is None:
        why = (
            "model_spec is no call of model_registry"
            if spec is not None
            else "neither a flavor nor a model_spec is given"
        )
        reading.leave_open("the model", why, settles="model", how_to=_HOW)
        return
    word = as_word(flavor.value)
    if word is None or template_in(word):
        reading.leave_open("the model", f"`{flavor.name}` is {word or 'empty'}", settles="model", how_to=_HOW)
        return
    families = _families(reading, root, family)
    for each in families:
        found = preset_of_flavor(each, word)
        if found is not None:
            source = f"preset {found.name}, TorchTitan's {each} {word}"
            reading.set(
                "model", Model(name=found.name, source=source, shape=found.shape, notes=found.notes), flavor
            )
            reading.say("model", f"{each} {word}: sizes of the preset {found.name}", flavor, family)
            return
    name = f"{families[0]} {word}" if families else word
    reading.say("model", name, flavor, family)
    reading.leave_open(
        f"sizes of {name}",
        "the file names the model, and its name is not in our table",
        settles="model",
        how_to=_HOW,
    )


def _registered(spec: Section) -> Entry | None:
    """The flavor of `model_registry("70B", …)`."""
    call = spec.get("_call")
    if call is None or "registry" not in (as_word(call.value) or ""):
        return None
    return spec.first("0", "flavor")


def _families(reading: Reading, root: Section, family: Entry | None) -> list[str]:
    """Candidates, the surest first: said in the file, the folder it lies in, the function's name, the assets."""
    found = []
    word = as_word(family.value) if family is not None else None
    if word:
        found.append(word.rsplit(".", 1)[-1])
    in_path = _FAMILY_IN_PATH.findall(reading.path.replace("\\", "/"))
    found += in_path[-1:]
    for name in ("_function", "_imports"):
        entry = root.get(name)
        text = as_word(entry.value) if entry is not None else None
        if text:
            found += re.findall(r"llama\d|deepseek_v\d|qwen\d|gpt_oss|mistral|gemma\d?", text.lower())
    for name in ("hf_assets_path", "tokenizer_path"):
        entry = root.get(name) or root.section("model").get(name)
        text = (as_word(entry.value) or "").lower() if entry is not None else ""
        match = re.search(r"llama-?(\d)|deepseek-(v\d)|qwen-?(\d)|gpt-oss", text)
        if match:
            found.append(
                re.sub(r"-(?=v)", "_", match[0])
                .replace("llama-", "llama")
                .replace("qwen-", "qwen")
                .replace("gpt-oss", "gpt_oss")
            )
    return list(dict.fromkeys(found))


def preset_of_flavor(family: str, flavor: str) -> Preset | None:
    """The published model that TorchTitan calls so; None where our table has none."""
    flavor = re.sub(r"_(?:flex_attn|varlen_attn|fused_qkv|sdpa)$", "", flavor.lower())
    known = _FLAVORS.get((family.lower(), flavor))
    return find_preset(known or f"{family}-{flavor}")
