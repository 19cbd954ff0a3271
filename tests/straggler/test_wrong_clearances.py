"""Evidence in which all medians are alike and the job is slow nevertheless: nobody may be cleared by it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from distdoctor.report.model import Severity, Status
from distdoctor.straggler.analysis.ranks.judgement import Pattern
from distdoctor.straggler.analysis.ranks.standout import By
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from straggler.test_wrong_accusations import report_of
from straggler.worlds import Slow, job, judgement_of, only, own_and_wait

USUAL_MS = 300.0


def work(num_ranks: int, num_steps: int, *, seed: int = 1, noise: float = 0.02) -> NDArray[np.float64]:
    """Own work of healthy ranks, ms, shape (ranks, steps)."""
    rng = np.random.default_rng(seed)
    return np.asarray(USUAL_MS * (1 + noise * rng.standard_normal((num_ranks, num_steps))))


def late_waits(own: NDArray[np.float64]) -> StepTimings:
    """Work that comes after the last collective of a step: the others wait for it in the next one."""
    timings = own_and_wait(own)
    wait = timings.sections[Section.WAIT]
    moved = np.roll(wait, 1, axis=1)
    wait[:] = moved
    return timings


@pytest.mark.parametrize("num_ranks", [4, 8, 64, 512])
@pytest.mark.parametrize("much", [0.5, 1.0])
def test_long_steps_on_one_rank_after_the_other_are_not_hidden_by_quiet_ones(
    num_ranks: int, much: float
) -> None:
    own = work(num_ranks, 150)
    own[np.random.default_rng(7).integers(num_ranks, size=150), np.arange(150)] *= 1 + much
    report = report_of(own_and_wait(own))
    assert report.verdict.cause_class == "data_imbalance"
    assert report.verdict.status is Status.WARNING
    serious = [each for each in report.findings if each.severity is not Severity.INFO]
    assert not [each for each in serious if each.scope.ranks]


@pytest.mark.parametrize(("num_steps", "every"), [(24, 8), (30, 8)])
def test_a_rank_that_loses_much_in_few_steps_is_neither_accused_nor_cleared(
    num_steps: int, every: int
) -> None:
    own = work(4, num_steps)
    own[2, 3::every] += 2000
    report = report_of(own_and_wait(own))
    assert report.verdict.cause_class == "inconclusive"
    assert "rank 2 alone costs" in report.verdict.summary


def test_a_rank_that_hardly_waits_while_all_others_do_is_not_cleared() -> None:
    """Its work is in none of the timed parts: below an outstanding receive, or where nobody looked."""
    timings = own_and_wait(work(8, 60))
    wait = timings.sections[Section.WAIT]
    wait[:] = 120
    wait[5] = 10
    timings = only(timings, Section.COMPUTE, Section.WAIT)
    judgement = judgement_of(timings)
    assert judgement.standout is not None
    assert (judgement.standout.row, judgement.standout.by) == (5, By.WAITING)
    report = report_of(timings)
    assert report.verdict.cause_class == "inconclusive"
    assert "rank 5 waits less than all others" in report.verdict.summary


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("num_ranks", "noise"), [(4, 0.02), (8, 0.05), (64, 0.05)])
def test_of_healthy_ranks_none_stands_out(num_ranks: int, noise: float, seed: int) -> None:
    judgement = judgement_of(own_and_wait(work(num_ranks, 60, seed=seed, noise=noise)))
    assert judgement.standout is None


@pytest.mark.parametrize(("start", "end", "num_steps"), [(8, 18, 29), (16, 28, 44), (0, 10, 32)])
def test_a_short_stretch_of_far_longer_steps_is_found(start: int, end: int, num_steps: int) -> None:
    own = work(4, num_steps)
    own[2, start:end] *= 3
    (suspect,) = judgement_of(own_and_wait(own)).accused
    assert suspect.rank == 2
    assert abs(suspect.stretch.start - start) <= 1
    assert abs(suspect.stretch.end - end) <= 1


@pytest.mark.parametrize("part", [Section.OPTIMIZER, Section.DATA, Section.OTHER])
def test_parts_that_add_up_to_the_same_on_all_ranks_clear_nobody(part: Section) -> None:
    """A norm of all gradients, a barrier, a loss that is read: that part holds the waiting for rank 5."""
    compute = work(8, 120)
    compute[5] += 60
    rest = compute.max(axis=0) - compute + 20
    timings = StepTimings(
        source="a recording",
        places=tuple(Place(rank=rank, coords={"dp": rank}) for rank in range(8)),
        steps=np.arange(120),
        sections={Section.COMPUTE: compute.astype(np.float32), part: rest.astype(np.float32)},
    )
    report = report_of(timings)
    assert report.verdict.cause_class == "inconclusive"
    assert "one of them holds waiting" in report.verdict.title


def test_parts_of_a_healthy_job_do_not_even_out() -> None:
    judgement = judgement_of(job(8, 120))
    assert not judgement.parts_even_out


@pytest.mark.parametrize("seed", range(6))
def test_of_lateness_alone_no_healthy_rank_is_accused_and_nobody_cleared(seed: int) -> None:
    """Own work differs by 0.5 %: a tenth of the time in collectives, which is all that is told."""
    rng = np.random.default_rng(seed)
    own = work(16, 200, seed=seed) * (1 + 0.005 * rng.standard_normal((16, 1)))
    timings = only(own_and_wait(own, transfer_ms=10), Section.WAIT)
    assert not judgement_of(timings).accused
    report = report_of(timings)
    assert not report.culprits
    assert report.verdict.cause_class == "inconclusive"


def test_of_lateness_alone_a_slow_rank_is_named() -> None:
    own = work(16, 200)
    own[5] *= 1.2
    (suspect,) = judgement_of(only(own_and_wait(own, transfer_ms=10), Section.WAIT)).accused
    assert suspect.rank == 5


def test_one_long_stall_is_no_stretch() -> None:
    own = work(8, 60)
    own[3, 30] += 60_000
    assert not judgement_of(own_and_wait(own)).accused


@pytest.mark.parametrize("shifted", [False, True], ids=["same step", "next step"])
def test_bursts_are_confirmed_by_the_waiting_of_the_others_then_or_in_the_next_step(shifted: bool) -> None:
    own = work(4, 60)
    own[2, 4::5] += 200
    (suspect,) = judgement_of(late_waits(own) if shifted else own_and_wait(own)).accused
    assert (suspect.rank, suspect.pattern) == (2, Pattern.INTERMITTENT)
    assert suspect.wait_deficit_ms == pytest.approx(200, abs=20)


def test_a_slow_rank_among_times_without_any_noise_is_found() -> None:
    """Two different values are no sign that times are rounded to what lies between them."""
    own = np.full((8, 60), USUAL_MS)
    own[5] *= 1.5
    (suspect,) = judgement_of(own_and_wait(own)).accused
    assert suspect.rank == 5


def test_what_is_relative_to_a_step_is_said_to_be_so() -> None:
    """Only the data loader is timed: 20 ms more of 10 ms is a small part of a step of some 340 ms."""
    timings = only(
        job(8, 60, slow=[Slow(ranks=[5], ms=20, section=Section.DATA)]),
        Section.DATA,
        Section.WAIT,
        Section.STEP,
    )
    (suspect,) = judgement_of(timings).accused
    assert suspect.is_of_step
    assert suspect.effect == pytest.approx(20 / 360, rel=0.05)
    title = report_of(timings).verdict.title
    assert "% of a step longer" in title and "its peers" not in title


def test_parts_that_fill_every_step_leave_nothing_untold() -> None:
    """A rank that is slow in every second step works when the others wait: medians of both do not add up to a step."""
    slow = [Slow(ranks=[1], ms=200, every=2), Slow(ranks=[2], ms=200, start=1, every=2)]
    judgement = judgement_of(job(4, 40, slow=slow))
    assert judgement.untold == pytest.approx(0, abs=0.02)


def test_a_stall_is_not_the_headline_where_a_rank_is_accused() -> None:
    own = work(8, 200)
    own[3] *= 1.12
    own[:, 100] += 5000
    report = report_of(own_and_wait(own))
    assert "rank 3" in report.verdict.title
    assert [each.severity for each in report.findings if each.id == "straggler-stall"] == [Severity.INFO]


def test_two_slow_ranks_that_differ_from_step_to_step_are_no_rotation() -> None:
    """Of four ranks two take far longer, each with noise that is large beside what the other two take."""
    own = work(4, 40, noise=0.05)
    own[[1, 2]] *= np.random.default_rng(3).lognormal(3, 0.3, (2, 40))
    report = report_of(own_and_wait(own))
    assert report.verdict.cause_class == "inconclusive"
    assert not [each for each in report.findings if each.id == "straggler-data-imbalance"]


def test_ranks_that_are_here_without_own_work_are_not_called_missing() -> None:
    own = work(4, 60)
    timings = own_and_wait(own)
    timings.sections[Section.COMPUTE][2] = np.nan
    report = report_of(timings)
    assert report.verdict.cause_class == "inconclusive"
    assert "of 1 of 4 ranks only waiting is told" in report.verdict.title
    assert "files of all ranks" not in report.verdict.summary
