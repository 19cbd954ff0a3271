"""Context parallelism (ring attention): every rank sees a part of each sequence, keys and values travel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch.distributed.device_mesh import DeviceMesh

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Attention
from distdoctor.oom.training.base import CannotRunError, World
from distdoctor.oom.training.model import Transformer
from distdoctor.oom.training.ring_attention import Ring, attending_in
from distdoctor.torch_private.attention import context_parallel

# What attention in a ring may differ from attention at once: rounding, merged once for each rank. Our own thresholds;
# fp32 errs by about 1e-6, bf16 by about one of its 8 bits.
RING_TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def why_not(job: Job) -> str | None:
    """Why torch's context parallelism cannot run this job; None: it can."""
    if job.mesh.cp == 1:
        return None
    if job.attention is Attention.UNFUSED:
        return "ring attention merges what flash kernels return; unfused attention under cp is estimated only"
    if job.seq_len % (2 * job.mesh.cp):
        # Each rank takes a part from the head of a sequence and one from its tail, so that all have as much to do.
        return f"torch cuts a sequence into 2 x cp = {2 * job.mesh.cp} equal parts; {job.seq_len} tokens are not divisible"
    return None


def local_seq_len(job: Job) -> int:
    """Tokens of a sequence that one rank computes."""
    return job.seq_len // job.mesh.cp


@contextlib.contextmanager
def around_step(
    world: World, models: Sequence[Transformer], sequences: Sequence[torch.Tensor]
) -> Iterator[None]:
    """Around forward and backward: cuts `sequences` (batch, sequence) and the rotary tables over cp, in place; the
    tables are restored. Nothing happens without cp. Raises CannotRunError where this torch has no such thing."""
    mesh = world.sub_mesh("cp")
    if mesh is None:
        yield
        return
    tables = [table for model in models for table in (model.cos, model.sin)]
    dimensions = [1] * len(sequences) + [0] * len(tables)
    cut = _cut(mesh, [*sequences, *tables], dimensions, restore=tables)
    with cut, attending_in(Ring(mesh, world.kernels)):
        yield


def check_ring_attention(world: World) -> float:
    """How far ring attention is from attention at once: the largest difference of an output or a gradient on this
    rank, as a part of that tensor's largest value. Compare with RING_TOLERANCES (fp32 on CPUs, bf16 elsewhere).

    Collective over cp. Raises CannotRunError where there is nothing to compare.
    """
    mesh = world.sub_mesh("cp")
    if mesh is None or not world.communicates:
        raise CannotRunError("ring attention is checked between ranks that communicate over cp")
    dtype = torch.float32 if world.device.type == "cpu" else torch.bfloat16
    worst = 0.0
    for batch, kv_heads in product((1, 2), (2, 4)):
        generator = torch.Generator().manual_seed(batch * 10 + kv_heads)
        tokens = 2 * mesh.size() * 8
        sizes = [(batch, heads, tokens, 32) for heads in (4, kv_heads, kv_heads, 4)]
        q, k, v, grad = (torch.randn(size, generator=generator).to(world.device, dtype) for size in sizes)
        expected = _at_once(q, k, v, grad)
        parts = [q, k, v, grad, *expected]
        with _cut(mesh, parts, [2] * len(parts)), attending_in(Ring(mesh, world.kernels)):
            inputs = [each.requires_grad_() for each in (q, k, v)]
            out = Ring(mesh, world.kernels).attend(*inputs)
            found = (out, *torch.autograd.grad(out, inputs, grad))
        worst = max(worst, *(_relative_error(one, other) for one, other in zip(found, expected, strict=True)))
    return worst


def _at_once(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Output and gradients of causal attention by its definition, in fp64."""
    inputs = [each.detach().double().requires_grad_() for each in (q, k, v)]
    groups = q.shape[1] // k.shape[1]
    key, value = (each.repeat_interleave(groups, dim=1) for each in inputs[1:])
    scores = inputs[0] @ key.transpose(-1, -2) * q.shape[-1] ** -0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    out = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ value
    return (out.detach(), *torch.autograd.grad(out, inputs, grad.double()))


def _relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.detach().double() - expected).abs().max() / expected.abs().max())


def _cut(
    mesh: DeviceMesh,
    tensors: list[torch.Tensor],
    dimensions: list[int],
    restore: Sequence[torch.Tensor] = (),
) -> contextlib.AbstractContextManager[None]:
    """torch's `context_parallel` over tensors of which only those of `restore` are whole again afterwards, as
    TorchTitan calls it."""
    context = context_parallel(
        mesh,
        buffers=tensors,
        buffer_seq_dims=dimensions,
        no_restore_buffers={each for each in tensors if not any(each is kept for kept in restore)},
    )
    if context is None:
        raise CannotRunError(f"torch {torch.__version__} has no context parallelism")
    return context
