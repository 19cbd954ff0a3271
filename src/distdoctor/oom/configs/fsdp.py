"""FSDP as accelerate, the Hugging Face trainer and axolotl spell it: with or without the prefix `fsdp_`.

Sources: accelerate `FullyShardedDataParallelPlugin` (utils/dataclasses.py), accelerate docs "FSDP1 vs FSDP2",
torch `ShardingStrategy`. FSDP1 and FSDP2 hold the same states: both are the strategy `fsdp2` of the estimate.
"""

from __future__ import annotations

from distdoctor.oom.configs.host_memory import say_offload
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload

# torch.distributed.fsdp.ShardingStrategy, by name and by the number that accelerate writes.
_SHARDING = {
    "1": "full_shard",
    "2": "shard_grad_op",
    "3": "no_shard",
    "4": "hybrid_shard",
    "5": "hybrid_shard_zero2",
    "full": "full_shard",
    "hybrid": "hybrid_shard",
}
STRATEGIES = frozenset({"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"})

_WORDS = {
    "full_shard": "FULL_SHARD: parameters, gradients and optimizer states are sharded",
    "shard_grad_op": "SHARD_GRAD_OP: gradients and optimizer states are sharded, parameters stay gathered through a step",
    "no_shard": "NO_SHARD: nothing is sharded, as DDP",
    "hybrid_shard": "HYBRID_SHARD: sharded inside a node, replicated over nodes",
    "hybrid_shard_zero2": "HYBRID_SHARD_ZERO2: gradients and optimizer states sharded inside a node, replicated over nodes",
}

# Settings of FSDP1 that FSDP2 has no counterpart for (accelerate docs, "FSDP1 vs FSDP2").
_ONLY_FSDP1 = (
    "sharding_strategy",
    "backward_prefetch",
    "forward_prefetch",
    "sync_module_states",
    "use_orig_params",
)


def option(section: Section, name: str) -> Entry | None:
    """An option with or without its prefix."""
    return section.first(f"fsdp_{name}", name)


def version_of(reading: Reading, *entries: Entry | None) -> int | None:
    """1 or 2 by the first entry that is there; None when none is."""
    for entry in entries:
        if entry is not None and entry.value is not None:
            return reading.integer(entry, minimum=1)
    return None


def read_fsdp(
    reading: Reading,
    section: Section,
    *,
    version: int | None,
    words: tuple[str, ...] = (),
    words_key: Entry | None = None,
    default_version: int = 1,
) -> None:
    """Fill in what an FSDP section says; `words` are those of the trainer's `fsdp` option (`full_shard offload`)."""
    is_two = (version or default_version) == 2
    _sharding(reading, section, words, words_key, is_two=is_two)
    _offloading(reading, section, words, words_key)
    _checkpointing(reading, section)
    _saving(reading, section)
    _wrapping(reading, section, words)
    if is_two:
        _without_effect(reading, section)


def _sharding(
    reading: Reading, section: Section, words: tuple[str, ...], words_key: Entry | None, *, is_two: bool
) -> None:
    name = "FSDP2" if is_two else "FSDP1"
    reshard = option(section, "reshard_after_forward")
    strategy = option(section, "sharding_strategy")
    word = next((each.lower() for each in words if each.lower() in STRATEGIES), None)
    key: Entry | None = words_key
    if is_two:
        _fsdp2(reading, reshard, word, words_key)
        return
    if word is None:
        # accelerate accepts FSDP1's strategies under the new name too.
        key = strategy or (reshard if reshard is not None and as_flag(reshard.value) is None else None)
        word = reading.word(key, settles="strategy") if key is not None else "full_shard"
        if word is None:
            return
        word = _SHARDING.get(word, word)
    if word not in _WORDS:
        reading.leave_open("the sharding strategy", f"`{word[:40]}` is not known here", settles="strategy")
        return
    reading.say("strategy", f"{name} {_WORDS[word]}", key)
    reading.set("strategy", DataParallel.DDP if word == "no_shard" else DataParallel.FSDP, key)
    if word != "no_shard":
        reading.set("reshard_after_forward", word in ("full_shard", "hybrid_shard"), key)
    if word.startswith("hybrid"):
        _hybrid(reading, key)


def _fsdp2(reading: Reading, reshard: Entry | None, word: str | None, words_key: Entry | None) -> None:
    reading.set("strategy", DataParallel.FSDP, reshard or words_key)
    flag = as_flag(reshard.value) if reshard is not None else None
    if reshard is not None and flag is None and reshard.value is not None:
        number = as_int(reshard.value)
        text = (as_word(reshard.value) or "").lower()
        if number is None and text in STRATEGIES:
            reading.defect(
                Defect.CONFLICT,
                "FSDP2 takes true or false for reshard_after_forward",
                reshard,
                why="The names of sharding strategies belong to FSDP1; accelerate refuses them with fsdp_version 2.",
                fix="write `fsdp_reshard_after_forward: true` for FULL_SHARD, `false` for SHARD_GRAD_OP",
                stops=True,
                sure=False,
            )
            flag = text in ("full_shard", "hybrid_shard")
        elif number is None:
            reading.flag(reshard, settles="reshard_after_forward")
    if flag is None and word in ("shard_grad_op", "hybrid_shard_zero2"):
        flag = False
    reading.set("reshard_after_forward", flag, reshard or words_key)
    after = {
        True: "parameters are gathered for each layer and released again",
        False: "parameters stay gathered through a step",
        None: "parameters, gradients and optimizer states are sharded",
    }[flag]
    reading.say("strategy", f"FSDP2: {after}", reshard or words_key)


