"""How a Megatron-LM job is laid out, from the arguments that it prints at its start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distdoctor.straggler.facts.places import Place

# `  tensor_model_parallel_size ...................... 4`
_ARGUMENT = re.compile(r"\s{0,8}([a-zA-Z_]\w{1,63}) \.{2,64} (\S{1,64})\s*$")
# `using world size: 16, data-parallel size: 2, context-parallel size: 1, tensor-model-parallel size: 4, …`
_SIZE = re.compile(
    r"(world|data-parallel|context-parallel|tensor-model-parallel|pipeline-model-parallel)[ -]size: (\d{1,7})\b"
)

# The argument dump holds some hundred names; with fewer it was not seen whole, and absence proves nothing.
_WHOLE_DUMP = 40

MAX_RANKS = 1_000_000

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
        match = _ARGUMENT.match(text)
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
        """The dump was seen, so that what is not in it does not exist in this version."""
        return self.num_seen >= _WHOLE_DUMP

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
        sizes = {
            "tensor": self.size("tensor_model_parallel"),
            "context": self.size("context_parallel"),
            "expert": self.size("expert_model_parallel"),
        }
        sharded = [
            self.flag(name)
            for name in ("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp", "overlap_param_gather")
        ]
        found = [f"{name} parallel {size}" for name, size in sizes.items() if size is not None and size > 1]
        found += ["parameters gathered meanwhile"] if any(sharded) else []
        if found:
            return ", ".join(found)
        return None if None in sizes.values() or None in sharded else ""

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
