"""How a Megatron-LM job is laid out, from the arguments that it prints at its start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distdoctor.straggler.facts.places import Place

# `  tensor_model_parallel_size ...................... 4`, behind a time stamp, a logger's name or `args.` too. Dots fill a
# column of 48 or 32 characters.
_ARGUMENT = re.compile(r"(?:^|[\s:>|\]])(?:args\.)?([a-zA-Z_]\w{1,80}) \.{1,64} (\S.{0,255}?)\s*$")
# `using world size: 16, data-parallel size: 2, context-parallel size: 1, tensor-model-parallel size: 4, …`
_SIZE = re.compile(
    r"(world|data-parallel|context-parallel|tensor-model-parallel|pipeline-model-parallel)[ -]size: (\d{1,7})\b"
)

# The argument dump holds some hundred names; with fewer it was not seen whole, and absence proves nothing. Names are
# sorted: `accumulate_…` and `adam_…` come first and `world_size` last, in all versions.
_WHOLE_DUMP = 40

# Flags of versions that shard parameters, which are then gathered during forward and backward.
_SHARDED = (
    "use_torch_fsdp2",
    "use_megatron_fsdp",
    "use_custom_fsdp",
    "use_fsdp",
    "overlap_param_gather",
)

MAX_RANKS = 1_000_000

# Sizes of groups whose collectives lie inside forward and backward. `ds_sequence_parallel` is Megatron-DeepSpeed's.
_INSIDE = {
    "tensor": "tensor_model_parallel",
    "context": "context_parallel",
    "expert": "expert_model_parallel",
    "expert tensor": "expert_tensor_parallel",
    "sequence": "ds_sequence_parallel",
}
_DECIDING = ("tensor_model_parallel", "context_parallel", "expert_model_parallel")

_SIZES = {
    "world": "world_size",
    "data-parallel": "data_parallel_size",
    "context-parallel": "context_parallel_size",
    "tensor-model-parallel": "tensor_model_parallel_size",
    "pipeline-model-parallel": "pipeline_model_parallel_size",
}


@dataclass(slots=True)
class MegatronArguments:
    """Arguments as text by name; what was not printed is None."""

    values: dict[str, str] = field(default_factory=dict)
    num_seen: int = 0

    def take(self, text: str) -> bool:
        """Whether the line told arguments."""
        match = _ARGUMENT.search(text)
        if match is not None:
            self.num_seen += 1
            if len(self.values) < 2000:
                self.values[match[1]] = match[2]
            return True
        if "using world size:" not in text:
            return False
        for name, size in _SIZE.findall(text):
            self.values[_SIZES[name]] = size
        return True

    @property
    def is_whole(self) -> bool:
        """The dump was seen from its first to its last name, so that what is not in it does not exist in this version."""
        return (
            self.num_seen >= _WHOLE_DUMP
            and {"tensor_model_parallel_size", "world_size"} <= self.values.keys()
            and any(name.startswith(("a", "A")) for name in self.values)
        )

    def size(self, name: str) -> int | None:
        """`name`_size as a number; 1 when the whole dump lacks it, None when not known."""
        text = self.values.get(f"{name}_size")
        if text is None:
            return 1 if self.is_whole else None
        return int(text) if text.isdigit() and 0 < int(text) <= MAX_RANKS else None

    def flag(self, name: str) -> bool | None:
        """True or False; False when the whole dump lacks it, None when not known."""
        text = self.values.get(name)
        if text is None:
            return False if self.is_whole else None
        return {"True": True, "False": False}.get(text)

    @property
    def world_size(self) -> int | None:
        """Ranks in the job."""
        text = self.values.get("world_size", "")
        return int(text) if text.isdigit() and 0 < int(text) <= MAX_RANKS else None

    def groups_inside_compute(self) -> str | None:
        """Which parallelism has collectives inside forward and backward, in words; empty: none; None: not known."""
        found = [
            f"{word} parallel {size}"
            for word, name in _INSIDE.items()
            if (size := self.size(name)) is not None and size > 1
        ]
        found += ["parameters gathered meanwhile"] if any(self.flag(name) for name in _SHARDED) else []
        # Megatron-DeepSpeed: ZeRO stage 3 gathers parameters too.
        found += ["ZeRO stage 3"] if self.values.get("zero_stage") == "3" else []
        if found:
            return ", ".join(found)
        return None if self.unknown() else ""

    def waits_for_its_peers_inside(self) -> bool:
        """Whether forward and backward are known to hold waiting for every rank that does the same work.

        Then all of them are equally long, whoever is slow. Tensor, context and expert parallel groups wait among
        themselves; where there are several of them in a stage, one with a slow rank differs from the others.
        """
        if any(self.flag(name) for name in _SHARDED) or self.values.get("zero_stage") == "3":
            return True
        group = 1
        for name in _INSIDE.values():
            group *= self.size(name) or 1
        stages = self.size("pipeline_model_parallel") or 1
        return group > 1 and self.world_size is not None and group * stages >= self.world_size

    def unknown(self) -> tuple[str, ...]:
        """Names of arguments without which it is not known what forward and backward hold."""
        sizes = [f"{name}_size" for name in _DECIDING if self.size(name) is None]
        return (*sizes, *(name for name in (*_SHARDED, "overlap_grad_reduce") if self.flag(name) is None))

    def place(self, rank: int) -> Place:
        """The rank's coordinates in Megatron-LM's default order tp-cp-dp-pp; none when they are not known for sure."""
        world, tp, cp, pp = (
            self.world_size,
            self.size("tensor_model_parallel"),
            self.size("context_parallel"),
            self.size("pipeline_model_parallel"),
        )
        if not (world and tp and cp and pp) or world % (tp * cp * pp) or rank >= world:
            return Place(rank=rank)
        if self.flag("use_tp_pp_dp_mapping") is not False:
            return Place(rank=rank)
        dp = world // (tp * cp * pp)
        coords = {"tp": rank % tp, "dp": rank // (tp * cp) % dp, "pp": rank // (tp * cp * dp)}
        if cp > 1:
            coords["cp"] = rank // tp % cp
        return Place(rank=rank, coords=coords)