def _hybrid(reading: Reading, key: Entry | None) -> None:
    """FSDP1's hybrid strategies shard over the ranks of one node unless a process group is given."""
    nodes, per_node = reading.get("num_nodes"), reading.get("gpus_per_node")
    if per_node is None:
        reading.leave_open(
            "the number of ranks that share one copy of the states",
            "HYBRID_SHARD takes the ranks of one node, and the file does not say how many those are",
            settles="dp_shard",
            how_to="`--gpus N --gpus-per-node M`",
        )
        return
    reading.set("dp_shard", per_node, key, implied=True)
    if nodes is not None:
        reading.set("dp_replicate", nodes, key, implied=True)
        reading.say(
            "mesh", f"{nodes} copies of the states, each sharded over the {per_node} ranks of a node", key
        )


def _offloading(reading: Reading, section: Section, words: tuple[str, ...], words_key: Entry | None) -> None:
    entry = option(section, "offload_params")
    offloads = reading.flag(entry, settles="offload_params") if entry is not None else None
    key = entry
    if offloads is None and "offload" in words:
        offloads, key = True, words_key
    if offloads is None:
        return
    place = Offload.CPU if offloads else Offload.NONE
    reading.set("offload_params", place, key)
    reading.set("offload_optimizer", place, key)
    say_offload(
        reading,
        params=place,
        optimizer=place,
        keys=(key,),
        bytes_per_param="8 (bf16 states) to 16 (fp32 parameters, gradients and Adam)",
    )


def _checkpointing(reading: Reading, section: Section) -> None:
    entry = option(section, "activation_checkpointing")
    if entry is None or entry.value is None:
        return
    on = reading.flag(entry, settles="checkpointing")
    if on:
        reading.set("checkpointing", Checkpointing.FULL, entry)
        reading.say(
            "activations",
            "every wrapped layer is checkpointed and computed again in the backward pass",
            entry,
        )
    elif on is False:
        # The trainer's gradient_checkpointing may still switch it on.
        reading.set("checkpointing", Checkpointing.NONE, entry, implied=True)


def _saving(reading: Reading, section: Section) -> None:
    kind = option(section, "state_dict_type")
    word = (as_word(kind.value) or "").lower() if kind is not None else ""
    if word == "full_state_dict":
        reading.say(
            "checkpoint",
            "FULL_STATE_DICT gathers the whole model on rank 0 at every save: its host needs 4 bytes a parameter more "
            "in fp32, 2 in 16 bit, for that time",
            kind,
        )
    loading = option(section, "cpu_ram_efficient_loading")
    efficient = as_flag(loading.value) if loading is not None else None
    if efficient is False:
        reading.say(
            "host memory",
            "every rank loads the whole model into host memory before it is sharded: ranks of the host x model size",
            loading,
        )
    sync = option(section, "sync_module_states")
    if efficient and sync is not None and as_flag(sync.value) is False:
        reading.defect(
            Defect.CONFLICT,
            "cpu_ram_efficient_loading needs sync_module_states",
            loading,
            sync,
            why="Only rank 0 loads the weights; without the broadcast all other ranks train on empty ones. "
            "accelerate switches it on with a warning, older versions do not.",
            fix="set `fsdp_sync_module_states: true`",
            sure=False,
        )


def _wrapping(reading: Reading, section: Section, words: tuple[str, ...]) -> None:
    policy = option(section, "auto_wrap_policy")
    word = (as_word(policy.value) or "").lower() if policy is not None else ""
    classes = option(section, "transformer_layer_cls_to_wrap")
    is_empty = classes is not None and as_word(classes.value) is None and not isinstance(classes.value, tuple)
    if word == "no_wrap" or (policy is not None and policy.value is None):
        reading.defect(
            Defect.INEFFECTIVE,
            "without wrapping, FSDP gathers the whole model at once",
            policy,
            why="Sharding saves memory layer by layer. One unit for the whole model means that all parameters are "
            "gathered for the forward pass, and the peak is near that of DDP.",
            fix="set `fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP`",
            sure=False,
        )
    elif word == "size_based_wrap" and option(section, "min_num_params") is None:
        reading.note(
            "SIZE_BASED_WRAP without min_num_params wraps modules of 100 million parameters (torch's default)"
        )
    elif is_empty and (word == "transformer_based_wrap" or "auto_wrap" in words):
        reading.note(
            "no class to wrap is named: accelerate takes the model's own `_no_split_modules`, if it has them"
        )


def _without_effect(reading: Reading, section: Section) -> None:
    unread = [
        each for name in _ONLY_FSDP1 if (each := option(section, name)) is not None and each.value is not None
    ]
    if not unread:
        return
    names = ", ".join(each.name.rsplit(".", 1)[-1].removeprefix("fsdp_") for each in unread)
    reading.defect(
        Defect.INEFFECTIVE,
        f"FSDP2 does not read {names}",
        *unread,
        why="These are settings of FSDP1; with fsdp_version 2 accelerate warns or ignores them.",
        fix="remove them; `fsdp_reshard_after_forward: true` or `false` takes the place of the sharding strategy",
        sure=False,
    )
