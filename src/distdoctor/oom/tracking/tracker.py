"""Writes down every storage that a program of torch allocates, resizes and frees, with fake tensors or real ones.

A dispatch mode sees the results of every op; a weak reference to a storage tells when it dies. What cannot be seen:
memory that a kernel takes and gives back inside one op, and what a communication library allocates.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import Event, MemoryLog, Origin, Phase, Place, Storage
from distdoctor.oom.tracking.gradient_sums import is_sum_in_place, of_a_free_gradient
from distdoctor.oom.tracking.origins import origin_of_caller
from distdoctor.oom.tracking.whereabouts import Whereabouts
from distdoctor.torch_private.fake_tensors import active_fake_mode
from distdoctor.torch_private.storages import current_stream_key, local_tensors, resize_hook

_COLLECTIVE_OPS = ("c10d.", "_c10d_functional.", "_c10d_functional_autograd.", "fsdp.")
FREED = "free"
_ANY_VALUE = 1.0

OP_ATTRIBUTE = "distdoctor_op"
"""(op, module), left on an exception that an op raised."""


class Tracker(TorchDispatchMode):
    """An Observer (oom/training/base.py). Enter it inside the fake mode, if there is one, around building and stepping."""

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()
        self.log = MemoryLog()
        self.live_bytes = 0
        self._device_type = device_type
        self._where = Whereabouts()
        self._index: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._sizes: list[int] = []
        self._born_in_layer: list[int | None] = []
        self._place_index: dict[Place, int] = {}
        self._streams: dict[int, int] = {}
        self._fake_mode: object | None = None
        self._resizes: Any = None

    def __enter__(self) -> Tracker:
        self._fake_mode = active_fake_mode()
        of_a_free_gradient()
        self._streams[current_stream_key(self._device_type)] = 0
        self._resizes = resize_hook(self._resized)
        self._resizes.__enter__()
        self._where.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self._where.__exit__()
        self._resizes.__exit__(*exc)

    # What a program tells.

    def at(self, phase: Phase, *, step: int, micro_batch: int | None = None) -> None:
        """The program begins `phase`."""
        self._where.at(phase, step, micro_batch)

    def label(
        self, tensors: Iterable[torch.Tensor], category: Category, *, of: nn.Parameter | None = None
    ) -> None:
        """These tensors are `category`, from their birth on."""
        for tensor in tensors:
            part = self._where.part_of_parameter(tensor if of is None else of)
            for storage in self._storages(tensor):
                number = self._index.get(storage._cdata)
                if number is None:
                    number = self._born(storage, "", Origin.PROGRAM)
                record = self.log.storages[number]
                if record.label is not Category.PARAMETERS:
                    record.label = category
                if part[0]:
                    record.name, record.layer = part

    def name_modules(self, module: nn.Module, *, first_layer: int = 0) -> None:
        """Names and layers of a module tree."""
        self._where.name_modules(module, first_layer)

    # What torch does.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, then look at the storages of what it gave."""
        if any(issubclass(kind, torch.distributed.tensor.DTensor) for kind in types):
            return NotImplemented
        if self._fake_mode is not None and func is torch.ops._c10d_functional.wait_tensor.default:
            # Under fake tensors it would give a new storage; for real it gives back what it waited for.
            return args[0]
        if self._asks_for_value_in_step(func):
            return _ANY_VALUE
        if is_sum_in_place(func, args, kwargs, sys._getframe().f_back):
            func = torch.ops.aten.add_.Tensor
        try:
            result = self.run(func, args, kwargs or {})
        except Exception as error:
            if not hasattr(error, OP_ATTRIBUTE):
                setattr(error, OP_ATTRIBUTE, (str(func), self._where.now("").module))
            raise
        if active_fake_mode() is not self._fake_mode:
            # DTensor reasons about shapes of whole tensors in a fake mode of its own.
            return result
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for leaf in leaves:
            self._saw(leaf, func)
        if self._where.phase is Phase.OPTIMIZER_STEP:
            self._inherit_layers(leaves, args)
        if func is _chunk_cat():
            # The whole gradients that FSDP2 is about to reduce.
            self.label(args[0], Category.GATHERED)
        return result

    def _asks_for_value_in_step(self, func: Any) -> bool:
        """Whether an optimizer reads a number from a fake tensor, as Adafactor does: it scales by it, and no size depends
        on it."""
        return (
            self._fake_mode is not None
            and self._where.phase is Phase.OPTIMIZER_STEP
            and func is torch.ops.aten._local_scalar_dense.default
        )

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one op; a limit may refuse it."""
        return func(*args, **kwargs)

    def _saw(self, tensor: torch.Tensor, func: Any) -> None:
        for storage in self._storages(tensor):
            number = self._index.get(storage._cdata)
            if number is not None:
                self._set_size(number, storage.nbytes(), str(func))
                continue
            origin = origin_of_caller(sys._getframe(2))
            if origin is not None:
                name = str(func)
                if origin is Origin.PROGRAM and name.startswith(_COLLECTIVE_OPS):
                    origin = Origin.COLLECTIVE
                self._born(storage, name, origin)

    def _inherit_layers(self, results: list[torch.Tensor], args: Any) -> None:
        """An optimizer walks over parameters; what it makes from one belongs to the layer of that one."""
        inputs = args[0] if args and isinstance(args[0], (list, tuple)) else args[:1]
        for result, source in zip(results, inputs if len(inputs) == len(results) else (), strict=False):
            if isinstance(source, torch.Tensor):
                for made, origin in zip(self._storages(result), self._storages(source), strict=False):
                    number, of = self._index.get(made._cdata), self._index.get(origin._cdata)
                    if number is not None and of is not None and number != of:
                        record = self.log.storages[number]
                        if record.layer is None:
                            record.layer = self._layer_of(of)

    def _layer_of(self, number: int) -> int | None:
        """The layer of a storage: what it was labelled, or where it was born."""
        layer = self.log.storages[number].layer
        return layer if layer is not None else self._born_in_layer[number]

    def _storages(self, tensor: torch.Tensor) -> Iterator[Any]:
        for local in local_tensors(tensor):
            if local.device.type == self._device_type:
                yield local.untyped_storage()

    def _born(self, storage: Any, op: str, origin: Origin) -> int:
        number = len(self.log.storages)
        key = storage._cdata
        self.log.storages.append(Storage(origin=origin, stream=self._stream()))
        self._sizes.append(0)
        self._born_in_layer.append(self._where.now(op).layer)
        self._index[key] = number
        self._references[key] = weakref.ref(storage, lambda _: self._died(key, number))
        self._set_size(number, storage.nbytes(), op)
        return number

    def _died(self, key: int, number: int) -> None:
        if self._index.get(key) == number:
            del self._index[key], self._references[key]
        self._set_size(number, 0, FREED)

    def _resized(self, storage: Any) -> None:
        number = self._index.get(storage._cdata)
        if number is not None:
            self._set_size(number, storage.nbytes(), "resize_")

    def _set_size(self, number: int, num_bytes: int, op: str) -> None:
        change = num_bytes - self._sizes[number]
        if not change:
            return
        self._sizes[number] = num_bytes
        self.live_bytes += change
        self.log.events.append(Event(number, num_bytes, self._place(op)))

    def _place(self, op: str) -> int:
        place = self._where.now(op)
        index = self._place_index.get(place)
        if index is None:
            index = self._place_index[place] = len(self.log.places)
            self.log.places.append(place)
        return index

    def _stream(self) -> int:
        """Streams are numbered in the order in which they are first met."""
        return self._streams.setdefault(current_stream_key(self._device_type), len(self._streams))


def _chunk_cat() -> Any:
    op = getattr(torch.ops.fsdp, "chunk_cat", None)
    return getattr(op, "default", op)
