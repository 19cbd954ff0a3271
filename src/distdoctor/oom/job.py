"""One job, resolved: what was said, defaults for the rest, and which defaults were assumed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from distdoctor.errors import UsageError
from distdoctor.oom.mesh import Mesh, build_mesh, check_mesh
from distdoctor.oom.parameters import count_parameters
from distdoctor.oom.settings import (
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
from distdoctor.oom.shape import Model, ModelShape

T = TypeVar("T")

DEEPSPEED = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3)
MEGATRON = (DataParallel.MEGATRON, DataParallel.MEGATRON_DISTRIBUTED, DataParallel.MEGATRON_FSDP)

# No cluster's numbers are larger; beyond them a digit too many was typed.
MAX_TOKENS = 1 << 40

# Tokens of a sequence where nothing is said: what most small runs of a large model take. Our own choice.
_USUAL_SEQ_LEN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that the formulas ask for. Bytes and elements are of one rank unless said otherwise."""

    model: Model
    num_params: int
    mesh: Mesh
    strategy: DataParallel
    precision: Precision
    optimizer: Optimizer
    optimizer_loop: OptimizerLoop
    micro_batch: int
    seq_len: int
    num_micro_batches: int
    checkpointing: Checkpointing
    attention: Attention
    schedule: Schedule
    virtual_stages: int
    reshard_after_forward: bool
    sequence_parallel: bool
    loss_parallel: bool
    fused_loss: bool
    offload_params: Offload
    offload_optimizer: Offload
    expert_imbalance: float
    grads_in_fp32: bool
    said: Settings
    """What was said, for what only one strategy asks."""
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    not_covered: tuple[str, ...] = ()
    """What the formulas do not know of this job: with it the need is another, and nobody can say that it fits."""

    @property
    def shape(self) -> ModelShape | None:
        """None: only the number of parameters is known."""
        return self.model.shape

    @property
    def known_shape(self) -> ModelShape:
        """The shape, where a program is built. Raises ValueError when it is not known."""
        if self.model.shape is None:
            raise ValueError("only the number of parameters is known, not the model's shape")
        return self.model.shape

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank of the context-parallel group."""
        return self.micro_batch * self.seq_len / self.mesh.cp

    @property
    def compute_bytes(self) -> int:
        """Bytes of a computed value."""
        return 4 if self.precision is Precision.FP32 else 2

    @property
    def residual_bytes(self) -> int:
        """Bytes of a value of the residual stream: autocast leaves that of an fp32 model in fp32, a 16-bit model has
        16 bits, and so has a frozen one under adapters."""
        is_autocast = (
            self.precision is Precision.MIXED
            and self.said.adapter is None
            and self.strategy in (DataParallel.NONE, DataParallel.DDP, DataParallel.ZERO_REDUNDANCY)
        )
        return 4 if self.precision is Precision.FP32 or is_autocast else 2

    @property
    def expert_width_ranks(self) -> int:
        """Over how many ranks the width of a routed expert is cut: over those of tp where no expert parallelism spreads
        experts (TorchTitan's torchtitan/models/common/moe_sharding.py), else as `etp` says, which for Megatron-LM is never unsaid."""
        mesh = self.mesh
        is_told = mesh.ep > 1 or mesh.etp > 1 or self.strategy in MEGATRON
        return mesh.etp if is_told else mesh.tp

    @property
    def expert_shard_ranks(self) -> int:
        """Ranks that share the states of one expert, or of this rank's part of it."""
        mesh = self.mesh
        borrowed = mesh.dp_shard * mesh.cp * mesh.tp
        return max(1, borrowed // (mesh.ep * self.expert_width_ranks))

    @property
    def is_sharded(self) -> bool:
        """Whether dp_shard is a dimension of its own; plain replicas only know one."""
        return self.strategy not in (DataParallel.NONE, DataParallel.DDP, DataParallel.MEGATRON)


def resolve(settings: Settings) -> Job:
    """The job of what was said. Raises UsageError for what cannot be."""
    if settings.model is None:
        raise UsageError(
            "no model", hint="give --model NAME or config.json, or --params 7.5e9, or --layers …"
        )
    _refuse_nonsense(settings)
    guess = _Defaults(settings)
    mesh = build_mesh(settings)
    strategy = guess.strategy(mesh)
    mesh = _name_data_parallel(mesh, strategy)
    _refuse_unknown_ranks(settings, strategy)
    shape = settings.model.shape
    if strategy in MEGATRON and settings.etp is None and mesh.tp > 1 and shape is not None and shape.moe:
        # Megatron-LM's --expert-tensor-parallel-size is --tensor-model-parallel-size unless it is given.
        guess.assume(f"experts cut over tp, etp={mesh.tp}")
        mesh = replace(mesh, etp=mesh.tp)
    pp_on = mesh.pp > 1
    virtual = settings.virtual_stages or (
        2 if settings.schedule in (Schedule.INTERLEAVED, Schedule.ZBV) else 1
    )
    schedule = settings.schedule or (Schedule.INTERLEAVED if virtual > 1 else Schedule.ONE_F_ONE_B)
    if schedule is Schedule.ZBV and virtual != 2:
        raise UsageError("the ZB-V schedule has exactly 2 virtual stages on each rank")
    if virtual > 1 and schedule not in (Schedule.INTERLEAVED, Schedule.ZBV):
        raise UsageError(
            f"the {schedule.value} schedule has one stage on each rank, not {virtual}",
            hint="--schedule interleaved, or leave --virtual-stages out",
        )
    if (settings.seq_len or mesh.cp) < mesh.cp:
        raise UsageError(f"cp={mesh.cp} leaves less than one of {settings.seq_len} tokens to a rank")
    if shape is not None and not shape.vocab_size:
        raise UsageError("the size of the vocabulary is not known", hint="give --vocab N")
    if shape is not None:
        check_mesh(
            mesh, shape, virtual_stages=virtual, sharded=strategy not in (DataParallel.NONE, DataParallel.DDP)
        )
    elif mesh.ep > 1:
        raise UsageError(
            "expert parallelism needs the model's experts", hint="give --model, or --experts and sizes"
        )
    usual = settings.model.seq_len or _USUAL_SEQ_LEN
    num_params = count_parameters(shape) if shape is not None else settings.model.stated_params or 0
    if pp_on and settings.schedule is None:
        guess.assume("pipeline schedule 1F1B" if virtual == 1 else "interleaved 1F1B")
    precision = guess.precision(strategy)
    # TorchTitan cuts tokens and logits over tp unless told otherwise; Megatron-LM does only what it is told.
    cuts_more = mesh.tp > 1 and strategy not in MEGATRON and strategy not in DEEPSPEED
    sequence_parallel, loss_parallel = settings.sequence_parallel, settings.loss_parallel
    if sequence_parallel is None:
        sequence_parallel = cuts_more
        if sequence_parallel:
            guess.assume("sequence parallelism")
    if loss_parallel is None:
        loss_parallel = cuts_more
        if loss_parallel:
            guess.assume("loss parallelism")
    if settings.meta_init is None and strategy in (DataParallel.FSDP, DataParallel.ZERO3):
        guess.assume("sharded before it is whole (--init meta)")
    reshard = settings.reshard_after_forward
    if reshard is None:
        reshard = not pp_on
        if strategy is DataParallel.FSDP and pp_on:
            guess.assume("parameters stay gathered through a step under pp (TorchTitan's default)")
    return Job(
        model=settings.model,
        num_params=num_params,
        mesh=mesh,
        strategy=strategy,
        precision=precision,
        optimizer=guess.pick(settings.optimizer, Optimizer.ADAMW, "AdamW"),
        optimizer_loop=guess.optimizer_loop(strategy),
        micro_batch=guess.pick(settings.micro_batch, 1, "1 sequence"),
        seq_len=guess.pick(settings.seq_len, usual, f"{usual} tokens"),
        num_micro_batches=guess.micro_batches(mesh),
        checkpointing=guess.pick(settings.checkpointing, Checkpointing.NONE, "no checkpointing"),
        attention=guess.pick(settings.attention, Attention.FLASH, "flash attention"),
        schedule=schedule,
        virtual_stages=virtual,
        reshard_after_forward=reshard,
        sequence_parallel=sequence_parallel and mesh.tp > 1,
        loss_parallel=loss_parallel and mesh.tp > 1,
        fused_loss=bool(settings.fused_loss),
        offload_params=settings.offload_params or Offload.NONE,
        offload_optimizer=settings.offload_optimizer or settings.offload_params or Offload.NONE,
        expert_imbalance=settings.expert_imbalance or 1.0,
        grads_in_fp32=bool(settings.grads_in_fp32),
        said=settings,
        assumptions=tuple(guess.assumed),
        notes=settings.model.notes,
    )


class _Defaults:
    """Defaults, and a list of those that were used."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.assumed: list[str] = []

    def assume(self, text: str) -> None:
        self.assumed.append(text)

    def pick(self, said: T | None, default: T, words: str) -> T:
        """What was said, else the default, which is then told."""
        if said is None:
            self.assume(words)
            return default
        return said

    def strategy(self, mesh: Mesh) -> DataParallel:
        said = self.settings.strategy
        if said is not None:
            return said
        if mesh.shard_ranks > 1:
            self.assume("FSDP2")
            return DataParallel.FSDP
        if mesh.dp_replicate > 1:
            self.assume("DDP")
            return DataParallel.DDP
        return DataParallel.NONE

    def precision(self, strategy: DataParallel) -> Precision:
        said = self.settings.precision
        if said is Precision.MASTER and strategy is DataParallel.ZERO_REDUNDANCY:
            raise UsageError(
                "ZeroRedundancyOptimizer steps the parameters themselves and keeps no fp32 master copies",
                hint="--strategy zero1 does; or --precision mixed",
            )
        if said is not None:
            return said
        if strategy in DEEPSPEED or strategy in MEGATRON:
            self.assume("16-bit parameters, fp32 master copy")
            return Precision.MASTER
        self.assume(
            "fp32 parameters computed in 16 bit"
            if self.settings.adapter is None
            else "fp32 adapters on frozen weights, computed in 16 bit"
        )
        return Precision.MIXED

    def optimizer_loop(self, strategy: DataParallel) -> OptimizerLoop:
        said = self.settings.optimizer_loop
        if said is not None:
            return said
        if strategy in DEEPSPEED or strategy in MEGATRON:
            return OptimizerLoop.FUSED
        if self.settings.optimizer in (None, Optimizer.ADAMW, Optimizer.SGD_MOMENTUM, Optimizer.SGD):
            self.assume("foreach")
        return OptimizerLoop.FOREACH

    def micro_batches(self, mesh: Mesh) -> int:
        said = self.settings.accumulation_steps
        if said is not None:
            return said
        batch, micro = self.settings.global_batch, self.settings.micro_batch or 1
        if batch is not None:
            if batch % (micro * mesh.dp):
                raise UsageError(
                    f"a global batch of {batch} is no multiple of micro-batch {micro} x {mesh.dp} data-parallel ranks"
                )
            return batch // (micro * mesh.dp)
        if mesh.pp > 1:
            self.assume(f"{2 * mesh.pp} micro-batches in the pipeline")
            return 2 * mesh.pp
        return 1


def _name_data_parallel(mesh: Mesh, strategy: DataParallel) -> Mesh:
    """Ranks of strategies that do not shard are replicas, whatever the mesh called them; DeepSpeed shards over all."""
    if strategy is DataParallel.NONE:
        if mesh.dp > 1:
            raise UsageError(
                f"{mesh.dp} data-parallel ranks need a strategy",
                hint="--strategy ddp, fsdp2, zero1, zero2, zero3",
            )
        return mesh
    if strategy is DataParallel.DDP:
        return replace(mesh, dp_replicate=mesh.dp, dp_shard=1)
    if strategy in (*DEEPSPEED, DataParallel.ZERO_REDUNDANCY):
        return replace(mesh, dp_replicate=1, dp_shard=mesh.dp)
    return mesh


def _refuse_unknown_ranks(settings: Settings, strategy: DataParallel) -> None:
    """What is shared by a number of ranks that nobody knows has no size."""
    keeps_all = (DataParallel.NONE, DataParallel.DDP, DataParallel.MEGATRON)
    if settings.world_size is None and settings.dp_shard in (None, -1) and strategy not in keeps_all:
        raise UsageError(
            f"{strategy.value} shares states among ranks, and their number is not known",
            hint="give --gpus N, --on NxTYPE, or dp_shard in --mesh",
        )


def _refuse_nonsense(settings: Settings) -> None:
    for name, least, most in (
        ("micro_batch", 1, 1 << 20),
        ("seq_len", 1, 1 << 28),
        ("accumulation_steps", 1, 1 << 20),
        ("global_batch", 1, 1 << 30),
        ("virtual_stages", 1, 1 << 12),
        ("num_nodes", 1, 1 << 20),
        ("gpus_per_node", 1, 1 << 10),
    ):
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            raise UsageError(f"{name.replace('_', ' ')} is {value}; it must be from {least} to {most:,}")
    imbalance = settings.expert_imbalance
    if imbalance is not None and not 1.0 <= imbalance <= 1e4:  # NaN fails both
        raise UsageError(f"expert imbalance is {imbalance}; 1 is balanced, 2 is twice the tokens on one rank")
    if (settings.micro_batch or 1) * (settings.seq_len or 1) > MAX_TOKENS:
        raise UsageError(
            "micro-batch x sequence has more tokens than any job", hint="check --micro-batch, --seq-len"
        )
