"""NeMo's YAML for Megatron models (Hydra and OmegaConf): `trainer:` and `model:` with parallel sizes and shapes.

Source: NeMo 1.x and 2.0, examples/nlp/language_modeling/conf, and the meaning of `precision` in PyTorch Lightning.
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.megatron.model import model_from_args
from distdoctor.oom.configs.megatron.values import Arguments
from distdoctor.oom.configs.megatron.vocabulary import with_published_vocabulary
from distdoctor.oom.configs.nemo.omegaconf import is_missing, resolved
from distdoctor.oom.configs.nemo.rules import check_nemo
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word, template_in
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig
from distdoctor.oom.settings import Adapter, Checkpointing, DataParallel, Optimizer, Precision, Schedule
from distdoctor.oom.shape import Model

# NeMo's names of sizes, as Megatron-LM's arguments.
_SHAPE = {
    "num_layers": "num-layers",
    "hidden_size": "hidden-size",
    "ffn_hidden_size": "ffn-hidden-size",
    "num_attention_heads": "num-attention-heads",
    "num_query_groups": "num-query-groups",
    "kv_channels": "kv-channels",
    "max_position_embeddings": "max-position-embeddings",
    "num_moe_experts": "num-experts",
    "moe_router_topk": "moe-router-topk",
    "moe_ffn_hidden_size": "moe-ffn-hidden-size",
}
_DEGREES = (
    ("tp", "tensor_model_parallel_size"),
    ("pp", "pipeline_model_parallel_size"),
    ("cp", "context_parallel_size"),
    ("ep", "expert_model_parallel_size"),
)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like NeMo's YAML of a language model: 0 to 1."""
    has_trainer = re.search(r"^trainer\s*:", text, re.MULTILINE)
    has_model = re.search(r"^model\s*:", text, re.MULTILINE)
    if not (has_trainer and has_model):
        return 0.0
    own = re.search(
        r"^[ \t]+(?:tensor_model_parallel_size|pipeline_model_parallel_size|megatron_amp_O2|encoder_seq_length|mcore_gpt)\s*:",
        text,
        re.MULTILINE,
    )
    return 0.95 if own else 0.4 if "exp_manager" in text else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The training that the file describes. Raises InputError when it is no YAML."""
    root = read_yaml(text, path).documents[0]
    nemo = _Nemo(root, Reading(path=path, family=ConfigFamily.NEMO))
    reading = nemo.reading
    if "defaults" in root:
        reading.note("`defaults:` names files that Hydra merges with this one; they were not read")
    _ranks(nemo)
    _model(nemo)
    _degrees(nemo)
    _batch(nemo)
    _precision(nemo)
    _strategy(nemo)
    _activations(nemo)
    _adapters(nemo)
    check_nemo(reading)
    return reading.done()


class _Nemo:
    """The file's sections, with interpolations resolved when a key is asked for."""

    def __init__(self, root: Section, reading: Reading) -> None:
        self.root = root
        self.reading = reading
        self.trainer = root.section("trainer")
        self.model = root.section("model")

    def get(self, section: Section, name: str) -> Entry | None:
        """A key with its value resolved; None for absent keys and null."""
        entry = section.get(name)
        if entry is None or entry.value is None:
            return None
        value = resolved(self.root, entry.value, entry.name)
        return Entry(name=entry.name, value=value, line=entry.line) if value is not None else None

    def word(self, name: str) -> str | None:
        """A word of the model section in lower case."""
        entry = self.get(self.model, name)
        text = as_word(entry.value) if entry is not None else None
        return text.lower() if text else None

    def flag(self, name: str) -> bool:
        """A switch of the model section; False when it is absent."""
        entry = self.get(self.model, name)
        return entry is not None and as_flag(entry.value) is True


def _ranks(nemo: _Nemo) -> None:
    reading = nemo.reading
    devices, nodes = nemo.get(nemo.trainer, "devices"), nemo.get(nemo.trainer, "num_nodes")
    each = as_int(devices.value) if devices is not None else None
    if each == -1 or (devices is not None and as_word(devices.value) == "auto"):
        reading.leave_open(
            "devices",
            f"`{devices.name if devices else ''}` takes all GPUs of a node",
            settles="gpus_per_node",
        )
        each = None
    elif devices is not None:
        each = reading.fill("gpus_per_node", devices)
    count = reading.fill("num_nodes", nodes)
    if each is not None and count is not None:
        reading.set("world_size", each * count, devices)
        word = "rank" if each * count == 1 else "ranks"
        reading.say(
            "ranks", f"{each * count} {word}: {count} node{'s' if count > 1 else ''} x {each}", devices, nodes
        )
    else:
        reading.leave_open("the number of ranks", "devices x num_nodes is not given", settles="world_size")


