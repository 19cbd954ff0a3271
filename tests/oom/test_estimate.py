"""The estimate: known figures, sums that must hold, and what may never rise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import gpu_type
from distdoctor.oom.estimate import estimate
from distdoctor.oom.estimate_tables import states_bytes
from distdoctor.oom.facts.estimate import STATES, Category, Estimate, Moment
from distdoctor.oom.fit import Fits, fit_of
from distdoctor.oom.formulas.deepspeed_estimator import zero2_rows, zero3_rows
from distdoctor.oom.job import resolve
from distdoctor.oom.local import local_models
from distdoctor.oom.models.presets import preset
from distdoctor.oom.pages import pages_of
from distdoctor.oom.parameters import count_parameters
from distdoctor.oom.settings import (
    Adapter,
    Attention,
    Checkpointing,
    DataParallel,
    Offload,
    OptimizerLoop,
    Precision,
    Schedule,
    Settings,
)
from distdoctor.oom.shape import MixtureOfExperts, Model, ModelShape
from distdoctor.oom.variants import variants_of
from distdoctor.units import GIB

GB = 1e9
SHARDING = (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3, DataParallel.FSDP)
ALL = (DataParallel.DDP, *SHARDING)

SMALL = ModelShape(
    num_layers=8,
    hidden_size=512,
    num_heads=8,
    num_kv_heads=4,
    head_size=64,
    ffn_size=1024,
    vocab_size=4096,
)
EXPERTS = replace(SMALL, moe=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=256))


def job_estimate(shape: ModelShape = SMALL, **said: object) -> Estimate:
    model = Model(name="small", source="test", shape=shape)
    return estimate(resolve(Settings(model=model, **said)))  # type: ignore[arg-type]


def stated(num_params: float, kind: DataParallel, gpus: int) -> Estimate:
    model = Model(name="stated", source="--params", stated_params=int(num_params))
    return estimate(resolve(Settings(model=model, world_size=gpus, strategy=kind)))


@pytest.mark.parametrize(
    ("kind", "expected_gb"),
    [
        (DataParallel.DDP, 120.0),
        (DataParallel.ZERO1, 31.4),
        (DataParallel.ZERO2, 16.6),
        (DataParallel.ZERO3, 1.9),
        (DataParallel.FSDP, 1.9),
    ],
)
def test_model_states_of_the_zero_paper(kind: DataParallel, expected_gb: float) -> None:
    """arXiv 1910.02054, figure 1: 7.5e9 parameters on 64 GPUs."""
    assert states_bytes(stated(7.5e9, kind, 64).worst) / GB == pytest.approx(expected_gb, abs=0.05)


def test_deepspeeds_estimator_for_t5_3b_on_8_gpus() -> None:
    """What DeepSpeed's documentation prints: 2851M parameters, 32M in the largest layer."""
    two = {row.options: row for row in zero2_rows(2851e6, gpus_per_node=8, num_nodes=1)}
    three = {
        row.options: row for row in zero3_rows(2851e6, 32e6, gpus_per_node=8, num_nodes=1, zero_init=True)
    }
    assert two["nothing offloaded, as documented"].gpu_bytes / GIB == pytest.approx(15.93, abs=0.01)
    assert two["optimizer offloaded"].gpu_bytes / GIB == pytest.approx(5.31, abs=0.01)
    assert two["optimizer offloaded"].host_bytes / GIB == pytest.approx(127.45, abs=0.01)
    assert three["nothing offloaded"].gpu_bytes / GIB == pytest.approx(6.10, abs=0.02)
    assert three["optimizer offloaded"].gpu_bytes / GIB == pytest.approx(0.79, abs=0.02)
    assert three["parameters and optimizer offloaded"].gpu_bytes / GIB == pytest.approx(0.12, abs=0.01)
    assert three["parameters and optimizer offloaded"].host_bytes / GIB == pytest.approx(71.71, abs=0.05)


@pytest.mark.parametrize(
    ("gpus", "checkpointing", "simulated_gib"),
    [(8, Checkpointing.SELECTIVE, 67.4), (128, Checkpointing.SELECTIVE, 56.9), (8, Checkpointing.FULL, 40.4)],
)
def test_llama_8b_as_simulated(gpus: int, checkpointing: Checkpointing, simulated_gib: float) -> None:
    """Peaks of FSDP2 simulated under fake tensors: micro-batch 2, 8192 tokens, fused AdamW, bf16 policy."""
    said = Settings(
        model=preset("llama3-8b"),
        world_size=gpus,
        strategy=DataParallel.FSDP,
        micro_batch=2,
        seq_len=8192,
        checkpointing=checkpointing,
        optimizer_loop=OptimizerLoop.FUSED,
        frees_logits=True,
    )
    peak = estimate(resolve(said)).worst.peak
    assert peak.moment is Moment.LOSS
    assert peak.num_bytes / GIB == pytest.approx(simulated_gib, rel=0.02)


