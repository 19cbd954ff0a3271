"""Where a program is: its phase, and the module whose forward or backward is running.

Forward: hooks on all modules keep a stack. Backward: every node of the autograd graph has a sequence number, counted
up as forward made it; which module was running at which number is written down, so that a node leads back to the
module. Nothing is added to the graph, so nothing changes what it keeps alive.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Any

import torch
from torch import nn

from distdoctor.oom.memory.log import Phase, Place
from distdoctor.torch_private.autograd import current_autograd_node, next_sequence_number

_LAYER = re.compile(r"(?:^|\.)layers\.(\w+)")
# What wrappers put into names.
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_checkpoint_wrapped_module|_orig_mod|_fsdp_wrapped_module|module)\.")
# Of AccumulateGrad nodes, which belong to no moment of forward.
_NO_NUMBER = 1 << 62

Part = tuple[str, "int | None"]
"""A module's dotted name, and the layer that it lies in."""
_OUTSIDE: Part = ("", None)


class Whereabouts:
    """Follows one program. Enter it around everything that is to be followed."""

    def __init__(self) -> None:
        self.step = 0
        self.phase = Phase.INITIALISATION
        self.micro_batch: int | None = None
        self._parts: dict[int, Part] = {}
        self._parameters: dict[int, Part] = {}
        self._stack: list[Part] = []
        self._starts: list[int] = []
        self._running: list[Part] = []
        self._last: Part = _OUTSIDE
        self._hooks: list[Any] = []

    def __enter__(self) -> Whereabouts:
        hooks = torch.nn.modules.module
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._enter_module),
            hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def at(self, phase: Phase, step: int, micro_batch: int | None) -> None:
        """The program begins a phase."""
        if step != self.step:
            # Nodes of the step before are gone; within one, a pipeline's stages begin anew while others' are waiting.
            self._starts.clear()
            self._running.clear()
        self.phase, self.step, self.micro_batch = phase, step, micro_batch
        self._last = _OUTSIDE

    def name_modules(self, root: nn.Module, first_layer: int) -> None:
        """Names as in the model's own code, without those of wrappers; layers in their order."""
        order: dict[str, int] = {}
        for name, module in root.named_modules():
            plain = _WRAPPERS.sub("", name + ".").rstrip(".")
            match = _LAYER.search(plain)
            layer = None
            if match is not None:
                layer = first_layer + order.setdefault(match[1], len(order))
            self._parts[id(module)] = (plain, layer)
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                self._parameters.setdefault(id(tensor), (plain, layer))

    def part_of_parameter(self, parameter: object) -> Part:
        """The module that a parameter or a buffer belongs to."""
        return self._parameters.get(id(parameter), _OUTSIDE)

    def now(self, op: str) -> Place:
        """Where the program is, at this op."""
        phase, part = self.phase, self._stack[-1] if self._stack else _OUTSIDE
        if phase is Phase.BACKWARD:
            if self._stack:
                phase = Phase.RECOMPUTATION
            else:
                part = self._of_autograd_node()
        return Place(
            step=self.step, phase=phase, micro_batch=self.micro_batch, module=part[0], layer=part[1], op=op
        )

    def _of_autograd_node(self) -> Part:
        node = current_autograd_node()
        if node is None:
            # Between nodes, or after the last one: what happens there belongs to what it happens to.
            return _OUTSIDE
        number = int(node._sequence_nr())
        if number >= _NO_NUMBER:
            self._last = self._parameters.get(id(getattr(node, "variable", None)), self._last)
        else:
            index = bisect_right(self._starts, number) - 1
            self._last = self._running[index] if index >= 0 else _OUTSIDE
        return self._last

    def _enter_module(self, module: nn.Module, _inputs: object) -> None:
        inside = self._stack[-1] if self._stack else _OUTSIDE
        self._stack.append(self._parts.get(id(module), inside))
        self._note()

    def _leave_module(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        if self._stack:
            self._stack.pop()
        self._note()

    def _note(self) -> None:
        number = next_sequence_number()
        part = self._stack[-1] if self._stack else _OUTSIDE
        if self._starts and self._starts[-1] >= number:
            # Nothing was made since the last note, or another thread counts.
            if self._starts[-1] == number:
                self._running[-1] = part
                return
            self._starts.clear()
            self._running.clear()
        self._starts.append(number)
        self._running.append(part)
