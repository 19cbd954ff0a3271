"""Fake tensors, and what must be patched around them. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

from distdoctor.torch_private.storages import is_wrapper


def active_fake_mode() -> object | None:
    """The FakeTensorMode that is entered; None outside. `torch._guards.active_fake_mode`, in torch 2.1 to 2.13."""
    from torch._guards import active_fake_mode as active

    mode: object | None = active()
    return mode


def fake_store() -> Any:
    """A store for a process group of backend `fake`, which exists once this module is imported; None where it does not.
    `torch.testing._internal.distributed.fake_pg`, in torch 2.1 to 2.13."""
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError:
        return None
    return FakeStore()


def fake_tensor_mode() -> Any:
    """Tensors without storage; real ones may be inputs. In torch 2.0 to 2.13."""
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


# What a kernel may be given for real; this host's memory is not the simulated GPU's. Our own bound.
_MAX_FALLBACK_BYTES = 64 << 20


@contextlib.contextmanager
def kernels_for_real_only_if_small() -> Iterator[None]:
    """Where an op has no fake kernel torch runs the real one on zeros as large as the simulated tensors, without asking;
    here only on small ones, and else raises torch's UnsupportedOperatorException, which names the op.
    `fake_tensor.run_fallback_kernel(mode, func, ...)`, in torch 2.0 to 2.13; where it is absent nothing changes."""
    import torch
    from torch._subclasses import fake_tensor
    from torch.utils._pytree import tree_leaves

    original: Any = getattr(fake_tensor, "run_fallback_kernel", None)
    if original is None:
        yield
        return

    @functools.wraps(original)
    def only_small(mode: Any, func: Any, *rest: Any) -> Any:
        tensors = [each for each in tree_leaves(rest) if isinstance(each, torch.Tensor)]
        if sum(each.numel() * each.element_size() for each in tensors) > _MAX_FALLBACK_BYTES:
            raise fake_tensor.UnsupportedOperatorException(func)
        return original(mode, func, *rest)

    fake_tensor.run_fallback_kernel = only_small
    try:
        yield
    finally:
        fake_tensor.run_fallback_kernel = original


@contextlib.contextmanager
def fused_sgd_known() -> Iterator[None]:
    """A fake kernel for torch's fused SGD, which has none in torch 2.3 to 2.13: it writes to what it is given, returns
    nothing, and its CUDA kernel allocates nothing. Where a later torch has one, or this one no such op, nothing
    changes."""
    import torch

    library = torch.library.Library("aten", "IMPL")  # it is destroyed below
    try:
        for name in ("default", "tensor_lr"):
            op = getattr(getattr(torch.ops.aten, "_fused_sgd_", None), name, None)
            if op is not None and not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Meta"):
                library.impl(op, lambda *_args, **_kwargs: None, "Meta")
        yield
    finally:
        library._destroy()


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no storage. In torch 2.0 to 2.13."""
    from torch._subclasses import FakeTensor

    return isinstance(tensor, FakeTensor) or tensor.is_meta


def fake_with_values(tensor: torch.Tensor) -> torch.Tensor | None:
    """A fake tensor of the active fake mode that knows the values of `tensor`, so that code may read them and what
    follows from them. `FakeTensorConverter.from_real_tensor(make_constant=True)`, in torch 2.0 to 2.13; None where it
    is absent, or no fake mode is active."""
    mode: Any = active_fake_mode()
    convert = getattr(getattr(mode, "fake_tensor_converter", None), "from_real_tensor", None)
    if convert is None:
        return None
    with outside_modes():
        fake: torch.Tensor = convert(mode, tensor, make_constant=True)
    return fake


@contextlib.contextmanager
def values_known_up_to(numel: int) -> Iterator[None]:
    """Fake tensors whose values are known pass them on to results of so many elements; torch's own limit is 1.
    `fake_tensor.CONSTANT_NUMEL_LIMIT`, in torch 2.0 to 2.13."""
    from torch._subclasses import fake_tensor

    before = getattr(fake_tensor, "CONSTANT_NUMEL_LIMIT", None)
    if before is not None:
        fake_tensor.CONSTANT_NUMEL_LIMIT = numel
    try:
        yield
    finally:
        if before is not None:
            fake_tensor.CONSTANT_NUMEL_LIMIT = before