def _model(nemo: _Nemo) -> None:
    reading = nemo.reading
    texts: dict[str, str] = {}
    keys = []
    for name, flag in _SHAPE.items():
        entry = nemo.get(nemo.model, name)
        number = as_int(entry.value) if entry is not None else None
        if entry is not None and number is not None:
            texts[flag] = str(number)
            keys.append(entry)
        elif entry is not None and (is_missing(entry.value) or template_in(entry.value)):
            reading.leave_open(
                f"model.{name}", f"`{as_word(entry.value)}` is to be filled in", settles="model"
            )
    if "num-query-groups" in texts:
        texts["group-query-attention"] = "true"
    activation = nemo.word("activation") or "gelu"
    if re.search(r"swiglu|geglu|reglu", activation):
        texts["swiglu"] = "true"
    if "bias" in nemo.model and not nemo.flag("bias"):
        texts["disable-bias-linear"] = "true"
    if "share_embeddings_and_output_weights" in nemo.model and not nemo.flag(
        "share_embeddings_and_output_weights"
    ):
        texts["untie-embeddings-and-output-weights"] = "true"
    if "rms" in (nemo.word("normalization") or ""):
        texts["normalization"] = "RMSNorm"
    texts["position-embedding-type"] = nemo.word("position_embedding_type") or "learned_absolute"
    tokenizer = nemo.model.section("tokenizer")
    kind = nemo.get(tokenizer, "type")
    texts["tokenizer-type"] = "NeMoTokenizer"
    texts["tokenizer-model"] = as_word(kind.value) or "" if kind is not None else ""
    model, found = model_from_args(Arguments(texts))
    for path in ("restore_from_path", "restore_from_ckpt"):
        restored = nemo.get(nemo.model, path)
        if restored is not None and model is None:
            reading.leave_open(
                "the model", f"it is restored from `{as_word(restored.value)}`", settles="model"
            )
    if model is None:
        for point in found.open_points:
            reading.leave_open(point.what.lstrip("-"), "the file does not give it", settles="model")
        return
    published = with_published_vocabulary(model)
    if published is None:
        for point in found.open_points:
            # No `settles`: the model's other sizes are known, and this must not look settled by them.
            reading.leave_open(
                f"the {point.what}",
                "it is that of the tokenizer, whose file is not here",
                how_to="`--vocab-size N`, or `--model …`",
            )
    else:
        reading.note(published.notes[-1])
    _say_model(reading, published or model, keys)


def _say_model(reading: Reading, model: Model, keys: list[Entry]) -> None:
    shape = model.shape
    if shape is None:
        return
    named = Model(name=model.name, source="NeMo configuration", shape=shape, notes=model.notes)
    count = parameters_of(named) if shape.vocab_size else None
    size = f"{count / 1e9:.2f}B parameters" if count else "a model whose vocabulary is not known"
    reading.set("model", named, keys[0] if keys else None)
    reading.say(
        "model",
        f"{size}: {shape.num_layers} layers, hidden size {shape.hidden_size}, {shape.num_heads} heads",
        *keys[:4],
    )


def _degrees(nemo: _Nemo) -> None:
    reading = nemo.reading
    said = []
    entries = []
    for name, key in _DEGREES:
        entry = nemo.get(nemo.model, key)
        size = reading.fill(name, entry)
        if size is not None:
            entries.append(entry)
            said.append(f"{name.upper()} {size}")
    if said:
        reading.say("mesh", " x ".join(said), *entries)
    reading.set(
        "sequence_parallel", nemo.flag("sequence_parallel"), nemo.get(nemo.model, "sequence_parallel")
    )
    virtual = nemo.get(nemo.model, "virtual_pipeline_model_parallel_size")
    chunks = as_int(virtual.value) if virtual is not None else None
    if chunks and chunks > 1:
        reading.set("virtual_stages", chunks, virtual)
        reading.set("schedule", Schedule.INTERLEAVED, virtual)
    divisor = nemo.get(nemo.model, "make_vocab_size_divisible_by")
    reading.fill("vocab_divisor", divisor)


def _batch(nemo: _Nemo) -> None:
    reading, model = nemo.reading, nemo.model
    data = model.section("data")
    training = data.section("train_ds")
    micro = nemo.get(model, "micro_batch_size") or nemo.get(training, "micro_batch_size")
    batch = nemo.get(model, "global_batch_size") or nemo.get(training, "global_batch_size")
    length = (
        nemo.get(model, "encoder_seq_length")
        or nemo.get(model, "seq_length")
        or nemo.get(data, "seq_length")
        or nemo.get(training, "max_seq_length")
    )
    numbers = [
        reading.fill(name, entry)
        for name, entry in (("micro_batch", micro), ("global_batch", batch), ("seq_len", length))
    ]
    parts = [
        f"{words} {number}"
        for words, number in zip(("micro-batch", "global batch", "sequences of"), numbers, strict=True)
        if number is not None
    ]
    if parts:
        reading.say("batch", ", ".join(parts), micro, batch, length)
    for name in ("hidden_dropout", "attention_dropout"):
        entry = nemo.get(model, name)
        if entry is not None and isinstance(entry.value, (int, float)) and not isinstance(entry.value, bool):
            reading.set(name, float(entry.value), entry)


