"""What a failure under fake tensors means, and what would let it run. Pure: from the text of an exception."""

from __future__ import annotations

import re
from dataclasses import dataclass

# `oom reproduce` trains known models only.
_RECORD = "record a memory snapshot of a real step, and give it to `distdoctor oom explain`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Words for the exception (empty: its own), what to do, and whether an op is at fault."""

    words: str = ""
    advice: str = ""
    is_of_op: bool = False


_VALUE = (
    "the value of a tensor is read (.item(), int(), bool(), an `if` on a tensor, an f-string), "
    "and nothing computes values here"
)
_CUDA = re.compile(
    r"not compiled with CUDA|No CUDA GPUs|Found no NVIDIA driver|CUDA driver|no kernel image|"
    r"not linked with support for cuda|0 active drivers|CUDA is not available|requires? (?:a )?(?:CUDA|GPU)",
    re.IGNORECASE,
)
# torch/_subclasses/fake_tensor.py, torch/_C and torch/csrc/utils/tensor_numpy.cpp, seen in torch 2.13.
_RULES: tuple[tuple[re.Pattern[str], Known], ...] = (
    (
        re.compile(r"\.numpy\(\)|numpy\.ndarray|__array__|Can't call numpy"),
        Known(
            words="a tensor is turned into an array of numpy, and fake tensors hold no values",
            advice=f"compute it with torch, or before the tensors are made; {_RECORD}",
        ),
    ),
    (
        re.compile(r"data pointer|data_ptr|no storage|meta tensors?\b.*\bno data|storage access"),
        Known(
            words="the memory behind a tensor is asked for (data_ptr, a kernel of C++ or Triton), and there is none",
            advice="give the kernel a fake implementation: wrap it in torch.library.custom_op and `register_fake`; "
            f"or {_RECORD}",
            is_of_op=True,
        ),
    ),
    (
        _CUDA,
        Known(
            words="it needs a GPU, and a simulation has none",
            advice="take the device from an argument or from a parameter; .cuda(), .to('cuda') and device='cuda' are "
            f"understood, calls of torch.cuda are not; or {_RECORD}",
        ),
    ),
    (
        re.compile(r"default process group twice|initialize the default process group"),
        Known(
            words="it makes the process group itself, and the simulation has made it already",
            advice="leave it to the launcher's code, or look at torch.distributed.is_initialized() first",
        ),
    ),
    (
        re.compile(
            r"missing \d+ required (?:positional|keyword)|unexpected keyword argument|positional arguments? but"
        ),
        Known(advice="give what forward takes: --inputs NAME=SHAPE:DTYPE, once for each argument"),
    ),
    (
        re.compile(
            r"shapes cannot be multiplied|same reduction dim|must match the size|size mismatch|Expected tensor for argument|"
            r"expected (?:m1|scalar type)|Expected .*(?:channels|indices|dtype)|same dtype|normalized_shape|"
            r"invalid for input of size"
        ),
        Known(advice="do shapes and types of --inputs fit the module?"),
    ),
    (
        re.compile(r"CPUAllocator|can't allocate memory|Unable to allocate|Cannot allocate memory"),
        Known(
            words="it asked for more memory than this host can give",
            advice="make large tensors with torch and inside the function: fake ones take none",
        ),
    ),
    (
        # torch/optim/_muon.py
        re.compile(r"Muon only supports 2D"),
        Known(
            advice="take another --optimizer: torch's Muon steps matrices alone, and this module has other parameters"
        ),
    ),
    (
        re.compile(r"EOF when reading"),
        Known(words="it asks for something at the terminal, and there is none", advice="let it ask nothing"),
    ),
    (
        re.compile(r"lazy|UninitializedParameter|uninitialized parameter", re.IGNORECASE),
        Known(advice="call a lazy module once in the function, so that its parameters have shapes"),
    ),
)
_NO_FAKE = re.compile(
    r"no fake impl|Meta' backend|register_fake|meta implementation|no meta|could not run '", re.IGNORECASE
)


def advice_for(kind: str, text: str, op: str | None) -> Known:
    """`kind`: the exception's class; `text`: its first line; `op`: the one that failed, where one is known."""
    name = (op or "").removesuffix(".default")
    if "DataDependent" in kind or "_local_scalar_dense" in text or "FakeTensor.__format__" in text:
        return Known(
            words=f"{_VALUE}: {name or 'aten._local_scalar_dense'}",
            advice=f"keep it a tensor, or compute it from shapes; {_RECORD}",
            is_of_op=True,
        )
    if "DynamicOutputShape" in kind:
        return Known(
            words=f"the shape of a result depends on values: {name or text}",
            advice="use static shapes (torch.where or a mask instead of nonzero and boolean indices, counts of a fixed "
            f"length); {_RECORD}",
            is_of_op=True,
        )
    if "UnsupportedOperator" in kind or _NO_FAKE.search(text):
        return Known(
            words=f"{name or 'an op'} has no fake implementation, so that nobody knows the shape of its result",
            advice='register one: @torch.library.register_fake("namespace::op"), a function that returns an empty '
            f"tensor of the right shape; or {_RECORD}",
            is_of_op=True,
        )
    if "tolist" in text or ("meta tensors" in text and "item" in text):
        return Known(words=_VALUE, advice=f"keep it a tensor, or compute it from shapes; {_RECORD}")
    if kind == "MemoryError":
        return Known(
            words="it asked for more memory than this host can give",
            advice="make large tensors with torch and inside the function: fake ones take none",
        )
    for pattern, known in _RULES:
        if pattern.search(text):
            return known
    # An op that refuses its arguments would refuse real ones, too.
    return Known(is_of_op=op is not None and kind == "NotImplementedError")
