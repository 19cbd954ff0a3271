"""The sizes of a Hugging Face configuration under whatever key its model type uses, with what had to be assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distdoctor.errors import InputError
from distdoctor.oom.models.config_json import HINT, flag_of, size_of
from distdoctor.oom.models.families import Bias, Family

# Of several keys the first that is present counts: transformers' name, then those of older or remote code.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "kv_n_heads"),
    "head_dim": ("head_dim", "kv_channels"),
    "intermediate_size": (
        *("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim", "inner_dim", "d_ff"),
        "ffn_size",
    ),
    "vocab_size": ("vocab_size", "padded_vocab_size", "n_vocab", "embedding_size"),
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        *(
            "num_experts_per_tok",
            "num_experts_per_token",
            "experts_per_token",
            "moe_k",
            "moe_top_k",
            "moe_topk",
        ),
        *("num_selected_experts", "num_experts_per_topk"),
    ),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "num_shared_experts": (
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
    ),
    "positions": ("n_positions", "max_position_embeddings", "n_ctx", "max_seq_len"),
}


# Without any of these a file is something else.
ESSENTIAL = frozenset(("num_hidden_layers", "hidden_size", "num_attention_heads"))


@dataclass(slots=True)
class ConfigReader:
    """One configuration while it is read; `notes` and `missing` grow."""

    config: Mapping[str, Any]
    path: str
    family: Family
    model_type: str
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def size(self, name: str, *, least: int = 1) -> int | None:
        """The size under `name` or an alias of it, else the model type's default, else None."""
        for key in ALIASES.get(name, (name,)):
            value = size_of(self.config, key, self.path, least=least)
            if value is not None:
                return value
        for key in ALIASES.get(name, (name,)):
            if key in self.family.defaults:
                return self._default(key)
        return None

    def needed(self, name: str) -> int:
        """As `size`, but its absence is remembered; 1 stands in until `refuse_when_missing`."""
        value = self.size(name)
        if value is None:
            self.missing.append(name)
        return value or 1

    def flag(self, key: str, default: bool) -> bool:
        """The truth value under `key`, or the default."""
        value = flag_of(self.config, key, self.path)
        return default if value is None else value

    def bias(self, bias: Bias) -> bool:
        """Whether a bias is there: by its first key that is present."""
        for key in bias.keys:
            value = flag_of(self.config, key, self.path)
            if value is not None:
                return value
        return bias.default

    def refuse_when_missing(self) -> None:
        """Raises InputError that names every essential key that was absent."""
        if not self.missing:
            return
        keys = list(dict.fromkeys(self.missing))
        if set(keys) >= ESSENTIAL:
            there = ", ".join(f"`{key[:30]}`" for key in list(self.config)[:3]) or "nothing"
            raise InputError(
                f"`{self.path}` is no model's config.json: it has none of its sizes, but {there}", hint=HINT
            )
        is_or_are = "is" if len(keys) == 1 else "are"
        raise InputError(
            f"`{self.path}` is no complete configuration of a model: {', '.join(keys)} {is_or_are} missing",
            hint=HINT,
        )

    def _default(self, key: str) -> int:
        value = self.family.defaults[key]
        self.notes.append(f"{key} is not in the file; {self.model_type} has {value} by default.")
        return value
