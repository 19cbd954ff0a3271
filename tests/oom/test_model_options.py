from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import DistdoctorError, InputError, UsageError
from distdoctor.oom.models.flags import load_model, model_from_options, parse_count
from distdoctor.oom.models.presets import preset
from distdoctor.oom.parameters import count_parameters

SHAPE: dict[str, Any] = {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 128256}
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 704,
    "vocab_size": 2048,
}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7.5e9", 7_500_000_000),
        ("7.5B", 7_500_000_000),
        ("8b", 8_000_000_000),
        ("8 B", 8_000_000_000),
        ("70_000_000", 70_000_000),
        ("70,000,000", 70_000_000),
        ("350M", 350_000_000),
        ("1.5T", 1_500_000_000_000),
        ("8030261248", 8_030_261_248),
    ],
)
def test_a_number_of_parameters_is_read_as_people_write_it(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "-1B", "0", "7,5B", "B", "1e400", "1e15B", "8x7B", "0x10", "9" * 99]
)
def test_what_is_no_number_of_parameters_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_count(text)
    assert "7.5B" in (raised.value.hint or "")


def test_a_forgotten_unit_is_guessed_in_the_hint_and_nowhere_else() -> None:
    with pytest.raises(UsageError) as raised:
        parse_count("7.5")
    assert "did you mean `7.5B`" in (raised.value.hint or "")


@settings(deadline=None)
@given(st.text(max_size=70))
def test_any_text_gives_a_count_or_a_usage_error(text: str) -> None:
    try:
        assert parse_count(text) > 0
    except UsageError as problem:
        assert problem.hint


def test_parameters_alone_give_a_model_without_a_shape() -> None:
    model = model_from_options(params=7.5e9)
    assert (model.shape, model.stated_params) == (None, 7_500_000_000)
    assert any("activations" in note for note in model.notes)


def test_a_full_shape_is_the_preset() -> None:
    model = model_from_options(**SHAPE, kv_heads=8, ffn=14336, gated=True, tied=False)
    assert model.shape == preset("llama3-8b").shape
    assert model.notes == ()


def test_what_was_not_given_is_assumed_aloud() -> None:
    model = model_from_options(**{**SHAPE, "vocab": 32000})
    assert model.shape is not None and model.shape.ffn_size == 11008
    assert count_parameters(model.shape) == 6_738_415_616
    assert any("11008" in note for note in model.notes) and any("--tied" in note for note in model.notes)
    dense = model_from_options(**SHAPE, gated=False, tied=True)
    assert dense.shape is not None and dense.shape.ffn_size == 4 * 4096


def test_experts_are_taken() -> None:
    model = model_from_options(
        **{**SHAPE, "vocab": 32000}, kv_heads=8, experts=8, experts_per_token=2, expert_ffn=14336
    )
    assert model.shape is not None
    assert count_parameters(model.shape) == 46_702_792_704


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no model is given"),
        ({"layers": 32}, "--hidden, --heads, --vocab are missing"),
        ({**SHAPE, "hidden": 4097}, "not a multiple"),
        ({**SHAPE, "kv_heads": 7}, "does not divide"),
        ({**SHAPE, "kv_heads": 64}, "does not divide"),
        ({**SHAPE, "layers": 0}, "`--layers 0`"),
        ({**SHAPE, "layers": -3}, "`--layers -3`"),
        ({**SHAPE, "hidden": float("nan")}, "`--hidden nan`"),
        ({**SHAPE, "vocab": 10**9}, "`--vocab 1000000000`"),
        ({**SHAPE, "experts": 8}, "needs `--experts-per-token`"),
        ({**SHAPE, "experts_per_token": 2}, "needs `--experts`"),
        ({**SHAPE, "experts": 8, "experts_per_token": 9, "ffn": 1}, "is more than"),
        ({**SHAPE, "experts": 8, "experts_per_token": 2}, "needs `--expert-ffn`"),
        ({**SHAPE, "params": 70e9}, "the sizes make"),
        ({"params": float("nan")}, "no number of parameters"),
        ({"params": float("inf")}, "no number of parameters"),
        ({"params": -1.0}, "no number of parameters"),
        ({"params": 7.0}, "no number of parameters"),
    ],
)
def test_a_slip_in_the_options_is_told(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as raised:
        model_from_options(**options)
    assert says in raised.value.message


def test_a_rounded_number_beside_a_shape_is_no_contradiction() -> None:
    exact = {**SHAPE, "kv_heads": 8, "ffn": 14336, "tied": False}
    assert model_from_options(params=8e9, **exact).notes == ()
    assert any("--params says" in note for note in model_from_options(params=13e9, **exact).notes)


def test_a_file_a_folder_and_a_name_are_models(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for word in (str(folder), str(folder / "config.json")):
        model = load_model(word)
        assert model.shape == preset("tiny").shape
        assert (model.name, model.source) == ("my-model", str(folder / "config.json"))
    assert load_model("meta-llama/Llama-3.1-8B").name == "llama3-8b"


def test_a_folder_that_happens_to_have_a_presets_name_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2").mkdir()
    assert load_model("gpt2").source == "preset gpt2"


def test_what_names_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("")
    for word, error, says in (
        (str(tmp_path), InputError, "holds no config.json"),
        (str(tmp_path / "no.json"), InputError, "no file or folder"),
        ("./nothing", InputError, "no file or folder"),
        (str(tmp_path / "empty.json"), InputError, "empty"),
        ("llama9-8b", UsageError, "no model is known"),
        ("", UsageError, "names no model"),
        ("a\0b", UsageError, "names no model"),
        ("x" * 9000, UsageError, "names no model"),
    ):
        with pytest.raises(error) as raised:
            load_model(word)
        assert isinstance(raised.value, DistdoctorError)
        assert says in raised.value.message


CASES = Path(__file__).parents[3] / "shared" / "cases" / "launch_configs"


@pytest.mark.skipif(not CASES.is_dir(), reason="the case library is not beside the repository")
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("hf_llama3_8b.json", 8_030_261_248),
        ("hf_llama3_70b.json", 70_553_706_496),
        ("hf_mixtral_8x7b.json", 46_702_792_704),
    ],
)
def test_published_configurations_are_read(name: str, params: int) -> None:
    shape = load_model(str(CASES / name)).shape
    assert shape is not None
    assert count_parameters(shape) == params