def test_one_gpu_by_hand() -> None:
    """Without shape: fp32 parameters, gradients, moments and foreach's list, and nothing else."""
    model = Model(name="m", source="--params", stated_params=10**9)
    whole = estimate(resolve(Settings(model=model, precision=Precision.FP32)))
    by_moment = {(each.step, each.moment): each for each in whole.worst.moments}
    assert by_moment[0, Moment.INITIALISATION].num_bytes == 4e9
    assert by_moment[1, Moment.GRADIENTS_DONE].num_bytes == 8e9
    assert by_moment[1, Moment.OPTIMIZER_STEP].num_bytes == 20e9
    assert by_moment[2, Moment.LOSS].num_bytes == 12e9


def test_16_bit_gradients_are_cast_for_the_step_of_a_master_copy() -> None:
    """2 + 2 + 12 bytes, foreach's list and fp32 gradients, 4 each, over 4 ranks of FSDP2; a fused step needs no list."""
    model = Model(name="m", source="--params", stated_params=10**9)
    said = Settings(model=model, world_size=4, strategy=DataParallel.FSDP, precision=Precision.MASTER)
    for loop, each in ((OptimizerLoop.FOREACH, 24), (OptimizerLoop.FUSED, 20)):
        moments = estimate(resolve(replace(said, optimizer_loop=loop))).worst.moments
        step = next(one for one in moments if (one.step, one.moment) == (2, Moment.OPTIMIZER_STEP))
        assert step.num_bytes == each * 10**9 / 4


@pytest.mark.parametrize(
    ("precision", "each"), [(Precision.MIXED, 4), (Precision.MASTER, 2), (Precision.FP32, 4)]
)
def test_gradients_of_a_pipeline_wait_in_the_type_that_they_are_reduced_in(
    precision: Precision, each: int
) -> None:
    one = job_estimate(
        world_size=8, strategy=DataParallel.FSDP, pp=2, precision=precision, accumulation_steps=1
    )
    four = job_estimate(
        world_size=8, strategy=DataParallel.FSDP, pp=2, precision=precision, accumulation_steps=4
    )
    for alone, waiting in zip(one.roles, four.roles, strict=True):
        (amount,) = (
            amount
            for moment in waiting.moments
            if (moment.step, moment.moment) == (2, Moment.LOSS)
            for amount in moment.amounts
            if "accumulated until the last micro-batch" in amount.how
        )
        assert amount.num_bytes == each * alone.local_params


@pytest.mark.parametrize(("micro_batch", "waiting", "has_gradients"), [(1, 2, True), (64, 3, False)])
def test_gpipe_is_fullest_before_or_behind_the_first_gradients(
    micro_batch: int, waiting: int, *, has_gradients: bool
) -> None:
    """Of four micro-batches: small ones are fewer than the gradients of one, large ones are more."""
    said = {
        "world_size": 2,
        "pp": 2,
        "schedule": Schedule.GPIPE,
        "accumulation_steps": 4,
        "micro_batch": micro_batch,
    }
    last = job_estimate(strategy=DataParallel.NONE, seq_len=64, **said).roles[-1]
    at_loss = next(each for each in last.moments if (each.step, each.moment) == (2, Moment.LOSS))
    words = [each.how for each in at_loss.amounts]
    assert any(f"of {waiting} micro-batches that wait" in each for each in words)
    assert (at_loss.of(Category.GRADIENTS) > 0) is has_gradients


def test_scores_in_memory_pass_the_softmax_in_fp32() -> None:
    said = {"seq_len": 4096, "checkpointing": Checkpointing.FULL, "precision": Precision.FP32}
    passing = {
        kind: sum(
            each.num_bytes
            for moment in job_estimate(attention=kind, **said).worst.moments
            if (moment.step, moment.moment) == (2, Moment.BACKWARD)
            for each in moment.amounts
            if each.category is Category.TEMPORARIES
        )
        for kind in Attention
    }
    scores = 4096 * 4096 * SMALL.num_heads
    assert passing[Attention.FLASH] < scores
    assert 6 * scores < passing[Attention.UNFUSED] < 8 * scores


