"""Names of optimizers in DeepSpeed, Hugging Face, axolotl and torch, and what they keep for each parameter.

Sources: transformers `OptimizerNames` (training_args.py), DeepSpeed's `optimizer.type` (deepspeed.ai,
"Optimizer parameters"), bitsandbytes' 8-bit optimizers.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.settings import Optimizer, OptimizerLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOptimizer:
    """What a name says. `optimizer` is None where no kind of ours keeps the same states."""

    optimizer: Optimizer | None
    loop: OptimizerLoop | None = None
    is_paged: bool = False
    """States may move to the host when the GPU is full (bitsandbytes)."""
    is_onebit: bool = False
    note: str | None = None


_A = Optimizer.ADAMW

_NAMES: dict[str, NamedOptimizer] = {
    "adamw": NamedOptimizer(optimizer=_A),
    "adam": NamedOptimizer(optimizer=_A),
    "adamwtorch": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FOREACH),
    "adamwtorchfused": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FUSED),
    "adamwapexfused": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FUSED),
    "adamwhf": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FOR_LOOP),
    "adamwtorchxla": NamedOptimizer(optimizer=_A),
    "adamwtorchnpufused": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FUSED),
    "adamwanyprecision": NamedOptimizer(optimizer=_A, note="states in a type that its arguments choose"),
    "fusedadam": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FUSED),
    "fusedadamw": NamedOptimizer(optimizer=_A, loop=OptimizerLoop.FUSED),
    "cpuadam": NamedOptimizer(optimizer=_A),
    "deepspeedcpuadam": NamedOptimizer(optimizer=_A),
    "nadam": NamedOptimizer(optimizer=_A),
    "radam": NamedOptimizer(optimizer=_A),
    "adamwschedulefree": NamedOptimizer(optimizer=_A),
    "schedulefreeadamw": NamedOptimizer(optimizer=_A),
    "schedulefreeradam": NamedOptimizer(optimizer=_A),
    "adopt": NamedOptimizer(optimizer=_A),
    "caadamw": NamedOptimizer(optimizer=_A),
    "optimiadamw": NamedOptimizer(optimizer=_A),
    "adamw8bit": NamedOptimizer(optimizer=Optimizer.ADAMW_8BIT),
    "adamwbnb8bit": NamedOptimizer(optimizer=Optimizer.ADAMW_8BIT),
    "adamwtorch8bit": NamedOptimizer(optimizer=Optimizer.ADAMW_8BIT),
    "adam8bit": NamedOptimizer(optimizer=Optimizer.ADAMW_8BIT),
    "ademamix8bit": NamedOptimizer(optimizer=None, note="three 8-bit states a parameter"),
    "pagedadamw8bit": NamedOptimizer(optimizer=Optimizer.ADAMW_8BIT, is_paged=True),
    "pagedadamw32bit": NamedOptimizer(optimizer=_A, is_paged=True),
    "pagedadamw": NamedOptimizer(optimizer=_A, is_paged=True),
    "adamwtorch4bit": NamedOptimizer(
        optimizer=Optimizer.ADAMW_8BIT, note="4-bit states, counted as 8-bit ones: an upper bound"
    ),
    "adafactor": NamedOptimizer(optimizer=Optimizer.ADAFACTOR),
    "lion": NamedOptimizer(optimizer=Optimizer.LION),
    "lion32bit": NamedOptimizer(optimizer=Optimizer.LION),
    "pagedlion32bit": NamedOptimizer(optimizer=Optimizer.LION, is_paged=True),
    "lionpytorch": NamedOptimizer(optimizer=Optimizer.LION),
    "fusedlion": NamedOptimizer(optimizer=Optimizer.LION),
    "cpulion": NamedOptimizer(optimizer=Optimizer.LION),
    "lion8bit": NamedOptimizer(
        optimizer=Optimizer.LION, note="8-bit momentum, counted as fp32: an upper bound"
    ),
    "pagedlion8bit": NamedOptimizer(
        optimizer=Optimizer.LION, is_paged=True, note="8-bit momentum, counted as fp32: an upper bound"
    ),
    "lamb": NamedOptimizer(optimizer=Optimizer.LAMB),
    "fusedlamb": NamedOptimizer(optimizer=Optimizer.LAMB),
    "onebitlamb": NamedOptimizer(optimizer=Optimizer.LAMB, is_onebit=True),
    "onebitadam": NamedOptimizer(optimizer=_A, is_onebit=True),
    "zerooneadam": NamedOptimizer(optimizer=_A, is_onebit=True),
    "muon": NamedOptimizer(optimizer=Optimizer.MUON),
    "momentum": NamedOptimizer(optimizer=Optimizer.SGD_MOMENTUM),
    "adagrad": NamedOptimizer(optimizer=Optimizer.SGD_MOMENTUM, note="Adagrad: one fp32 state a parameter"),
    "rmsprop": NamedOptimizer(optimizer=Optimizer.SGD_MOMENTUM, note="RMSprop: one fp32 state a parameter"),
    "sgd": NamedOptimizer(optimizer=Optimizer.SGD),
}


def named_optimizer(name: str) -> NamedOptimizer | None:
    """What an optimizer's name says, however it is spelled (`OptimizerNames.ADAMW_TORCH`, `torch.optim.AdamW`).

    None when the name is not known: nothing is assumed of it.
    """
    bare = name.strip().lower().removeprefix("optimizernames.").rsplit(".", 1)[-1]
    return _NAMES.get(bare.replace("_", "").replace("-", ""))
