"""What TorchTitan's options mean, whatever file they stand in: TOML of 2024 and 2025, Python since February 2026.

Options are looked for under all their names: degrees stood in [training] (`data_parallel_degree`), then in
[experimental], then in [parallelism]; later files count tokens instead of sequences. Defaults are TorchTitan's own
and are marked as implied.

Source: torchtitan `config_manager.py` (2024), `config/job_config.py` (2025), `config/configs.py` (2026).
"""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_int, as_word
from distdoctor.oom.configs.torchtitan.model import read_model
from distdoctor.oom.configs.torchtitan.options import Titan
from distdoctor.oom.configs.torchtitan.rules import check_titan
from distdoctor.oom.configs.torchtitan.training import read_training
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import (
    DataParallel,
    Offload,
    Schedule,
)

_DEGREES = {
    "pp": ("pipeline_parallel_degree", "pipeline_parallel_size"),
    "dp_replicate": ("data_parallel_replicate_degree", "data_parallel_replicate_size"),
    "dp_shard": ("data_parallel_shard_degree", "data_parallel_shard_size", "data_parallel_degree"),
    "cp": ("context_parallel_degree", "context_parallel_size"),
    "tp": ("tensor_parallel_degree", "tensor_parallel_size", "sequence_parallel_degree"),
    "ep": ("expert_parallel_degree", "expert_parallel_size"),
    "etp": ("expert_tensor_parallel_degree", "expert_tensor_parallel_size"),
}
_SCHEDULES = {
    "1f1b": Schedule.ONE_F_ONE_B,
    "gpipe": Schedule.GPIPE,
    "interleaved1f1b": Schedule.INTERLEAVED,
    "loopedbfs": Schedule.INTERLEAVED,
    "flexibleinterleaved1f1b": Schedule.INTERLEAVED,
    "interleavedzerobubble": Schedule.INTERLEAVED,
    "zbvzerobubble": Schedule.ZBV,
    "dualpipev": Schedule.ZBV,
}


def read_titan(reading: Reading, root: Section) -> None:
    """Fill `reading` from the options below `root`."""
    titan = Titan(root=root)
    read_model(reading, root)
    _degrees(reading, titan)
    _ranks(reading)
    _strategy(reading, titan)
    _batch(reading, titan)
    read_training(reading, titan)
    reading.set("meta_init", True, implied=True)
    reading.set("frees_logits", True, implied=True)
    check_titan(reading)


def _degrees(reading: Reading, titan: Titan) -> None:
    for name, spellings in _DEGREES.items():
        entry = titan.find(*spellings)
        if entry is None:
            default = -1 if name == "dp_shard" else 1
            reading.set(name, default, implied=True)
            continue
        number = reading.integer(entry, settles=name, minimum=-1)
        reading.set(name, number, entry)
    tp = reading.get("tp")
    if tp is not None and tp > 1:
        off = titan.find("disable_loss_parallel", "enable_loss_parallel")
        flag = as_flag(off.value) if off is not None else None
        on = (
            True
            if off is None or flag is None
            else flag is (off.name.rsplit(".", 1)[-1] == "enable_loss_parallel")
        )
        reading.set("loss_parallel", on, off, implied=off is None)
        sequence = titan.find("enable_sequence_parallel")
        is_sequence = as_flag(sequence.value) is not False if sequence is not None else True
        reading.set("sequence_parallel", is_sequence, sequence, implied=sequence is None)
    pp = reading.get("pp")
    schedule = titan.find("pipeline_parallel_schedule")
    word = (as_word(schedule.value) or "").lower() if schedule is not None else ""
    if pp is not None and pp > 1:
        kind = _SCHEDULES.get(word, None if word else Schedule.ONE_F_ONE_B)
        if kind is None and schedule is not None:
            reading.leave_open(
                "the pipeline schedule", f"`{word[:40]}` is not known here", settles="schedule"
            )
        reading.set("schedule", kind, schedule, implied=schedule is None)
        if kind in (Schedule.INTERLEAVED, Schedule.ZBV):
            reading.set("virtual_stages", 2, implied=True)
    shown = [
        f"{words} {'the rest' if reading.get(name) == -1 else reading.get(name)}"
        for name, words in (
            ("pp", "PP"), ("dp_replicate", "replicas"), ("dp_shard", "shard"), ("cp", "CP"), ("tp", "TP"), ("ep", "EP"),
        )
        if reading.get(name) not in (None, 1) or name in ("tp", "dp_shard")
    ]  # fmt: skip
    entries = [titan.find(*spellings) for spellings in _DEGREES.values()]
    reading.say("mesh", " x ".join(shown), *entries)


def _ranks(reading: Reading) -> None:
    product = 1
    for name in ("pp", "dp_replicate", "cp", "tp"):
        product *= reading.get(name) or 1
    shard = reading.get("dp_shard")
    if shard is not None and shard > 0:
        total = product * shard
        reading.set("world_size", total, reading.keys.get("dp_shard"), implied=True)
        reading.say(
            "ranks",
            f"the degrees demand exactly {total} rank{'s' if total > 1 else ''}",
            reading.keys.get("dp_shard"),
        )
        return
    multiple = f", a multiple of {product}" if product > 1 else ""
    reading.leave_open(
        "the number of ranks",
        f"the launcher gives it{multiple}: the shard degree is -1, which takes the ranks that are left",
        settles="world_size",
    )


def _strategy(reading: Reading, titan: Titan) -> None:
    shard, replicas = reading.get("dp_shard"), reading.get("dp_replicate")
    kind = titan.find("data_parallel_type")
    is_ddp = kind is not None and (as_word(kind.value) or "").lower() == "ddp"
    if shard is None:
        return
    implied = "dp_shard" in reading.implied
    key = reading.keys.get("dp_shard")
    if is_ddp or (shard == 1 and replicas is not None and replicas > 1):
        reading.set("strategy", DataParallel.DDP, key or kind)
        reading.say("strategy", "DDP: every rank keeps the whole of its part of the model", key, kind)
        return
    if shard == 1:
        reading.set("strategy", DataParallel.NONE, key, implied=implied)
        reading.say("strategy", "no data parallelism", key)
        return
    reading.set("strategy", DataParallel.FSDP, key, implied=implied)
    hybrid = f", {replicas} replicas (HSDP)" if replicas is not None and replicas > 1 else ""
    reading.say(
        "strategy",
        f"FSDP2 over {'the ranks that are left' if shard == -1 else f'{shard} ranks'}{hybrid}",
        key,
    )
    _reshard(reading, titan)
    offload = titan.at("training", "enable_cpu_offload")
    if offload is not None and as_flag(offload.value):
        reading.set("offload_params", Offload.CPU, offload)
        reading.set("offload_optimizer", Offload.CPU, offload)
        reading.say("offload", "parameters, gradients and optimizer states in host memory", offload)


def _reshard(reading: Reading, titan: Titan) -> None:
    """`default`: parameters stay gathered between micro-batches of a pipeline, otherwise they are freed."""
    entry = titan.find("fsdp_reshard_after_forward")
    word = (as_word(entry.value) or "default").lower() if entry is not None else "default"
    pp = reading.get("pp")
    if word in ("always", "never"):
        reading.set("reshard_after_forward", word == "always", entry)
        if word == "never":
            reading.say("strategy", "parameters stay gathered between forward and backward", entry)
    elif pp is not None:
        reading.set("reshard_after_forward", pp == 1, entry, implied=True)


def _batch(reading: Reading, titan: Titan) -> None:
    tokens = titan.at("training", "num_tokens_per_microbatch_per_dp_rank")
    length = titan.at("training", "max_context_length", "seq_len")
    sequence = reading.fill("seq_len", length)
    local = titan.at("training", "local_batch_size", "batch_size")
    if tokens is not None:
        number = reading.integer(tokens, settles="micro_batch", minimum=1)
        if number is not None and sequence:
            micro, rest = divmod(number, sequence)
            if rest:
                reading.note(
                    f"{number} tokens are {number / sequence:.2f} sequences of {sequence}; rounded up"
                )
            reading.set("micro_batch", micro + bool(rest), tokens)
            reading.say(
                "batch",
                f"{number} tokens a micro-batch: {micro + bool(rest)} x {sequence}",
                tokens,
                length,
            )
        _microbatches(reading, titan)
    elif local is not None:
        number = reading.integer(local, settles="micro_batch", minimum=1)
        if number is not None:
            _local_batch(reading, titan, number, local)
    else:
        reading.leave_open(
            "the batch", "neither a batch size nor tokens of a micro-batch are given", settles="micro_batch"
        )
    whole = titan.at("training", "global_batch_size")
    number = as_int(whole.value) if whole is not None else None
    if number is not None and number > 0:
        reading.set("global_batch", number, whole)
    step = titan.at("training", "num_tokens_per_train_step")
    number = as_int(step.value) if step is not None else None
    if number is not None and number > 0 and sequence and number % sequence == 0:
        reading.set("global_batch", number // sequence, step)


def _local_batch(reading: Reading, titan: Titan, number: int, entry: Entry) -> None:
    """A pipeline cuts the local batch into micro-batches; otherwise it is the micro-batch."""
    pp = reading.get("pp")
    if pp is None or pp <= 1:
        reading.set("micro_batch", number, entry)
        reading.say(
            "batch", f"{number} sequence{'s' if number > 1 else ''} of each data-parallel rank", entry
        )
        return
    size = titan.find("pipeline_parallel_microbatch_size")
    count = titan.find("pipeline_parallel_microbatches")
    if size is not None or count is None:
        each = as_int(size.value) if size is not None else 1
        each = each or 1
    else:
        each = max(1, number // (as_int(count.value) or pp))
    if size is not None and number % each:
        reading.defect(
            Defect.BATCH_DOES_NOT_DIVIDE,
            f"local batch {number} does not divide into micro-batches of {each}",
            entry,
            size,
            why="The pipeline cuts the local batch into equal micro-batches; TorchTitan refuses what is left over.",
            fix=f"use a local batch that is a multiple of {each}",
            stops=True,
        )
    reading.set("micro_batch", each, size or count or entry, implied=size is None and count is None)
    reading.set("accumulation_steps", max(1, number // each), entry, implied=True)
    reading.say(
        "batch",
        f"{number} sequences of each data-parallel rank, {each} at a time in the pipeline",
        entry,
        size,
        count,
    )


def _microbatches(reading: Reading, titan: Titan) -> None:
    pp = reading.get("pp")
    count = titan.find("num_pp_microbatches")
    if pp is not None and pp > 1 and count is not None:
        reading.set("accumulation_steps", reading.integer(count, minimum=1), count)
