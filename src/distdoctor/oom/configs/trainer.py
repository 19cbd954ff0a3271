"""Arguments of the Hugging Face trainer (and TRL), whether from YAML, JSON or a command line.

Sources: transformers `TrainingArguments` (batch sizes are per device; bf16 is autocast over the parameters as they
were loaded; `--fsdp` with `--deepspeed` is refused), Trainer.create_accelerator_and_postprocess (two kinds of
checkpointing are refused), TRL `ModelConfig` (dtype, LoRA), liger-kernel (fused linear cross entropy by default).
"""

from __future__ import annotations

from distdoctor.errors import InputError
from distdoctor.oom.configs import deepspeed
from distdoctor.oom.configs.adapters import read_adapter
from distdoctor.oom.configs.fsdp import STRATEGIES, option, read_fsdp, version_of
from distdoctor.oom.configs.json_text import read_json
from distdoctor.oom.configs.model_name import name_model
from distdoctor.oom.configs.optimizers import named_optimizer
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.tree import Entry, Section
from distdoctor.oom.configs.values import as_flag, as_int, as_word, template_in, words_of
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Optimizer,
    OptimizerLoop,
    Precision,
)

MODEL_KEYS = (
    "model_name_or_path",
    "model_name",
    "model_id",
    "pretrained_model_name_or_path",
    "base_model",
    "model",
)
SEQUENCE_KEYS = (
    *(
        "max_seq_length",
        "max_length",
        "cutoff_len",
        "model_max_length",
        "block_size",
        "max_seq_len",
        "seq_length",
    ),
    *("sequence_len", "seq_len", "max_context_width"),
)

# One of these says that the file is for the trainer, and its defaults hold.
SURE = frozenset(
    (
        *(
            "per_device_train_batch_size",
            "per_gpu_train_batch_size",
            "gradient_accumulation_steps",
            "num_train_epochs",
        ),
        *(
            "save_total_limit",
            "lr_scheduler_type",
            "warmup_ratio",
            "logging_steps",
            "save_strategy",
            "eval_strategy",
        ),
    )
)

_SHARDED_ZERO = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)


def read_trainer(reading: Reading, args: Section) -> None:
    """Fill in what the trainer's arguments say."""
    is_trainer = "per_device_train_batch_size" in args or "per_gpu_train_batch_size" in args
    _model(reading, args)
    _batch(reading, args)
    _strategy(reading, args)
    read_adapter(reading, args)
    _precision(reading, args, is_trainer=is_trainer)
    _optimizer(reading, args, is_trainer=is_trainer)
    _activations(reading, args, is_trainer=is_trainer)
    _rarer(reading, args)


def _model(reading: Reading, args: Section) -> None:
    entry = args.first(*MODEL_KEYS)
    if entry is None and reading.get("model") is not None:
        return
    name_model(reading, entry)


def _batch(reading: Reading, args: Section) -> None:
    micro_key = args.first("per_device_train_batch_size", "per_gpu_train_batch_size")
    finds = args.get("auto_find_batch_size")
    micro = reading.fill("micro_batch", micro_key)
    if finds is not None and as_flag(finds.value):
        reading.implied.add("micro_batch")
        reading.leave_open(
            "the micro-batch",
            "auto_find_batch_size halves it until it fits",
            settles=None,
            how_to="`--micro-batch N`",
        )
    steps_key = args.get("gradient_accumulation_steps")
    steps = reading.fill("accumulation_steps", steps_key)
    if micro_key is not None and steps_key is None:
        reading.set("accumulation_steps", 1, implied=True)
    if micro is not None:
        by = f" x {steps} accumulated" if steps and steps > 1 else ""
        reading.say("batch", f"micro-batch {micro}{by} on each data-parallel rank", micro_key, steps_key)
    sequence = args.first(*SEQUENCE_KEYS)
    length = reading.fill("seq_len", sequence)
    if length is not None and sequence is not None:
        reading.say("batch", f"sequences of at most {length} tokens", sequence)
    elif sequence is None:
        reading.leave_open("the sequence length", "the file does not say it", settles="seq_len")