def _precision(nemo: _Nemo) -> None:
    reading = nemo.reading
    entry = nemo.get(nemo.trainer, "precision")
    text = (as_word(entry.value) or "").lower() if entry is not None else ""
    if entry is None or template_in(text) or is_missing(text):
        reading.leave_open("the precision", "`trainer.precision` is not given", settles="precision")
        return
    keeps_master = nemo.flag("megatron_amp_O2")
    if text in ("32", "32-true", "fp32"):
        reading.set("precision", Precision.FP32, entry)
        reading.dtype = "fp32"
        words = "fp32 throughout"
    elif text.endswith("-true"):
        reading.set("precision", Precision.MASTER if keeps_master else Precision.PURE16, entry)
        words = text
    elif "16" in text:
        reading.set("precision", Precision.MASTER if keeps_master else Precision.MIXED, entry)
        words = f"{text}, {'16-bit parameters with fp32 master copies (megatron_amp_O2)' if keeps_master else 'fp32 parameters under autocast'}"
    else:
        reading.leave_open("the precision", f"`precision: {text}` is not known here", settles="precision")
        return
    if "16" in text:
        reading.dtype = "bf16" if "bf16" in text else "fp16"
    fp8 = nemo.get(nemo.model, "fp8")
    if fp8 is not None and as_flag(fp8.value):
        reading.set("fp8", True, fp8)
        words += ", matrix products in fp8; states keep their size"
    reading.say("precision", words, entry)


def _strategy(nemo: _Nemo) -> None:
    reading = nemo.reading
    entry = nemo.get(nemo.model.section("optim"), "name")
    name = (as_word(entry.value) or "").lower() if entry is not None else ""
    kinds = {"adafactor": Optimizer.ADAFACTOR, "sgd": Optimizer.SGD_MOMENTUM}
    if name:
        reading.set("optimizer", kinds.get(name, Optimizer.ADAMW if "adam" in name else None), entry)
    fsdp = nemo.get(nemo.model, "fsdp")
    if fsdp is not None and as_flag(fsdp.value):
        sharding = nemo.word("fsdp_sharding_strategy") or "full"
        reading.set("strategy", DataParallel.FSDP, fsdp)
        reading.set("reshard_after_forward", sharding != "grad", fsdp)
        reading.say("strategy", f"FSDP, sharding {sharding}", fsdp)
    elif "distributed" in name or name == "mcore_distributed_optim":
        reading.set("strategy", DataParallel.MEGATRON_DISTRIBUTED, entry)
        reading.say(
            "strategy", f"distributed optimizer ({name}): states sharded over data-parallel ranks", entry
        )
    else:
        reading.set("strategy", DataParallel.DDP, entry, implied=True)
        reading.say("strategy", "data parallelism with all states on every rank", entry)


def _activations(nemo: _Nemo) -> None:
    reading = nemo.reading
    entry = nemo.get(nemo.model, "activations_checkpoint_granularity")
    if entry is None:
        if "activations_checkpoint_granularity" in nemo.model:
            reading.set(
                "checkpointing", Checkpointing.NONE, nemo.model.get("activations_checkpoint_granularity")
            )
            reading.say("activations", "all are kept", nemo.model.get("activations_checkpoint_granularity"))
        return
    kinds = {"full": Checkpointing.FULL, "selective": Checkpointing.SELECTIVE}
    kind = reading.choice(entry, kinds, settles="checkpointing")
    if kind is not None:
        reading.set("checkpointing", kind, entry)
        reading.say("activations", f"computed again: {kind.value}", entry)
    if kind is Checkpointing.FULL and nemo.word("activations_checkpoint_method") == "block":
        layers = nemo.get(nemo.model, "activations_checkpoint_num_layers")
        reading.set("checkpoint_layers", as_int(layers.value) if layers is not None else None, layers)


def _adapters(nemo: _Nemo) -> None:
    peft = nemo.model.section("peft")
    scheme = nemo.get(peft, "peft_scheme")
    text = (as_word(scheme.value) or "").lower() if scheme is not None else ""
    if "lora" not in text or scheme is None:
        return
    rank = nemo.get(peft.section("lora_tuning"), "adapter_dim")
    number = as_int(rank.value) if rank is not None else None
    if number:
        nemo.reading.set("adapter", Adapter(rank=number, base_bits=4 if "q" in text else 16), rank)
        nemo.reading.say("model", f"LoRA of rank {number} on frozen weights", scheme, rank)
