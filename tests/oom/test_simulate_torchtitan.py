"""TorchTitan's own model: named, configured, simulated where it is installed, and refused in one line where not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from distdoctor.cli.main import run_app
from distdoctor.errors import DistdoctorError, UsageError
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import PhasePeak, Reserved, RoleSimulation, Simulation
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.memory.log import Phase, Place
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Offload,
    Optimizer,
    OptimizerLoop,
    Precision,
    Settings,
)
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.oom.simulation.messages import Answer, Question, decode_answer, encode_question
from distdoctor.oom.simulation.roles import roles_of
from distdoctor.oom.simulation.titan_facts import beside
from distdoctor.oom.simulation.torchtitan import TitanModel, parse_titan, titan_settings, why_not_titan
from distdoctor.units import GIB
from forkpool import ForkPool

SCENARIOS = Path(__file__).with_name("titan_scenarios.py")
DEBUG = TitanModel(family="llama3", flavor="debugmodel")
LLAMA = TitanModel(family="llama3", flavor="8B")
SMALL = Settings(world_size=4, micro_batch=2, seq_len=64, checkpointing=Checkpointing.NONE)
LIMIT_S = 120

# What any torchtitan must have here besides itself, to be imported at all.
MISSING = [name for name in ("torch", "torchtitan", "triton") if find_spec(name) is None]


def job_of(titan: TitanModel = LLAMA, **said: object) -> Job:
    settings = Settings(world_size=8, micro_batch=1, seq_len=1024)
    return resolve(titan_settings(titan, replace(settings, **said)))  # type: ignore[arg-type]  # names of fields


# What is meant.


@pytest.mark.parametrize("text", ["llama3:8B", "llama3_8B", " llama3:8B ", "LLAMA3:8B"])
def test_a_model_is_named_by_family_and_flavor(text: str) -> None:
    assert parse_titan(text) == LLAMA


@pytest.mark.parametrize(
    ("text", "family", "flavor"),
    [
        ("llama3_8b", "llama3", "8b"),
        ("qwen3:0.6B", "qwen3", "0.6B"),
        ("llama3:debugmodel", "llama3", "debugmodel"),
        ("deepseek_v3:16B", "deepseek_v3", "16B"),
    ],
)
def test_names_of_configurations_and_other_families(text: str, family: str, flavor: str) -> None:
    assert parse_titan(text) == TitanModel(family=family, flavor=flavor)


@pytest.mark.parametrize("text", ["", "llama3", "llama3:", ":8B", "llama3:8B; rm", "../x:8B", "a" * 300])
def test_what_names_no_model(text: str) -> None:
    with pytest.raises(UsageError):
        parse_titan(text)


def test_sizes_and_defaults_are_those_of_torchtitan() -> None:
    found = titan_settings(LLAMA, Settings(world_size=8))
    assert found.model is not None
    assert found.model.shape == preset("llama3-8b").shape
    assert (found.strategy, found.checkpointing) == (DataParallel.FSDP, Checkpointing.SELECTIVE)
    assert (found.optimizer_loop, found.frees_logits) == (OptimizerLoop.FUSED, True)


def test_what_was_said_stays() -> None:
    said = Settings(checkpointing=Checkpointing.NONE, optimizer_loop=OptimizerLoop.FOREACH, seq_len=64)
    found = titan_settings(LLAMA, said)
    assert found.checkpointing is Checkpointing.NONE
    assert (found.optimizer_loop, found.seq_len) == (OptimizerLoop.FOREACH, 64)


def test_a_flavor_of_unknown_size_needs_its_sizes() -> None:
    with pytest.raises(UsageError, match="not in our table"):
        titan_settings(TitanModel(family="llama3", flavor="9B"), Settings())
    named = Settings(model=preset("llama3-8b"))
    assert titan_settings(TitanModel(family="llama3", flavor="9B"), named).model == named.model


def test_two_models_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="the other options llama3-70b"):
        titan_settings(LLAMA, Settings(model=preset("llama3-70b")))


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"strategy": DataParallel.ZERO3}, "FSDP2"),
        ({"precision": Precision.MASTER}, "fp32 copy"),
        ({"optimizer": Optimizer.MUON}, "muon"),
        ({"attention": Attention.UNFUSED}, "scores"),
        ({"cp": 2}, "context parallelism"),
        ({"offload_params": Offload.CPU}, "offloading"),
        ({"checkpoint_layers": 3}, "every layer"),
        ({"tp": 2, "loss_parallel": False}, "logits"),
        ({"tp": 2, "pp": 2, "sequence_parallel": False}, "sequence parallelism"),
        ({"model": preset("mixtral-8x7b")}, "dense"),
    ],
)
def test_jobs_that_torchtitan_is_not_asked_for(said: dict[str, object], word: str) -> None:
    flavor = TitanModel(family="llama3", flavor="none of ours") if "model" in said else LLAMA
    reason = why_not_titan(job_of(flavor, **said))
    assert reason is not None
    assert word in reason


@pytest.mark.parametrize(
    "said", [{}, {"tp": 2}, {"pp": 2}, {"dp_replicate": 2}, {"fused_loss": True}, {"compiled": True}]
)
def test_jobs_that_it_is_asked_for(said: dict[str, object]) -> None:
    assert why_not_titan(job_of(**said)) is None


# Beside ours.


def role(gib: float, reserved: float, rank: int = 0) -> RoleSimulation:
    place = Place(step=2, phase=Phase.BACKWARD)
    peak = PhasePeak(
        step=2, phase=Phase.BACKWARD, place=place, num_bytes=int(gib * GIB), by_category={Category.LOGITS: 1}
    )
    return RoleSimulation(
        role="every rank",
        rank=rank,
        num_ranks=8,
        peaks=(peak,),
        reserved=(
            Reserved(expandable_segments=False, peak_bytes=int(reserved * GIB), allocated_then_bytes=0),
        ),
    )


def facts(*roles: RoleSimulation) -> SimulationFacts:
    return SimulationFacts(simulation=Simulation(roles=roles), title="FSDP2", model="llama3")


def test_the_table_says_by_how_much_ours_differs() -> None:
    table = beside(facts(role(50.0, 80.0)), facts(role(49.0, 84.0)))
    assert table is not None
    assert table.rows == (("every rank", 50.0, 49.0, "-2.0 %", 80.0, 84.0, "+5.0 %"),)


def test_no_table_without_a_pair() -> None:
    assert beside(facts(role(50.0, 80.0, rank=4)), facts(role(49.0, 84.0))) is None


# Where it is missing, or other.


def test_without_torchtitan_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("distdoctor.oom.simulation.torchtitan.find_spec", lambda _: None)
    with pytest.raises(DistdoctorError, match="no torchtitan in this Python") as raised:
        run_app(["oom", "simulate", "--torchtitan", "llama3:8B", "--gpus", "8"])
    assert raised.value.exit_code == 3
    assert "pip install torchtitan" in str(raised.value.hint)


def test_module_and_torchtitan_exclude_one_another() -> None:
    with pytest.raises(UsageError, match="exclude one another"):
        run_app(["oom", "simulate", "--torchtitan", "llama3:8B", "--module", "a:b", "--gpus", "8"])


@pytest.fixture
def other_version(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A torchtitan that has models and no trainer as ours is."""
    pytest.importorskip("torch")
    models = ModuleType("torchtitan.models.llama3")
    models.model_registry = lambda flavor: SimpleNamespace(flavor=flavor)  # type: ignore[attr-defined]
    package = ModuleType("torchtitan")
    package.__path__ = []
    for name, module in (
        ("torchtitan", package),
        ("torchtitan.models", ModuleType("torchtitan.models")),
        ("torchtitan.models.llama3", models),
        ("torchtitan.trainer", ModuleType("torchtitan.trainer")),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("distdoctor.oom.simulation.child.titan.interface.version", lambda _: "0.1.0")
    monkeypatch.setattr("distdoctor.oom.simulation.child.titan.interface.say_device_type", lambda _: None)
    return models


def test_another_version_is_told_what_it_lacks(other_version: ModuleType) -> None:
    from distdoctor.oom.simulation.child.titan.interface import titan_for
    from distdoctor.oom.training.base import CannotRunError

    with pytest.raises(CannotRunError, match=r"torchtitan 0\.1\.0 has no Trainer in torchtitan\.trainer"):
        titan_for(LLAMA)
    del other_version.model_registry
    with pytest.raises(CannotRunError, match=r"has no model_registry in torchtitan\.models\.llama3"):
        titan_for(LLAMA)


def test_a_family_that_it_does_not_have(other_version: ModuleType) -> None:
    from distdoctor.oom.simulation.child.titan.interface import titan_for
    from distdoctor.oom.training.base import CannotRunError

    assert other_version is not None
    with pytest.raises(CannotRunError, match=r"has no torchtitan\.models\.nobody"):
        titan_for(TitanModel(family="nobody", flavor="8B"))


def test_a_split_is_cut_down_to_the_layers_that_are_built() -> None:
    pytest.importorskip("torch")
    from distdoctor.oom.simulation.child.titan.pipeline import layers_of_rank, with_layers

    job = job_of(pp=2)
    split = [["tok_embeddings", "layers.0", "layers.1"], ["layers.2", "layers.3", "norm", "lm_head"]]
    assert layers_of_rank(split, job, 1) == ((2, 3),)
    assert with_layers(split, job, 1, ((2,),)) == [split[0], ["layers.2", "norm", "lm_head"]]


# With it.


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    if MISSING:
        pytest.skip(f"TorchTitan's own code needs {', '.join(MISSING)}, which this Python does not have")
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        yield pool


def ask(pool: ForkPool, said: Settings, *, stage: int = 0, model: TitanModel = DEBUG) -> Answer:
    settings = titan_settings(model, said)
    chosen = next(each for each in roles_of(resolve(settings)) if each.stage == stage)
    text = encode_question(Question(settings=settings, role=chosen, torchtitan=model))
    outcome = pool.run("answer", world_size=1, args={"question": text}, limit_s=LIMIT_S)[0]
    assert outcome.ending == "returned", outcome.value
    answer = decode_answer(outcome.value)
    assert answer is not None
    return answer


def simulated(pool: ForkPool, said: Settings, *, stage: int = 0, model: TitanModel = DEBUG) -> RoleSimulation:
    answer = ask(pool, said, stage=stage, model=model)
    assert answer.failure is None, answer.failure
    assert answer.role is not None
    return answer.role


def at_start(role: RoleSimulation) -> int:
    return next(peak.by_category[Category.PARAMETERS] for peak in role.peaks if peak.step == 0)


def test_states_are_counted_in_its_own_parameters(pool: ForkPool) -> None:
    found = simulated(pool, SMALL)
    shard = 4 * resolve(titan_settings(DEBUG, SMALL)).num_params // 4
    step = next(peak for peak in found.peaks if peak.step == 2 and peak.phase is Phase.OPTIMIZER_STEP)
    assert step.by_category[Category.OPTIMIZER] == pytest.approx(2 * shard, rel=0.02)
    assert step.by_category[Category.GRADIENTS] == pytest.approx(shard, rel=0.02)
    # Beside parameters a table of rotations on each layer.
    assert at_start(found) == pytest.approx(shard, rel=0.02)
    assert any("as many as by formula" in note for note in found.notes)
    assert any("FlexAttention" in note for note in found.notes)


def test_few_layers_stand_for_all(pool: ForkPool) -> None:
    found = simulated(pool, replace(SMALL, world_size=8, seq_len=1024), model=LLAMA)
    assert found.how.startswith("5 of 32 layers")
    assert any("8,030,261,248 parameters, as many as by formula" in note for note in found.notes)


@pytest.mark.parametrize("kind", list(Checkpointing))
def test_activations_follow_checkpointing(pool: ForkPool, kind: Checkpointing) -> None:
    found = simulated(pool, replace(SMALL, seq_len=512, checkpointing=kind))
    kept = next(
        peak.by_category[Category.ACTIVATIONS]
        for peak in found.peaks
        if peak.step == 2 and peak.phase is Phase.FORWARD
    )
    # 2 x 512 tokens of 256 numbers in 16 bits are 0.5 MiB: what a layer that is computed again keeps.
    per_layer = kept / 6 / (2 * 512 * 256 * 2)
    assert {
        Checkpointing.NONE: 15 < per_layer < 30,
        Checkpointing.SELECTIVE: 5 < per_layer < 12,
        Checkpointing.FULL: 0.9 < per_layer < 4,
    }[kind], per_layer


def test_tensor_parallelism_halves_states_and_logits(pool: ForkPool) -> None:
    whole = simulated(pool, replace(SMALL, world_size=2, seq_len=512))
    halves = simulated(pool, replace(SMALL, world_size=4, seq_len=512, tp=2))
    assert halves.peak.num_bytes < whole.peak.num_bytes
    assert at_start(halves) < 0.6 * at_start(whole)


def test_a_loss_in_chunks_has_few_logits(pool: ForkPool) -> None:
    plain, chunked = (
        simulated(pool, replace(SMALL, seq_len=512, checkpointing=Checkpointing.FULL, fused_loss=flag))
        for flag in (False, True)
    )
    logits = [
        max(peak.by_category.get(Category.LOGITS, 0) for peak in found.peaks) for found in (plain, chunked)
    ]
    assert logits[1] < logits[0] / 4


@pytest.mark.parametrize(("stage", "tp"), [(0, 2), (1, 1), (1, 2)])
def test_pipelines_run_each_stage(pool: ForkPool, stage: int, tp: int) -> None:
    said = replace(SMALL, world_size=4 * tp, pp=2, tp=tp, accumulation_steps=4)
    found = simulated(pool, said, stage=stage)
    assert found.how.startswith("all 3 layers")
    assert {peak.phase for peak in found.peaks} >= {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER_STEP}
    assert (Phase.LOSS in {peak.phase for peak in found.peaks}) is (stage == 1)


def test_replicas_and_accumulation(pool: ForkPool) -> None:
    found = simulated(pool, replace(SMALL, dp_replicate=2, dp_shard=2, accumulation_steps=4))
    assert any(note.startswith("3 of 4 micro-batches") for note in found.notes)


def test_what_it_does_not_do_is_refused_in_words(pool: ForkPool) -> None:
    answer = ask(pool, replace(SMALL, cp=2))
    assert answer.failure is not None
    assert "context parallelism" in answer.failure.reason
    assert "leave --torchtitan out" in answer.failure.advice


def test_a_flavor_that_it_does_not_have(pool: ForkPool) -> None:
    answer = ask(
        pool,
        replace(SMALL, model=preset("llama3-8b")),
        model=TitanModel(family="llama3", flavor="9B"),
    )
    assert answer.failure is not None
    assert "no flavor 9B; it has" in answer.failure.reason


@pytest.mark.parametrize(
    "said",
    [
        SMALL,
        replace(SMALL, precision=Precision.FP32, optimizer_loop=OptimizerLoop.FOR_LOOP),
        replace(SMALL, tp=2, checkpointing=Checkpointing.SELECTIVE),
        replace(SMALL, checkpointing=Checkpointing.FULL, fused_loss=True, accumulation_steps=2),
    ],
    ids=["mixed", "fp32", "tp", "chunked"],
)
def test_the_same_program_with_real_tensors_takes_as_much(pool: ForkPool, said: Settings) -> None:
    """Both with the CPU's own kernels; what is left are tables of torch's that a dispatch mode does not see."""
    settings = titan_settings(DEBUG, said)
    text = encode_question(Question(settings=settings, torchtitan=DEBUG))
    outcome = pool.run("peaks", world_size=1, args={"question": text}, limit_s=LIMIT_S)[0]
    assert outcome.ending == "returned", outcome.value
    by_simulation, counted, outside_kernels = outcome.value
    assert counted is not None
    assert outside_kernels <= counted
    assert by_simulation == pytest.approx(outside_kernels, rel=0.002)
