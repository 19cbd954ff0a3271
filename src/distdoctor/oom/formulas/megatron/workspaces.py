"""Buffers of Megatron-LM, Transformer Engine and cuBLAS that stay from the first step on. Bytes of one rank."""

from __future__ import annotations

from distdoctor.units import MIB

# Transformer Engine, `get_cublas_workspace_size_bytes` (pytorch/cpp_extensions/gemm.py): compute capability 9 or more
# takes 32 MiB, others 4 MiB; a grouped product has one for each of four streams.
_TE_WORKSPACE = (4 * MIB, 32 * MIB)
GROUPED_STREAMS = 4
# PyTorch, `parseChosenWorkspaceSize` (aten/src/ATen/cuda/CublasHandlePool.cpp): :4096:2:16:8 before Hopper, 32 MiB
# from Hopper on; :4096:8, which deterministic mode asks for, is 32 MiB anywhere.
_CUBLAS_WORKSPACE = (2 * 4 * MIB + 8 * 16 * 1024, 32 * MIB)
# One handle and stream in the thread of the forward pass, one in autograd's.
_CUBLAS_THREADS = 2


def library_bytes(*, is_hopper_or_later: bool, is_deterministic: bool, has_grouped_gemm: bool) -> float:
    """Workspaces of matrix products."""
    te = _TE_WORKSPACE[is_hopper_or_later] * (1 + GROUPED_STREAMS * has_grouped_gemm)
    return te + _CUBLAS_WORKSPACE[is_hopper_or_later or is_deterministic] * _CUBLAS_THREADS


def gathered_sequence_bytes(tokens: float, hidden_size: int) -> float:
    """The global memory buffer `mpu` into which the output layer gathers its input with sequence parallelism
    (`LinearWithGradAccumulationAndAsyncCommunication`, tensor_parallel/layers.py). `tokens`: before the split."""
    return tokens * hidden_size * 2


def gathered_experts_bytes(tokens: float, hidden_size: int, *, ranks: int) -> float:
    """The same buffer in which the allgather dispatcher collects the tokens of `ranks` ranks (`use_global_buffer=True`
    in moe/token_dispatcher.py). `tokens`: of one rank."""
    return tokens * ranks * hidden_size * 2 if ranks > 1 else 0.0


def scores_buffer_bytes(*, micro_batch: int, local_heads: float, seq_len: float) -> float:
    """The buffer that Megatron's own DotProductAttention gives to `baddbmm` (dot_product_attention.py)."""
    return micro_batch * local_heads * seq_len * seq_len * 2
