"""Private and unstable APIs of torch, one function each: the versions they were seen in, and None where they are absent."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import DistributedDataParallel


def nccl_premul_sum(factor: float) -> object | None:
    """A ReduceOp that multiplies each contribution by `factor` and adds; NCCL's alone. Seen in torch 1.13 to 2.13."""
    import torch.distributed as dist

    make = getattr(dist, "_make_nccl_premul_sum", None)
    if make is None:
        return None
    made: object = make(factor)
    return made


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    dropout: float = 0.0,
    is_causal: bool = True,
    scale: float | None = None,
) -> torch.Tensor:
    """CUDA's flash attention over (batch, heads, sequence, size), as an op that has shapes and a gradient on every
    device: `aten._scaled_dot_product_flash_attention`, in torch 2.1 to 2.13."""
    import torch

    op = torch.ops.aten._scaled_dot_product_flash_attention
    out: torch.Tensor = op(q, k, v, dropout, is_causal, False, scale=scale)[0]
    return out


def checkpoint_wrapper(module: nn.Module, context_fn: Callable[[], Any] | None) -> nn.Module:
    """A module whose forward is checkpointed without reentrance; a state dict keeps its names. In torch 1.12 to 2.13."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as wrap

    more = {"context_fn": context_fn} if context_fn is not None else {}
    wrapped: nn.Module = wrap(module, preserve_rng_state=False, **more)
    return wrapped


def keep_buckets_as_built(module: DistributedDataParallel) -> None:
    """Let DDP not rebuild its buckets in the order of the first backward pass: that reads what rank 0 has sent.
    `DistributedDataParallel.reducer` is there in torch 1.0 to 2.13."""

    class Reducer:
        def __init__(self, reducer: Any) -> None:
            self._reducer = reducer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reducer, name)

        def _rebuild_buckets(self) -> bool:
            return False

    module.reducer = Reducer(module.reducer)


def active_fake_mode() -> object | None:
    """The FakeTensorMode that is entered; None outside. `torch._guards.active_fake_mode`, in torch 2.1 to 2.13."""
    from torch._guards import active_fake_mode as active

    mode: object | None = active()
    return mode


def current_autograd_node() -> Any:
    """The node of the autograd graph whose backward runs in this thread; None outside. In torch 2.1 to 2.13."""
    import torch

    current = getattr(torch._C, "_current_autograd_node", None)
    return None if current is None else current()


def is_in_backward() -> bool:
    """Whether autograd's engine runs a backward pass in this thread. `_current_graph_task_id`, in torch 2.1 to 2.13;
    without it nobody can tell, and the answer is False."""
    import torch

    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


class Holders(NamedTuple):
    """How many hold a tensor: C++ and Python objects, and those of its storage."""

    tensor: int
    python: int
    storage: int


def holders_of_first(tensors: Sequence[torch.Tensor]) -> Holders | None:
    """Who holds the first of these tensors, the caller and this function included: comparable only between calls of the
    same kind. `Tensor._use_count` and `_storage_Use_Count`, seen in torch 2.13; None where they are absent."""
    import sys

    import torch

    count = getattr(torch.Tensor, "_use_count", None)
    count_storage = getattr(torch._C, "_storage_Use_Count", None)
    if count is None or count_storage is None:
        return None
    return Holders(
        tensor=count(tensors[0]),
        python=sys.getrefcount(tensors[0]),
        storage=count_storage(tensors[0].untyped_storage()._cdata),
    )


def next_sequence_number() -> int:
    """The number that the next node of this thread's autograd graph gets. In torch 1.8 to 2.13."""
    from torch.autograd import _get_sequence_nr

    return int(_get_sequence_nr())


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