def test_a_loss_in_chunks_has_gradients_of_the_output_twice() -> None:
    fused = job_estimate(world_size=8, strategy=DataParallel.FSDP, fused_loss=True, seq_len=16, micro_batch=1)
    amounts = next(each for each in fused.worst.moments if each.moment is Moment.LOSS).amounts
    (gradients,) = (each for each in amounts if "gradients of the output's weight" in each.how)
    assert gradients.num_bytes == pytest.approx(2 * 2 * SMALL.vocab_size * SMALL.hidden_size, rel=1e-3)


def test_units_that_stay_gathered_go_with_the_backward_pass() -> None:
    said = {"world_size": 4, "strategy": DataParallel.FSDP, "seq_len": 16, "micro_batch": 1}
    kept, freed = (
        {
            each.moment: each.of(Category.GATHERED)
            for each in job_estimate(reshard_after_forward=again, **said).worst.moments
            if each.step == 2
        }
        for again in (False, True)
    )
    whole = 2 * count_parameters(SMALL)
    assert kept[Moment.LOSS] == pytest.approx(whole, rel=1e-3)
    assert whole < kept[Moment.BACKWARD] < 1.5 * whole
    assert kept[Moment.GRADIENTS_DONE] == freed[Moment.GRADIENTS_DONE]


def test_ddp_holds_gradients_twice_unless_they_live_in_buckets() -> None:
    twice = job_estimate(world_size=4, strategy=DataParallel.DDP)
    once = job_estimate(world_size=4, strategy=DataParallel.DDP, gradient_as_bucket_view=True)
    gradients = 4 * count_parameters(SMALL)
    last = (twice.worst.moments[-1].num_bytes, once.worst.moments[-1].num_bytes)
    assert last[0] - last[1] == pytest.approx(gradients, rel=0.01)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("shape", [SMALL, EXPERTS], ids=["dense", "experts"])
def test_categories_add_up(kind: DataParallel, shape: ModelShape) -> None:
    for role in job_estimate(shape, world_size=8, strategy=kind, pp=2).roles:
        for moment in role.moments:
            assert sum(moment.of(category) for category in Category) == pytest.approx(moment.num_bytes)
            assert all(amount.num_bytes > 0 and amount.how for amount in moment.amounts)


@given(kind=st.sampled_from(SHARDING), power=st.integers(0, 6), shape=st.sampled_from([SMALL, EXPERTS]))
@settings(deadline=None, max_examples=60)
def test_more_shards_never_raise_a_state(kind: DataParallel, power: int, shape: ModelShape) -> None:
    fewer = job_estimate(shape, world_size=2**power, dp_shard=2**power, strategy=kind)
    more = job_estimate(shape, world_size=2 ** (power + 1), dp_shard=2 ** (power + 1), strategy=kind)
    for before, after in zip(fewer.worst.moments, more.worst.moments, strict=True):
        for category in STATES:
            assert after.of(category) <= before.of(category) + 1e-6


@given(
    kind=st.sampled_from(ALL),
    tp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    micro_batch=st.integers(1, 8),
    seq_len=st.sampled_from([128, 2048, 8192]),
    shape=st.sampled_from([SMALL, EXPERTS]),
)
@settings(deadline=None, max_examples=100)
def test_checkpointing_never_costs_memory(
    kind: DataParallel, tp: int, cp: int, micro_batch: int, seq_len: int, shape: ModelShape
) -> None:
    said = {
        "world_size": 2 * tp * cp,
        "tp": tp,
        "cp": cp,
        "strategy": kind,
        "micro_batch": micro_batch,
        "seq_len": seq_len,
    }
    peaks = [
        job_estimate(shape, checkpointing=mode, **said).worst.peak.num_bytes
        for mode in (Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL)
    ]
    assert peaks[2] <= peaks[1] * (1 + 1e-9) <= peaks[0] * (1 + 2e-9)


@given(
    pp=st.sampled_from([1, 2, 4, 8]),
    schedule=st.sampled_from([Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.ZERO_BUBBLE]),
    shape=st.sampled_from([SMALL, EXPERTS, replace(SMALL, num_layers=11)]),
)
@settings(deadline=None, max_examples=60)
def test_pipeline_stages_add_up_to_the_model(pp: int, schedule: Schedule, shape: ModelShape) -> None:
    model = Model(name="small", source="test", shape=shape)
    job = resolve(Settings(model=model, world_size=pp, pp=pp, schedule=schedule))
    assert sum(local.numel for local in local_models(job)) == count_parameters(shape)


