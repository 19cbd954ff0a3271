"""Memory over time: bounded, true at every point, with the peak of each span; spans that people can follow; the picture."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import PhasePeak, RoleSimulation, Simulation
from distdoctor.oom.memory.log import Event, MemoryLog, Phase, Place, Storage
from distdoctor.oom.memory.peaks import Peaks, as_allocated, peaks_of
from distdoctor.oom.memory.spans import MAX_SPANS, spans_of
from distdoctor.oom.memory.timeline import MAX_POINTS, timeline_of
from distdoctor.oom.simulation.facts import SimulationFacts
from distdoctor.oom.simulation.pictures import simulation_series
from distdoctor.report.reading import series_rows
from distdoctor.report.spans import highest, span_peaks
from distdoctor.units import GIB

CATEGORIES = (Category.PARAMETERS, Category.ACTIVATIONS, Category.LOGITS)
Moments = list[tuple[int, Phase]]


def step(number: int, *phases: Phase) -> Moments:
    return [(number, phase) for phase in phases]


def plain_steps(each: int = 1) -> Moments:
    """Two steps, `each` events in every phase; the backward pass recomputes 32 layers."""
    backward = (Phase.BACKWARD, Phase.RECOMPUTATION) * 32
    phases = (Phase.DATA, Phase.FORWARD, Phase.LOSS, *backward, Phase.OPTIMIZER_STEP)
    found = [(0, Phase.INITIALISATION), *step(1, *phases), *step(2, *phases)]
    return [moment for moment in found for _ in range(each)]


def log_of(moments: Moments, seed: int = 0) -> tuple[MemoryLog, list[Category]]:
    """At each moment a storage of one of three categories is born, grows or dies."""
    chance = random.Random(seed)
    log, categories = MemoryLog(), []
    for number, (at, phase) in enumerate(moments):
        log.places.append(Place(step=at, phase=phase))
        if not log.storages or chance.random() < 0.6:
            log.storages.append(Storage())
            categories.append(chance.choice(CATEGORIES))
            storage, num_bytes = len(log.storages) - 1, chance.randrange(1, 1 << 20)
        else:
            storage, num_bytes = chance.randrange(len(log.storages)), chance.choice((0, 4096))
        log.events.append(Event(storage, num_bytes, number))
    return log, categories


# --- spans ---


def test_recomputation_is_inside_the_backward_pass_and_the_batch_in_the_forward_pass() -> None:
    assert [words for _, words in spans_of(plain_steps())] == [
        "initialisation",
        "step 1: forward",
        "step 1: loss",
        "step 1: backward",
        "step 1: optimizer step",
        "step 2: forward",
        "step 2: loss",
        "step 2: backward",
        "step 2: optimizer step",
    ]


def test_spans_begin_where_their_names_begin() -> None:
    moments = plain_steps()
    begins = {words: index for index, words in spans_of(moments)}
    assert begins["initialisation"] == 0
    assert moments[begins["step 1: backward"]] == (1, Phase.BACKWARD)
    assert moments[begins["step 1: backward"] - 1] == (1, Phase.LOSS)
    assert moments[begins["step 2: forward"]] == (2, Phase.DATA)


def test_a_few_micro_batches_are_numbered() -> None:
    moments = step(1, *(Phase.FORWARD, Phase.BACKWARD) * 2, Phase.OPTIMIZER_STEP)
    assert [words for _, words in spans_of(moments)] == [
        "step 1: forward",
        "step 1: backward",
        "step 1: forward 2",
        "step 1: backward 2",
        "step 1: optimizer step",
    ]


def test_micro_batches_that_take_turns_are_one_span() -> None:
    turns = (Phase.FORWARD, Phase.LOSS, Phase.BACKWARD) * 16
    moments = [*step(1, *turns, Phase.OPTIMIZER_STEP), *step(2, *turns, Phase.OPTIMIZER_STEP)]
    assert [words for _, words in spans_of(moments)] == [
        "step 1: forward and backward",
        "step 1: optimizer step",
        "step 2: forward and backward",
        "step 2: optimizer step",
    ]


def test_an_optimizer_step_inside_the_backward_pass_leaves_the_steps() -> None:
    turns = (Phase.BACKWARD, Phase.OPTIMIZER_STEP) * 40
    moments = [(0, Phase.INITIALISATION), *step(1, *turns), *step(2, *turns)]
    assert spans_of(moments) == ((0, "initialisation"), (1, "step 1"), (81, "step 2"))


def test_nothing_has_no_spans() -> None:
    assert spans_of([]) == ()


# --- points ---


@pytest.mark.parametrize("each", [1, 2, 40])
@pytest.mark.parametrize("seed", range(4))
def test_there_are_at_most_so_many_points_and_every_peak_is_among_them(each: int, seed: int) -> None:
    moments = plain_steps(each)
    log, categories = log_of(moments, seed)
    points = timeline_of(log, categories, counted=as_allocated)
    assert 0 < len(points) <= MAX_POINTS
    told = {point.event: point for point in points}
    spans = spans_of(moments)
    for (begin, _), end in zip(spans, [*(begin for begin, _ in spans[1:]), len(moments)], strict=True):
        totals = brute_totals(log, begin, end)
        assert max(totals.values()) == max(
            point.num_bytes for event, point in told.items() if begin <= event < end
        )


def brute_totals(log: MemoryLog, begin: int, end: int) -> dict[int, int]:
    sizes: dict[int, int] = {}
    totals = {}
    for number, event in enumerate(log.events):
        sizes[event.storage] = as_allocated(event.num_bytes)
        if begin <= number < end:
            totals[number] = sum(sizes.values())
    return totals


def test_every_point_is_a_true_moment_by_category() -> None:
    log, categories = log_of(plain_steps(20))
    for point in timeline_of(log, categories):
        sizes = {each.storage: each.num_bytes for each in log.events[: point.event + 1]}
        for category in CATEGORIES:
            expected = sum(size for storage, size in sizes.items() if categories[storage] is category)
            assert point.by_category.get(category, 0) == expected
        place = log.places[log.events[point.event].place]
        assert (point.step, point.phase) == (place.step, place.phase)


def test_the_highest_point_is_the_peak_of_the_log() -> None:
    log, categories = log_of(plain_steps(100), seed=7)
    peaks = peaks_of(log, categories, counted=as_allocated)
    assert peaks is not None
    best = max(timeline_of(log, categories, counted=as_allocated), key=lambda point: point.num_bytes)
    assert (best.num_bytes, best.by_category) == (peaks.overall.num_bytes, peaks.overall.by_category)


def test_points_are_in_the_order_of_time_and_keep_the_spans_of_the_log() -> None:
    moments = plain_steps(50)
    log, categories = log_of(moments)
    points = timeline_of(log, categories)
    assert [point.event for point in points] == sorted({point.event for point in points})
    kept = spans_of([(point.step, point.phase) for point in points])
    assert [words for _, words in kept] == [words for _, words in spans_of(moments)]
    assert len(kept) <= MAX_SPANS


def test_a_short_span_keeps_its_shape_beside_very_long_ones() -> None:
    moments = [*step(1, *[Phase.FORWARD] * 20_000, *[Phase.LOSS] * 8, *[Phase.BACKWARD] * 20_000)]
    log, categories = log_of(moments)
    points = timeline_of(log, categories)
    assert len([point for point in points if point.phase is Phase.LOSS]) >= 4
    assert len(points) <= MAX_POINTS


def test_few_events_are_all_there_and_none_give_no_points() -> None:
    log, categories = log_of(step(1, *[Phase.FORWARD] * 5))
    assert [point.event for point in timeline_of(log, categories)] == [0, 1, 2, 3, 4]
    assert timeline_of(MemoryLog(), []) == ()


def test_a_log_of_very_many_turns_is_bounded_too() -> None:
    turns = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER_STEP) * 500
    log, categories = log_of([*step(1, *turns), *step(2, *turns)])
    points = timeline_of(log, categories)
    assert len(points) <= MAX_POINTS
    assert len(spans_of([(point.step, point.phase) for point in points])) <= MAX_SPANS


# --- the picture ---


def test_the_picture_of_a_simulation_has_a_row_a_span_and_the_peak_of_the_log() -> None:
    log, categories = log_of(plain_steps(30), seed=3)
    # Sizes of a model: the picture counts in GiB.
    log.events = [Event(each.storage, each.num_bytes << 10, each.place) for each in log.events]
    peaks = peaks_of(log, categories)
    assert peaks is not None
    role = RoleSimulation(role="every rank", rank=0, num_ranks=8, timeline=timeline_of(log, categories))
    facts = SimulationFacts(
        simulation=Simulation(roles=(replace(role, peaks=phase_peaks(peaks)),)), title="t", model="m"
    )
    (series,) = simulation_series(facts)
    assert series.kind == "areas"
    assert [row[0] for row in series_rows(series)[1]] == [words for _, words in spans_of(plain_steps())]
    top = highest(span_peaks(series))
    assert top is not None
    assert top.peak.total == pytest.approx(peaks.overall.num_bytes / GIB, abs=0.002)


def phase_peaks(peaks: Peaks) -> tuple[PhasePeak, ...]:
    return tuple(
        PhasePeak(
            step=each.place.step,
            phase=each.place.phase,
            place=each.place,
            num_bytes=each.num_bytes,
            by_category=each.by_category,
        )
        for each in peaks.by_phase.values()
    )