def _strategy(reading: Reading, args: Section) -> None:
    engine, fsdp = args.get("deepspeed"), args.get("fsdp")
    has_engine = engine is not None and engine.value not in (None, False, "", "None", "null")
    words = tuple(each.lower() for each in words_of(fsdp))
    has_fsdp = bool(words) and words not in (("false",), ("none",), ("no",))
    if has_engine and has_fsdp:
        reading.defect(
            Defect.CONFLICT,
            "fsdp and deepspeed are both set",
            fsdp,
            engine,
            why="The trainer refuses `--fsdp` together with `--deepspeed`.",
            fix="remove one of them",
            stops=True,
        )
    if has_engine and engine is not None:
        _engine(reading, engine)
    elif has_fsdp:
        _fsdp(reading, args, words, fsdp)
    elif reading.get("strategy") is None and args.get("ddp_bucket_cap_mb") is not None:
        reading.set("strategy", DataParallel.DDP, args.get("ddp_bucket_cap_mb"), implied=True)
    bucket = args.get("ddp_bucket_cap_mb")
    size = reading.integer(bucket, minimum=1)
    reading.set("bucket_cap_mib", float(size) if size is not None else None, bucket)


def assume_plain_copies(reading: Reading, *, why: str) -> None:
    """DDP where nothing shards: it gives way to what another file says, and is left out where one is only named."""
    if reading.get("strategy") is not None or reading.references:
        return
    alone = reading.get("world_size") == 1
    reading.set("strategy", DataParallel.NONE if alone else DataParallel.DDP, implied=True)
    if not alone:
        reading.say("strategy", f"DDP on several GPUs, every rank holds all states: {why}")


def _engine(reading: Reading, engine: Entry) -> None:
    if isinstance(engine.value, Section):
        deepspeed.read_section(reading, engine.value)
        return
    text = as_word(engine.value) or ""
    if text.lstrip().startswith("{"):
        try:
            deepspeed.read_section(reading, read_json(text, reading.path).root)
        except InputError as error:
            reading.note(f"the DeepSpeed JSON inside `{engine.name}` could not be read: {error.message}")
        return
    reading.references.append(text)
    reading.say("strategy", f"DeepSpeed, as {text} says", engine)
    reading.leave_open(
        f"what {text} says",
        "the DeepSpeed file is named, and was not given",
        settles="strategy",
        how_to=f"give `{text}` as another file",
    )


def _fsdp(reading: Reading, args: Section, words: tuple[str, ...], fsdp: Entry | None) -> None:
    config = args.get("fsdp_config")
    section = args.section("fsdp_config")
    if config is not None and not section and isinstance(config.value, str):
        if config.value.lstrip().startswith("{"):
            try:
                section = read_json(config.value, reading.path).root
            except InputError as error:
                reading.note(f"the JSON inside `{config.name}` could not be read: {error.message}")
        else:
            reading.references.append(config.value)
            reading.leave_open(
                f"what {config.value} says",
                "the FSDP file is named, and was not given",
                how_to=f"give `{config.value}` as another file",
            )
    if words == ("offload",):
        reading.defect(
            Defect.CONFLICT,
            "fsdp: offload alone names no sharding strategy",
            fsdp,
            why="The trainer stops: `--fsdp offload` can't work on its own.",
            fix='write `fsdp: "full_shard auto_wrap offload"`',
            stops=True,
        )
    unknown = [each for each in words if each not in STRATEGIES | {"offload", "auto_wrap", "true", "yes"}]
    if unknown:
        reading.note(f"`fsdp` holds {', '.join(unknown)[:60]}, which is not known here")
    version = version_of(reading, option(section, "version"), args.get("fsdp_version"))
    read_fsdp(reading, section, version=version, words=words, words_key=fsdp)


