"""What Megatron-LM's arguments say of a job, with Megatron's own defaults for what they leave out.

Keys are names of flags without dashes, values are text, `true` stands for a switch. Defaults follow
`megatron/training/arguments.py` (Megatron-LM, September 2025 to August 2026); they are told apart from what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distdoctor.oom.configs.megatron.coverage import not_covered
from distdoctor.oom.configs.megatron.layout import stages_of_layout
from distdoctor.oom.configs.megatron.model import model_from_args
from distdoctor.oom.configs.megatron.values import Arguments
from distdoctor.oom.facts.launch import Open
from distdoctor.oom.megatron_details import Activation, Dispatcher, MegatronDetails
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Optimizer,
    Precision,
    Schedule,
    Settings,
)

_OPTIMIZERS = {
    "adam": Optimizer.ADAMW,
    "sgd": Optimizer.SGD_MOMENTUM,
    "muon": Optimizer.MUON,
    "dist_muon": Optimizer.MUON,
    "lion": Optimizer.LION,
}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronReading:
    """What arguments of Megatron-LM say. `settings` holds Megatron's defaults as well; `implied` names them."""

    settings: Settings
    implied: tuple[str, ...] = ()
    """Fields of `settings` that follow from an argument's absence."""
    open_points: tuple[Open, ...] = ()
    not_covered: tuple[str, ...] = ()
    """Why the memory of this job is not computed; empty when it is."""


@dataclass(slots=True)
class _Collected:
    """Fields of `Settings` so far, and which of them are defaults."""

    values: dict[str, Any] = field(default_factory=dict)
    """By field name. Any: fields have different types."""
    implied: list[str] = field(default_factory=list)

    def put(self, name: str, value: object, *, is_default: bool) -> None:
        if value is None:
            return
        self.values[name] = value
        if is_default:
            self.implied.append(name)


def settings_from_megatron_args(args: Mapping[str, str]) -> MegatronReading:
    """The job that `args` describe. Raises nothing: values that are no numbers are told as open points."""
    said = Arguments(args)
    model, details_of_model = model_from_args(said)
    out = _Collected()
    out.put("model", model, is_default=False)
    _parallelism(said, out)
    _batch(said, out)
    _types(said, out)
    _activations(said, out)
    reasons = not_covered(said, model, details_of_model)
    details = _details(said, reasons)
    out.put("megatron", details, is_default=False)
    return MegatronReading(
        settings=Settings(**out.values),
        implied=tuple(out.implied),
        open_points=(*said.open_points, *details_of_model.open_points),
        not_covered=reasons,
    )


def _parallelism(said: Arguments, out: _Collected) -> None:
    for name, flag in (
        ("tp", "tensor-model-parallel-size"),
        ("pp", "pipeline-model-parallel-size"),
        ("cp", "context-parallel-size"),
        ("ep", "expert-model-parallel-size"),
    ):
        size = said.integer(flag, settles=name)
        out.put(name, size if size is not None else 1, is_default=not said.has(flag))
    etp = said.integer("expert-tensor-parallel-size", settles="etp")
    if said.integer("num-experts"):
        out.put("etp", etp or out.values["tp"], is_default=etp is None)
    world = said.integer("world-size") or None
    out.put("world_size", world, is_default=False)
    is_sequence_parallel = said.flag("sequence-parallel") and out.values["tp"] > 1
    out.put("sequence_parallel", is_sequence_parallel, is_default=not said.has("sequence-parallel"))
    out.put("loss_parallel", out.values["tp"] > 1, is_default=True)
    virtual = _virtual_stages(said, out.values["pp"])
    if virtual is not None and virtual > 1:
        out.put("virtual_stages", virtual, is_default=False)
        out.put("schedule", Schedule.INTERLEAVED, is_default=False)
    elif out.values["pp"] > 1:
        out.put("schedule", Schedule.ONE_F_ONE_B, is_default=True)
    if said.flag("use-megatron-fsdp") or said.flag("use-custom-fsdp"):
        strategy = DataParallel.MEGATRON_FSDP
    elif said.flag("use-torch-fsdp2"):
        strategy = DataParallel.FSDP
    elif said.flag("use-distributed-optimizer"):
        strategy = DataParallel.MEGATRON_DISTRIBUTED
    else:
        strategy = DataParallel.MEGATRON
    out.put("strategy", strategy, is_default=strategy is DataParallel.MEGATRON)


def _virtual_stages(said: Arguments, pp: int) -> int | None:
    """Chunks of each pipeline rank (`validate_args`: layers / pp / layers per virtual stage)."""
    chunks = said.integer("num-virtual-stages-per-pipeline-rank")
    if chunks is not None:
        return chunks
    layout = said.text("pipeline-model-parallel-layout")
    if layout:
        stages = stages_of_layout(layout)
        return len(stages) // pp if stages and pp and len(stages) % pp == 0 else None
    per_chunk = said.integer("num-layers-per-virtual-pipeline-stage")
    layers = said.integer("num-layers")
    if not per_chunk or not layers or not pp:
        return None
    layers += said.flag("account-for-embedding-in-pipeline-split")
    layers += said.flag("account-for-loss-in-pipeline-split")
    return max(1, layers // pp // per_chunk)


def _batch(said: Arguments, out: _Collected) -> None:
    micro = said.integer("micro-batch-size", settles="micro_batch")
    out.put("micro_batch", micro, is_default=False)
    out.put("global_batch", said.integer("global-batch-size", settles="global_batch"), is_default=False)
    out.put("seq_len", said.integer("seq-length", settles="seq_len"), is_default=False)
    divisor = said.integer("make-vocab-size-divisible-by")
    out.put("vocab_divisor", divisor or 128, is_default=divisor is None)


def _types(said: Arguments, out: _Collected) -> None:
    is_16_bit = said.flag("bf16") or said.flag("fp16")
    out.put("precision", Precision.MASTER if is_16_bit else Precision.FP32, is_default=not is_16_bit)
    # bf16 accumulates in fp32 unless told not to; fp16 only when told to.
    in_fp32 = not is_16_bit or (
        (
            said.flag("bf16")
            and not said.flag("grad-reduce-in-bf16")
            and said.text("main-grads-dtype") in (None, "fp32")
        )
        or said.flag("accumulate-allreduce-grads-in-fp32")
    )
    out.put("grads_in_fp32", in_fp32, is_default=not said.has("accumulate-allreduce-grads-in-fp32"))
    out.put("fp8", said.has("fp8-format"), is_default=not said.has("fp8-format"))
    name = said.text("optimizer")
    out.put("optimizer", _OPTIMIZERS.get((name or "adam").lower()), is_default=name is None)


def _activations(said: Arguments, out: _Collected) -> None:
    granularity = said.text("recompute-granularity")
    if said.flag("recompute-activations"):
        granularity = "selective"
    checkpointing = {"full": Checkpointing.FULL, "selective": Checkpointing.SELECTIVE}.get(
        granularity or "", Checkpointing.NONE
    )
    out.put("checkpointing", checkpointing, is_default=granularity is None)
    if checkpointing is Checkpointing.FULL and said.text("recompute-method") == "block":
        out.put("checkpoint_layers", said.integer("recompute-num-layers"), is_default=False)
    for name, flag in (("hidden_dropout", "hidden-dropout"), ("attention_dropout", "attention-dropout")):
        value = said.number(flag)
        out.put(name, 0.1 if value is None else value, is_default=value is None)
    backend = said.word("attention-backend")
    is_unfused = backend in ("unfused", "local") or said.text("transformer-impl") == "local"
    out.put("attention", Attention.UNFUSED if is_unfused else Attention.FLASH, is_default=backend is None)


def _details(said: Arguments, reasons: tuple[str, ...]) -> MegatronDetails:
    activation = Activation.GELU
    if said.flag("swiglu"):
        activation = Activation.SWIGLU
    elif said.flag("squared-relu"):
        activation = Activation.SQUARED_RELU
    dispatcher = said.word("moe-token-dispatcher-type") or "allgather"
    precision_aware = said.flag("use-precision-aware-optimizer")
    granularity = said.text("recompute-granularity")
    if said.flag("recompute-activations"):
        granularity = "selective"
    modules = said.words("recompute-modules")
    return MegatronDetails(
        activation=activation,
        attention_backend=said.word("attention-backend") or "auto",
        fuses_gradient_accumulation=not said.flag("no-gradient-accumulation-fusion"),
        fuses_cross_entropy=said.flag("cross-entropy-loss-fusion"),
        cross_entropy_impl=said.word("cross-entropy-fusion-impl") or "native",
        accumulates_in_fp32=not said.flag("grad-reduce-in-bf16"),
        overlaps_grad_reduce=said.flag("overlap-grad-reduce"),
        overlaps_param_gather=said.flag("overlap-param-gather"),
        optimizer_instances=said.integer("num-distributed-optimizer-instances") or 1,
        precision_aware=precision_aware,
        main_gradient_bytes=_BYTES.get(said.word("main-grads-dtype") or "fp32", 4) if precision_aware else 4,
        main_parameter_bytes=_BYTES.get(said.word("main-params-dtype") or "fp32", 4)
        if precision_aware
        else 4,
        moment_bytes=(
            _BYTES.get(said.word("exp-avg-dtype") or "fp32", 4) if precision_aware else 4,
            _BYTES.get(said.word("exp-avg-sq-dtype") or "fp32", 4) if precision_aware else 4,
        ),
        fsdp_strategy=said.word("data-parallel-sharding-strategy") or "no_shard",
        recompute_granularity=granularity,
        recompute_modules=modules or ("core_attn",),
        recompute_method=said.word("recompute-method"),
        recompute_num_layers=said.integer("recompute-num-layers"),
        dispatcher=Dispatcher(dispatcher)
        if dispatcher in {each.value for each in Dispatcher}
        else Dispatcher.FLEX,
        has_grouped_gemm=said.flag("moe-grouped-gemm"),
        fuses_permutation=said.flag("moe-permute-fusion"),
        overlaps_expert_comm=said.flag("overlap-moe-expert-parallel-comm"),
        router_in_fp32=said.word("moe-router-dtype") in ("fp32", "fp64"),
        overlaps_shared_expert=said.flag("moe-shared-expert-overlap"),
        uses_transformer_engine=(said.word("transformer-impl") or "transformer_engine")
        == "transformer_engine",
        creates_attention_mask=not said.flag("no-create-attention-mask-in-dataloader"),
        is_deterministic=said.flag("deterministic-mode"),
        first_stage_layers=said.integer("decoder-first-pipeline-num-layers"),
        last_stage_layers=said.integer("decoder-last-pipeline-num-layers"),
        counts_embedding_in_split=said.flag("account-for-embedding-in-pipeline-split"),
        counts_loss_in_split=said.flag("account-for-loss-in-pipeline-split"),
        layout=stages_of_layout(said.text("pipeline-model-parallel-layout") or "") or (),
        not_covered=reasons,
    )
