"""Bytes of model states for one parameter, by precision and optimizer."""

from __future__ import annotations

from distdoctor.oom.settings import Optimizer, Precision

# Elements of an 8-bit optimizer's block share one fp32 scale (bitsandbytes, block size 256; arXiv 2110.02861).
_BLOCK = 256


def parameter_bytes(precision: Precision) -> int:
    """Bytes of a parameter as it is kept between steps."""
    return 4 if precision in (Precision.FP32, Precision.MIXED) else 2


def gradient_bytes(precision: Precision, *, in_fp32: bool = False) -> int:
    """Bytes of a gradient as it is kept until the step."""
    return 4 if in_fp32 else parameter_bytes(precision)


def reduced_bytes(precision: Precision, *, in_fp32: bool = False) -> int:
    """Bytes of a gradient while FSDP2 reduces it: fp32 with a mixed-precision policy (TorchTitan's default), else as it
    is kept."""
    return 4 if precision is Precision.MIXED else gradient_bytes(precision, in_fp32=in_fp32)


def master_bytes(precision: Precision) -> int:
    """Bytes of the fp32 master copy that mixed-precision training adds (arXiv 1910.02054, section 3.1)."""
    return 4 if precision is Precision.MASTER else 0


def cast_gradient_bytes(precision: Precision, *, in_fp32: bool = False) -> int:
    """Bytes of a 16-bit gradient's fp32 copy: optimizers of torch step a master copy with a gradient of its type."""
    return 4 if precision is Precision.MASTER and not in_fp32 else 0


def moment_bytes(optimizer: Optimizer, precision: Precision, *, hidden_size: int | None = None) -> float:
    """Bytes of what the optimizer itself keeps for each parameter; it appears in the first step.

    Adam: two moments in fp32 (K = 12 with the master copy, arXiv 1910.02054), in 16 bit where everything is 16 bit.
    8-bit Adam: two bytes and two scales a block. Adafactor: a row and a column for a matrix, so about
    8 / hidden_size. Muon: one momentum, and Adam for what is no matrix (counted as one momentum for all here).
    """
    element = 2 if precision is Precision.PURE16 else 4
    match optimizer:
        case Optimizer.ADAMW | Optimizer.LAMB:
            return 2 * element
        case Optimizer.ADAMW_8BIT:
            return 2 * (1 + 4 / _BLOCK)
        case Optimizer.ADAFACTOR:
            return 2 * 4 / (hidden_size or 4096)
        case Optimizer.LION | Optimizer.SGD_MOMENTUM | Optimizer.MUON:
            return element
        case Optimizer.SGD:
            return 0


def foreach_temporary_bytes(optimizer: Optimizer, precision: Precision) -> float:
    """Bytes for each parameter that the foreach step needs beside states: Adam's list of square roots
    (`_multi_tensor_adamw` in torch/optim; pytorch issue 97712 saw it as 5515 -> 6802 MiB)."""
    element = 2 if precision is Precision.PURE16 else 4
    if optimizer in (Optimizer.ADAMW, Optimizer.LAMB):
        return element
    if optimizer in (Optimizer.LION, Optimizer.SGD_MOMENTUM, Optimizer.MUON, Optimizer.SGD):
        return 0
    return 0