def _precision(reading: Reading, args: Section, *, is_trainer: bool) -> None:
    brain, half = args.first("bf16", "bfloat16"), args.first("fp16", "float16")
    bf16, fp16 = reading.flag(brain, settles="precision"), reading.flag(half, settles="precision")
    if bf16 and fp16:
        reading.defect(
            Defect.CONFLICT,
            "bf16 and fp16 are both on",
            brain,
            half,
            why="The trainer stops: at most one of fp16 and bf16 can be true.",
            fix="keep bf16 on GPUs that have it (A100 and newer)",
            stops=True,
        )
        return
    loaded_key = args.first("torch_dtype", "dtype", "model_dtype", "precision", "mixed_precision")
    loaded = (
        (as_word(loaded_key.value) or "").lower().removeprefix("torch.") if loaded_key is not None else ""
    )
    pure = reading.flag(args.get("pure_bf16"))
    in_16_bit = loaded in ("bfloat16", "bf16", "float16", "fp16", "half")
    if pure:
        reading.dtype = "bf16"
        reading.set("precision", Precision.PURE16, args.get("pure_bf16"))
        reading.say(
            "precision", "bf16 parameters, gradients and optimizer states (pure_bf16)", args.get("pure_bf16")
        )
        return
    if bf16 or fp16:
        key, name = (brain, "bf16") if bf16 else (half, "fp16")
        reading.dtype = name
        strategy = reading.get("strategy")
        uses_engine = strategy in _SHARDED_ZERO or any(
            "DeepSpeed, as" in each.text for each in reading.statements
        )
        if uses_engine:
            reading.set("precision", Precision.MASTER, key)
            reading.say("precision", f"{name} parameters with an fp32 master copy (DeepSpeed)", key)
        elif in_16_bit and strategy is not DataParallel.FSDP:
            reading.set("precision", Precision.PURE16, key)
            reading.say(
                "precision",
                f"the model is loaded in {loaded}: parameters, gradients and Adam's states in 16 bit",
                key,
                loaded_key,
            )
        else:
            reading.set("precision", Precision.MIXED, key)
            upcast = (
                " (accelerate casts trainable parameters to fp32 for FSDP)"
                if strategy is DataParallel.FSDP
                else ""
            )
            reading.say(
                "precision",
                f"fp32 parameters, computed in {name} by autocast{upcast}, unless the script loads the model in 16 bit",
                key,
            )
        return
    if in_16_bit:
        reading.dtype = "bf16" if "b" in loaded else "fp16"
        if loaded_key is not None and loaded_key.name.lstrip("-") in ("torch_dtype", "dtype", "model_dtype"):
            reading.set("precision", Precision.PURE16, loaded_key)
            reading.say(
                "precision", f"the model is loaded in {loaded} and nothing keeps fp32 copies", loaded_key
            )
        else:
            reading.set("precision", Precision.MIXED, loaded_key)
            reading.say("precision", f"computed in {loaded}", loaded_key)
        return
    is_open = any(
        each is not None and each.value is not None and as_flag(each.value) is None for each in (brain, half)
    )
    if reading.references and not is_open:
        reading.leave_open("the type of parameters", "a file that is named may set it", settles="precision")
        return
    if is_trainer and not is_open and reading.get("precision") is None:
        reading.set("precision", Precision.FP32, brain or half, implied=True)
        reading.say("precision", "fp32: neither bf16 nor fp16 is on", brain, half)
        reading.defect(
            Defect.COSTLY_PRECISION,
            "neither bf16 nor fp16 is on: the trainer computes in fp32",
            brain,
            half,
            why="Activations take twice the bytes, and matrix products miss the fast units. An accelerate file or a "
            "script may still set a precision.",
            fix="add `bf16: true` (A100 and newer)",
            sure=False,
        )


def _optimizer(reading: Reading, args: Section, *, is_trainer: bool) -> None:
    entry = args.first("optim", "optimizer")
    name = reading.word(entry)
    if name is None or entry is None:
        if is_trainer and entry is None and reading.get("optimizer") is None:
            reading.set("optimizer", Optimizer.ADAMW, implied=True)
        return
    take_optimizer(reading, entry, name)


def take_optimizer(reading: Reading, entry: Entry, name: str) -> None:
    """Fill in the optimizer of that name, or say that its states are not known."""
    found = named_optimizer(name)
    if found is None or found.optimizer is None:
        reading.leave_open(
            f"the states of optimizer {name[:40]}",
            found.note if found and found.note else "its states are not known here",
            settles="optimizer",
        )
        return
    reading.set("optimizer", found.optimizer, entry)
    reading.set("optimizer_loop", found.loop or _loop_of(found.optimizer), entry)
    paged = "; paged: its states may move to the host when the GPU is full" if found.is_paged else ""
    reading.say("optimizer", name + (f" ({found.note})" if found.note else "") + paged, entry)


def _loop_of(optimizer: Optimizer) -> OptimizerLoop | None:
    """bitsandbytes steps tensor by tensor."""
    return OptimizerLoop.FOR_LOOP if optimizer is Optimizer.ADAMW_8BIT else None


