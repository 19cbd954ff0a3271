"""Where the bytes of a tensor are. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def current_stream_key(device_type: str) -> int:
    """A number of the current stream: of one stream always the same, of another one another. On the CPU torch keeps track
    of one too, though it means nothing there. In torch 2.0 to 2.13."""
    import torch

    if device_type == "cuda":
        # The Python object is a new one at every call; the handle is CUDA's own, 0 for the default stream.
        return int(torch.cuda.current_stream().cuda_stream)
    return id(torch.cpu.current_stream())


def local_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The plain tensors that hold the bytes of a tensor: a DTensor's local part, the parts of a wrapper subclass."""
    import torch
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if isinstance(tensor, DTensor):
        yield from local_tensors(tensor._local_tensor)
    elif isinstance(tensor, torch.Tensor) and is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from local_tensors(getattr(tensor, name))
    else:
        yield tensor


@contextlib.contextmanager
def resize_hook(resized: Callable[[Any], None]) -> Iterator[None]:
    """Tell of every storage that is resized from Python: FSDP2 frees whole parameters that way, past any dispatch.
    `UntypedStorage.resize_` is a method that can be replaced in torch 2.0 to 2.13."""
    import torch

    original = torch.UntypedStorage.resize_

    def resize_(storage: Any, size: int) -> Any:
        result = original(storage, size)
        resized(storage)
        return result

    torch.UntypedStorage.resize_ = resize_
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = original


def is_wrapper(tensor: torch.Tensor) -> bool:
    """A tensor of a class that holds other tensors: a DTensor, a quantised weight. In torch 2.1 to 2.13."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return bool(is_traceable_wrapper_subclass(tensor))
