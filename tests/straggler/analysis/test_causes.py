"""Why a rank is slow: by the part that holds its excess, and by who waits less."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.straggler.analysis.peers import peers_of
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.judgement import Pattern, Suspect
from distdoctor.straggler.analysis.ranks.onset import Stretch
from distdoctor.straggler.analysis.ranks.witnesses import deficit, section_excess, stands_out
from distdoctor.straggler.facts.sections import Section
from straggler.worlds import Slow, job

S = Section
ALL = np.arange(120)


def suspect(sections: dict[Section, float], excess_ms: float = 100.0) -> Suspect:
    return Suspect(
        row=0,
        rank=0,
        pattern=Pattern.PERSISTENT,
        effect=0.2,
        excess_ms=excess_ms,
        stretch=Stretch(start=0, end=100),
        standard_error=0.001,
        sections=sections,
    )


@pytest.mark.parametrize(
    ("sections", "cause"),
    [
        ({S.FORWARD: 35, S.BACKWARD: 60}, Cause.COMPUTE),
        ({S.COMPUTE: 95}, Cause.COMPUTE),
        ({S.OPTIMIZER: 90, S.DATA: 8}, Cause.COMPUTE),
        ({S.DATA: 95, S.FORWARD: 2}, Cause.DATA),
        ({S.H2D: 90}, Cause.H2D),
        ({S.CHECKPOINT: 99}, Cause.CHECKPOINT),
        ({S.OTHER: 99}, Cause.OUTSIDE),
        ({S.FORWARD: 100, S.GC: 60}, Cause.GC),
        ({S.FORWARD: 100, S.IDLE: 60}, Cause.HOST),
        ({S.FORWARD: 100, S.GC: 40}, Cause.COMPUTE),
        ({S.DATA: 40, S.H2D: 30, S.FORWARD: 30}, Cause.MIXED),
        ({S.DATA: 2, S.FORWARD: 3}, Cause.UNKNOWN),
        ({}, Cause.UNKNOWN),
    ],
)
def test_the_part_that_holds_most_of_the_excess_is_the_cause(
    sections: dict[Section, float], cause: Cause
) -> None:
    assert explain_suspect(suspect(sections)).cause is cause


def test_parts_are_told_most_first_and_small_ones_not_at_all() -> None:
    explained = explain_suspect(suspect({S.DATA: 4.0, S.FORWARD: 30.0, S.BACKWARD: 70.0, S.OPTIMIZER: -9.0}))
    assert [section for section, _ in explained.sections] == [S.BACKWARD, S.FORWARD]


def test_a_rank_without_excess_has_no_cause() -> None:
    assert explain_suspect(suspect({S.GC: 0.0}, excess_ms=0.0)).cause is Cause.UNKNOWN


def test_a_slow_rank_waits_less_by_what_it_works_longer() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=40)])
    peers = peers_of(timings.places)
    assert deficit(timings.sections[S.WAIT], peers, 3, ALL) == pytest.approx(40, abs=3)
    assert deficit(timings.sections[S.WAIT], peers, 2, ALL) == pytest.approx(0, abs=3)


def test_the_longer_part_is_found_and_walls_are_left_out() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=40, section=S.DATA)])
    excess = section_excess(timings.sections, peers_of(timings.places), {3: ALL, 5: ALL})
    assert excess[3][S.DATA] == pytest.approx(40, abs=1)
    assert abs(excess[3][S.BACKWARD]) < 2
    assert abs(excess[5][S.DATA]) < 1
    assert not excess[3].keys() & {S.WAIT, S.STEP}


def test_rare_collections_of_garbage_are_taken_in_the_mean() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=300, section=S.GC, every=10)])
    excess = section_excess(timings.sections, peers_of(timings.places), {3: ALL})
    assert excess[3][S.GC] == pytest.approx(30)


def test_a_rank_noisy_in_one_part_may_be_clearly_slow_in_another() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=12, section=S.DATA)])
    peers = peers_of(timings.places)
    assert stands_out(timings.sections[S.DATA], peers, 3, ALL)
    assert not stands_out(timings.sections[S.DATA], peers, 2, ALL)
    assert not stands_out(timings.sections[S.FORWARD], peers, 3, ALL)


def test_few_steps_or_few_peers_let_nothing_stand_out() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=12, section=S.DATA)])
    assert not stands_out(timings.sections[S.DATA], peers_of(timings.places), 3, ALL[:4])
    few = job(3, slow=[Slow(ranks=[2], ms=12, section=S.DATA)])
    assert not stands_out(few.sections[S.DATA], peers_of(few.places), 2, ALL)


@pytest.mark.filterwarnings("error")
def test_what_was_not_measured_witnesses_nothing() -> None:
    timings = job()
    peers = peers_of(timings.places)
    nothing = np.full_like(timings.sections[S.WAIT], np.nan)
    assert deficit(nothing, peers, 3, ALL) is None
    assert deficit(timings.sections[S.WAIT], peers, 3, ALL[:0]) is None
    assert not stands_out(nothing, peers, 3, ALL)
    assert section_excess({S.DATA: nothing}, peers, {3: ALL}) == {3: {}}
    alone = job(1)
    assert deficit(alone.sections[S.WAIT], peers_of(alone.places), 0, ALL) is None