@pytest.mark.parametrize(("schedule", "virtual"), [(Schedule.INTERLEAVED, 2), (Schedule.ZBV, 2)])
def test_virtual_stages_add_up_to_the_model(schedule: Schedule, virtual: int) -> None:
    model = Model(name="small", source="test", shape=SMALL)
    job = resolve(Settings(model=model, world_size=4, pp=4, schedule=schedule, virtual_stages=virtual))
    slices = local_models(job)
    assert sum(local.numel for local in slices) == count_parameters(SMALL)
    assert [local.has_embedding for local in slices] == [True, False, False, False]
    # A loop ends on the last rank, a V comes back to the first.
    assert [local.has_output for local in slices].index(True) == (
        3 if schedule is Schedule.INTERLEAVED else 0
    )


def test_a_tied_output_on_another_stage_is_a_copy() -> None:
    model = Model(name="small", source="test", shape=replace(SMALL, ties_embeddings=True))
    job = resolve(Settings(model=model, world_size=2, pp=2))
    copy = SMALL.vocab_size * SMALL.hidden_size
    assert sum(local.numel for local in local_models(job)) == job.num_params + copy


@pytest.mark.parametrize(
    ("schedule", "worst_stage"),
    # 1F1B: the first stage holds most micro-batches; with GPipe and a large vocabulary the last one has the logits.
    [(Schedule.ONE_F_ONE_B, 0), (Schedule.GPIPE, 3)],
)
def test_the_worst_rank_is_found(schedule: Schedule, worst_stage: int) -> None:
    shape = replace(SMALL, vocab_size=1000 if schedule is Schedule.ONE_F_ONE_B else 128_000)
    found = job_estimate(shape, world_size=4, pp=4, schedule=schedule, accumulation_steps=8, seq_len=8192)
    peaks = [role.peak.num_bytes for role in found.roles]
    assert found.worst.stage == worst_stage == peaks.index(max(peaks))


def test_1f1b_holds_fewer_micro_batches_than_gpipe() -> None:
    def activations(schedule: Schedule, batches: int) -> float:
        found = job_estimate(world_size=4, pp=4, schedule=schedule, accumulation_steps=batches)
        return found.roles[0].moments[1].of(Category.ACTIVATIONS)

    assert activations(Schedule.GPIPE, 16) == pytest.approx(4 * activations(Schedule.GPIPE, 4))
    assert activations(Schedule.ONE_F_ONE_B, 16) == activations(Schedule.ONE_F_ONE_B, 4)


def test_tensor_parallelism_divides_matrices_and_not_norms() -> None:
    model = Model(name="small", source="test", shape=SMALL)
    whole = local_models(resolve(Settings(model=model)))[0].numel
    halved = local_models(resolve(Settings(model=model, world_size=2, tp=2)))[0].numel
    norms = (2 * SMALL.num_layers + 1) * SMALL.hidden_size
    assert halved == (whole - norms) / 2 + norms


def test_sequence_and_loss_parallelism_divide_what_they_say() -> None:
    said = {"world_size": 4, "tp": 4, "strategy": DataParallel.FSDP}
    plain = job_estimate(sequence_parallel=False, loss_parallel=False, **said)
    loss = job_estimate(sequence_parallel=False, loss_parallel=True, **said)
    tokens = job_estimate(sequence_parallel=True, loss_parallel=False, **said)

    def of(found: Estimate, category: Category) -> float:
        return found.worst.moments[1].of(category)

    # A quarter of the words, and one more fp32 copy of them.
    assert of(loss, Category.LOGITS) == pytest.approx(of(plain, Category.LOGITS) / 4 * 18 / 14)
    assert of(tokens, Category.ACTIVATIONS) < of(plain, Category.ACTIVATIONS)
    assert of(tokens, Category.LOGITS) == of(plain, Category.LOGITS)


def test_context_parallelism_divides_tokens_and_adds_a_ring() -> None:
    one = job_estimate(world_size=2, dp_shard=2, strategy=DataParallel.FSDP, seq_len=8192)
    two = job_estimate(world_size=2, cp=2, dp_shard=1, strategy=DataParallel.FSDP, seq_len=8192)
    by_moment = {each.moment: each for each in two.worst.moments if each.step == 2}
    assert two.worst.peak.of(Category.ACTIVATIONS) < 0.6 * one.worst.peak.of(Category.ACTIVATIONS)
    assert by_moment[Moment.BACKWARD].of(Category.COMMUNICATION) > 0


