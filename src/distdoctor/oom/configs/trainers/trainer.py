"""Arguments of the Hugging Face trainer (and TRL), whether from YAML, JSON or a command line.

Sources: transformers `TrainingArguments` (batch sizes are per device; bf16 is autocast over the parameters as they
were loaded; `--fsdp` with `--deepspeed` is refused), Trainer.create_accelerator_and_postprocess (two kinds of
checkpointing are refused), TRL `ModelConfig` (dtype, LoRA), liger-kernel (fused linear cross entropy by default).
"""

from __future__ import annotations

from distdoctor.errors import InputError
from distdoctor.oom.configs.deepspeed import read as deepspeed
from distdoctor.oom.configs.fsdp import STRATEGIES, option, read_fsdp, version_of
from distdoctor.oom.configs.model_name import name_model
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.json_text import read_json
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word, template_in, words_of
from distdoctor.oom.configs.trainers.adapters import read_adapter
from distdoctor.oom.configs.trainers.trainer_memory import read_activations
from distdoctor.oom.configs.trainers.trainer_types import read_optimizer, read_types
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import (
    DataParallel,
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


def read_trainer(reading: Reading, args: Section) -> None:
    """Fill in what the trainer's arguments say."""
    is_trainer = "per_device_train_batch_size" in args or "per_gpu_train_batch_size" in args
    _model(reading, args)
    _batch(reading, args)
    _strategy(reading, args)
    read_adapter(reading, args)
    read_types(reading, args, is_trainer=is_trainer)
    read_optimizer(reading, args, is_trainer=is_trainer)
    read_activations(reading, args, is_trainer=is_trainer)
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
