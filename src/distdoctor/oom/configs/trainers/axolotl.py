"""axolotl's YAML: model, adapter, mesh, FSDP or DeepSpeed, and what keeps activations small.

Sources: axolotl's documentation ("Config Reference", "N-D Parallelism"), utils/schemas/validation.py (combinations
that it refuses), accelerate (parameters that train are cast to fp32 for FSDP unless mixed precision is off).
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.fsdp import option, read_fsdp, version_of
from distdoctor.oom.configs.model_name import name_model
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section, repeated
from distdoctor.oom.configs.text.values import as_word, words_of
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.configs.trainers.adapters import read_adapter
from distdoctor.oom.configs.trainers.axolotl_memory import read_activations
from distdoctor.oom.configs.trainers.axolotl_training import (
    check_adapter,
    read_batch,
    read_optimizer,
    read_types,
)
from distdoctor.oom.configs.trainers.trainer import assume_plain_copies
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig

_OWN = (
    "sequence_len",
    "micro_batch_size",
    "datasets",
    "sample_packing",
    "adapter",
    "val_set_size",
    "dataset_prepared_path",
    "flash_attention",
    "load_in_4bit",
    "pretraining_dataset",
    "num_epochs",
    "special_tokens",
)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like axolotl's YAML: 0 to 1."""
    keys = set(re.findall(r"^\"?(\w+)\"?[ ]*:", text, re.MULTILINE))
    own = sum(each in keys for each in _OWN)
    if "base_model" in keys:
        return 0.95 if own >= 2 else 0.5
    return 0.6 if own >= 4 and "model_name_or_path" not in keys else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`. Raises InputError with the line when it is no YAML."""
    reading = Reading(path=path, family=ConfigFamily.AXOLOTL)
    root = read_yaml(text, path).documents[0]
    for entry in repeated(root):
        reading.note(f"`{entry.name}` stands twice; the last one counts")
    name_model(reading, root.get("base_model"))
    _mesh(reading, root)
    _strategy(reading, root)
    read_adapter(reading, root)
    check_adapter(reading, root)
    read_types(reading, root)
    read_batch(reading, root)
    read_optimizer(reading, root)
    read_activations(reading, root)
    _comments(reading, text)
    reading.leave_open("the number of ranks", "the launcher decides", settles="world_size")
    return reading.done()


_DEGREES = {
    "dp_replicate_size": "dp_replicate",
    "dp_shard_size": "dp_shard",
    "tensor_parallel_size": "tp",
    "context_parallel_size": "cp",
    "sequence_parallel_degree": "cp",
}


def _mesh(reading: Reading, root: Section) -> None:
    product, keys, shown = 1, [], []
    for name, setting in _DEGREES.items():
        entry = root.get(name)
        size = reading.fill(setting, entry)
        if size is not None and entry is not None:
            product *= size
            keys.append(entry)
            shown.append(f"{setting} {size}")
    experts = root.get("expert_parallel_size")
    spread = reading.fill("ep", experts)
    if not keys:
        return
    if spread is not None and spread > 1 and reading.get("dp_shard") is not None:
        # Ranks are expert_parallel_size x dp_shard_size (x the others); which of them share dense layers is not said.
        reading.values.pop("dp_shard")
        reading.set("world_size", product * spread, experts, implied=True)
        reading.say("mesh", f"{' x '.join(shown)} x ep {spread} = {product * spread} ranks", *keys, experts)
        reading.note(
            "dense layers are counted as shared by all ranks; axolotl's mesh may share them by fewer"
        )
    elif reading.get("dp_shard") is not None:
        reading.set("world_size", product, keys[0], implied=True)
        reading.say("mesh", f"{' x '.join(shown)} = {product} ranks, implied by the degrees", *keys)
    else:
        reading.say("mesh", f"{' x '.join(shown)}; data-parallel ranks are what is left", *keys)


def _strategy(reading: Reading, root: Section) -> None:
    engine = root.get("deepspeed")
    engine_file = as_word(engine.value) if engine is not None else None
    section = root.section("fsdp_config")
    words = tuple(each.lower() for each in words_of(root.get("fsdp")))
    has_fsdp = bool(section) or bool(words)
    if engine_file and has_fsdp:
        reading.defect(
            Defect.CONFLICT,
            "deepspeed and fsdp are both set",
            engine,
            root.get("fsdp") or root.get("fsdp_config"),
            why="axolotl stops: deepspeed and fsdp cannot be used together.",
            fix="remove one of them",
            stops=True,
        )
    if engine_file:
        reading.references.append(engine_file)
        reading.say("strategy", f"DeepSpeed, as {engine_file} says", engine)
        reading.leave_open(
            f"what {engine_file} says",
            "the DeepSpeed file is named, and was not given",
            settles="strategy",
            how_to=f"give `{engine_file}` as another file",
        )
    elif has_fsdp:
        version = version_of(reading, root.get("fsdp_version"), option(section, "version"))
        read_fsdp(
            reading,
            section,
            version=version,
            words=words,
            words_key=root.get("fsdp") or root.get("fsdp_config"),
        )
    else:
        assume_plain_copies(reading, why="neither fsdp nor deepspeed is set")
        if (reading.get("dp_shard") or 1) > 1:
            reading.defect(
                Defect.INEFFECTIVE,
                "dp_shard_size needs an fsdp_config to shard anything",
                root.get("dp_shard_size"),
                why="The degree names a dimension of the mesh; FSDP is what shards over it.",
                fix="add `fsdp_version: 2` and an `fsdp_config`",
                sure=False,
            )


def _comments(reading: Reading, text: str) -> None:
    for line in text.splitlines()[:2000]:
        found = re.search(r"#.*?\b(\d+)\s?x\s?(\d+)\s?x?\s?([AHBL]\d{2,3}\w*|RTX\w*)", line)
        if found:
            reading.note(
                f"a comment names {found[1]} x {found[2]} {found[3]}; comments are not taken as settings"
            )