def test_a_crowded_expert_fills_its_rank() -> None:
    def peak(imbalance: float, ep: int) -> float:
        found = job_estimate(
            EXPERTS,
            world_size=4,
            ep=ep,
            strategy=DataParallel.FSDP,
            expert_imbalance=imbalance,
            seq_len=16384,
        )
        return found.worst.moments[1].of(Category.ACTIVATIONS)

    assert peak(4.0, 4) > peak(2.0, 4) > peak(1.0, 4)
    assert peak(4.0, 1) == peak(1.0, 1), "without expert parallelism every rank holds all experts"


def test_experts_are_sharded_over_what_expert_parallelism_leaves() -> None:
    said = {"world_size": 8, "strategy": DataParallel.FSDP, "precision": Precision.FP32}
    spread = job_estimate(EXPERTS, ep=4, **said)
    together = job_estimate(EXPERTS, **said)
    # Whether experts lie apart or are cut into shards, a rank keeps an eighth of them.
    assert spread.worst.moments[0].num_bytes == pytest.approx(together.worst.moments[0].num_bytes)


def test_hsdp_shards_over_its_own_group_only() -> None:
    flat = job_estimate(world_size=8, dp_shard=8, strategy=DataParallel.FSDP)
    hybrid = job_estimate(world_size=8, dp_shard=2, dp_replicate=4, strategy=DataParallel.FSDP)
    assert states_bytes(hybrid.worst) == pytest.approx(4 * states_bytes(flat.worst))


def test_a_frozen_model_is_not_charged_for_states_that_it_has_not() -> None:
    model = preset("llama3-70b")
    frozen = estimate(resolve(Settings(model=model, adapter=Adapter(rank=8, base_bits=4), world_size=1)))
    held = states_bytes(frozen.worst) / GIB
    assert 33 < held < 42, "4-bit weights, embeddings in 16 bit, and adapters"


@pytest.mark.parametrize("kind", [DataParallel.NONE, DataParallel.DDP])
def test_frozen_weights_in_16_bit_are_not_cast_again(kind: DataParallel) -> None:
    said = {"strategy": kind, "world_size": 1 if kind is DataParallel.NONE else 2}
    trained, frozen = job_estimate(**said), job_estimate(**said, adapter=Adapter(rank=8, base_bits=16))
    numel = count_parameters(SMALL) - SMALL.vocab_size * SMALL.hidden_size

    def cast(result: Estimate) -> float:
        loss = next(each for each in result.worst.moments if each.moment is Moment.LOSS)
        return loss.of(Category.TEMPORARIES)

    assert cast(trained) == pytest.approx(2 * numel)
    assert cast(frozen) < 0.1 * cast(trained), "only the adapters are fp32"
    assert (
        resolve(
            Settings(model=Model(name="m", source="t", shape=SMALL), adapter=Adapter(rank=8, base_bits=16))
        ).residual_bytes
        == 2
    )


@pytest.mark.parametrize("kind", [DataParallel.NONE, DataParallel.DDP])
def test_copies_by_autocast_are_gone_when_gradients_are_complete(kind: DataParallel) -> None:
    said = {"strategy": kind, "world_size": 1 if kind is DataParallel.NONE else 2}
    cast = 2 * (count_parameters(SMALL) - SMALL.vocab_size * SMALL.hidden_size)
    first = {each.moment: each for each in job_estimate(**said).worst.moments if each.step == 1}
    assert first[Moment.BACKWARD].of(Category.TEMPORARIES) >= cast
    assert first[Moment.GRADIENTS_DONE].of(Category.TEMPORARIES) < cast


def test_offloaded_states_are_in_host_memory() -> None:
    said = {"world_size": 4, "strategy": DataParallel.ZERO3}
    out = job_estimate(offload_optimizer=Offload.CPU, offload_params=Offload.CPU, **said)
    assert states_bytes(out.worst) == 0
    # 2 of the parameter, 12 of master copy and moments, the gradient in 16 bit and in fp32.
    assert out.worst.host_bytes == pytest.approx(20 * count_parameters(SMALL) / 4)
    assert job_estimate(**said).worst.host_bytes == 0


