"""`--torchtitan FAMILY:FLAVOR`: which of TorchTitan's models is meant, and what TorchTitan makes of the usual options."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec

from distdoctor.errors import DistdoctorError, UsageError
from distdoctor.oom.configs.torchtitan.model import preset_of_flavor
from distdoctor.oom.job import Job
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Offload,
    Optimizer,
    OptimizerLoop,
    Precision,
    Settings,
)
from distdoctor.oom.shape import Model, ModelShape

_NAME = re.compile(r"([a-z]\w{1,40}?)[:_]([0-9a-z][\w.-]{0,40})", re.IGNORECASE | re.ASCII)
_FAMILIES = ("llama3", "qwen3")

# torchtitan/models/llama3/__init__.py, version 0.3.0. It has no weights and so no preset.
_DEBUG_MODEL = ModelShape(
    num_layers=6,
    hidden_size=256,
    num_heads=16,
    num_kv_heads=16,
    head_size=16,
    ffn_size=768,
    vocab_size=2048,
)

INSTALL = "pip install torchtitan triton, in the job's environment"
WITHOUT_TITAN = "leave --torchtitan out: the same model is simulated by our own code"


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanModel:
    """`flavor` of `torchtitan.models.<family>`."""

    family: str
    flavor: str

    def __str__(self) -> str:
        return f"TorchTitan {self.family} {self.flavor}"


def parse_titan(text: str) -> TitanModel:
    """`llama3:8B`, or `llama3_8b` as TorchTitan names its configurations. Raises UsageError."""
    word = text.strip()
    known = next((each for each in _FAMILIES if word.lower().startswith((f"{each}:", f"{each}_"))), None)
    match = _NAME.fullmatch(word)
    if known is not None:
        family, flavor = known, word[len(known) + 1 :]
    elif match is not None:
        family, flavor = match[1].lower(), match[2]
    else:
        raise UsageError(
            f"--torchtitan: `{word[:40]}` names no model of TorchTitan", hint="write --torchtitan llama3:8B"
        )
    if not re.fullmatch(r"[\w.-]{1,40}", flavor):
        raise UsageError(f"--torchtitan: `{flavor[:40]}` is no flavor", hint="write --torchtitan llama3:8B")
    return TitanModel(family=family, flavor=flavor)


def titan_settings(model: TitanModel, said: Settings) -> Settings:
    """What was said, with the model's sizes and TorchTitan's defaults where nothing was: FSDP2 initialised on the meta
    device, a fused optimizer, selective checkpointing, logits dropped before the backward pass. Raises UsageError where
    its sizes are not known here, or others were said."""
    own = _model(model)
    if said.model is None:
        if own is None:
            raise UsageError(
                f"--torchtitan: the sizes of {model.family} {model.flavor} are not in our table",
                hint="give them too: --model with a config.json, or --layers --hidden --heads --ffn --vocab",
            )
        said = replace(said, model=own)
    elif own is not None and said.model.shape is not None and said.model.shape != own.shape:
        raise UsageError(
            f"--torchtitan names {model.family} {model.flavor}, the other options {said.model.name}",
            hint="name one model; sizes of --torchtitan's are known",
        )
    return replace(
        said,
        strategy=said.strategy or DataParallel.FSDP,
        optimizer_loop=said.optimizer_loop or OptimizerLoop.FUSED,
        checkpointing=said.checkpointing or Checkpointing.SELECTIVE,
        frees_logits=True if said.frees_logits is None else said.frees_logits,
        meta_init=True if said.meta_init is None else said.meta_init,
    )


def _model(model: TitanModel) -> Model | None:
    source = f"TorchTitan's {model.family} {model.flavor}"
    if (model.family, model.flavor.lower()) == ("llama3", "debugmodel"):
        return Model(name="llama3-debugmodel", source=source, shape=_DEBUG_MODEL)
    found = preset_of_flavor(model.family, model.flavor)
    if found is None:
        return None
    return Model(
        name=found.name, source=f"preset {found.name}, {source}", shape=found.shape, notes=found.notes
    )


def why_not_titan(job: Job) -> str | None:
    """Why TorchTitan's code is not simulated for this job; None: it is."""
    if job.shape is None:
        return "only the number of parameters is known, not the model's shape"
    if job.shape.moe is not None or job.mesh.ep > 1:
        return "of TorchTitan's models the dense ones are simulated: experts need kernels and values"
    if job.strategy not in (DataParallel.FSDP, DataParallel.DDP, DataParallel.NONE):
        return f"TorchTitan has no {job.strategy.value}; its data parallelism is FSDP2"
    if job.precision is Precision.MASTER:
        return "TorchTitan keeps no fp32 copy beside 16-bit parameters; --precision mixed, fp32 or pure16"
    if job.optimizer is not Optimizer.ADAMW:
        return f"of TorchTitan's optimizers AdamW is simulated, not {job.optimizer.value}"
    if job.attention is not Attention.FLASH:
        return "TorchTitan has no attention that writes its scores to memory"
    if job.mesh.cp > 1:
        return "TorchTitan's context parallelism is around a compiled FlexAttention, which fake tensors cannot run"
    if {job.offload_params, job.offload_optimizer} != {Offload.NONE} or job.said.offload_activations:
        return "offloading to the host needs a GPU to offload from; it is estimated only"
    if job.said.checkpoint_layers is not None:
        return "TorchTitan checkpoints every layer or none"
    if job.said.adapter is not None:
        return "adapters on a frozen model are estimated only"
    if job.mesh.tp > 1 and not job.loss_parallel:
        return "TorchTitan cuts the logits over tp; --no-loss-parallel has no meaning for it"
    if job.mesh.pp > 1 and job.mesh.tp > 1 and not job.sequence_parallel:
        return (
            "of TorchTitan's pipelines with tensor parallelism those with sequence parallelism are simulated"
        )
    return None


def require_torchtitan() -> None:
    """Raises DistdoctorError where this interpreter has none; it is not imported."""
    if find_spec("torchtitan") is None:
        raise DistdoctorError(
            "no torchtitan in this Python, and --torchtitan runs TorchTitan's own code",
            hint=f"{INSTALL}; or {WITHOUT_TITAN}",
        )
