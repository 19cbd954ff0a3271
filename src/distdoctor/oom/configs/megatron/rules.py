"""What Megatron-LM refuses or silently ignores, told from its arguments alone.

Source: `validate_args` in megatron/training/arguments.py, and `TransformerConfig.__post_init__` and
`ModelParallelConfig` in megatron/core (versions of September 2025 to August 2026). Rules that versions differ in
are marked as uncertain.
"""

from __future__ import annotations

from distdoctor.oom.configs.megatron.flags import Flags
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.values import as_int
from distdoctor.oom.facts.launch import ConfigKey, Defect
from distdoctor.oom.shape import Model


def check_megatron(reading: Reading, flags: Flags) -> None:
    """Adds the defects of a Megatron job to `reading`."""
    _ineffective(reading, flags)
    _ranks_and_degrees(reading, flags)
    _model_and_degrees(reading, flags)
    _batch(reading, flags)
    _conflicts(reading, flags)


def _key(flags: Flags, *names: str) -> tuple[ConfigKey, ...]:
    return tuple(key for name in names if (key := flags.key(name)) is not None)


def _ineffective(reading: Reading, flags: Flags) -> None:
    if "sequence-parallel" in flags.certain and reading.get("tp") == 1:
        reading.defect(
            Defect.INEFFECTIVE,
            "--sequence-parallel does nothing with tensor parallel size 1",
            *_key(flags, "sequence-parallel", "tensor-model-parallel-size"),
            why="Sequence parallelism splits activations among tensor-parallel ranks; with one rank Megatron-LM "
            "switches it off. Whoever counts on its savings is mistaken.",
            fix="remove it, or set `--tensor-model-parallel-size` above 1",
        )
    groups = flags.certain.get("num-query-groups")
    if groups is not None and "group-query-attention" not in flags.certain | flags.depends:
        reading.defect(
            Defect.INEFFECTIVE,
            "--num-query-groups does nothing without --group-query-attention",
            groups.key,
            why="Megatron-LM then builds one key and value head for each query head: more parameters and larger "
            "activations than meant.",
            fix="add `--group-query-attention`",
        )
    for name, (first, second) in flags.repeated.items():
        reading.defect(
            Defect.INEFFECTIVE,
            f"--{name} is given twice: {first.text} and {second.text}",
            first.key,
            second.key,
            why="The last one counts; whoever changes the first wonders why nothing happens.",
            fix="keep one of them",
        )


def _ranks_and_degrees(reading: Reading, flags: Flags) -> None:
    world = reading.get("world_size")
    tp, pp, cp, ep, etp = (reading.get(name) for name in ("tp", "pp", "cp", "ep", "etp"))
    if world is None or None in (tp, pp, cp):
        return
    product = tp * pp * cp
    keys = _key(flags, "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")
    if product and world % product:
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"TP {tp} x PP {pp} x CP {cp} = {product} does not divide {world} ranks",
            *keys,
            why="What is left of the ranks is data parallelism and must be a whole number; Megatron-LM ends at the start.",
            fix=f"start a multiple of {product} ranks, or change the degrees",
            stops=True,
        )
        return
    if ep and ep > 1 and etp and pp and world % (ep * etp * pp):
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"EP {ep} x expert TP {etp} x PP {pp} = {ep * etp * pp} does not divide {world} ranks",
            *_key(
                flags,
                "expert-model-parallel-size",
                "expert-tensor-parallel-size",
                "pipeline-model-parallel-size",
            ),
            why="Experts are laid over the same ranks as the rest; Megatron-LM ends at the start.",
            fix=f"start a multiple of {ep * etp * pp} ranks, or change the degrees",
            stops=True,
        )


def _model_and_degrees(reading: Reading, flags: Flags) -> None:
    model = reading.get("model")
    if not isinstance(model, Model) or model.shape is None:
        return
    shape = model.shape
    tp, pp, ep = reading.get("tp"), reading.get("pp"), reading.get("ep")
    if shape.hidden_size % shape.num_heads and "kv-channels" not in flags.certain and shape.mla is None:
        _indivisible(reading, flags, "hidden-size", shape.hidden_size, "num-attention-heads", shape.num_heads)
    if tp and shape.num_heads % tp:
        _indivisible(reading, flags, "num-attention-heads", shape.num_heads, "tensor-model-parallel-size", tp)
    elif tp and shape.num_kv_heads % tp and tp % shape.num_kv_heads and shape.mla is None:
        _indivisible(reading, flags, "num-query-groups", shape.num_kv_heads, "tensor-model-parallel-size", tp)
    elif tp and shape.num_kv_heads < tp and shape.mla is None:
        reading.defect(
            Defect.CONFLICT,
            f"{shape.num_kv_heads} query groups cannot be split over {tp} tensor-parallel ranks",
            *_key(flags, "num-query-groups", "tensor-model-parallel-size"),
            why="Megatron-LM before the end of 2025 refuses more tensor-parallel ranks than query groups.",
            fix=f"use a tensor parallel size of at most {shape.num_kv_heads}",
            sure=False,
            stops=True,
        )
    if ep and shape.moe is not None and shape.moe.num_experts % ep:
        _indivisible(reading, flags, "num-experts", shape.moe.num_experts, "expert-model-parallel-size", ep)
    if pp and pp > 1:
        _layers_over_stages(reading, flags, shape.num_layers, pp)


