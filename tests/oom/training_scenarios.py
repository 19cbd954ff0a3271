"""Programs on real ranks over Gloo, beside the same model on one rank with the tokens of all: same loss, same gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from distdoctor.oom.job import Job, resolve
from distdoctor.oom.settings import DataParallel, Optimizer, OptimizerLoop, Precision, Settings
from distdoctor.oom.shape import LatentAttention, MixtureOfExperts, Model, ModelShape, Norm
from distdoctor.oom.training.base import NoObserver, World
from distdoctor.oom.training.build import build_program
from distdoctor.oom.training.device_mesh import build_device_mesh
from distdoctor.oom.training.loss import cross_entropy
from distdoctor.oom.training.model import ModelOptions, Transformer

SEQ_LEN = 32
# Softmax does not see the bias of keys that are not rotated: its gradient is nothing but rounding.
NO_GRADIENT = 1e-4

_DENSE = ModelShape(
    num_layers=2, hidden_size=64, num_heads=4, num_kv_heads=2, head_size=16, ffn_size=96, vocab_size=256
)
_MOE = MixtureOfExperts(
    num_experts=8, experts_per_token=2, expert_ffn_size=48, shared_ffn_size=32, first_dense_layers=1
)
_MLA = LatentAttention(
    kv_lora_rank=16, q_lora_rank=24, nope_head_size=8, rope_head_size=8, value_head_size=16
)
_GPT = replace(
    _DENSE,
    num_kv_heads=4,
    is_gated=False,
    norm=Norm.LAYERNORM,
    has_qkv_bias=True,
    has_attention_out_bias=True,
    has_mlp_bias=True,
)
SHAPES = {
    "llama": _DENSE,
    "experts": replace(_DENSE, moe=_MOE),
    "experts with biases": replace(
        _DENSE,
        has_qkv_bias=True,
        has_attention_out_bias=True,
        has_mlp_bias=True,
        moe=replace(_MOE, shared_ffn_size=0, first_dense_layers=0),
    ),
    "gated shared experts": replace(_DENSE, has_qk_norm=True, moe=replace(_MOE, has_shared_gate=True)),
    "latent": replace(_DENSE, num_kv_heads=4, mla=_MLA, moe=_MOE),
    "latent, queries at once": replace(_DENSE, num_kv_heads=4, mla=replace(_MLA, q_lora_rank=None)),
    "four norms, tied": replace(_DENSE, ties_embeddings=True, norms_per_layer=4, has_qk_norm=True),
    "learned positions, tied": replace(_GPT, learned_positions=SEQ_LEN, ties_embeddings=True),
    "one norm": replace(_GPT, norms_per_layer=1),
    "no norms": replace(_DENSE, norms_per_layer=0),
}


def job_of(shape: str, **said: Any) -> Job:
    """A job over as many ranks as its mesh has; fp32 and two sequences unless said otherwise."""
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    world_size = 1
    for name in names:
        world_size *= said.get(name) or 1
    defaults: dict[str, Any] = {
        "micro_batch": 2,
        "seq_len": SEQ_LEN,
        "precision": Precision.FP32,
        "optimizer_loop": OptimizerLoop.FOREACH,
        "strategy": DataParallel.NONE,
    }
    model = Model(name=shape, source="test", shape=SHAPES[shape])
    return resolve(Settings(model=model, world_size=world_size, **{**defaults, **said}))


def differences(rank: int, world_size: int, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each case, how far loss and gradients of this rank are from those of one rank, as a part of the largest."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    try:
        return [_difference(rank, **case) for case in cases]
    finally:
        dist.destroy_process_group()


def _difference(rank: int, shape: str, strategy: str, **said: Any) -> dict[str, Any]:
    job = job_of(shape, strategy=DataParallel(strategy), optimizer=Optimizer.SGD, **said)
    world = World(job=job, rank=rank, device=torch.device("cpu"), mesh=build_device_mesh(job, "cpu"))
    sequences = world.coordinate("dp_replicate") * job.mesh.dp_shard + world.coordinate("dp_shard")
    alone = _Alone(job, own_sequences=sequences)
    watcher = _Watcher()
    torch.manual_seed(0)
    program = build_program(world, watcher)
    for name, parameter in watcher.parameters.items():
        _fill(parameter, alone.part(name, parameter, watcher.ep_rank(name)))
    hook = register_optimizer_step_pre_hook(lambda *_: watcher.keep_gradients())
    torch.manual_seed(100 + sequences)
    loss = program.step(1, NoObserver())
    hook.remove()
    program.close()
    worst, where = 0.0, ""
    for name, gradient in watcher.gradients.items():
        expected = alone.part(name, gradient, watcher.ep_rank(name), gradient=True)
        error = float((gradient - expected).abs().max() / expected.abs().max().clamp_min(NO_GRADIENT))
        if error > worst:
            worst, where = error, name
    assert watcher.gradients.keys() == watcher.parameters.keys()
    return {"loss": abs((loss or 0.0) - alone.loss), "gradient": worst, "where": where}


class _Alone:
    """The whole model on one rank, over the tokens of all."""

    def __init__(self, job: Job, *, own_sequences: int) -> None:
        shape = job.known_shape
        torch.manual_seed(1)
        model = Transformer(shape, ModelOptions(seq_len=job.seq_len), layers=range(shape.num_layers))
        model.init_weights()
        with torch.no_grad():
            for parameter in model.parameters():
                # Norms and biases of one kind would hide where two were mixed up.
                parameter.add_(torch.randn_like(parameter) * 0.05)
        self.loss = float("nan")
        for number in range(job.mesh.dp):
            torch.manual_seed(100 + number)
            for _ in range(job.num_micro_batches):
                tokens, labels = (
                    torch.randint(shape.vocab_size, (job.micro_batch, job.seq_len)) for _ in range(2)
                )
                loss = cross_entropy(model(tokens), labels)
                (loss / job.mesh.dp).backward()
                if number == own_sequences:
                    self.loss = float(loss.detach())
        self._parameters = dict(model.named_parameters())
        self._ep = job.mesh.ep

    def part(
        self, name: str, like: torch.Tensor, ep_rank: int | None, *, gradient: bool = False
    ) -> torch.Tensor:
        """A parameter or its gradient; of experts those of one rank."""
        parameter = self._parameters[name]
        whole = parameter.grad if gradient else parameter.detach()
        assert whole is not None
        if ep_rank is not None:
            whole = whole.chunk(self._ep)[ep_rank]
        assert whole.shape == like.shape, name
        return whole


class _Watcher(NoObserver):
    """Knows the program's parameters by their names in the plain model."""

    def __init__(self) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        self.gradients: dict[str, torch.Tensor] = {}
        self._ep_ranks: dict[str, int] = {}

    def name_modules(self, module: nn.Module, *, first_layer: int = 0) -> None:
        for name, parameter in module.named_parameters():
            plain = name.replace("_checkpoint_wrapped_module.", "")
            self.parameters[plain] = parameter
            mesh = getattr(module.get_submodule(name.rpartition(".")[0]), "mesh", None)
            if mesh is not None and ".experts." in name:
                self._ep_ranks[plain] = mesh.get_local_rank("ep")

    def ep_rank(self, name: str) -> int | None:
        return self._ep_ranks.get(name)

    def keep_gradients(self) -> None:
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                grad = parameter.grad
                whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
                self.gradients[name] = whole.clone()


def _fill(parameter: nn.Parameter, whole: torch.Tensor) -> None:
    with torch.no_grad():
        if isinstance(parameter, DTensor):
            whole = distribute_tensor(whole.clone(), parameter.device_mesh, parameter.placements)
        parameter.copy_(whole)
