"""From times of ranks to a judgement: who is accused, since when, and when nobody is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from distdoctor.straggler.analysis.ranks.blocks import Shape
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.judge import judge
from distdoctor.straggler.analysis.ranks.judgement import Gate, Pattern, Suspect
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from straggler.worlds import (
    OWN_MS,
    TRANSFER_MS,
    Slow,
    accused_ranks,
    job,
    judgement_of,
    only,
    own_and_wait,
)

S = Section
PARTS = (S.DATA, S.FORWARD, S.BACKWARD, S.OPTIMIZER)
STEP_MS = OWN_MS + TRANSFER_MS


def the_accused(timings: StepTimings) -> Suspect:
    (suspect,) = judgement_of(timings).accused
    return suspect


@pytest.mark.parametrize("num_ranks", [4, 5, 8, 33, 64])
@pytest.mark.parametrize("section", [S.DATA, S.FORWARD, S.BACKWARD])
def test_one_slow_rank_is_named_with_its_part_and_its_excess(num_ranks: int, section: Section) -> None:
    rank = num_ranks // 2
    suspect = the_accused(job(num_ranks, slow=[Slow(ranks=[rank], ms=40, section=section)]))
    assert (suspect.rank, suspect.pattern) == (rank, Pattern.PERSISTENT)
    assert suspect.excess_ms == pytest.approx(40, abs=3)
    assert suspect.effect == pytest.approx(40 / OWN_MS, abs=0.01)
    assert suspect.wait_deficit_ms == pytest.approx(40, abs=3)
    assert max(suspect.sections, key=lambda each: suspect.sections[each]) is section


@pytest.mark.parametrize(
    ("start", "end", "pattern"),
    [
        (0, None, Pattern.PERSISTENT),
        (120, None, Pattern.SINCE),
        (0, 120, Pattern.UNTIL),
        (50, 150, Pattern.STRETCH),
        (150, 250, Pattern.STRETCH),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_when_it_was_slow(start: int, end: int | None, pattern: Pattern, seed: int) -> None:
    timings = job(8, 400, slow=[Slow(ranks=[3], ms=60, start=start, end=end)], first_step=1000, seed=seed)
    suspect = the_accused(timings)
    steps = judgement_of(timings).steps
    assert suspect.pattern is pattern
    assert abs(int(steps[suspect.stretch.start]) - 1000 - start) <= 2
    assert abs(int(steps[suspect.stretch.end - 1]) - 999 - (end or 400)) <= 2
    assert suspect.excess_ms == pytest.approx(60, abs=4)


def test_slow_steps_in_a_rhythm_have_their_period() -> None:
    suspect = the_accused(job(8, 200, slow=[Slow(ranks=[6], ms=250, start=4, every=10)]))
    assert (suspect.rank, suspect.pattern) == (6, Pattern.INTERMITTENT)
    assert suspect.rhythm is not None
    assert suspect.rhythm.period == 10
    assert suspect.num_bursts == len(suspect.burst_columns) == 20
    assert suspect.excess_ms == pytest.approx(250, abs=10)


def test_slow_steps_at_random_have_none() -> None:
    steps = np.random.default_rng(7).choice(200, 12, replace=False)
    suspect = the_accused(job(8, 200, slow=[Slow(ranks=[6], ms=250, steps=sorted(steps.tolist()))]))
    assert (suspect.pattern, suspect.rhythm) == (Pattern.INTERMITTENT, None)


def test_several_slow_ranks_are_all_named_the_slowest_first() -> None:
    judgement = judgement_of(job(64, slow=[Slow(ranks=[5], ms=30), Slow(ranks=[40], ms=70)]))
    assert [each.rank for each in judgement.accused] == [40, 5]
    assert judgement.cost is not None
    # With rank 40 alone mended, rank 5 still holds everybody up.
    assert judgement.cost.alone[40] == pytest.approx(40 / (STEP_MS + 70), abs=0.02)
    assert judgement.cost.alone[5] < 0.01
    assert judgement.cost.together == pytest.approx(70 / (STEP_MS + 70), abs=0.03)


def test_the_cost_of_one_slow_rank_is_its_excess_over_the_step() -> None:
    cost = judgement_of(job(slow=[Slow(ranks=[3], ms=60)], noise=0.002)).cost
    assert cost is not None
    assert cost.together == pytest.approx(60 / (STEP_MS + 60), abs=0.01)
    assert cost.step_is_measured


def test_the_cost_of_what_began_late_is_of_the_time_since_then() -> None:
    cost = judgement_of(job(8, 400, slow=[Slow(ranks=[3], ms=STEP_MS, start=360)], noise=0.002)).cost
    assert cost is not None
    assert cost.together == pytest.approx(0.5, abs=0.01)
    assert cost.step_ms == pytest.approx(2 * STEP_MS, rel=0.01)


def test_a_slow_host_is_named_rather_than_its_ranks() -> None:
    judgement = judgement_of(job(32, gpus_per_host=8, slow=[Slow(ranks=range(8, 16), ms=40)]))
    (host,) = judgement.hosts
    assert (host.host, host.num_slow) == ("host-1", 8)
    assert judgement.accused == ()


def test_a_slow_host_that_is_half_of_its_stage_is_named() -> None:
    slow = [Slow(ranks=range(16, 24), ms=60)]
    timings = job(64, slow=slow, stages=(1, 1, 1, 1.15), gpus_per_host=8)
    judgement = judgement_of(timings)
    assert [each.host for each in judgement.hosts] == ["host-2"]
    assert not [each for each in judgement.accused if each.rank not in range(16, 24)]


@pytest.mark.parametrize(
    ("num_ranks", "stages", "slow"),
    [(16, (1.0,), [range(8)]), (64, (1, 1, 1, 1), [range(16, 24), range(40, 48), range(56, 64)])],
    ids=["two hosts in all", "a host of several stages"],
)
def test_hosts_that_are_half_of_what_they_are_compared_with_are_not_accused(
    num_ranks: int, stages: Sequence[float], slow: Sequence[range]
) -> None:
    timings = job(
        num_ranks, slow=[Slow(ranks=ranks, ms=60) for ranks in slow], stages=stages, gpus_per_host=8
    )
    judgement = judgement_of(timings)
    assert judgement.kinds is not None
    assert (judgement.hosts, judgement.accused) == ((), ())


def test_a_host_that_became_slow_is_named_from_there_on() -> None:
    timings = job(32, 300, gpus_per_host=8, slow=[Slow(ranks=range(8, 16), ms=40, start=150)])
    judgement = judgement_of(timings)
    (host,) = judgement.hosts
    assert abs(int(judgement.steps[host.start]) - 150) <= 2
    assert host.end == judgement.num_steps


def test_one_slow_rank_is_named_rather_than_its_host() -> None:
    judgement = judgement_of(job(32, gpus_per_host=8, slow=[Slow(ranks=[12], ms=40)]))
    assert judgement.hosts == ()
    assert [each.rank for each in judgement.accused] == [12]


def test_a_slow_rank_in_a_pipeline_is_set_against_its_own_stage() -> None:
    timings = job(32, stages=(1, 1, 1, 1.4), slow=[Slow(ranks=[9], ms=90)])
    judgement = judgement_of(timings)
    assert [each.rank for each in judgement.accused] == [9]
    assert [(each.dimension, each.coordinate) for each in judgement.heavy] == [("pp", 3)]


def test_a_heavier_stage_accuses_nobody() -> None:
    judgement = judgement_of(job(32, stages=(1, 1, 1, 1.6)))
    assert (judgement.accused, judgement.hosts) == ((), ())
    (heavy,) = judgement.heavy
    assert heavy.heavier == pytest.approx(0.6, abs=0.02)
    assert heavy.rows == tuple(range(24, 32))


@pytest.mark.parametrize("per_stage", [2, 4, 8])
@pytest.mark.parametrize("gpus_per_host", [None, 8])
def test_without_coordinates_a_heavier_last_stage_accuses_nobody(
    per_stage: int, gpus_per_host: int | None
) -> None:
    timings = job(per_stage * 4, stages=(1, 1, 1, 1.5), tells_coordinates=False, gpus_per_host=gpus_per_host)
    judgement = judgement_of(timings)
    assert (judgement.accused, judgement.hosts, judgement.heavy) == ((), (), ())
    assert judgement.pattern is not None
    assert judgement.pattern.shape is Shape.BLOCK
    assert all(Gate.KIND in each.failed for each in judgement.suspects)


def test_without_coordinates_a_single_slow_rank_is_named() -> None:
    assert accused_ranks(job(tells_coordinates=False, slow=[Slow(ranks=[3], ms=40)])) == [3]


@pytest.mark.parametrize("sections", [(S.STEP,), (S.FORWARD_WALL, S.BACKWARD_WALL)])
def test_equal_wall_times_accuse_nobody(sections: Sequence[Section]) -> None:
    slow = job(slow=[Slow(ranks=[3], ms=80)])
    walls = replace(slow, sections=dict.fromkeys(sections, slow.sections[S.STEP]))
    judgement = judgement_of(walls)
    assert judgement.basis is Basis.WALL_ONLY
    assert judgement.suspects == ()


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_so_few_ranks_accuse_nobody(num_ranks: int) -> None:
    judgement = judgement_of(job(num_ranks, slow=[Slow(ranks=[num_ranks - 1], ms=300)]))
    assert judgement.accused == ()
    assert all(Gate.PEERS in each.failed for each in judgement.suspects)


@pytest.mark.parametrize("num_steps", [1, 2, 4])
def test_so_few_steps_accuse_nobody(num_steps: int) -> None:
    judgement = judgement_of(job(8, num_steps, slow=[Slow(ranks=[3], ms=300)]))
    assert judgement.accused == ()
    assert all(Gate.STEPS in each.failed for each in judgement.suspects)


def test_five_steps_with_a_large_effect_in_each_are_enough() -> None:
    assert accused_ranks(job(8, 5, slow=[Slow(ranks=[3], ms=120)])) == [3]
    assert accused_ranks(job(8, 5, slow=[Slow(ranks=[3], ms=120, steps=[0, 1, 2, 4])])) == []


def test_evidence_without_steps_or_sections_is_not_judged() -> None:
    timings = job(8, 10)
    nothing = {section: times[:, :0] for section, times in timings.sections.items()}
    assert judge(replace(timings, steps=timings.steps[:0], sections=nothing)) is None
    assert judge(replace(timings, sections={})) is None


@pytest.mark.filterwarnings("error")
def test_values_that_are_all_missing_accuse_nobody() -> None:
    timings = job(8, 60)
    gone = {section: times * np.float32(np.nan) for section, times in timings.sections.items()}
    judgement = judgement_of(replace(timings, sections=gone))
    assert judgement.suspects == ()
    assert not judgement.effects.num_steps.any()


@pytest.mark.filterwarnings("error")
def test_a_rank_without_values_does_not_hide_a_slow_one() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=40)])
    for times in timings.sections.values():
        times[6] = np.nan
    assert accused_ranks(timings) == [3]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lacking", [2, 3])
def test_ranks_that_lack_half_of_the_steps_are_judged_by_the_others(lacking: int) -> None:
    timings = job(8, 200, slow=[Slow(ranks=[3], ms=40)])
    for times in timings.sections.values():
        times[lacking, :100] = np.nan
    assert accused_ranks(timings) == [3]


@pytest.mark.parametrize(("num_ranks", "num_seeds"), [(4, 15), (8, 15), (64, 6)])
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.15])
def test_a_healthy_job_accuses_nobody(num_ranks: int, num_seeds: int, noise: float) -> None:
    for seed in range(num_seeds):
        timings = job(num_ranks, 150, noise=noise, seed=seed, gpus_per_host=8)
        assert accused_ranks(timings) == []


@pytest.mark.parametrize("seed", range(5))
def test_one_stall_of_a_minute_accuses_nobody(seed: int) -> None:
    assert accused_ranks(job(8, 200, seed=seed, slow=[Slow(ranks=[0], ms=60_000, steps=[77])])) == []


def test_what_slows_all_ranks_accuses_nobody() -> None:
    rng = np.random.default_rng(1)
    common = np.exp(0.3 * rng.standard_normal(200)) * np.where(np.arange(200) > 120, 2.0, 1.0)
    assert accused_ranks(job(8, 200, common=common)) == []
    assert accused_ranks(job(8, 200, common=common, slow=[Slow(ranks=[3], ms=40)])) == [3]


def test_a_rank_that_waits_as_long_as_its_peers_is_not_accused() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=40)])
    timings.sections[S.WAIT][3] += 40
    (suspect,) = judgement_of(timings).suspects
    assert (suspect.rank, suspect.failed) == (3, (Gate.WAIT,))


def test_a_victim_in_a_wait_that_was_booked_as_work_is_not_accused() -> None:
    """The others' backward holds the waiting: the slow rank's is the shortest, and nobody works longer alone."""
    timings = job(slow=[Slow(ranks=[3], ms=40, section=S.DATA)])
    walls = {**timings.sections, S.BACKWARD: timings.sections[S.BACKWARD] + timings.sections[S.WAIT]}
    judgement = judgement_of(replace(timings, sections={each: walls[each] for each in (S.BACKWARD, S.STEP)}))
    assert judgement.accused == ()


def test_what_is_less_than_a_hundredth_of_the_step_is_minor() -> None:
    own = 100 * (1 + 0.001 * np.random.default_rng(1).standard_normal((8, 200)))
    own[2] += 3.1
    (suspect,) = judgement_of(own_and_wait(own, transfer_ms=215)).suspects
    assert (suspect.rank, suspect.failed) == (2, (Gate.SHARE,))


def test_waiting_derived_from_the_step_is_no_second_witness() -> None:
    timings = job(slow=[Slow(ranks=[3], ms=40)])
    suspect = the_accused(only(timings, *PARTS, S.STEP))
    assert suspect.wait_is_derived
    suspect = the_accused(only(timings, S.WAIT, S.STEP))
    assert (suspect.rank, suspect.wait_is_derived) == (3, True)


def test_of_waiting_alone_who_waits_least_is_named() -> None:
    judgement = judgement_of(only(job(slow=[Slow(ranks=[3], ms=40)]), S.WAIT))
    assert judgement.basis is Basis.WAIT_ONLY
    (suspect,) = judgement.accused
    assert (suspect.rank, suspect.wait_deficit_ms) == (3, None)
    assert suspect.excess_ms == pytest.approx(40, abs=5)
    assert judgement.cost is None


@pytest.mark.parametrize("section", [S.WAIT, S.STEP])
def test_stages_are_not_weighed_by_lateness_or_walls(section: Section) -> None:
    assert judgement_of(only(job(16, stages=(1, 1.5)), section)).heavy == ()


@pytest.mark.parametrize("every", [1, 10])
def test_time_in_no_part_is_found_by_the_whole_step(every: int) -> None:
    """Python's collector between the parts, say."""
    timings = job(8, 200, slow=[Slow(ranks=[5], ms=60.0 * every, section=None, every=every)])
    suspect = the_accused(timings)
    assert suspect.rank == 5
    assert suspect.pattern is (Pattern.PERSISTENT if every == 1 else Pattern.INTERMITTENT)
    assert explain_suspect(suspect).cause is Cause.OUTSIDE
    assert judgement_of(only(timings, *PARTS, S.WAIT)).suspects == ()