@contextlib.contextmanager
def device_meshes_outside_modes() -> Iterator[None]:
    """Let every DeviceMesh be made outside dispatch modes, for its constructor reads values: FSDP2 on top of tensor
    parallelism makes one inside `fully_shard`. `_disable_current_modes` is there in torch 2.0 to 2.13."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils._python_dispatch import _disable_current_modes

    original = DeviceMesh.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes():
            original(self, *args, **kwargs)

    DeviceMesh.__init__ = made
    try:
        yield
    finally:
        DeviceMesh.__init__ = original


def context_parallel(mesh: DeviceMesh, **arguments: Any) -> contextlib.AbstractContextManager[None] | None:
    """torch's `context_parallel`, which is experimental: cuts buffers over the ranks of `mesh` in place and lets
    attention run round a ring. Seen in torch 2.13."""
    try:
        from torch.distributed.tensor.experimental import context_parallel as cut
    except ImportError:
        return None
    context: contextlib.AbstractContextManager[None] = cut(mesh, **arguments)
    return _attention_restored(context)


@contextlib.contextmanager
def _attention_restored(context: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """torch's `context_parallel` leaves its own attention behind when the program inside raises."""
    import torch.nn.functional as functions
    from torch.distributed.tensor import DTensor

    attention = functions.scaled_dot_product_attention
    dispatcher: Any = getattr(DTensor, "_op_dispatcher", None)
    handlers = getattr(dispatcher, "_custom_op_handlers", None)
    try:
        with context:
            yield
    finally:
        functions.scaled_dot_product_attention = attention
        if handlers is not None:
            dispatcher._custom_op_handlers = handlers


def ring_attention_templates() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """torch's ring attention, forward and backward, around an op of choice: both take (mesh, sequence dimension, op,
    tensors...). Seen in torch 2.13, where they want the mesh's group; others have them in `_attention`, or want the mesh."""
    import importlib
    import inspect

    for name in ("_context_parallel._attention", "_attention"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"torch.distributed.tensor.experimental.{name}")
            there = getattr(module, "_templated_ring_attention", None)
            back = getattr(module, "_templated_ring_attention_backward", None)
            if there is None or back is None:
                continue
            wants_group = "group" in inspect.signature(there).parameters

            def over(function: Callable[..., Any], wants_group: bool = wants_group) -> Callable[..., Any]:
                def call(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> Any:
                    return function(mesh.get_group() if wants_group else mesh, *args, **kwargs)

                return call

            return over(there), over(back)
    return None


def skip_pipeline_vote(schedule: Any) -> None:
    """Let a pipeline schedule take the shapes that its stages were given. Otherwise ranks vote on whether to infer them
    from the first micro-batch, and where nothing is communicated the vote is lost. Seen in torch 2.13; schedules
    without a vote stay as they are."""
    from torch.distributed.pipelining import stage as stages

    mode = getattr(stages, "InferenceMode", None)
    if mode is None or not hasattr(schedule, "_warmup_p2p"):
        return

    def everybody_is_static(stages: Iterable[Any], *_args: Any, **_kwargs: Any) -> None:
        for stage in stages:
            stage._inference_mode = mode.STATIC

    schedule._warmup_p2p = everybody_is_static


def pipeline_buffers(stage: Any) -> list[torch.Tensor]:
    """The tensors that a pipeline stage keeps to receive activations and gradients of all micro-batches, once its
    schedule has run. Seen in torch 2.13; empty where they are kept elsewhere."""
    received = (
        *getattr(stage, "args_recv_info", {}).values(),
        *getattr(stage, "grad_recv_info", {}).values(),
    )
    buffers = (getattr(each, "buffer", None) for infos in received for each in infos)
    return [each for each in buffers if each is not None]


def all_to_all_rows(
    rows: torch.Tensor, received: Sequence[int] | None, sent: Sequence[int] | None, group: Any
) -> torch.Tensor:
    """Rows to and from the ranks of a group, with a gradient; None: as many for each. `_functional_collectives` has
    `all_to_all_single_autograd`; seen in torch 2.13."""
    from torch.distributed import _functional_collectives as collectives

    splits = (None if each is None else list(each) for each in (received, sent))
    out: torch.Tensor
    if rows.requires_grad:
        # Who uses the result first waits for it; to wait here would cost older versions the gradient.
        out = collectives.all_to_all_single_autograd(rows, *splits, group)
    else:
        out = collectives.wait_tensor(collectives.all_to_all_single(rows, *splits, group))
    return out


def attention_of_any_value_size(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = True,
    scale: float | None = None,
) -> torch.Tensor:
    """CUDA's memory-efficient attention over (batch, heads, sequence, size), which takes values of another size than
    keys, and a bias (batch, heads, sequence, sequence); flash attention does not.
    `aten._scaled_dot_product_efficient_attention` has shapes and a gradient on every device. Seen in torch 2.13."""
    import torch

    op = torch.ops.aten._scaled_dot_product_efficient_attention
    out: torch.Tensor = op(q, k, v, bias, True, dropout, is_causal, scale=scale)[0]
    return out


def unfused_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """What `scaled_dot_product_attention` does on CUDA where no fused kernel takes the tensors: scores in memory.
    `aten._scaled_dot_product_attention_math`, in torch 2.0 to 2.13; `enable_gqa` since 2.5."""
    import torch

    more = {"enable_gqa": True} if enable_gqa else {}
    op = torch.ops.aten._scaled_dot_product_attention_math
    out: torch.Tensor = op(q, k, v, bias, dropout, is_causal, scale=scale, **more)[0]
    return out


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


def is_wrapper(tensor: torch.Tensor) -> bool:
    """A tensor of a class that holds other tensors: a DTensor, a quantised weight. In torch 2.1 to 2.13."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return bool(is_traceable_wrapper_subclass(tensor))


@contextlib.contextmanager
def outside_modes() -> Iterator[None]:
    """Ops run as if no dispatch mode was entered: for real. `_disable_current_modes`, in torch 2.0 to 2.13."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield


def set_gradient_divisor(module: Any, divisor: float, *, adds_only: bool) -> None:
    """By what FSDP2 divides gradients of `module` when it adds them up, where the group is not that of the other
    parameters. `adds_only`: the backend cannot divide while it adds, as NCCL does. `set_gradient_divide_factor`, its
    deprecated name and `set_force_sum_reduction_for_comms` were seen in torch 2.13."""
    setter = getattr(module, "set_gradient_divide_factor", None) or module.set_reduce_scatter_divide_factor
    setter(divisor)
    if adds_only and hasattr(module, "set_force_sum_reduction_for_comms"):
        module.set_force_sum_reduction_for_comms(True)


def ignore_in_ddp(module: nn.Module, names: list[str]) -> None:
    """Let DDP not reduce these parameters. Seen in torch 2.13."""
    if names:
        from torch.nn.parallel import DistributedDataParallel

        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)