# Arguments that allow stages of different length.
_UNEVEN = (
    "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers",
    "pipeline-model-parallel-layout",
    "pp-partition-method",
    "standalone-embedding-stage",
    "deepspeed",
    "num-layers-in-first-pipeline-stage",
    "num-layers-in-last-pipeline-stage",
    "hybrid-layer-pattern",
)


def _layers_over_stages(reading: Reading, flags: Flags, layers: int, pp: int) -> None:
    given = flags.certain | flags.depends | flags.unknown
    if any(name in given for name in _UNEVEN):
        return
    layers += "account-for-embedding-in-pipeline-split" in flags.certain
    layers += "account-for-loss-in-pipeline-split" in flags.certain
    if layers % pp:
        _indivisible(reading, flags, "num-layers", layers, "pipeline-model-parallel-size", pp)
        return
    chunk = flags.certain.get("num-layers-per-virtual-pipeline-stage")
    size = as_int(chunk.text) if chunk is not None else None
    if size and (layers // pp) % size:
        _indivisible(
            reading, flags, "num-layers", layers // pp, "num-layers-per-virtual-pipeline-stage", size,
            what="layers of a stage",
        )  # fmt: skip


def _indivisible(  # noqa: PLR0917 - two named counts, in the order of the sentence
    reading: Reading, flags: Flags, name: str, value: int, by: str, divisor: int, *, what: str | None = None
) -> None:
    reading.defect(
        Defect.MESH_DOES_NOT_DIVIDE,
        f"{value} {what or _SHORT.get(name, name)} do not divide by {_SHORT.get(by, by)} {divisor}"[:80],
        *_key(flags, name, by),
        why="Megatron-LM ends at the start.",
        fix=f"change `--{by}` or `--{name}`",
        stops=True,
    )


_SHORT = {
    "num-attention-heads": "attention heads",
    "num-query-groups": "query groups",
    "num-experts": "experts",
    "num-layers": "layers",
    "hidden-size": "of hidden size",
    "tensor-model-parallel-size": "TP",
    "pipeline-model-parallel-size": "PP",
    "expert-model-parallel-size": "EP",
    "num-layers-per-virtual-pipeline-stage": "virtual stages of",
}


def _batch(reading: Reading, flags: Flags) -> None:
    micro, batch, world = (reading.get(name) for name in ("micro_batch", "global_batch", "world_size"))
    degrees = [reading.get(name) for name in ("tp", "pp", "cp")]
    if not micro or not batch or world is None or None in degrees or 0 in degrees:
        return
    product = degrees[0] * degrees[1] * degrees[2]
    if world % product:
        return
    data = world // product
    if batch % (micro * data):
        reading.defect(
            Defect.BATCH_DOES_NOT_DIVIDE,
            f"global batch {batch} is no multiple of micro-batch {micro} x {data} data-parallel ranks",
            *_key(flags, "global-batch-size", "micro-batch-size"),
            why="Each data-parallel rank takes whole micro-batches; Megatron-LM ends at the start.",
            fix=f"use a multiple of {micro * data} for `--global-batch-size`",
            stops=True,
        )


def _conflicts(reading: Reading, flags: Flags) -> None:
    on = flags.certain
    if "bf16" in on and "fp16" in on:
        _conflict(reading, flags, "--bf16 and --fp16 exclude each other", "bf16", "fp16", fix="keep one")
    fsdp = "use-megatron-fsdp" in on or "use-custom-fsdp" in on or "use-torch-fsdp2" in on
    may_shard = "use-distributed-optimizer" in on | flags.depends
    if "overlap-param-gather" in on and not may_shard and not fsdp:
        _conflict(
            reading,
            flags,
            "--overlap-param-gather needs --use-distributed-optimizer",
            "overlap-param-gather",
            fix="add `--use-distributed-optimizer`",
        )
    if "use-torch-fsdp2" in on and "use-distributed-optimizer" in on:
        _conflict(
            reading,
            flags,
            "--use-torch-fsdp2 excludes --use-distributed-optimizer",
            "use-torch-fsdp2",
            "use-distributed-optimizer",
            fix="remove `--use-distributed-optimizer`: FSDP2 shards the states itself",
        )
    ep, tp = reading.get("ep"), reading.get("tp")
    if ep and ep > 1 and "num-experts" not in flags.certain | flags.depends | flags.unknown:
        _conflict(
            reading,
            flags,
            f"expert parallel size {ep} without --num-experts",
            "expert-model-parallel-size",
            fix="give `--num-experts`, or set the expert parallel size to 1",
        )
    elif ep and ep > 1 and tp and tp > 1 and "sequence-parallel" not in on | flags.depends:
        _conflict(
            reading,
            flags,
            "experts with EP and TP above 1 need --sequence-parallel",
            "expert-model-parallel-size",
            "tensor-model-parallel-size",
            fix="add `--sequence-parallel`",
        )
    granularity = on.get("recompute-granularity")
    may_have = "recompute-method" in on | flags.depends | flags.unknown
    if granularity is not None and granularity.text == "full" and not may_have:
        _conflict(
            reading,
            flags,
            "--recompute-granularity full needs --recompute-method",
            "recompute-granularity",
            fix="add `--recompute-method uniform --recompute-num-layers 1`",
            sure=False,
        )


def _conflict(reading: Reading, flags: Flags, title: str, *names: str, fix: str, sure: bool = True) -> None:
    reading.defect(
        Defect.CONFLICT,
        title,
        *_key(flags, *names),
        why="Megatron-LM checks this when it reads its arguments, and ends.",
        fix=fix,
        sure=sure,
        stops=True,
    )