def test_one_rank_slow_in_a_part_and_another_one_outside_are_both_named() -> None:
    judgement = judgement_of(job(slow=[Slow(ranks=[2], ms=40), Slow(ranks=[5], ms=50, section=None)]))
    assert {each.rank for each in judgement.accused} == {2, 5}
    assert judgement.basis is Basis.SECTIONS
    assert judgement.cost is not None
    assert judgement.cost.alone.keys() == {2, 5}


def test_a_rank_is_told_once_where_it_is_minor_in_its_parts_and_slow_outside_of_them() -> None:
    own = 100 * (1 + 0.001 * np.random.default_rng(1).standard_normal((8, 200)))
    own[2] += 40
    own[5] += 3.1 + 40
    timings = own_and_wait(own, transfer_ms=180)
    timings.sections[S.COMPUTE][5] -= 40
    judgement = judgement_of(timings)
    assert [each.rank for each in judgement.suspects] == [5, 2]
    assert all(each.is_accused for each in judgement.suspects)


def test_collectives_that_nobody_timed_do_not_accuse_their_victims() -> None:
    """In the whole step less waiting, all but the slow rank look slow; they wait as little as nobody else."""
    timings = job(8, 200, slow=[Slow(ranks=[3], ms=60)])
    hidden = 0.5 * (timings.sections[S.WAIT] - timings.sections[S.WAIT].min(axis=0))
    timings.sections[S.WAIT][:] -= hidden
    assert accused_ranks(timings) == [3]