def forget_device_meshes() -> None:
    """Let DTensor forget what it worked out for meshes whose process groups are about to go: an equal mesh over new
    groups would be given the old ones. The caches are there in torch 2.4 to 2.13, under these names or others."""
    import importlib

    for module, name in (
        ("torch.distributed.tensor.debug", "_clear_sharding_prop_cache"),
        ("torch.distributed.tensor._redistribute", "clear_redistribute_planner_cache"),
    ):
        with contextlib.suppress(ImportError, AttributeError):
            getattr(importlib.import_module(module), name)()
    with contextlib.suppress(ImportError, AttributeError):
        redistribute: Any = importlib.import_module("torch.distributed.tensor._redistribute")
        redistribute._gen_transform_infos.cache_clear()
    with contextlib.suppress(ImportError, AttributeError):
        collectives: Any = importlib.import_module("torch.distributed.tensor._collective_utils")
        collectives.MeshTopoInfo.build_from_mesh.cache_clear()
    for name in ("_context_parallel._attention", "_attention"):
        with contextlib.suppress(ImportError, AttributeError):
            attention: Any = importlib.import_module(f"torch.distributed.tensor.experimental.{name}")
            attention._replaced_functions.clear()


def record_memory_history(max_entries: int = 200_000) -> bool:
    """Let CUDA's allocator keep a history with stacks, for a snapshot; False where it cannot. In torch 2.1 to 2.13."""
    import torch

    record = getattr(torch.cuda.memory, "_record_memory_history", None)
    if record is None:
        return False
    record(max_entries=max_entries)
    return True


def dump_memory_snapshot(path: str) -> bool:
    """Write the allocator's snapshot, with its history where one was kept; False where it cannot. In torch 2.0 to 2.13."""
    import torch

    dump = getattr(torch.cuda.memory, "_dump_snapshot", None)
    if dump is None:
        return False
    dump(path)
    return True


class CpuAllocation(NamedTuple):
    """One allocation on the CPU, or one that was given back."""

    total: int
    """Bytes that are allocated after it."""
    size: int
    """Its own; negative where it was given back."""
    inside: str
    """The op (`aten::mm`) that took these bytes and gave them back before it ended, so that only its kernel ever had
    them; empty: they outlived the op."""


