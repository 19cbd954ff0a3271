from __future__ import annotations

import time

import pytest

from distdoctor.errors import UsageError
from distdoctor.oom.models import presets
from distdoctor.oom.models.presets import find_preset, preset, preset_names
from distdoctor.oom.parameters import count_parameters

# A paper rounds the number of parameters of its models (GPT-3's "350M" is 356 million).
ROUNDED = 0.02
EXACT = 0.005


@pytest.mark.parametrize("name", preset_names())
def test_the_shape_of_a_preset_makes_the_published_number_of_parameters(name: str) -> None:
    found = find_preset(name)
    assert found is not None and found.source
    counted = count_parameters(found.shape)
    assert counted == pytest.approx(found.published_params, rel=EXACT if found.is_exact else ROUNDED)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("llama2-7b", 6_738_415_616),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("llama3.2-1b", 1_235_814_400),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("mixtral-8x7b", 46_702_792_704),
        ("mistral-7b", 7_241_732_096),
        ("deepseek-v2-lite", 15_706_484_224),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_some_presets_are_exact_to_the_last_parameter(name: str, params: int) -> None:
    shape = preset(name).shape
    assert shape is not None
    assert count_parameters(shape) == params


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama3-8b", "llama3-8b"),
        ("Llama-3.1-8B", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct/", "llama3-8b"),
        ("llama3_70b", "llama3-70b"),
        ("llama3_1_8b", "llama3-8b"),
        ("llama31-8b", "llama3-8b"),
        ("Llama 3 8B", "llama3-8b"),
        ("LLAMA2_13B", "llama2-13b"),
        ("llama-13b", "llama1-13b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("Llama-3.2-1B", "llama3.2-1b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b"),
        ("qwen25-1.5b", "qwen2.5-1.5b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("google/gemma-2-9b-it", "gemma2-9b"),
        ("gpt3-1.3b", "gpt3-1.3b"),
        ("gpt3-13b", "gpt3-13b"),
        ("bigscience/bloom", "bloom-176b"),
        ("debugmodel", "tiny"),
    ],
)
def test_a_model_is_found_however_people_spell_it(typed: str, name: str) -> None:
    assert preset(typed).name == name


@pytest.mark.parametrize("typed", ["llama3-18b", "llama3-9b", "lama3-8b", "qwen3-7b", "mixtral-8x8b"])
def test_an_unknown_size_is_never_taken_for_a_near_one(typed: str) -> None:
    with pytest.raises(UsageError) as raised:
        preset(typed)
    assert "did you mean" in (raised.value.hint or "")
    assert "config.json" in (raised.value.hint or "")


@pytest.mark.parametrize("typed", ["", " ", "/", "\0", "7b", "falcon-40b", "x" * 100_000, "../../etc/passwd"])
def test_a_name_that_resembles_nothing_is_refused_with_the_other_ways(typed: str) -> None:
    with pytest.raises(UsageError) as raised:
        preset(typed)
    assert "--params" in (raised.value.hint or "")
    assert len(raised.value.message) < 150


def test_no_two_presets_share_a_spelling() -> None:
    seen: dict[tuple[str, ...], str] = {}
    for row in presets._rows():
        for name in (row["name"], *row.get("also", ())):
            key = presets._key(name)
            assert key not in seen, f"{name} is spelled like {seen[key]}"
            seen[key] = name


@pytest.mark.parametrize("name", preset_names())
def test_heads_fit_the_shape(name: str) -> None:
    shape = preset(name).shape
    assert shape is not None
    assert shape.num_heads % shape.num_kv_heads == 0
    if shape.moe is not None:
        assert shape.moe.experts_per_token < shape.moe.num_experts
        assert any(shape.has_experts(layer) for layer in range(shape.num_layers))


def test_a_lookup_takes_some_milliseconds_of_cpu() -> None:
    presets._rows.cache_clear()
    presets._by_key.cache_clear()
    started = time.process_time()
    preset("meta-llama/Llama-3.1-8B-Instruct")
    assert time.process_time() - started < 0.05
