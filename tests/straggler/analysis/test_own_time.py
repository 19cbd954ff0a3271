"""Own time and waiting out of whatever sections there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distdoctor.straggler.analysis.ranks.own_time import Basis, OwnTime, own_time_of, whole_own_time_of
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from straggler.worlds import OWN_MS, TRANSFER_MS, Slow, job, only

S = Section
PARTS = (S.DATA, S.FORWARD, S.BACKWARD, S.OPTIMIZER)


def own_of(timings: StepTimings) -> OwnTime:
    own_time = own_time_of(timings)
    assert own_time is not None
    return own_time


@pytest.mark.parametrize(
    ("sections", "basis", "derived"),
    [
        ((*PARTS, S.WAIT, S.STEP), Basis.SECTIONS, False),
        (PARTS, Basis.SECTIONS, False),
        ((*PARTS, S.STEP), Basis.SECTIONS, True),
        ((S.WAIT, S.STEP), Basis.STEP_LESS_WAIT, True),
        ((S.WAIT,), Basis.WAIT_ONLY, True),
        ((S.STEP,), Basis.WALL_ONLY, True),
    ],
)
def test_the_best_basis_that_the_sections_allow(
    sections: tuple[Section, ...], basis: Basis, derived: bool
) -> None:
    own_time = own_of(only(job(4, 10), *sections))
    assert (own_time.basis, own_time.wait_is_derived) == (basis, derived)


def test_own_time_is_the_sum_of_its_parts() -> None:
    timings = job(4, 10, noise=0)
    own_time = own_of(timings)
    np.testing.assert_allclose(own_time.own, OWN_MS)
    assert own_time.wait is not None
    assert own_time.own_share == pytest.approx(OWN_MS / (OWN_MS + TRANSFER_MS), abs=0.01)
    assert own_time.own_sections == PARTS


def test_waiting_that_was_not_measured_is_what_the_parts_leave_of_the_step() -> None:
    timings = job(4, 10)
    own_time = own_of(only(timings, *PARTS, S.STEP))
    assert own_time.wait is not None
    np.testing.assert_allclose(own_time.wait, timings.sections[S.WAIT], atol=1e-3)


def test_backward_with_and_without_its_collectives_tells_the_waiting() -> None:
    timings = job(4, 10)
    sections = {
        S.BACKWARD: timings.sections[S.BACKWARD],
        S.BACKWARD_WALL: timings.sections[S.BACKWARD] + timings.sections[S.WAIT],
    }
    own_time = own_of(replace(timings, sections=sections))
    assert own_time.wait is not None
    np.testing.assert_allclose(own_time.wait, timings.sections[S.WAIT], atol=1e-3)


def test_of_waiting_alone_who_waits_least_has_the_most_own_time() -> None:
    own_time = own_of(only(job(4, 20, slow=[Slow(ranks=[2], ms=50)]), S.WAIT))
    assert int(np.argmax(np.median(own_time.own, axis=1))) == 2
    assert own_time.scale_ms == pytest.approx(50 + TRANSFER_MS, rel=0.1)
    assert own_time.wait is None


def test_garbage_collection_and_idle_time_lie_inside_other_parts_and_are_not_added() -> None:
    plain = own_of(job(4, 10))
    beside = own_of(job(4, 10, more_parts={S.GC: 50.0, S.IDLE: 20.0}))
    np.testing.assert_allclose(np.median(plain.own), np.median(beside.own), rtol=0.01)


def test_a_part_that_a_rank_lacks_counts_as_nothing_there() -> None:
    timings = job(2, 3, noise=0)
    timings.sections[S.OPTIMIZER][1] = np.nan
    own = own_of(timings).own
    assert own[0, 0] == pytest.approx(OWN_MS)
    assert own[1, 0] == pytest.approx(OWN_MS - 6)


def test_a_rank_without_any_part_has_no_own_time() -> None:
    timings = job(2, 3)
    for section in PARTS:
        timings.sections[section][1] = np.nan
    assert np.isnan(own_of(timings).own[1]).all()


def test_a_small_own_time_is_set_against_the_step() -> None:
    timings = job(4, 10)
    assert own_of(timings).scale_ms is None
    small = own_of(only(timings, S.DATA, S.STEP))
    assert small.scale_ms == pytest.approx(OWN_MS + TRANSFER_MS, rel=0.1)


def test_evidence_is_not_changed() -> None:
    timings = job(4, 10)
    before = timings.sections[S.DATA].copy()
    own_of(timings).own[:] = 0
    np.testing.assert_array_equal(timings.sections[S.DATA], before)


def test_without_any_time_there_is_none() -> None:
    assert own_time_of(replace(job(2, 3), sections={})) is None
    assert own_time_of(only(job(2, 3, more_parts={S.GC: 1.0}), S.GC)) is None


def test_what_lies_between_the_parts_is_own_time_of_the_whole_step() -> None:
    timings = job(4, 20, slow=[Slow(ranks=[1], ms=70, section=None)])
    assert np.median(own_of(timings).own[1]) == pytest.approx(OWN_MS, rel=0.02)
    whole = whole_own_time_of(timings)
    assert whole is not None
    assert np.median(whole.own[1]) == pytest.approx(OWN_MS + 70, rel=0.02)
    assert not whole.wait_is_derived


@pytest.mark.parametrize("sections", [PARTS, (*PARTS, S.STEP), (S.WAIT, S.STEP), (*PARTS, S.WAIT)])
def test_the_whole_step_needs_steps_waiting_and_parts(sections: tuple[Section, ...]) -> None:
    assert whole_own_time_of(only(job(4, 10), *sections)) is None


def test_values_that_are_all_missing_give_no_share() -> None:
    timings = job(2, 3)
    gone = {section: times * np.float32(np.nan) for section, times in timings.sections.items()}
    own_time = own_of(replace(timings, sections=gone))
    assert (own_time.own_share, own_time.step_ms) == (None, None)
