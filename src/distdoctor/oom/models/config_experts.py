"""Experts and latent attention of a Hugging Face configuration."""

from __future__ import annotations

from distdoctor.oom.models.config_reader import ConfigReader
from distdoctor.oom.shape import LatentAttention, MixtureOfExperts


def read_experts(reader: ConfigReader, *, num_layers: int, ffn_size: int | None) -> MixtureOfExperts | None:
    """The experts, or None for a dense model. `ffn_size` is the width that the file gives for an MLP."""
    num_experts = reader.size("num_experts", least=0)
    if num_experts is None or num_experts <= 1:
        return None
    width = reader.size("moe_intermediate_size") or ffn_size
    if width is None:
        reader.missing.append("moe_intermediate_size")
    first, every = _which_layers(reader, num_layers)
    return MixtureOfExperts(
        num_experts=num_experts,
        experts_per_token=min(reader.needed("num_experts_per_tok"), num_experts),
        expert_ffn_size=width or 1,
        shared_ffn_size=_shared_width(reader, width or 1),
        has_shared_gate=reader.family.shared_gate,
        first_dense_layers=first,
        every=every,
    )


def _shared_width(reader: ConfigReader, expert_width: int) -> int:
    """Total width of the experts that every token visits."""
    width = reader.size("shared_expert_intermediate_size", least=0)
    if width is not None:
        return width
    if reader.model_type == "llama4_text":
        return expert_width
    return (reader.size("num_shared_experts", least=0) or 0) * expert_width


def _which_layers(reader: ConfigReader, num_layers: int) -> tuple[int, int]:
    """(number of dense layers at the start, every how many layers experts follow)."""
    dense = _list_of_dense(reader, num_layers)
    if dense is not None:
        return _as_start_and_step(reader, dense, num_layers)
    # Qwen and Llama 4: layer i has experts when i + 1 is a multiple of the step.
    step = reader.size("decoder_sparse_step", least=0) or reader.size("interleave_moe_layer_step", least=0)
    if step is not None and step > 1:
        return min(step - 1, num_layers), step
    # DeepSeek: from layer k on, when i is a multiple of the frequency.
    first = reader.size("first_k_dense_replace", least=0)
    if first is None:
        first = reader.size("moe_layer_start_index", least=0) or 0
    every = reader.size("moe_layer_freq", least=1) or reader.size("moe_layer_interval", least=1) or 1
    return min(-(-first // every) * every, num_layers), every


def _list_of_dense(reader: ConfigReader, num_layers: int) -> list[bool] | None:
    """Per layer whether it is dense, where the file lists layers; None where it lists none."""
    only = reader.config.get("mlp_only_layers")
    if isinstance(only, list) and only:
        named = {each for each in only if isinstance(each, int)}
        step = reader.size("decoder_sparse_step") or 1
        return [layer in named or (layer + 1) % step != 0 for layer in range(num_layers)]
    sparse = reader.config.get("moe_layers")
    if isinstance(sparse, list) and sparse:
        return [layer not in sparse for layer in range(num_layers)]
    frequency = reader.config.get("moe_layer_freq")
    if isinstance(frequency, list) and len(frequency) == num_layers:
        return [not each for each in frequency]
    return None


def _as_start_and_step(reader: ConfigReader, dense: list[bool], num_layers: int) -> tuple[int, int]:
    """The regular pattern of a list; for an irregular one, dense layers first, and a note."""
    sparse = [layer for layer, is_dense in enumerate(dense) if not is_dense]
    if not sparse:
        return num_layers, 1
    step = sparse[1] - sparse[0] if len(sparse) > 1 else num_layers
    if sparse == list(range(sparse[0], num_layers, step)):
        return sparse[0], step
    reader.notes.append(
        f"Layers with experts follow no regular pattern; {num_layers - len(sparse)} dense ones are taken to come first."
    )
    return num_layers - len(sparse), 1


def read_latent_attention(reader: ConfigReader) -> LatentAttention | None:
    """Multi-head latent attention, where the file has `kv_lora_rank`."""
    if reader.size("kv_lora_rank") is None:
        return None
    # null says that queries are projected at once; where the key is absent the class has its default.
    is_direct = "q_lora_rank" in reader.config and reader.config["q_lora_rank"] is None
    return LatentAttention(
        kv_lora_rank=reader.needed("kv_lora_rank"),
        q_lora_rank=None if is_direct else reader.size("q_lora_rank"),
        nope_head_size=reader.needed("qk_nope_head_dim"),
        rope_head_size=reader.needed("qk_rope_head_dim"),
        value_head_size=reader.needed("v_head_dim"),
    )
