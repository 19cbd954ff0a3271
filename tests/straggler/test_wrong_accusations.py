"""Jobs in which somebody looks slow and is not, or somebody is and a median hides it: what may not be said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pytest
from numpy.typing import NDArray

from distdoctor.report.model import Confidence, InputFile, Report
from distdoctor.report.request import ReportRequest
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.analysis.ranks.blocks import Shape, pattern_of
from distdoctor.straggler.analysis.ranks.judgement import Gate
from distdoctor.straggler.analysis.ranks.numbering import steps_off
from distdoctor.straggler.analysis.ranks.resolution import least_difference, unit_of
from distdoctor.straggler.build import straggler_report
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings

SEEDS = pytest.mark.parametrize("seed", range(4))


def own_times(
    weights: NDArray[np.float64],
    *,
    seed: int,
    base_ms: float = 300.0,
    noise: float = 0.02,
    num_steps: int = 200,
) -> NDArray[np.float64]:
    """Own times (ranks, steps) of ranks that take `weights` times as long as usual, and differ a little by themselves."""
    rng = np.random.default_rng(seed)
    usual = base_ms * weights * (1 + 0.005 * rng.standard_normal(len(weights)))
    return np.asarray(usual[:, None] * (1 + noise * rng.standard_normal((len(weights), num_steps))))


def recorded(
    own: NDArray[np.float64], *, waits: bool = True, same_work: bool = False, unit_ms: float | None = None
) -> StepTimings:
    """What a recorder writes of it, rounded to `unit_ms`. `same_work`: it tells that all ranks do the same."""
    parts = {Section.FORWARD: own / 3, Section.BACKWARD: own * 2 / 3}
    if waits:
        parts[Section.WAIT] = own.max(axis=0) - own + 30.0
    if unit_ms is not None:
        parts = {section: np.round(times / unit_ms) * unit_ms for section, times in parts.items()}
    return StepTimings(
        source="a recording",
        places=tuple(
            Place(rank=rank, host=f"host-{rank // 8}", coords={"dp": rank} if same_work else {})
            for rank in range(len(own))
        ),
        steps=np.arange(own.shape[1], dtype=np.int64),
        sections={section: times.astype(np.float32) for section, times in parts.items()},
    )


def report_of(timings: StepTimings) -> Report:
    request = ReportRequest(
        argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc), command="straggler-analyze"
    )
    reading = Reading(steps=(timings,), inputs=(InputFile(path="times.csv", kind="a table"),))
    return straggler_report(request, analyse(reading))


def suspects_of(timings: StepTimings) -> dict[int, tuple[Gate, ...]]:
    (judged,) = analyse(Reading(steps=(timings,))).judged
    return {each.rank: each.failed for each in judged.judgement.suspects}


def slow(num_ranks: int, ranks: tuple[int, ...], factor: float) -> NDArray[np.float64]:
    weights = np.ones(num_ranks)
    weights[list(ranks)] = factor
    return weights


@SEEDS
@pytest.mark.parametrize(
    ("num_ranks", "ranks"),
    [(8, (1, 2, 4, 7)), (8, (0, 2, 3, 5, 7)), (16, (0, 2, 3, 5, 6, 9, 10, 13, 15)), (6, (1, 2, 5))],
)
@pytest.mark.parametrize("same_work", [True, False])
def test_half_of_the_ranks_slow_is_neither_an_accusation_nor_nobody(
    num_ranks: int, ranks: tuple[int, ...], same_work: bool, seed: int
) -> None:
    own = own_times(slow(num_ranks, ranks, 1.3), seed=seed)
    report = report_of(recorded(own, same_work=same_work))
    assert report.verdict.cause_class == "inconclusive"
    assert not report.culprits
    assert f"of {num_ranks} that should be alike take" in report.verdict.summary
    much = float(report.verdict.summary.split("take ")[1].split(" %")[0])
    assert much == pytest.approx(30, abs=2)


def test_what_would_decide_between_two_kinds_depends_on_what_is_known() -> None:
    own = own_times(slow(8, (1, 2, 4, 7), 1.3), seed=1)
    assert "--mesh" in report_of(recorded(own)).verdict.summary
    told = report_of(recorded(own, same_work=True)).verdict.summary
    assert "--mesh" not in told
    assert "clocks and power limits" in told


@SEEDS
def test_a_slow_rank_in_one_of_two_unknown_stages_is_not_said_to_be_nobody(seed: int) -> None:
    weights = np.array([1, 1, 1.15, 1, 1.2, 1.2, 1.2, 1.2])
    assert report_of(recorded(own_times(weights, seed=seed))).verdict.cause_class == "inconclusive"


@SEEDS
@pytest.mark.parametrize("num_ranks", [4, 5, 8, 16])
def test_one_fast_rank_makes_no_two_kinds(num_ranks: int, seed: int) -> None:
    report = report_of(recorded(own_times(slow(num_ranks, (1,), 0.7), seed=seed)))
    assert not report.culprits
    assert "that should be alike" not in report.verdict.summary
    assert report.verdict.cause_class == "none" or "a little below" in report.verdict.summary


@SEEDS
@pytest.mark.parametrize(("num_ranks", "noise"), [(4, 0.01), (4, 0.05), (8, 0.05), (64, 0.05)])
def test_healthy_ranks_are_of_one_kind(num_ranks: int, noise: float, seed: int) -> None:
    (judged,) = analyse(
        Reading(steps=(recorded(own_times(np.ones(num_ranks), seed=seed, noise=noise)),))
    ).judged
    assert judged.judgement.kinds is None


@SEEDS
def test_two_of_four_ranks_are_not_accused_without_coordinates(seed: int) -> None:
    report = report_of(recorded(own_times(slow(4, (1, 2), 1.15), seed=seed)))
    assert report.verdict.cause_class == "inconclusive"
    assert not report.culprits


@pytest.mark.parametrize(
    ("ranks", "shape"), [((1, 2), Shape.HALF), ((0, 2, 3), Shape.HALF), ((1,), Shape.SCATTERED)]
)
def test_half_of_all_ranks_is_a_pattern(ranks: tuple[int, ...], shape: Shape) -> None:
    assert pattern_of(ranks, 4).shape is shape


@pytest.mark.parametrize("seed", range(12))
def test_of_a_stage_that_is_a_little_heavier_nobody_is_accused(seed: int) -> None:
    """Stages of weights 1 to 1.2: only some ranks of the last one cross the threshold."""
    weights = np.repeat([1.0, 1.05, 1.1, 1.2], 4)
    assert not report_of(recorded(own_times(weights, seed=seed))).culprits


@SEEDS
def test_a_slow_rank_with_quick_neighbours_is_still_accused_without_coordinates(seed: int) -> None:
    own = own_times(slow(16, (6,), 1.15), seed=seed)
    assert [each.rank for each in report_of(recorded(own)).culprits if each.role != "victim"] == [6]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("base_ms", "unit_ms", "noise"), [(457.5, 10, 0.005), (22.5, 1, 0.01), (525, 100, 0.02)]
)
def test_healthy_ranks_on_both_sides_of_a_rounding_step_are_not_accused(
    base_ms: float, unit_ms: float, noise: float, seed: int
) -> None:
    own = own_times(np.ones(8), seed=seed, base_ms=base_ms, noise=noise)
    timings = recorded(own, unit_ms=unit_ms, waits=False)
    assert not report_of(timings).culprits


def test_a_rank_that_rounding_hides_is_not_said_to_be_nobody() -> None:
    """In hundreds of ms a rank that takes 10 % longer than 300 ms looks like all others."""
    report = report_of(recorded(own_times(slow(8, (3,), 1.1), seed=1), unit_ms=100))
    assert report.verdict.cause_class == "inconclusive"
    assert "rounded too coarsely" in report.verdict.title


def test_nobody_names_no_smaller_difference_than_rounding_leaves() -> None:
    report = report_of(recorded(own_times(np.ones(8), seed=1, base_ms=60), unit_ms=1))
    assert report.verdict.cause_class == "none"
    much = float(report.verdict.title.split("more than ")[1].split(" %")[0])
    assert much == pytest.approx(100 * 1.5 * 2**0.5 / 60, rel=0.05)


@SEEDS
def test_a_rank_that_is_clearly_slower_than_rounding_is_named(seed: int) -> None:
    report = report_of(recorded(own_times(slow(8, (3,), 1.2), seed=seed), unit_ms=10))
    assert [each.rank for each in report.culprits if each.role != "victim"] == [3]


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([300.0, 310.0, 330.0], 10),
        ([300.0, 300.0], 100),
        ([300.0, 450.0], 10),
        ([12.5, 12.5], 0.1),
        ([1.0, 1.0], 1),
        ([7.0], 1),
    ],
)
def test_the_unit_of_rounded_times(values: list[float], unit: float) -> None:
    assert unit_of(np.array(values)) == pytest.approx(unit)


def test_times_that_are_not_rounded_hide_nothing() -> None:
    own = own_times(np.ones(8), seed=1).astype(np.float32)
    assert least_difference(own, num_parts=4, scale_ms=None) < 1e-3
    nothing = np.full((4, 10), np.nan, dtype=np.float32)
    assert least_difference(nothing, num_parts=1, scale_ms=None) == 0


@pytest.mark.parametrize("off", [-2, -1, 1, 3])
def test_a_rank_that_counts_its_steps_differently_is_not_accused(off: int) -> None:
    """Batches of different length: in each step all ranks are long or short together."""
    rng = np.random.default_rng(5)
    own = own_times(np.ones(8), seed=5, noise=0.01) * (1 + 0.3 * rng.random(200))
    own[3] = np.roll(own[3], off)
    timings = recorded(own, waits=False)
    assert not report_of(timings).culprits
    assert suspects_of(timings)[3] == (Gate.NUMBERING,)


def test_a_slow_rank_whose_batches_vary_as_those_of_its_peers_is_accused() -> None:
    rng = np.random.default_rng(5)
    own = own_times(slow(8, (3,), 1.2), seed=5, noise=0.01) * (1 + 0.3 * rng.random(200))
    report = report_of(recorded(own, waits=False))
    assert [each.rank for each in report.culprits if each.role != "victim"] == [3]


def test_steps_off_counts_from_the_peers() -> None:
    peer = np.random.default_rng(3).random(50).astype(np.float32)
    late = np.roll(peer, 2)
    late[:2] = np.nan
    assert steps_off(late, peer) == 2
    assert steps_off(peer, late) == -2
    assert steps_off(peer, peer) == 0
    assert steps_off(peer[:15], late[:15]) == 0  # too few to tell
    assert steps_off(np.full(50, np.nan, dtype=np.float32), peer) == 0
    assert steps_off(np.ones(50, dtype=np.float32), peer) == 0


def test_a_rank_without_waiting_columns_of_its_own_changes_nothing() -> None:
    """Only half of the steps of one rank are here."""
    timings = recorded(own_times(np.ones(8), seed=2))
    sections = {section: times.copy() for section, times in timings.sections.items()}
    for times in sections.values():
        times[3, ::2] = np.nan
    assert report_of(replace(timings, sections=sections)).verdict.cause_class == "none"


def parts_of(
    *sections: Section, slow_in: Section | None, ms: float = 60.0, idle_ms: float = 4.0, seed: int = 1
) -> StepTimings:
    """These parts of a job of 8 ranks in which rank 3 is slow in one part, told or not."""
    rng = np.random.default_rng(seed)

    def times(usual_ms: float) -> NDArray[np.float64]:
        return np.asarray(usual_ms * (1 + 0.01 * rng.standard_normal((8, 200))))

    parts = {
        Section.DATA: times(4.0),
        Section.FORWARD: times(100.0),
        Section.BACKWARD: times(200.0),
        Section.IDLE: times(idle_ms),
    }
    if slow_in is not None:
        parts[slow_in][3] += ms
    own = np.sum(list(parts.values()), axis=0)
    told = {
        **parts,
        Section.COMPUTE: parts[Section.FORWARD] + parts[Section.BACKWARD],
        Section.WAIT: own.max(axis=0) - own + 30.0,
        Section.STEP: np.repeat((own.max(axis=0) + 30.0)[None, :], 8, axis=0),
    }
    return StepTimings(
        source="a recording",
        places=tuple(Place(rank=rank, coords={"dp": rank}) for rank in range(8)),
        steps=np.arange(200, dtype=np.int64),
        sections={section: told[section].astype(np.float32) for section in sections},
    )


@pytest.mark.parametrize("slow_in", [None, Section.FORWARD, Section.BACKWARD])
@pytest.mark.parametrize(
    "sections",
    [
        (Section.DATA,),
        (Section.DATA, Section.WAIT),
        (Section.DATA, Section.STEP),
        (Section.DATA, Section.WAIT, Section.STEP),
    ],
)
def test_where_computing_was_not_timed_nobody_is_ruled_out(
    sections: tuple[Section, ...], slow_in: Section | None
) -> None:
    report = report_of(parts_of(*sections, slow_in=slow_in))
    assert report.verdict.cause_class == "inconclusive"
    assert "of own work only data was timed" in report.verdict.title


def test_where_only_the_data_loader_was_timed_it_is_still_named() -> None:
    report = report_of(parts_of(Section.DATA, Section.STEP, slow_in=Section.DATA))
    assert report.verdict.cause_class == "slow_rank:data_loader"
    assert report.culprits[0].rank == 3


def test_much_of_a_step_in_no_timed_part_rules_nobody_out() -> None:
    report = report_of(parts_of(Section.FORWARD, Section.WAIT, Section.STEP, slow_in=Section.BACKWARD))
    assert report.verdict.cause_class == "inconclusive"
    assert "of a step is in no timed part" in report.verdict.title


@pytest.mark.parametrize("timed", [(Section.FORWARD,), (Section.DATA, Section.FORWARD)])
@pytest.mark.parametrize("slow_in", [None, Section.BACKWARD])
def test_one_pass_alone_rules_nobody_out(timed: tuple[Section, ...], slow_in: Section | None) -> None:
    report = report_of(parts_of(*timed, slow_in=slow_in))
    assert report.verdict.cause_class == "inconclusive"
    assert "only forward was timed" in report.verdict.title
    with_steps = report_of(parts_of(*timed, Section.STEP, slow_in=slow_in))
    assert with_steps.verdict.cause_class == "inconclusive"
    assert "of a step is in no timed part" in with_steps.verdict.title
    both = report_of(parts_of(Section.FORWARD, Section.BACKWARD, slow_in=None)).verdict.title
    assert both.endswith("slower than its peers")


@pytest.mark.parametrize("idle_ms", [4, 80, 150])
def test_a_device_that_idles_longer_is_found_however_long_all_devices_idle(idle_ms: float) -> None:
    sections = (Section.COMPUTE, Section.IDLE, Section.WAIT, Section.STEP)
    report = report_of(parts_of(*sections, slow_in=Section.IDLE, idle_ms=idle_ms))
    assert report.verdict.cause_class == "slow_rank:host_cpu"
    assert report.culprits[0].rank == 3
    assert report_of(parts_of(*sections, slow_in=None, idle_ms=idle_ms)).verdict.cause_class == "none"


def test_where_only_waiting_is_told_nobody_is_told_in_shares_of_it() -> None:
    healthy = report_of(parts_of(Section.WAIT, slow_in=None)).verdict
    assert healthy.cause_class == "none"
    assert healthy.title.endswith("% of the time in collectives")


def meshed(own: NDArray[np.float64], *, tensor_parallel: int, tells_mesh: bool) -> StepTimings:
    """Ranks of tensor parallel groups side by side, in two pipeline stages, eight on a host."""
    timings = recorded(own)
    half = len(own) // 2

    def coords(rank: int) -> dict[str, int]:
        data = rank % half // tensor_parallel
        return {"pp": rank // half, "dp": data, "tp": rank % tensor_parallel}

    return replace(
        timings,
        places=tuple(
            replace(place, coords=coords(place.rank) if tells_mesh else {}) for place in timings.places
        ),
    )


@SEEDS
@pytest.mark.parametrize("tells_mesh", [True, False])
def test_of_a_tensor_parallel_group_whose_ranks_wait_inside_of_forward_nobody_is_accused(
    tells_mesh: bool, seed: int
) -> None:
    """Rank 5 is slow, and ranks 4, 6 and 7 wait for it in every layer, inside what they time as their own."""
    own = own_times(slow(32, (5,), 1.2), seed=seed)
    for first in range(0, 32, 4):
        own[first : first + 4] = own[first : first + 4].max(axis=0)
    report = report_of(meshed(own, tensor_parallel=4, tells_mesh=tells_mesh))
    assert report.verdict.cause_class == "inconclusive"
    assert not report.culprits
    if tells_mesh:
        assert report.verdict.title.startswith("inconclusive: ranks 4-7 take")
        assert "tensor or context parallel group" in report.verdict.summary


@SEEDS
def test_one_slow_rank_of_a_tensor_parallel_group_is_accused(seed: int) -> None:
    timings = meshed(own_times(slow(32, (5,), 1.2), seed=seed), tensor_parallel=4, tells_mesh=True)
    assert [each.rank for each in report_of(timings).culprits if each.role != "victim"] == [5]


@SEEDS
def test_a_host_that_is_one_tensor_parallel_group_is_still_accused_as_a_host(seed: int) -> None:
    own = own_times(slow(64, tuple(range(8, 16)), 1.2), seed=seed)
    report = report_of(meshed(own, tensor_parallel=8, tells_mesh=True))
    assert [each.host for each in report.culprits if each.role != "victim"] == ["host-1"]


def test_accused_ranks_that_look_like_a_stage_of_another_mesh_are_not_sure() -> None:
    """As when `--mesh` gives the dimensions in the wrong order."""
    stage = report_of(recorded(own_times(slow(16, (12, 13, 14, 15), 1.25), seed=1), same_work=True))
    single = report_of(recorded(own_times(slow(16, (12,), 1.25), seed=1), same_work=True))
    assert stage.findings[0].confidence is Confidence.MEDIUM
    assert single.findings[0].confidence is Confidence.HIGH


def placed(coords: Sequence[dict[str, int]], slow_rank: int) -> StepTimings:
    """Ranks at these coordinates, one of which computes a quarter longer."""
    own = own_times(slow(len(coords), (slow_rank,), 1.25), seed=1)
    timings = recorded(own)
    places = tuple(replace(place, coords=each) for place, each in zip(timings.places, coords, strict=True))
    return replace(timings, places=places)


@pytest.mark.parametrize("name", ["ep", "cp"])
@pytest.mark.parametrize("num_ranks", [8, 16])
def test_experts_or_parts_of_sequences_that_no_other_rank_holds_accuse_nobody(
    name: str, num_ranks: int
) -> None:
    report = report_of(placed([{name: rank} for rank in range(num_ranks)], 5))
    assert report.verdict.cause_class == "inconclusive"
    assert "rank 5 may be slow" in report.verdict.title
    assert not [each for each in report.culprits if each.role == "culprit"]


def test_an_expert_that_other_ranks_hold_too_is_compared_with_them() -> None:
    coords = [{"ep": rank % 4, "dp": rank // 4} for rank in range(32)]
    assert [each.rank for each in report_of(placed(coords, 5)).culprits if each.role != "victim"] == [5]


@pytest.mark.parametrize(
    "coords",
    [
        [{"tp": rank} for rank in range(8)],
        [{"dp": 0} for _ in range(8)],
        [{"pp": rank // 8} for rank in range(16)],
    ],
    ids=["tensor parallel given up", "equal coordinates", "stages alone"],
)
def test_confidence_is_not_high_where_peers_may_do_other_work(coords: list[dict[str, int]]) -> None:
    (finding,) = [each for each in report_of(placed(coords, 5)).findings if each.id == "straggler-slow-rank"]
    assert finding.confidence is Confidence.MEDIUM
    assert "(data parallel)" not in finding.evidence[0].text