def cpu_allocations(run: Callable[[], None]) -> list[CpuAllocation] | None:
    """What torch's CPU allocator did while `run` ran, in order. From the profiler's event tree
    (`experimental_event_tree`), in torch 1.12 to 2.13; None where it is absent."""
    from torch.profiler import ProfilerActivity, profile

    try:
        from torch._C._profiler import _EventType
    except ImportError:
        return None

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    tree = getattr(profiler.profiler.kineto_results, "experimental_event_tree", None)
    if tree is None:
        return None

    events = []
    waiting = list(tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == _EventType.Allocation and "cpu" in str(event.extra_fields.device):
            events.append(event)
    events.sort(key=lambda event: event.start_time_ns)
    inside = _inside_ops(events)
    return [
        CpuAllocation(each.extra_fields.total_allocated, each.extra_fields.alloc_size, inside.get(index, ""))
        for index, each in enumerate(events)
    ]


def _inside_ops(events: Sequence[Any]) -> dict[int, str]:
    """The op of each event, by index, whose bytes did not outlive it."""
    alive: dict[int, tuple[int, Any]] = {}
    found = {}
    for index, event in enumerate(events):
        fields = event.extra_fields
        if fields.alloc_size > 0:
            alive[fields.ptr] = (index, _dispatched_op(event))
            continue
        born, op = alive.pop(fields.ptr, (index, None))
        if op is not None and event.start_time_ns <= op.end_time_ns:
            found[born] = found[index] = op.name
    return found


def _dispatched_op(event: Any) -> Any:
    """The op around an event that a dispatch mode would be told of: the outermost that is not made of others, inside the
    innermost tensor subclass."""
    found = None
    event = event.parent
    while event is not None and event.name != "PythonSubclass":
        if "::" in event.name and _is_one_kernel(event.name):
            found = event
        event = event.parent
    return found


@functools.cache
def _is_one_kernel(name: str) -> bool:
    """Whether an op is told to dispatch modes as it is; a composite one is told as the ops that it is made of."""
    import torch

    schemas = torch._C._jit_get_schemas_for_operator(name)
    for each in schemas:
        overload = f"{name}.{each.overload_name}" if each.overload_name else name
        # Overloads for lists and numbers are known to TorchScript alone.
        with contextlib.suppress(RuntimeError):
            if torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CompositeImplicitAutograd"):
                return False
    return bool(schemas)


@contextlib.contextmanager
def own_fsdp_chunk_only() -> Iterator[None]:
    """Let FSDP2 make a view of this rank's part of each parameter only: it makes one for every rank, which takes a
    minute among 10,000 ranks, and looks at its own and the first. `_chunk_with_empty` is there in torch 2.5 to 2.13."""
    import importlib

    try:
        module: Any = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param")
    except ImportError:
        module = None
    original = getattr(module, "_chunk_with_empty", None)
    if original is None:
        yield
        return

    class Chunks:
        def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
            self._tensor, self._count, self._dim = tensor, num_chunks, dim

        def __len__(self) -> int:
            return self._count

        def __getitem__(self, index: int) -> torch.Tensor:
            if not 0 <= index < self._count:
                raise IndexError(index)
            size = self._tensor.size(self._dim)
            each = -(-size // self._count)
            start = index * each
            if index and start >= size:
                return self._tensor.new_empty(0)
            return self._tensor.narrow(self._dim, start, min(each, size - start))

    module._chunk_with_empty = Chunks
    try:
        yield
    finally:
        module._chunk_with_empty = original


def let_checkpoints_ignore_marks() -> None:
    """Let selective checkpointing not count the profiler's marks. FSDP2 sets more of them when it recomputes a module whose
    group is one rank alone than it did in forward, and torch 2.13 then takes the layer for nondeterministic. The set
    `torch.utils.checkpoint.SAC_IGNORED_OPS` was seen in torch 2.13."""
    import torch
    from torch.utils import checkpoint

    ignored = getattr(checkpoint, "SAC_IGNORED_OPS", None)
    if isinstance(ignored, set):
        marks = torch.ops.profiler
        ignored.update(
            (marks._record_function_enter_new.default, marks._record_function_exit._RecordFunction)
        )


def say_device_type(device_type: str) -> None:
    """What torch says is this machine's kind of device, for libraries that ask when they are imported.
    `torch._utils._get_available_device_type`, in torch 2.1 to 2.13; other versions go on saying what they say."""
    from torch import _utils

    if hasattr(_utils, "_get_available_device_type"):
        _utils._get_available_device_type = lambda: device_type