# Ops that autocast runs in fp32 on CUDA (aten/src/ATen/autocast_mode.h, AT_FORALL_FP32); many are not in the CPU's list.
_FP32_ON_CUDA = (
    *(
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "reciprocal",
        "rsqrt",
    ),
    *("sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm"),
    *(
        "group_norm",
        "nuclear_norm",
        "cosine_similarity",
        "poisson_nll_loss",
        "cosine_embedding_loss",
        "nll_loss",
    ),
    *("nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"),
    *("margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss"),
    *(
        "multi_margin_loss",
        "binary_cross_entropy_with_logits",
        "dist",
        "pdist",
        "cdist",
        "renorm",
        "logsumexp",
    ),
)
# AT_FORALL_FP32_SET_OPT_DTYPE: these are given fp32 as the type of their result.
_FP32_RESULT_ON_CUDA = (
    *(
        "prod",
        "prod.dim_int",
        "softmax.int",
        "log_softmax.int",
        "cumprod",
        "cumsum",
        "sum",
        "sum.dim_IntList",
    ),
    "linalg_vector_norm",
)


@contextlib.contextmanager
def autocast_as_on_cuda() -> Iterator[None]:
    """Let `torch.autocast("cpu")` widen what `torch.autocast("cuda")` widens: logits become fp32 in a loss, which decides
    memory. Kernels for the key AutocastCPU can be given from Python in torch 2.0 to 2.13; what cannot be is left out."""
    import torch

    def widening(op: Any, *, result: bool) -> Callable[..., Any]:
        def widened(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast("cpu", enabled=False):
                if result:
                    return op(*args, **{**kwargs, "dtype": kwargs.get("dtype") or torch.float32})
                return op(*(_as_float(each) for each in args), **kwargs)

        return widened

    def _as_float(value: Any) -> Any:
        is_short = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if is_short else value

    library = torch.library.Library("aten", "IMPL")  # it is destroyed below
    try:
        for name in (*_FP32_ON_CUDA, *_FP32_RESULT_ON_CUDA):
            base, _, overload = name.partition(".")
            with contextlib.suppress(AttributeError, RuntimeError):
                op = getattr(getattr(torch.ops.aten, base), overload or "default")
                library.impl(name, widening(op, result=name in _FP32_RESULT_ON_CUDA), "AutocastCPU")
        yield
    finally:
        library._destroy()


@contextlib.contextmanager
def modules_convert_by_replacing() -> Iterator[None]:
    """Let `Module.to` and its like give a module new parameters. torch swaps fake ones in place, which fails where
    anybody holds a weak reference. Tied parameters stay one. `Module._apply` is there in torch 0.1 to 2.13; its
    argument `recurse` since 2.1."""
    import torch
    from torch import nn

    original: Any = nn.Module._apply
    made: dict[int, tuple[Any, Any]] = {}
    depth = [0]

    def replaced(parameter: Any, function: Any) -> Any:
        with torch.no_grad():
            new = function(parameter)
        if new is parameter:
            return parameter
        return nn.Parameter(new.detach(), requires_grad=parameter.requires_grad)

    @functools.wraps(original)
    def _apply(self: Any, function: Any, recurse: bool = True) -> Any:
        if any(each is not None and is_wrapper(each) for each in self._parameters.values()):
            return original(self, function, recurse)
        depth[0] += 1
        try:
            for child in self.children() if recurse else ():
                child._apply(function)
            for name, parameter in self._parameters.items():
                if parameter is not None:
                    if id(parameter) not in made:
                        new = replaced(parameter, function)
                        made[id(parameter)] = made[id(new)] = (parameter, new)
                    self._parameters[name] = made[id(parameter)][1]
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = function(buffer)
        finally:
            depth[0] -= 1
            if not depth[0]:
                made.clear()
        return self

    setattr(nn.Module, "_apply", _apply)  # noqa: B010  # mypy knows better than to let it be assigned
    try:
        yield
    finally:
        setattr(nn.Module, "_apply", original)  # noqa: B010


def device_constructors() -> Iterable[Any]:
    """The functions of torch that a default device decides for. `torch.utils._device._device_constructors`, in torch 2.0
    to 2.13; none where it is absent."""
    try:
        from torch.utils._device import _device_constructors
    except ImportError:
        return ()
    found: Iterable[Any] = _device_constructors()
    return found


@contextlib.contextmanager
def outside_modes() -> Iterator[None]:
    """Ops run as if no dispatch mode was entered: for real. `_disable_current_modes`, in torch 2.0 to 2.13."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield
