"""On the CPU torch picks other kernels than on CUDA. While this is entered it keeps what CUDA's keep."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from distdoctor.torch_private.attention import attention_of_any_value_size, flash_attention, unfused_attention
from distdoctor.torch_private.fake_tensors import autocast_as_on_cuda, device_constructors

# Limits of CUDA's kernels (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
_FLASH_MAX_HEAD = 256
_FLASH_MULTIPLE = 8
_EFFICIENT_ALIGNMENT_BYTES = 16
_BIAS_MULTIPLE = 16
_SHORT = (torch.float16, torch.bfloat16)


@contextlib.contextmanager
def like_cuda(used: set[str]) -> Iterator[None]:
    """Attention, RMSNorm, dropout and autocast as on CUDA, and `cuda` read as the device at hand; `used` hears of each
    that was called."""
    originals = (
        functional.scaled_dot_product_attention,
        getattr(functional, "rms_norm", None),
        functional.dropout,
    )
    replaced: dict[str, Any] = {
        "scaled_dot_product_attention": _attention(originals[0], used),
        "rms_norm": _rms_norm(originals[1], used) if originals[1] is not None else None,
        "dropout": _dropout(originals[2], used),
    }
    for name, function in replaced.items():
        if function is not None:
            setattr(functional, name, function)
    try:
        with autocast_as_on_cuda(), _autocast_here(), CudaIsHere(used):
            yield
    finally:
        for name, original in zip(replaced, originals, strict=True):
            if original is not None:
                setattr(functional, name, original)


class CudaIsHere(TorchFunctionMode):
    """`.cuda()`, `.to("cuda:0")` and `device="cuda"` mean the device at hand: a fake CUDA tensor on a torch without CUDA
    aborts the process (torch 2.13)."""

    def __init__(self, used: set[str]) -> None:
        super().__init__()
        self._used = used

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Any: every function of torch."""
        kwargs = kwargs or {}
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            self._used.add(_CUDA_WORDS)
            return args[0]
        if kwargs.get("device") is None and func in _makes_tensors() and _default_device() == "cuda":
            # `with torch.device("cuda")` speaks after us, to whoever said nothing.
            self._used.add(_CUDA_WORDS)
            return func(*args, **{**kwargs, "device": torch.device("cpu")})
        if any(_is_cuda(each) for each in args[1:]) or _is_cuda(kwargs.get("device")):
            self._used.add(_CUDA_WORDS)
            args = (*args[:1], *(_here(each) for each in args[1:]))
            kwargs = {name: _here(each) for name, each in kwargs.items()}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


_CUDA_WORDS = "`cuda` in your code was read as the simulated device"


@functools.cache
def _makes_tensors() -> frozenset[Any]:
    return frozenset(device_constructors())


def _default_device() -> str:
    return str(torch.get_default_device().type)


@contextlib.contextmanager
def _autocast_here() -> Iterator[None]:
    """`torch.autocast("cuda")` is one for the device at hand, with the type that it has on CUDA."""
    original = torch.autocast.__init__

    @functools.wraps(original)
    def made(
        self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any
    ) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, *args, **kwargs)

    torch.autocast.__init__ = made
    try:
        yield
    finally:
        torch.autocast.__init__ = original


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _here(value: Any) -> Any:
    return torch.device("cpu") if _is_cuda(value) else value


def _dropout(original: Any, used: set[str]) -> Any:
    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        if not training or inplace or not 0.0 < p < 1.0 or isinstance(input, DTensor):
            return original(input, p, training, inplace)
        used.add("dropout: CUDA's kernel, which keeps one byte an element")
        return torch.native_dropout(input, p, True)[0]

    return dropout


def _rms_norm(original: Any, used: set[str]) -> Any:
    def rms_norm(
        input: torch.Tensor,  # noqa: A002
        normalized_shape: Any,
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> Any:
        same_type = weight is None or weight.dtype == input.dtype
        if isinstance(input, DTensor) or isinstance(weight, DTensor) or not same_type:
            # Of two types CUDA takes the composite, too (aten/src/ATen/native/layer_norm.cpp).
            return original(input, normalized_shape, weight, eps)
        used.add("RMSNorm: CUDA's fused kernel, which keeps its input and one number a row")
        return _FusedRMSNorm.apply(input, len(tuple(normalized_shape)), weight)

    return rms_norm


class _FusedRMSNorm(torch.autograd.Function):
    """What `aten::_fused_rms_norm` allocates and saves on CUDA; nothing is computed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, num_dimensions: int, weight: torch.Tensor | None) -> torch.Tensor:
        """The output has the input's type."""
        rows = x.shape[: x.dim() - num_dimensions]
        inverse = torch.empty((*rows, *([1] * num_dimensions)), dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, inverse, *([weight] if weight is not None else []))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *_gradients: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor | None]:
        """Of input and weight."""
        x, _, *weight = ctx.saved_tensors
        return torch.empty_like(x), None, torch.empty_like(weight[0]) if weight else None


def _attention(original: Any, used: set[str]) -> Any:
    def scaled_dot_product_attention(  # noqa: PLR0917  # torch's own signature
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if any(isinstance(each, DTensor) or each.is_nested for each in (query, key, value)):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
        q, k, v = (_autocast(each) for each in (query, key, value))
        mask = _autocast(attn_mask) if attn_mask is not None else None
        more: dict[str, Any] = {"dropout": dropout_p, "is_causal": is_causal, "scale": scale}
        if _takes_flash(q, k, v, mask):
            used.add("attention: CUDA's flash kernel")
            size = q.shape[-1]
            padding = -size % _FLASH_MULTIPLE
            if not padding:
                return flash_attention(q, k, v, **more)
            more["scale"] = scale or size**-0.5
            padded = (functional.pad(each, (0, padding)) for each in (q, k, v))
            return flash_attention(*padded, **more)[..., :size]
        if not enable_gqa and _takes_efficient(q, k, v):
            used.add("attention with a mask, or in fp32: CUDA's memory-efficient kernel")
            return attention_of_any_value_size(q, k, v, bias=_bias(mask, q, k), **more)
        used.add("attention that no fused kernel of CUDA takes: scores are written to memory")
        return unfused_attention(q, k, v, bias=mask, enable_gqa=enable_gqa, **more)

    return scaled_dot_product_attention


def _autocast(tensor: torch.Tensor) -> torch.Tensor:
    """As autocast casts the arguments of attention."""
    if torch.is_autocast_enabled("cpu") and tensor.dtype.is_floating_point:
        return tensor.to(torch.get_autocast_dtype("cpu"))
    return tensor


def _takes_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> bool:
    sizes = {each.shape[-1] for each in (q, k, v)}
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and mask is None
        and q.dim() == 4
        and all(each.dtype in _SHORT for each in (q, k, v))
        and len(sizes) == 1
        and q.shape[-1] <= _FLASH_MAX_HEAD
    )


def _takes_efficient(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    multiple = _EFFICIENT_ALIGNMENT_BYTES // q.element_size()
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and q.dim() == 4
        and q.dtype in (*_SHORT, torch.float32)
        and q.shape[1] == k.shape[1]
        and not q.shape[-1] % multiple
        and not v.shape[-1] % multiple
    )


def _bias(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """A mask as the kernel takes it: numbers, rows of a multiple of 16 elements, for all heads of all sequences (a view)."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        zero = torch.zeros((), dtype=q.dtype, device=q.device)
        mask = torch.where(mask, zero, torch.full_like(zero, float("-inf")))
    columns = mask.shape[-1]
    if columns % _BIAS_MULTIPLE and columns > 1:
        mask = functional.pad(mask, (0, -columns % _BIAS_MULTIPLE))[..., :columns]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
