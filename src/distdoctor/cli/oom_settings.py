"""From the words of the command line, and launch configurations, to what is said about a job."""

from __future__ import annotations

import difflib
import re
from dataclasses import fields, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from distdoctor.cli.job_words import Words
from distdoctor.errors import InputError, UsageError
from distdoctor.oom.catalog.gpus import Cluster, parse_cluster
from distdoctor.oom.mesh import parse_mesh_option
from distdoctor.oom.models.flags import load_model, model_from_options, parse_count
from distdoctor.oom.settings import (
    Adapter,
    Attention,
    Checkpointing,
    DataParallel,
    Offload,
    Optimizer,
    OptimizerLoop,
    Precision,
    Schedule,
    Settings,
)
from distdoctor.oom.shape import Model

if TYPE_CHECKING:
    from distdoctor.report.model import InputFile

E = TypeVar("E", bound=Enum)


def settings_of_words(
    words: Words, configs: tuple[str, ...]
) -> tuple[Settings, Cluster | None, tuple[InputFile, ...]]:
    """What was said, the GPUs to judge it on, and the files that were read. Raises UsageError and InputError."""
    said, inputs = _from_configs(configs) if configs else (Settings(), ())
    cluster = parse_cluster(words.on) if words.on is not None else None
    if configs and words.vocab is not None and said.model is not None and said.model.shape is not None:
        # Many scripts leave the vocabulary to a tokenizer that is not here.
        shape = replace(said.model.shape, vocab_size=words.vocab)
        said, words = replace(said, model=replace(said.model, shape=shape)), replace(words, vocab=None)
    merged = over(_from_options(words, cluster), said)
    if cluster is None and merged.gpu_type is not None:
        cluster = _cluster_said(merged.gpu_type)
    return merged, cluster, inputs


def over(stronger: Settings, weaker: Settings) -> Settings:
    """`stronger` where it says something, else `weaker`."""
    said = {
        field.name: getattr(stronger, field.name)
        for field in fields(Settings)
        if getattr(stronger, field.name) is not None
    }
    return replace(weaker, **said)


def _from_configs(paths: tuple[str, ...]) -> tuple[Settings, tuple[InputFile, ...]]:
    from distdoctor.oom.configs.files import read_configs
    from distdoctor.oom.configs.join import join_configs
    from distdoctor.oom.facts.launch import DECIDES_SIZES

    configs, inputs = read_configs(paths)
    if unread := [each for each in inputs if not each.read]:
        # A part of the job's settings would silently be missing.
        raise InputError(unread[0].why_not or f"cannot read `{unread[0].path}`")
    settings, defects = join_configs(configs)
    own = [defect for config in configs for defect in config.defects]
    stopping = [defect for defect in (*own, *defects) if defect.stops_job and defect.kind in DECIDES_SIZES]
    if stopping:
        raise UsageError(stopping[0].title, hint=stopping[0].fix)
    return settings, inputs


def _from_options(words: Words, cluster: Cluster | None) -> Settings:
    degrees = parse_mesh_option(words.mesh) if words.mesh is not None else {}
    offload = _choice("--offload", words.offload, ("none", "optimizer", "all"))
    init = _choice("--init", words.init, ("meta", "whole"))
    return Settings(
        model=_model(words),
        world_size=_num_gpus(words, cluster),
        gpus_per_node=words.gpus_per_node
        if words.gpus_per_node is not None
        else (cluster.gpus_per_node if cluster else None),
        pp=degrees.get("pp"),
        dp_replicate=degrees.get("dp_replicate"),
        dp_shard=degrees.get("dp_shard"),
        cp=degrees.get("cp"),
        tp=degrees.get("tp"),
        ep=degrees.get("ep"),
        etp=degrees.get("etp"),
        strategy=_enum("--strategy", words.strategy, DataParallel),
        precision=_enum("--precision", words.precision, Precision),
        optimizer=_enum("--optimizer", words.optimizer, Optimizer),
        optimizer_loop=_enum("--optimizer-loop", words.optimizer_loop, OptimizerLoop),
        micro_batch=words.micro_batch,
        accumulation_steps=words.micro_batches,
        global_batch=words.global_batch,
        seq_len=_tokens(words.seq_len),
        checkpointing=_enum("--checkpointing", words.checkpointing, Checkpointing),
        attention=_enum("--attention", words.attention, Attention),
        sequence_parallel=words.sequence_parallel,
        loss_parallel=words.loss_parallel,
        fused_loss=words.fused_loss,
        schedule=_enum("--schedule", words.schedule, Schedule),
        virtual_stages=words.virtual_stages,
        reshard_after_forward=False if words.keep_gathered else None,
        gradient_as_bucket_view=True if words.bucket_view else None,
        offload_optimizer=None if offload is None else Offload.NONE if offload == "none" else Offload.CPU,
        offload_params=None if offload is None else Offload.CPU if offload == "all" else Offload.NONE,
        meta_init=None if init is None else init == "meta",
        expert_imbalance=words.expert_imbalance,
        adapter=_adapter(words),
    )


