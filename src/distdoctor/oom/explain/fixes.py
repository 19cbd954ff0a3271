"""What the job's owner can change when the job itself is too large, by the phase in which memory was refused."""

from __future__ import annotations

from distdoctor.oom.explain.cause import Judged
from distdoctor.oom.explain.devices import record_history
from distdoctor.oom.facts.events import Family, Phase
from distdoctor.report.model import Action, Team

ESTIMATE = "distdoctor oom estimate --config LAUNCH_CONFIG --on 8xGPU_TYPE --compare"


def smaller_job(judged: Judged) -> tuple[Action, ...]:
    """Ways to need less, for a card that the job's own live tensors fill."""
    family = judged.event.family
    is_sharded_elsewhere = family in (Family.MPS, Family.XPU)
    match judged.event.phase:
        case Phase.INITIALISATION if is_sharded_elsewhere:
            text = (
                "the model does not fit as it is placed: load it in 16 bit or quantised, keep a part of it on the host, or take a smaller "
                "model; no training step has begun, so its settings change nothing"
            )
        case Phase.INITIALISATION:
            text = (
                "the model does not fit as it is placed: shard it before it is on the GPU (FSDP, ZeRO-3, tensor parallelism), "
                "load it in 16 bit, or use more GPUs; no training step has begun, so its settings change nothing"
            )
        case Phase.EVALUATION:
            text = (
                "a smaller evaluation batch, `torch.no_grad()`, and results moved to the host as they come "
                "(Trainer: `per_device_eval_batch_size`, `eval_accumulation_steps`)"
            )
        case Phase.SAVING if family is Family.MPS:
            text = "move what is saved to the host first, tensor by tensor (`tensor.cpu()`)"
        case Phase.SAVING:
            text = (
                "save sharded (torch.distributed.checkpoint, SHARDED_STATE_DICT) or gather to the host "
                "(`offload_to_cpu=True, rank0_only=True`), so that no rank holds the whole model on its GPU"
            )
        case Phase.GENERATION:
            text = "fewer or shorter sequences at once, or a smaller share for the key-value cache"
        case Phase.LATER_GROWTH:
            text = (
                "it fitted for some steps: look for longer sequences in this batch, or for tensors that are kept over steps "
                "(a loss that is summed without `.item()`), with a memory snapshot"
            )
            return (
                Action(team=Team.JOB_OWNER, text=text, command=record_history(family)),
                Action(team=Team.JOB_OWNER, text="what the job should need at its peak", command=ESTIMATE),
            )
        case _:
            more = "parameters and states in 16 bit" if is_sharded_elsewhere else "more sharding"
            text = (
                f"a smaller micro-batch with more accumulation steps, shorter sequences, activation checkpointing, or {more}; "
                "what each of them saves, the estimate tells"
            )
    return (Action(team=Team.JOB_OWNER, text=text, command=ESTIMATE),)