def test_a_model_built_whole_peaks_at_the_start() -> None:
    whole = job_estimate(world_size=8, strategy=DataParallel.FSDP, meta_init=False, seq_len=16, micro_batch=1)
    meta = job_estimate(world_size=8, strategy=DataParallel.FSDP, meta_init=True, seq_len=16, micro_batch=1)
    extra = whole.worst.moments[0].num_bytes - meta.worst.moments[0].num_bytes
    assert extra == 4 * count_parameters(SMALL)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"world_size": 6, "tp": 4}, "does not divide"),
        ({"world_size": 8, "tp": 16}, "does not divide"),
        ({"world_size": 3, "tp": 3}, "attention heads"),
        ({"world_size": 16, "pp": 16}, "16 pipeline stages"),
        ({"world_size": 2, "ep": 2}, "no experts"),
        ({"world_size": 8, "dp_shard": 3}, "has 3 ranks"),
        ({"world_size": 0}, "no number of GPUs"),
        ({"world_size": 4, "tp": -2}, "1 or more"),
        ({"world_size": 4, "dp_shard": 0}, "1 or more"),
        ({"world_size": 8, "cp": 8, "seq_len": 4}, "less than one of 4 tokens"),
        (
            {"world_size": 4, "pp": 2, "virtual_stages": 2, "schedule": Schedule.ONE_F_ONE_B},
            "one stage on each",
        ),
        ({"seq_len": 0}, "seq len is 0"),
        ({"micro_batch": -1}, "micro batch is -1"),
        ({"expert_imbalance": float("nan")}, "nan"),
        ({"world_size": 4, "global_batch": 7}, "no multiple"),
        ({"world_size": 4, "strategy": DataParallel.NONE}, "need a strategy"),
        (
            {"world_size": 4, "strategy": DataParallel.ZERO_REDUNDANCY, "precision": Precision.MASTER},
            "no fp32 master copies",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(said: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        job_estimate(**said)


@given(
    kind=st.sampled_from(ALL),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 2]),
    tp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 8]),
    precision=st.sampled_from(list(Precision)),
    loop=st.sampled_from(list(OptimizerLoop)),
    mode=st.sampled_from(list(Checkpointing)),
    keeps=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_any_mesh_gives_a_finite_estimate_or_a_reason(
    kind: DataParallel,
    pp: int,
    dp: int,
    cp: int,
    tp: int,
    ep: int,
    precision: Precision,
    loop: OptimizerLoop,
    mode: Checkpointing,
    keeps: bool,
) -> None:
    said = {"pp": pp, "dp_shard": dp, "cp": cp, "tp": tp, "ep": ep, "strategy": kind, "precision": precision}
    try:
        found = job_estimate(
            EXPERTS, optimizer_loop=loop, checkpointing=mode, reshard_after_forward=not keeps, **said
        )
    except UsageError as error:
        assert error.message
        return
    low, high = found.need_bytes
    assert 0 < found.worst.peak.num_bytes < low <= high < 1e15
    assert len(found.roles) == pp


def test_reports_name_pages_that_are_there() -> None:
    docs = Path(__file__).parents[2]
    model = Model(name="small", source="test", shape=EXPERTS)
    said = Settings(
        model=model,
        world_size=32,
        pp=2,
        dp_replicate=2,
        dp_shard=2,
        tp=2,
        cp=2,
        ep=2,
        checkpointing=Checkpointing.FULL,
    )
    job = resolve(said)
    pages = pages_of(job, estimate(job))
    assert pages[0] == "docs/strategies/hsdp.md"
    assert {"docs/strategies/expert-parallel.md", "docs/strategies/device-mesh.md"} <= set(pages)
    others = {f"docs/strategies/{variant.page}.md" for variant in variants_of(job)}
    assert all((docs / page).is_file() for page in {*pages, *others})


def test_what_is_not_covered_never_fits() -> None:
    gpu = gpu_type("h100-80gb")
    small = job_estimate(world_size=8, strategy=DataParallel.MEGATRON_FSDP)
    assert small.not_covered
    assert fit_of(small, gpu).answer is Fits.UNKNOWN
    assert (
        fit_of(job_estimate(world_size=8, strategy=DataParallel.MEGATRON_DISTRIBUTED), gpu).answer is Fits.YES
    )
    large = replace(SMALL, num_layers=512, hidden_size=16384, ffn_size=65536)
    assert (
        fit_of(job_estimate(large, world_size=8, strategy=DataParallel.MEGATRON_FSDP), gpu).answer is Fits.NO
    )
