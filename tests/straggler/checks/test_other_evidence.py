"""Findings about links, timers of the least and the most, other tools' claims, telemetry, series, and odd evidence."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.report.model import Confidence, Fault, InputFile, Severity
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, NotSeen, Passed
from distdoctor.straggler.checks.claims import CHECK as CLAIM
from distdoctor.straggler.checks.evidence_notes import CHECK as EVIDENCE
from distdoctor.straggler.checks.extremes import CHECK as EXTREMES
from distdoctor.straggler.checks.extremes import all_close
from distdoctor.straggler.checks.series.over_time import PERIODIC, REGIME, STALL
from distdoctor.straggler.checks.slow_link import CHECK as LINK
from distdoctor.straggler.checks.telemetry.unlike_gpus import CHECK as TELEMETRY
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.series import Extremes, ToolClaim
from straggler.checks.outcomes import absent, found, passed, run, why_not
from straggler.monitored_gpus import telemetry
from straggler.simulated_mesh import Mesh
from straggler.worlds import NOON_S, Slow, facts_of, job


def collectives(mesh: Mesh) -> Analysed:
    return analyse(Reading(collectives=(mesh.run(),)))


def test_a_slow_path_is_told_by_its_hosts_and_names_no_rank() -> None:
    each = found(LINK, collectives(Mesh(slow_tp_links={2: 3.0})))
    assert each.title == "slow path among node-1: all_reduce takes 3.0 times as long as elsewhere"
    assert (each.severity, each.confidence, each.fault) == (
        Severity.WARNING,
        Confidence.MEDIUM,
        Fault.NETWORK,
    )
    assert (each.scope.ranks, each.scope.hosts) == ((), ("node-1",))
    assert any(action.command and "nccl-bench" in action.command for action in each.actions)


@pytest.mark.parametrize("mesh", [Mesh(), Mesh(slow={5: 1.3})], ids=["healthy", "one slow rank"])
def test_paths_of_equal_speed_pass(mesh: Mesh) -> None:
    assert "move data at the speed of others" in passed(LINK, collectives(mesh))


def test_without_collectives_paths_are_not_passed() -> None:
    assert "no single collectives" in why_not(LINK, facts_of(job()))[0]


def test_groups_that_have_no_others_of_their_kind_are_not_passed() -> None:
    assert isinstance(run(LINK, collectives(Mesh(dp=2, tp=2)))[0], NotSeen)


def timers(
    low: float = 100.0,
    high: float = 130.0,
    *,
    name: str = "forward-compute",
    unit: str = "ms",
    num: int = 30,
    worst: int | list[int] | None = 7,
    more_is_worse: bool = True,
) -> Extremes:
    ranks = None if worst is None else np.resize(np.array(worst, dtype=np.int32), num)
    return Extremes(
        name=name,
        source="Megatron-LM",
        path="train.log",
        unit=unit,
        steps=np.arange(num),
        low=np.full(num, low),
        high=np.full(num, high),
        low_rank=None if more_is_worse else ranks,
        high_rank=ranks if more_is_worse else None,
        more_is_worse=more_is_worse,
    )


def test_the_same_rank_at_the_end_of_every_report_is_named_with_doubt() -> None:
    each = found(EXTREMES, facts_of(extremes=(timers(),)))
    assert each.title == "rank 7 takes 30 % more forward-compute than the fastest one"
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert (each.scope.ranks, each.cause_class) == ((7,), "slow_rank")
    assert "cannot be seen how the other ranks are" in each.explanation


def test_of_rates_the_least_is_the_worst() -> None:
    rates = timers(100, 125, name="estimated throughput", unit="TFLOP/s", more_is_worse=False)
    each = found(EXTREMES, facts_of(extremes=(rates,)))
    assert each.title == "rank 7 has 20 % less estimated throughput than the fastest one"


@pytest.mark.parametrize(
    "extremes",
    [timers(worst=None), timers(worst=[1, 2, 3, 4, 5]), timers(num=10), timers(worst=-1)],
    ids=["values alone", "always another", "few reports", "no rank"],
)
def test_a_rank_that_is_not_always_the_same_is_not_named(extremes: Extremes) -> None:
    each = found(EXTREMES, facts_of(extremes=(extremes,)))
    assert each.title.startswith("some rank takes 30 % more")
    assert (each.severity, each.confidence, each.scope.ranks) == (Severity.INFO, Confidence.LOW, ())


def test_ranks_that_are_close_pass() -> None:
    assert "1.0 % apart" in passed(EXTREMES, facts_of(extremes=(timers(100, 101),)))


@pytest.mark.parametrize(
    "extremes",
    [(), (timers(num=0),), (timers(unit="C"),), (timers(0.0, 0.0),), (timers(float("nan"), 100.0),)],
    ids=["none", "no report", "temperatures", "zeros", "not a number"],
)
def test_timers_that_show_nothing_are_not_passed(extremes: tuple[Extremes, ...]) -> None:
    assert why_not(EXTREMES, facts_of(extremes=extremes))[0]


def test_only_timers_of_own_work_say_that_nobody_is_slow() -> None:
    assert all_close([timers(100, 100.4)]) == pytest.approx(0.004)
    assert all_close([timers(100, 100.4), timers(100, 150, name="all-grads-sync")]) == pytest.approx(0.004)
    assert all_close([timers(100, 100.4, name="all-grads-sync")]) is None
    assert all_close([timers(100, 100.4), timers(100, 120, name="backward-compute")]) is None
    assert all_close([]) is None


def test_what_another_tool_says_is_its_claim() -> None:
    claims = tuple(
        ToolClaim(
            tool="NVRx",
            text=f"Affected ranks: {rank}",
            path="a.log",
            line=rank,
            ranks=(rank,),
            rule="A rule.",
        )
        for rank in (3, 4)
    )
    each = found(CLAIM, facts_of(claims=claims))
    assert each.title == "NVRx itself names ranks 3-4 2 times"
    assert (each.severity, each.confidence, each.scope.ranks) == (Severity.INFO, Confidence.LOW, (3, 4))
    assert each.evidence[0].source == "a.log:3"
    assert each.explanation.endswith("A rule.")


def test_a_tool_that_names_nobody_is_told_too() -> None:
    claim = ToolClaim(tool="DLRover", text="no straggler", path="a.log")
    assert found(CLAIM, facts_of(claims=(claim,))).title == "DLRover itself names nobody"


def test_without_claims_there_is_none() -> None:
    assert absent(CLAIM, facts_of(job()))


def test_what_is_odd_about_the_evidence_is_one_note() -> None:
    notes = [
        Note(kind=NoteKind.RESTARTED, text="rank 3 began again"),
        Note(kind=NoteKind.CLOCK_JUMP, text="the clock of rank 1 went back"),
        Note(kind=NoteKind.CLOCK_JUMP, text="the clock of rank 1 went back"),
        Note(kind=NoteKind.LIMITED, text="one rank's log names nobody"),
    ]
    each = found(EVIDENCE, facts_of(job(), notes=notes))
    assert each.title == "about the evidence: restarts, clock jump"
    assert [line.text for line in each.evidence] == [
        "restarts: rank 3 began again",
        "clock jump: the clock of rank 1 went back",
    ]
    assert each.severity is Severity.INFO


def test_files_that_were_not_read_are_named() -> None:
    reading = Reading(
        inputs=tuple(
            InputFile(path=f"{number}.csv", kind="a table", read=False, why_not="it is empty")
            for number in range(40)
        )
    )
    each = found(EVIDENCE, analyse(reading))
    assert each.title == "about the evidence: 40 files not read"
    assert each.evidence[0].text == "not read: 0.csv: it is empty"
    assert each.evidence[-1].text == "and 28 more"


def test_evidence_without_oddities_passes() -> None:
    assert passed(EVIDENCE, facts_of(job()))


def test_telemetry_is_looked_at_where_there_is_some() -> None:
    assert absent(TELEMETRY, facts_of(job()))
    assert any(isinstance(each, Passed) for each in run(TELEMETRY, facts_of(telemetry=(telemetry(),))))


@pytest.mark.parametrize("check", [REGIME, STALL, PERIODIC], ids=lambda check: check.id)
def test_without_step_times_of_the_job_nothing_changes(check: object) -> None:
    assert "no step time" in absent(check, facts_of())  # type: ignore[arg-type]
    assert not any(isinstance(each, Found) for each in run(check, facts_of(job(8, 200))))  # type: ignore[arg-type]


def test_a_change_of_the_whole_job_is_told_from_its_ranks() -> None:
    common = np.where(np.arange(400) < 200, 1.0, 1.3)
    each = found(REGIME, facts_of(job(8, 400, common=common, started_s=NOON_S)))
    assert "since step 200" in each.title
    assert each.scope.ranks == ()


def test_a_change_that_a_slow_rank_makes_is_told_with_the_rank() -> None:
    slow = Slow(ranks=[3], ms=90, start=200)
    detail = passed(REGIME, facts_of(job(8, 400, slow=[slow])))
    assert "told with the rank" in detail
    now_and_then = Slow(ranks=[3], ms=900, start=5, every=20)
    for check in (STALL, PERIODIC):
        assert "told with the rank" in passed(check, facts_of(job(8, 400, slow=[now_and_then])))
