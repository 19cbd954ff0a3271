"""What the numbers of a snapshot support as the next step, by what the memory is for."""

from __future__ import annotations

from distdoctor.oom.snapshots.categories import Category
from distdoctor.oom.snapshots.holders import share
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.model import Action, Team

# A category is worth an action from this share of live memory on. Our own threshold.
WORTH_SHARE = 0.15

MAX_ACTIONS = 3

_ADVICE = {
    Category.LOGITS: "compute the loss in chunks or fused with the output layer; with tensor parallelism, loss parallel",
    Category.ACTIVATIONS: "activation checkpointing, a smaller micro-batch with more accumulation, or sequence/context parallelism",
    Category.ATTENTION: "a fused attention kernel (scaled_dot_product_attention, FlashAttention): scores then take no memory",
    Category.RECOMPUTED: "checkpoint smaller units: what is recomputed at once must fit",
    Category.OPTIMIZER_STATE: "shard the optimizer's state (FSDP, ZeRO-1), keep it in bf16 or 8 bits, or offload it",
    Category.OPTIMIZER_STEP: "`fused=True`, or `foreach=False`: a foreach step holds one more copy of the parameters",
    Category.PARAMETERS: "shard the parameters (FSDP, ZeRO-3, tensor or pipeline parallelism), or keep them in bf16",
    Category.UNSHARDED: "shard after forward and wrap each block, so that at most two units are whole at once",
    Category.REDUCTION: "smaller buckets (DeepSpeed reduce_bucket_size, DDP bucket_cap_mb with gradient_as_bucket_view=True)",
    Category.GRADIENTS: "`zero_grad(set_to_none=True)` before the next forward, and gradients in bf16 where that is enough",
    Category.KV_CACHE: "a shorter context, fewer sequences at once, or a paged cache",
    Category.GRAPHS: "capture fewer shapes, and share one pool between graphs",
    Category.CHECKPOINT: "save sharded state (torch.distributed.checkpoint), or with CPU offload",
    Category.COMPILED: "record again with TORCH_COMPILE_DISABLE=1 to see which code asks",
}


def advice_for(view: SnapshotView) -> tuple[Action, ...]:
    """At most three actions: for what was asked for, then for those who hold most."""
    wanted = [view.asked] if view.asked is not None else []
    live = view.moment.live_bytes
    wanted += [each.category for each in view.categories if share(each.num_bytes, live) >= WORTH_SHARE]
    chosen = [each for each in dict.fromkeys(wanted) if each in _ADVICE][:MAX_ACTIONS]
    return tuple(Action(team=Team.JOB_OWNER, text=f"{each.value}: {_ADVICE[each]}") for each in chosen)