def _model(words: Words) -> Model | None:
    sizes = {
        "layers": words.layers,
        "hidden": words.hidden,
        "heads": words.heads,
        "kv_heads": words.kv_heads,
        "head_size": words.head_size,
        "ffn": words.ffn,
        "vocab": words.vocab,
        "experts": words.experts,
        "experts_per_token": words.experts_per_token,
        "expert_ffn": words.expert_ffn,
        "gated": words.gated,
        "tied": words.tied,
    }
    given = [name for name, value in sizes.items() if value is not None]
    if words.model is not None:
        if given or words.params is not None:
            option = given[0].replace("_", "-") if given else "params"
            raise UsageError(f"--model and --{option} exclude one another", hint="give one or the other")
        return load_model(words.model)
    if not given and words.params is None:
        return None
    params = parse_count(words.params) if words.params is not None else None
    return model_from_options(params=params, **sizes)  # type: ignore[arg-type]  # each value has its own type


def _num_gpus(words: Words, cluster: Cluster | None) -> int | None:
    counted = cluster.num_gpus if cluster is not None else None
    if words.gpus is not None and counted is not None and words.gpus != counted:
        raise UsageError(f"--gpus says {words.gpus}, --on says {counted}", hint="give the number once")
    return words.gpus if words.gpus is not None else counted


def _adapter(words: Words) -> Adapter | None:
    if words.base_bits is not None and words.base_bits not in (4, 8, 16):
        raise UsageError(f"--base-bits {words.base_bits}: weights have 16, 8 or 4 bits")
    if words.lora_rank is None:
        if words.base_bits is not None:
            raise UsageError("--base-bits is of frozen weights; give --lora-rank, too")
        return None
    if not 1 <= words.lora_rank <= 1 << 16:
        raise UsageError(f"--lora-rank {words.lora_rank}: ranks are 1 or more")
    return Adapter(rank=words.lora_rank, base_bits=words.base_bits or 16)


def _cluster_said(gpu_type: str) -> Cluster | None:
    """The GPU type that a configuration names; None where the catalog does not know it."""
    try:
        return parse_cluster(gpu_type)
    except UsageError:
        return None


def _enum(option: str, word: str | None, kind: type[E]) -> E | None:
    if word is None:
        return None
    key = word.strip().lower().replace("_", "-")
    key = _ALIASES.get(option, {}).get(key, key)
    if not key:
        return None
    names = [str(each.value) for each in kind]
    return kind(_choice(option, word, tuple(names), key=key))


# Other words for the same, by option; what is empty leaves the choice to the strategy.
_ALIASES = {
    "--strategy": {
        "fsdp": "fsdp2",
        "fsdp1": "fsdp2",
        "fully-shard": "fsdp2",
        "zero-1": "zero1",
        "zero-2": "zero2",
        "zero-3": "zero3",
        "single": "none",
        "megatron-dist-opt": "megatron-distopt",
    },
    # Both are "mixed precision": with FSDP and DDP fp32 parameters, with DeepSpeed and Megatron a master copy.
    "--precision": dict.fromkeys(("bf16", "fp16", "bf16-mixed", "fp16-mixed", "16-mixed", "amp"), ""),
    "--optimizer": {
        "adam": "adamw",
        "adamw-torch": "adamw",
        "adamw-torch-fused": "adamw",
        "adamw8bit": "adamw-8bit",
        "adam-8bit": "adamw-8bit",
        "adamw-bnb-8bit": "adamw-8bit",
        "paged-adamw-8bit": "adamw-8bit",
    },
    "--checkpointing": {
        **dict.fromkeys(("on", "true", "yes", "all"), "full"),
        **dict.fromkeys(("off", "false", "no"), "none"),
        "selective-op": "selective",
        "op": "selective",
    },
    "--attention": {
        **dict.fromkeys(
            ("sdpa", "flash-attention", "flash-attention-2", "flash-attention-3", "fa2", "fa3", "flex"),
            "flash",
        ),
        **dict.fromkeys(("eager", "math", "naive"), "unfused"),
    },
    "--schedule": {
        "zb": "zero-bubble",
        "zb-h1": "zero-bubble",
        "zb-v": "zbv",
        "interleaved-1f1b": "interleaved",
    },
}
# Words that are no value of their option, and what to say instead.
_INSTEAD = {
    "hsdp": "write --strategy fsdp2 --mesh dp_replicate=2,dp_shard=8",
    "deepspeed": "which stage? zero1, zero2 or zero3",
    "zero": "which stage? zero1, zero2 or zero3",
    "lora": "give --lora-rank N beside the strategy",
    "qlora": "give --lora-rank N --base-bits 4 beside the strategy",
    "tp": "write --mesh tp=N",
    "pp": "write --mesh pp=N",
}


def _choice(option: str, word: str | None, known: tuple[str, ...], *, key: str | None = None) -> str | None:
    key = word if key is None else key
    if word is None or key in known:
        return key
    near = difflib.get_close_matches(str(key), known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    hint = _INSTEAD.get(str(key)) or f"{meant}known: {', '.join(known)}"
    raise UsageError(f"{option}: `{word[:40]}` is not known", hint=hint)


# 8k tokens are 8192 and 128k are 131072 wherever lengths of contexts are named.
_TOKENS = re.compile(r"(\d{1,9})([kKmM]i?)?")


def _tokens(word: str | None) -> int | None:
    """Tokens of a sequence: `8192`, `8k`, `1M`."""
    if word is None:
        return None
    match = _TOKENS.fullmatch(word.strip())
    if match is None:
        raise UsageError(f"--seq-len: `{word[:40]}` is no number of tokens", hint="write 8192, 8k or 1M")
    return int(match[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[(match[2] or "").lower().rstrip("i")]