def test_slow_steps_at_the_start_are_warm_up() -> None:
    common = np.ones(100)
    common[:5] = (9, 5, 3, 2, 1.5)
    judgement = judgement_of(job(8, 100, common=common))
    assert judgement.num_warm_up == 5
    assert judgement.steps[0] == 5


def test_a_rotating_slowest_rank_accuses_nobody_and_has_its_correlation() -> None:
    rng = np.random.default_rng(3)
    timings = job(8, 200)
    length = rng.lognormal(0, 0.25, (8, 200)).astype(np.float32)
    timings.sections[S.FORWARD][:] *= length
    timings.sections[S.BACKWARD][:] *= length
    judgement = judgement_of(only(timings, S.FORWARD, S.BACKWARD))
    assert judgement.suspects == ()
    assert judgement.rotation is not None and judgement.rotation.correlation is not None
    assert judgement.rotation.correlation > 0.9


def test_ranks_keep_their_numbers_where_some_are_not_here() -> None:
    timings = job(8, slow=[Slow(ranks=[5], ms=40)])
    far = replace(
        timings, places=tuple(Place(rank=100 + 3 * place.rank, coords={"dp": 1}) for place in timings.places)
    )
    assert accused_ranks(far) == [115]


def test_a_stretch_whose_edges_lie_inside_windows_is_found() -> None:
    """A change of level makes neighbouring steps alike, which must not pass for noise that hides it."""
    for seed in range(5):
        timings = job(8, 120, slow=[Slow(ranks=[3], ms=40, start=40, end=80)], seed=seed)
        (suspect,) = judgement_of(timings).accused
        assert (suspect.rank, suspect.pattern) == (3, Pattern.STRETCH)
        assert abs(suspect.stretch.start - 39) <= 2


def test_times_that_wander_slowly_accuse_hardly_anybody() -> None:
    """Neighbouring steps that resemble one another closely make ranks stay above their peers for long by chance."""
    accused = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise = np.zeros((8, 200))
        for step in range(1, 200):
            noise[:, step] = 0.9 * noise[:, step - 1] + np.sqrt(1 - 0.9**2) * rng.standard_normal(8)
        judgement = judgement_of(own_and_wait(300 * (1 + 0.05 * noise)))
        assert judgement.effects.wander > 1
        accused += bool(judgement.accused)
    assert accused <= 1


def test_a_rank_that_is_above_its_peers_in_half_of_the_parts_is_not_slow_all_the_time() -> None:
    rng = np.random.default_rng(1)
    own = 300 * (1 + 0.01 * rng.standard_normal((8, 160)))
    # Up and down in turns of twenty steps, up in the middle of both halves.
    own[3] *= np.repeat([1.0, 1.2, 1.2, 1.0, 1.0, 1.2, 1.2, 1.2], 20)
    lasting = [each for each in judgement_of(own_and_wait(own)).accused if each.pattern is Pattern.PERSISTENT]
    assert lasting == []
