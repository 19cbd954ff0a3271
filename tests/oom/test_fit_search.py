"""The search for what makes a job fit: proposals really fit, none is larger than it must be, and the floor is told."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import parse_cluster
from distdoctor.oom.checks.fit import limit, proposals
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.failed import Failure
from distdoctor.oom.fit import Fits, fit_of
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.search.bubble import bubble_share
from distdoctor.oom.search.card import room_of
from distdoctor.oom.search.change import Axis, Effort, global_batch_of
from distdoctor.oom.search.confirm import Confirm, Confirmation, Confirmed
from distdoctor.oom.search.facts import facts_of_job
from distdoctor.oom.search.find import MAX_CHANGES, is_within, order
from distdoctor.oom.search.limits import Limit, Limited, confirmed_limit, find_limit
from distdoctor.oom.search.proposal import Outcome, Proposal
from distdoctor.oom.search.recompute import recompute_share
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.search import search
from distdoctor.oom.search.sentences import sentence
from distdoctor.oom.search.traffic import traffic_of
from distdoctor.oom.settings import (
    Adapter,
    Checkpointing,
    DataParallel,
    Precision,
    Schedule,
    Settings,
)
from distdoctor.oom.shape import Model
from distdoctor.report.checking import Found
from distdoctor.report.model import Severity
from distdoctor.units import GIB


def said(model: str, gpus: str, **more: object) -> Settings:
    number = parse_cluster(gpus).num_gpus
    return Settings(model=preset(model), world_size=number, **more)  # type: ignore[arg-type]


def found(model: str, gpus: str, **more: object) -> Outcome:
    room = Room(capacity=parse_cluster(gpus).type.total_bytes)
    return search(resolve(said(model, gpus, **more)), room)


def changes(proposal: Proposal) -> set[str]:
    return {change.short for change in proposal.trial.changes}


JOBS: list[tuple[str, str, dict[str, object]]] = [
    ("llama3-8b", "8xa100-40gb", {}),
    ("llama3-70b", "16xh100-80gb", {}),
    ("llama2-7b", "8x24GiB", {"strategy": DataParallel.DDP}),
    ("llama3-8b", "1xh100-80gb", {}),
    ("llama3-8b", "1xrtx-4090", {"adapter": Adapter(rank=16)}),
    ("mixtral-8x7b", "16xa100-80gb", {}),
    ("llama3-8b", "8xh100-80gb", {"seq_len": 131072}),
    ("llama3-70b", "64xh100-80gb", {"dp_replicate": 8, "dp_shard": 8}),
    ("llama3-70b", "8xa100-40gb", {"strategy": DataParallel.ZERO1}),
    ("llama3-8b", "8xh100-80gb", {"pp": 4, "schedule": Schedule.GPIPE, "accumulation_steps": 32}),
    ("llama3-70b", "32xa100-80gb", {"strategy": DataParallel.MEGATRON, "tp": 8}),
]


@pytest.mark.parametrize(("model", "gpus", "more"), JOBS)
def test_every_proposal_fits_when_it_is_estimated_again(
    model: str, gpus: str, more: dict[str, object]
) -> None:
    gpu = parse_cluster(gpus).type
    outcome = found(model, gpus, **more)
    assert outcome.proposals
    for proposal in outcome.proposals:
        again = estimate(resolve(proposal.trial.job.said))
        assert fit_of(again, gpu).answer is (Fits.TIGHT if outcome.is_only_perhaps else Fits.YES)
        assert again.need_bytes == pytest.approx(
            (proposal.trial.fit.need_low, proposal.trial.fit.need_high), rel=1e-9
        )


@pytest.mark.parametrize(("model", "gpus", "more"), JOBS)
def test_no_proposal_holds_another_and_none_has_a_change_to_spare(
    model: str, gpus: str, more: dict[str, object]
) -> None:
    proposals = [each.trial for each in found(model, gpus, **more).proposals]
    for one in proposals:
        assert len(one.changes) <= MAX_CHANGES
        assert len(one.axes) == len(one.changes)
        for other in proposals:
            assert one is other or not is_within(one, other)
    same_gpus = [each for each in proposals if each.effort is not Effort.GPUS]
    more_gpus = [each for each in proposals if each.effort is Effort.GPUS]
    assert proposals == sorted(proposals, key=lambda each: order(each)[:2])
    assert same_gpus == sorted(same_gpus, key=order)
    assert not more_gpus or more_gpus[0].job.mesh.num_ranks == min(
        each.job.mesh.num_ranks for each in more_gpus
    )


@pytest.mark.parametrize(("model", "gpus", "more"), JOBS)
def test_without_any_one_of_its_changes_a_proposal_does_not_fit(
    model: str, gpus: str, more: dict[str, object]
) -> None:
    from distdoctor.oom.search.trial import Trials

    room = Room(capacity=parse_cluster(gpus).type.total_bytes)
    trials = Trials(resolve(said(model, gpus, **more)), room)
    for proposal in search(resolve(said(model, gpus, **more)), room).proposals:
        for change in proposal.trial.changes:
            fewer = trials.again(proposal.trial.key - {change.key})
            assert fewer is None or fewer.fit.answer is not Fits.YES


def test_the_nearest_to_todays_settings_stands_first() -> None:
    outcome = found("llama3-8b", "8xa100-40gb")
    assert changes(outcome.proposals[0]) == {"selective checkpointing"}
    efforts = [each.trial.effort for each in outcome.proposals]
    assert efforts == sorted(efforts)
    assert efforts[-1] is Effort.GPUS


def test_of_more_gpus_the_fewest_are_proposed_and_rather_without_memory_of_the_host() -> None:
    more = [each for each in found("llama3-8b", "4xa100-40gb").proposals if each.trial.effort is Effort.GPUS]
    assert more[0].trial.job.mesh.num_ranks == 8
    assert more[0].costs.host_bytes == 0


def near(**simulated: int) -> Outcome:
    """Mixtral on a card that it misses by half a GiB by formula, simulated."""
    job = resolve(said("mixtral-8x7b", "32xh100-80gb", ep=8, expert_imbalance=1.5))
    room = Room(capacity=parse_cluster("h100-80gb").type.total_bytes)
    return search(job, room, confirm=lambda _: Confirmed(peak_allocated_bytes=0, **simulated))


def test_a_job_that_is_near_the_limit_is_simulated_as_it_is() -> None:
    fits, too_large = near(peak_reserved_bytes=70 * GIB).today, near(peak_reserved_bytes=79 * GIB).today
    assert fits is not None and too_large is not None
    assert fits.confirmation is Confirmation.FITS
    assert too_large.confirmation is Confirmation.TOO_LARGE
    low, high = fits.simulated_need or (0.0, 0.0)
    assert 70 * GIB < low < high < 76 * GIB


def test_a_simulation_that_has_room_takes_the_edge_off_a_near_miss() -> None:
    job = said("mixtral-8x7b", "32xh100-80gb", ep=8, expert_imbalance=1.5)
    found_of = {
        gib: proposals.CHECK.run(
            facts_of_job(
                job,
                parse_cluster("32xh100-80gb"),
                confirm=lambda _, gib=gib: Confirmed(  # type: ignore[misc]
                    peak_allocated_bytes=0, peak_reserved_bytes=gib * GIB
                ),
            )
        )[0]
        for gib in (70, 79)
    }
    fits, too_large = found_of[70], found_of[79]
    assert isinstance(fits, Found) and isinstance(too_large, Found)
    assert (fits.severity, too_large.severity) == (Severity.WARNING, Severity.CRITICAL)
    assert "simulated it does" in fits.title
    assert any("simulated as it is: needs 8" in each.text for each in too_large.evidence)


def test_a_job_that_failed_is_not_talked_into_its_card() -> None:
    job = resolve(said("mixtral-8x7b", "32xh100-80gb", ep=8, expert_imbalance=1.5))
    room = Room(capacity=parse_cluster("h100-80gb").type.total_bytes)
    fits = Confirmed(peak_allocated_bytes=0, peak_reserved_bytes=70 * GIB)
    assert search(job, room, confirm=lambda _: fits, has_failed=True).today is None


def test_a_factor_that_a_failure_showed_is_laid_on_simulations_too() -> None:
    made = estimate(resolve(said("llama3-8b", "8xh100-80gb")))
    plain, stretched = (
        Room(capacity=80 * GIB, factor=factor).need_of_held(40 * GIB, made) for factor in (1.0, 1.25)
    )
    assert stretched[0] - plain[0] == pytest.approx(10 * GIB)
    assert plain[0] > 40 * GIB


def test_nothing_fits_is_not_said_of_a_job_that_has_room_in_simulation() -> None:
    floor = found("deepseek-v3", "8xa100-40gb").floor
    assert floor is not None
    # Nothing makes that one smaller, and the card is a little too small for it.
    job, room = floor.smallest.job, Room(capacity=floor.smallest.fit.need_low * 0.97)
    assert search(job, room).floor is not None
    outcome = search(job, room, confirm=lambda _: Confirmed(peak_allocated_bytes=int(room.usable / 2)))
    assert outcome.today is not None and outcome.today.confirmation is Confirmation.FITS
    assert outcome.floor is None


def test_a_job_that_is_far_from_it_is_not() -> None:
    job = resolve(said("llama3-70b", "8xa100-40gb"))
    room = Room(capacity=parse_cluster("a100-40gb").type.total_bytes)
    assert search(job, room, confirm=lambda _: "not now").today is None


def limit_of(confirm: Confirm) -> tuple[Limit, Limit, Room]:
    """(by formula, with simulations) of the longest sequence."""
    job = resolve(said("llama3-8b", "8xa100-40gb", checkpointing=Checkpointing.FULL))
    room = Room(capacity=parse_cluster("a100-40gb").type.total_bytes)
    by_formula = find_limit(job, room, Limited.SEQ_LEN)
    assert by_formula is not None
    return by_formula, confirmed_limit(job, room, by_formula, confirm), room


def test_a_limit_is_lowered_until_a_simulation_confirms_it() -> None:
    asked: list[int] = []

    def confirm(settings: Settings) -> Confirmed:
        asked.append(settings.seq_len or 0)
        return Confirmed(peak_allocated_bytes=0, peak_reserved_bytes=5 * (settings.seq_len or 0) << 20)

    by_formula, confirmed, room = limit_of(confirm)
    assert confirmed.confirmation is Confirmation.FITS
    assert asked[0] == by_formula.largest and asked == sorted(asked, reverse=True) and len(asked) > 1
    assert confirmed.largest == asked[-1] and confirmed.beyond == asked[-2]
    assert confirmed.largest % 128 == 0
    assert confirmed.simulated_need is not None and confirmed.simulated_need[1] <= room.usable


def test_a_limit_that_no_simulation_confirms_is_refuted() -> None:
    by_formula, refuted, _ = limit_of(lambda _: Confirmed(peak_allocated_bytes=80 * GIB))
    assert refuted.confirmation is Confirmation.TOO_LARGE
    assert refuted.largest == by_formula.largest
    cluster = parse_cluster("8xa100-40gb")
    facts = facts_of_job(
        said("llama3-8b", "8xa100-40gb", checkpointing=Checkpointing.FULL),
        cluster,
        limited=Limited.SEQ_LEN,
        confirm=lambda _: Confirmed(peak_allocated_bytes=80 * GIB),
    )
    (outcome,) = limit.CHECK.run(facts)
    assert isinstance(outcome, Found)
    assert "simulated it does not" in outcome.title


def test_a_limit_that_cannot_be_simulated_stays_the_formulas() -> None:
    by_formula, kept, _ = limit_of(lambda _: "no torch")
    assert kept.confirmation is Confirmation.NOT_POSSIBLE
    assert kept.largest == by_formula.largest


def test_a_70b_model_on_16_gpus_needs_two_changes() -> None:
    outcome = found("llama3-70b", "16xh100-80gb")
    assert changes(outcome.proposals[0]) == {"8-bit AdamW", "full checkpointing"}
    assert outcome.proposals[0].costs.numerics


def test_ddp_on_small_cards_is_sharded_first() -> None:
    outcome = found("llama2-7b", "8x24GiB", strategy=DataParallel.DDP)
    assert changes(outcome.proposals[0]) == {"FSDP2", "full checkpointing"}
    assert outcome.proposals[0].trial.job.mesh.dp_shard == 8


def test_one_gpu_is_offered_zero_offload_and_several_gpus() -> None:
    outcome = found("llama3-8b", "1xh100-80gb")
    first = outcome.proposals[0]
    assert first.trial.job.strategy is DataParallel.ZERO2
    assert first.costs.host_bytes > 60 * GIB
    assert any("4 GPUs with FSDP2" in changes(each) for each in outcome.proposals)


def test_gpipe_becomes_1f1b() -> None:
    outcome = found(
        "llama3-8b", "8xh100-80gb", pp=4, schedule=Schedule.GPIPE, accumulation_steps=32, micro_batch=2
    )
    assert any({"1F1B", "interleaved 1F1B"} & changes(each) for each in outcome.proposals)


def test_replicas_become_wider_shards() -> None:
    outcome = found("llama3-70b", "64xh100-80gb", dp_replicate=8, dp_shard=8)
    assert any(Axis.SHARDS in each.trial.axes for each in outcome.proposals)


def test_the_global_batch_stays_where_fewer_sequences_go_at_once() -> None:
    outcome = found("llama3-8b", "8xa100-80gb", micro_batch=8)
    for proposal in outcome.on_same_gpus:
        assert global_batch_of(proposal.trial.job) == 64
    small = next(each for each in outcome.proposals if Axis.MICRO_BATCH in each.trial.axes)
    assert small.trial.job.num_micro_batches * small.trial.job.micro_batch == 8


def test_more_gpus_say_that_the_global_batch_grows() -> None:
    outcome = found("llama3-8b", "8xa100-40gb")
    more = next(each for each in outcome.proposals if each.trial.effort is Effort.GPUS)
    assert not more.costs.keeps_batch
    assert "global batch" in sentence(more, outcome)


def test_the_fewest_layers_that_must_be_checkpointed_are_told() -> None:
    outcome = found("llama3-70b", "16xh100-80gb")
    first = outcome.proposals[0]
    assert first.least_layers is not None
    least, all_of_them = first.least_layers
    assert 0 < least < all_of_them == 80
    gpu = parse_cluster("h100-80gb").type
    for number, answer in ((least, True), (least - 1, False)):
        made = estimate(resolve(replace(first.trial.job.said, checkpoint_layers=number)))
        assert (fit_of(made, gpu).answer is Fits.YES) is answer


def test_nothing_fits_is_said_with_what_is_missing_and_why() -> None:
    outcome = found("deepseek-v3", "8xa100-40gb")
    floor = outcome.floor
    assert floor is not None
    assert not outcome.on_same_gpus
    assert floor.missing > 500 * GIB
    assert floor.what == "model states on one rank"
    assert floor.gpus is not None and floor.gpus > 64


def test_what_no_host_can_hold_is_neither_a_way_nor_the_floor() -> None:
    # By activation offloading alone it would fit, with terabytes on each host.
    outcome = found("llama3-70b", "8xa100-40gb", seq_len=131072)
    assert outcome.on_same_gpus
    assert all(each.costs.host_bytes <= 512 * GIB for each in outcome.proposals)
    floor = found("llama3-405b", "8x24GiB", seq_len=131072).floor
    assert floor is not None
    assert floor.missing > 24 * GIB
    assert floor.smallest.host_bytes <= 512 * GIB


def test_a_floor_of_a_little_names_a_larger_card() -> None:
    floor = found("llama3-8b", "1xv100-16gb").floor
    assert floor is not None
    assert 0 < floor.missing < 16 * GIB
    assert floor.cards and all(card.total_bytes > 16 * GIB for card in floor.cards)


def test_a_job_that_fits_gets_no_proposals_but_what_would_use_the_room() -> None:
    cluster = parse_cluster("8xh100-80gb")
    facts = facts_of_job(said("llama3-8b", "8xh100-80gb"), cluster)
    assert facts.outcome is not None and not facts.outcome.proposals
    assert {each.what for each in facts.limits} == set(Limited)


@pytest.mark.parametrize("what", list(Limited))
def test_a_limit_fits_and_the_next_value_does_not(what: Limited) -> None:
    gpu = parse_cluster("8xh100-80gb").type
    job = resolve(said("llama3-8b", "8xh100-80gb", checkpointing=Checkpointing.FULL))
    limit = find_limit(job, Room(capacity=gpu.total_bytes), what)
    assert limit is not None and limit.largest is not None and limit.beyond is not None
    name = "micro_batch" if what is Limited.MICRO_BATCH else "seq_len"
    for value, answer in ((limit.largest, True), (limit.beyond, False)):
        made = estimate(resolve(replace(job.said, **{name: value})))  # type: ignore[arg-type]
        assert (fit_of(made, gpu).answer is Fits.YES) is answer


def test_a_limit_of_a_job_that_never_fits() -> None:
    job = resolve(said("llama3-70b", "8xa100-40gb"))
    limit = find_limit(job, Room(capacity=40 * GIB), Limited.MICRO_BATCH)
    assert limit is not None and limit.largest is None


def test_states_alone_make_no_promise() -> None:
    model = Model(name="70B", source="--params", stated_params=70_000_000_000)
    job = resolve(Settings(model=model, world_size=16))
    outcome = search(job, Room(capacity=parse_cluster("a100-80gb").type.total_bytes))
    assert outcome.proposals
    assert {each.trial.fit.answer for each in outcome.proposals} == {Fits.UNKNOWN}
    assert all(each.trial.fit.headroom_low >= 0 for each in outcome.proposals)
    assert find_limit(job, Room(capacity=80 * GIB), Limited.MICRO_BATCH) is None


def test_what_others_hold_is_left_to_them() -> None:
    alone = found("llama3-8b", "8xa100-40gb")
    total = parse_cluster("a100-40gb").type.total_bytes
    shared = search(resolve(said("llama3-8b", "8xa100-40gb")), Room(capacity=total, held_by_others=12 * GIB))
    assert all(each.trial.fit.need_high <= total - 12 * GIB for each in shared.proposals)
    assert changes(shared.proposals[0]) != changes(alone.proposals[0])


def failure(**numbers: object) -> Failure:
    values: dict[str, object] = {
        "path": "x.json",
        "rank": 0,
        "total_bytes": round(39.39 * GIB),
        "allocated_bytes": 42 * GIB,
        "requested_bytes": 2 * GIB,
        "phase": "later step",
    }
    return Failure(**{**values, **numbers})  # type: ignore[arg-type]


def test_a_failure_beyond_the_estimate_stretches_it() -> None:
    cluster = parse_cluster("8xa100-40gb")
    now = estimate(resolve(said("llama3-8b", "8xa100-40gb")))
    room = room_of(cluster, now, failure())
    assert room.factor == pytest.approx(44 * GIB / now.worst.peak.num_bytes)
    assert room.need(now)[0] > now.need_bytes[0]


def test_a_failure_of_another_job_stretches_nothing() -> None:
    now = estimate(resolve(said("llama3-8b", "8xa100-40gb")))
    assert room_of(parse_cluster("8xa100-40gb"), now, failure(allocated_bytes=90 * GIB)).factor == 1.0


def test_what_a_failure_says_of_another_card_is_not_applied() -> None:
    numbers = failure(others_bytes=9 * GIB, allowed_bytes=30 * GIB, outside_bytes=3 * GIB)
    same = room_of(parse_cluster("8xa100-40gb"), None, numbers)
    other = room_of(parse_cluster("8xh100-80gb"), None, numbers)
    assert (same.held_by_others, same.outside, same.capacity) == (9 * GIB, 3 * GIB, 30 * GIB)
    assert (other.held_by_others, other.outside) == (0, None)


def confirming(**sizes: float) -> object:
    """A simulation that knows jobs by their checkpointing."""

    def confirm(settings: Settings) -> Confirmed | str:
        gib = sizes.get(settings.checkpointing.value if settings.checkpointing else "none")
        if gib is None:
            return "not known here"
        return Confirmed(peak_allocated_bytes=round(gib * GIB), peak_reserved_bytes=None, seconds=1.0)

    return confirm


def test_the_best_three_are_confirmed_and_what_is_refuted_comes_last() -> None:
    cluster = parse_cluster("8xa100-40gb")
    facts = facts_of_job(
        said("llama3-8b", "8xa100-40gb"),
        cluster,
        confirm=confirming(selective=60.0, none=20.0),  # type: ignore[arg-type]
    )
    assert facts.outcome is not None and facts.was_simulated
    proposals = facts.outcome.proposals
    assert proposals[-1].confirmation is Confirmation.TOO_LARGE
    assert "does not fit" in proposals[-1].confirmation_words
    assert [each.confirmation for each in proposals[:3]] == [Confirmation.FITS] * 3
    assert "confirmed by simulation: 20.0 GiB" in proposals[0].confirmation_words
    assert proposals[3].confirmation is Confirmation.NOT_ASKED
    assert proposals[-1] not in facts.outcome.holding


def test_what_cannot_be_simulated_says_so() -> None:
    facts = facts_of_job(
        said("llama3-8b", "8xa100-40gb"),
        parse_cluster("8xa100-40gb"),
        confirm=lambda _: "no torch here",
    )
    assert facts.outcome is not None
    assert facts.outcome.proposals[0].confirmation is Confirmation.NOT_POSSIBLE


def test_costs_are_those_of_the_papers() -> None:
    base = resolve(said("llama3-8b", "8xa100-40gb", checkpointing=Checkpointing.FULL))
    assert 0.28 < recompute_share(base) <= 1 / 3
    half = replace(base, said=replace(base.said, checkpoint_layers=16))
    assert recompute_share(half) == pytest.approx(recompute_share(base) / 2)
    # Two gatherings in 16 bit and one reduction in fp32: (2 x 2 + 4) B x 7/8 of the parameters.
    assert traffic_of(base).shards == pytest.approx(8 * 7 / 8 * base.num_params, rel=1e-6)
    kept = replace(base, reshard_after_forward=False)
    assert traffic_of(kept).shards == pytest.approx(6 * 7 / 8 * base.num_params, rel=1e-6)
    piped = resolve(said("llama3-8b", "8xa100-40gb", pp=4, accumulation_steps=8))
    assert bubble_share(piped) == pytest.approx(3 / 11)
    looped = resolve(
        said("llama3-8b", "8xa100-40gb", pp=4, accumulation_steps=8, schedule=Schedule.INTERLEAVED)
    )
    assert bubble_share(looped) == pytest.approx(3 / 19)


def test_tensor_parallelism_costs_four_all_reduces_a_layer() -> None:
    job = resolve(said("llama3-8b", "8xa100-40gb", tp=8))
    one = 2 * 7 / 8 * 4096 * 4096 * 2
    assert traffic_of(job).tp == pytest.approx(32 * 4 * one)
    again = replace(job, checkpointing=Checkpointing.FULL)
    assert traffic_of(again).tp == pytest.approx(32 * 6 * one)


def test_a_ring_sends_keys_and_values_of_all_other_ranks() -> None:
    job = resolve(said("llama3-8b", "8xa100-40gb", cp=4, seq_len=32768))
    assert traffic_of(job).cp == pytest.approx(32 * 3 * 3 * 8192 * 2 * 1024 * 2)


def test_a_sentence_says_what_to_do_what_it_needs_and_what_it_costs() -> None:
    outcome = found("llama3-8b", "8xa100-40gb")
    text = sentence(outcome.proposals[0], outcome)
    assert text.startswith("Selective activation checkpointing: each rank needs ")
    assert "of 39.4 instead of 42 to 52" in text
    assert "more computation; same global batch" in text


@pytest.mark.once
def test_the_search_is_quick_where_it_looks_longest() -> None:
    started = time.process_time()
    for model, gpus, more in JOBS:
        found(model, gpus, **more)
    assert time.process_time() - started < 3 * len(JOBS)


@pytest.mark.once
def test_deep_models_are_searched_less_instead_of_long() -> None:
    shape = replace(preset("llama3-8b").shape, num_layers=1500)  # type: ignore[type-var]
    job = resolve(Settings(model=Model(name="deep", source="--layers", shape=shape), world_size=8))
    started = time.process_time()
    search(job, Room(capacity=80 * GIB))
    assert time.process_time() - started < 15


MODELS = st.sampled_from(["llama3.2-1b", "llama3-8b", "llama3-70b", "mixtral-8x7b"])
SETTINGS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(
            [DataParallel.DDP, DataParallel.FSDP, DataParallel.ZERO1, DataParallel.ZERO3]
        ),
        "micro_batch": st.integers(1, 24),
        "seq_len": st.sampled_from([2048, 4096, 8192, 32768]),
        "accumulation_steps": st.integers(1, 8),
        "checkpointing": st.sampled_from(list(Checkpointing)),
        "precision": st.sampled_from([Precision.MIXED, Precision.MASTER]),
    }
)


@pytest.mark.once
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=MODELS,
    number=st.sampled_from([2, 8, 24]),
    gib=st.integers(12, 140),
    others=st.integers(0, 6),
    more=SETTINGS,
)
def test_whatever_the_job_proposals_fit_and_none_is_dominated(
    model: str, number: int, gib: int, others: int, more: dict[str, object]
) -> None:
    room = Room(capacity=gib * GIB, held_by_others=others * GIB)
    job = resolve(Settings(model=preset(model), world_size=number, **more))  # type: ignore[arg-type]
    outcome = search(job, room)
    if outcome.fits_already:
        assert not outcome.proposals and outcome.floor is None
        return
    assert outcome.proposals or outcome.floor is not None
    assert outcome.floor is None or outcome.floor.missing_high > 0
    for proposal in outcome.proposals:
        again = room.fit(estimate(resolve(proposal.trial.job.said)))
        assert again.answer in ((Fits.TIGHT, Fits.YES) if outcome.is_only_perhaps else (Fits.YES,))
        assert again.need_low <= (gib - others) * GIB
        assert sentence(proposal, outcome)
        if proposal.trial.effort is not Effort.GPUS:
            assert proposal.trial.job.mesh.num_ranks == number
            # Rounded up where ranks and micro-batch do not divide it.
            assert proposal.costs.global_batch >= proposal.costs.global_batch_before
    for one in outcome.proposals:
        assert not any(is_within(other.trial, one.trial) for other in outcome.proposals if other is not one)


def test_a_model_is_needed() -> None:
    with pytest.raises(UsageError, match="no model"):
        facts_of_job(Settings(world_size=8), parse_cluster("8xa100-40gb"))


def test_a_failure_alone_is_no_search() -> None:
    facts = FitFacts(cluster=None, failure=failure())
    assert facts.outcome is None


def test_where_simulations_refute_everything_no_way_is_promised() -> None:
    from distdoctor.oom.checks.fit.all import FIT_CHECKS
    from distdoctor.report.checking import run_checks

    facts = facts_of_job(
        said("llama3-8b", "1xh100-80gb"),
        parse_cluster("1xh100-80gb"),
        confirm=lambda _: Confirmed(peak_allocated_bytes=200 * GIB),
    )
    assert facts.outcome is not None and not facts.outcome.holding
    findings, _, results = run_checks(FIT_CHECKS, facts)
    by_id = {each.id: each for each in findings}
    assert "simulation refutes" in by_id["oom-fit-proposals"].title
    assert "oom-fit-simulated" in by_id
    assert next(each for each in results if each.id == "oom-fit-floor").state.value == "not applicable"