def _activations(reading: Reading, args: Section, *, is_trainer: bool) -> None:
    entry = args.first("gradient_checkpointing", "use_gradient_checkpointing", "activation_checkpointing")
    text = (as_word(entry.value) or "").lower() if entry is not None else ""
    on = (
        True
        if text in ("unsloth", "offload", "offload_disk", "full")
        else reading.flag(entry, settles="checkpointing")
    )
    if on:
        if reading.get("checkpointing") is Checkpointing.FULL and "fsdp" in str(
            reading.keys.get("checkpointing")
        ):
            reading.defect(
                Defect.CONFLICT,
                "two kinds of activation checkpointing are on",
                entry,
                reading.keys.get("checkpointing"),
                why="The trainer refuses gradient_checkpointing together with FSDP's activation_checkpointing.",
                fix="set `gradient_checkpointing: false` and keep FSDP's",
                stops=True,
            )
        reading.set("checkpointing", Checkpointing.FULL, entry)
        reading.say(
            "activations", "every layer is checkpointed and computed again in the backward pass", entry
        )
    elif on is False or (is_trainer and entry is None):
        reading.set("checkpointing", Checkpointing.NONE, entry, implied=True)
    offload = args.first("activation_offloading", "offload_activations", "activation_offload")
    offload_text = (as_word(offload.value) or "").lower() if offload is not None else ""
    moved = True if offload_text in ("legacy", "disk", "hidden_states") else reading.flag(offload)
    if moved or text in ("unsloth", "offload"):
        reading.set("offload_activations", True, offload or entry)
        reading.say("activations", "what the forward pass saves goes to host memory", offload or entry)
    elif moved is False:
        reading.set("offload_activations", False, offload)
    liger = args.first("use_liger_kernel", "use_liger", "enable_liger_kernel")
    if reading.flag(liger):
        reading.set("fused_loss", True, liger)
        reading.say(
            "activations", "Liger's fused linear cross entropy: logits are never whole in memory", liger
        )
    compiled = args.first("torch_compile", "compile")
    if compiled is not None and as_flag(compiled.value) is not None:
        reading.set("compiled", as_flag(compiled.value), compiled)
    attention = args.first("attn_implementation", "flash_attn", "attn_impl")
    read_attention(reading, attention)


_FLASH = frozenset(
    {"flash_attention_2", "flash_attention_3", "sdpa", "fa2", "fa3", "flash", "flex_attention", "flash2"}
)


def read_attention(reading: Reading, entry: Entry | None) -> None:
    """Whether scores are ever whole in memory; SDPA and flex attention are counted with flash."""
    word = (as_word(entry.value) or "").lower() if entry is not None else ""
    if word in _FLASH or "flash" in word:
        reading.set("attention", Attention.FLASH, entry)
    elif word in ("eager", "disabled"):
        reading.set("attention", Attention.UNFUSED, entry)
        reading.say(
            "activations", "eager attention: scores (sequence x sequence) are written to memory", entry
        )


def _rarer(reading: Reading, args: Section) -> None:
    tp = args.first("tensor_parallel_size", "tp_size", "tensor_parallel_degree")
    if tp is not None and reading.get("tp") is None:
        degree = reading.fill("tp", tp)
        if degree and degree > 1:
            reading.say("mesh", f"tensor parallel over {degree} ranks", tp)
    eval_batch = args.get("per_device_eval_batch_size")
    micro, evaluated = (
        reading.get("micro_batch"),
        as_int(eval_batch.value) if eval_batch is not None else None,
    )
    if micro is not None and evaluated is not None and evaluated > 4 * micro:
        reading.note(
            f"evaluation runs with {evaluated} sequences at once, training with {micro}: evaluation may need more memory"
        )
    metrics = args.get("skip_memory_metrics")
    if metrics is not None and as_flag(metrics.value) is False:
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            "skip_memory_metrics false slows every stage of the trainer",
            metrics,
            why="The trainer then follows memory with a thread of its own; transformers' documentation warns of it.",
            fix="remove it when the measurement is done",
            sure=False,
        )
    empties = args.get("torch_empty_cache_steps")
    steps = as_int(empties.value) if empties is not None else None
    if steps is not None and 0 < steps <= 2:
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            f"torch_empty_cache_steps {steps} empties the allocator's cache all the time",
            empties,
            why="Every call gives memory back to the driver and fetches it again; about 10 % slower by transformers' "
            "documentation.",
            fix="raise it, or remove it",
            sure=False,
        )
    for name in ("deepspeed", "fsdp_config"):
        entry = args.get(name)
        if entry is not None and (template := template_in(entry.value)):
            reading.note(f"`{entry.name}` holds {template}, filled in later")
