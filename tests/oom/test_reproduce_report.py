"""What was reproduced, judged and shown: facts made by hand, one case for each end that a run can come to."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distdoctor.oom.checks.reproduce.failed import CHECK as FAILED
from distdoctor.oom.checks.reproduce.out_of_memory import CHECK as OUT_OF_MEMORY
from distdoctor.oom.checks.reproduce.prediction import CHECK as PREDICTION
from distdoctor.oom.checks.reproduce.rank_lost import CHECK as RANK_LOST
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.reproduced import (
    At,
    Outcome,
    OutOfMemory,
    PeakTold,
    RankPart,
    Reproduced,
    ReproduceFacts,
)
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.reproduce_build import reproduce_report
from distdoctor.oom.reproduction import process_memory
from distdoctor.oom.reproduction.combinations import Combination, choose
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.oom.reproduction.room import why_no_room
from distdoctor.oom.settings import DataParallel, Settings
from distdoctor.ranks.greeting import Hello
from distdoctor.ranks.lost import Lost, LostRank, Stopped
from distdoctor.ranks.places import Place
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Passed
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Report, Severity, Status
from distdoctor.report.render.terminal import render_terminal
from distdoctor.report.request import ReportRequest
from distdoctor.report.seal import seal
from distdoctor.units import GIB, MIB

PLACES = tuple(Place(rank=rank, host="host-a", local_rank=rank) for rank in range(2))
REQUEST = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-reproduce")
EVENT = OutOfMemory(
    at=At(step=1, phase="backward", micro_batch=0, module="layers.3.attention", op="aten.mm.default"),
    message="CUDA out of memory",
    enforced_by="the CUDA allocator, limited to a fraction of the GPU",
    requested_bytes=2 * MIB,
    live_bytes=30 * MIB,
    limit_bytes=31 * MIB,
    by_category={"activations": 20 * MIB, "parameters": 10 * MIB},
)


def chosen(name: str = "fsdp2") -> Combination:
    return choose((name,), num_ranks=2, said=Settings(model=preset("tiny")))[0]


def part(rank: int, *, off: float = 0.0, name: str = "fsdp2", **fields: Any) -> RankPart:
    """A rank that took what the formula says, times 1 + off."""
    predicted = estimate(resolve(chosen(name).settings)).worst.peak.num_bytes
    peak = PeakTold(
        num_bytes=round(predicted * (1 + off)),
        at=At(step=2, phase="backward"),
        by_category={"parameters": 8 * MIB, "activations": 4 * MIB},
    )
    values = {"outcome": Outcome.DONE, "steps_done": 2, "peak": peak, "step_s": (0.2, 0.1), **fields}
    return RankPart(rank=rank, **values)


def reproduced(*parts: RankPart, name: str = "fsdp2", not_begun: str = "") -> Reproduced:
    job = resolve(chosen(name).settings)
    return Reproduced(name=name, job=job, estimate=estimate(job), parts=parts, not_begun=not_begun)


def facts(*combinations: Reproduced, **fields: Any) -> ReproduceFacts:
    values = {"num_ranks": 2, "steps": 2, "places": PLACES, "backend": "gloo", **fields}
    return ReproduceFacts(combinations=combinations, **values)


def only(outcomes: Any) -> CheckOutcome:
    (outcome,) = outcomes
    return outcome


def report_of(*combinations: Reproduced, **fields: Any) -> Report:
    return reproduce_report(REQUEST, facts(*combinations, **fields))


def lost(rank: int, state: Lost = Lost.GONE, **fields: Any) -> Stopped:
    return Stopped(
        reason="no progress for 60 s",
        phase="fsdp2: step 2 of 2",
        lost=(LostRank(rank=rank, state=state, host="host-a", pid=7),),
        **fields,
    )


# --- out of memory ---


def test_the_rank_that_ran_out_is_named_with_its_place_and_bytes() -> None:
    out = part(1, outcome=Outcome.OUT_OF_MEMORY, steps_done=0, out_of_memory=EVENT)
    peer = part(0, outcome=Outcome.FAILED, error="RuntimeError: Connection closed by peer [127.0.0.1]:4")
    found = only(OUT_OF_MEMORY.run(facts(reproduced(peer, out), memory_limit_bytes=31 * MIB)))
    assert isinstance(found, Found)
    assert found.title == "rank 1 (host-a) ran out of memory: fsdp2, step 1, backward"
    assert found.scope.ranks == (1,) and found.scope.hosts == ("host-a",)
    texts = " ".join(each.text for each in found.evidence)
    assert "asked for 2 MiB more: step 1, backward, micro-batch 0, in layers.3.attention" in texts
    assert "30 MiB were live: activations 20 MiB, parameters 10 MiB" in texts
    assert "rank 0 waited for it in a collective" in texts
    assert found.evidence[0].expected == "at most 31 MiB in all"


def test_ranks_that_met_the_same_are_one_line() -> None:
    parts = [part(rank, outcome=Outcome.OUT_OF_MEMORY, out_of_memory=EVENT) for rank in range(2)]
    found = only(OUT_OF_MEMORY.run(facts(reproduced(*parts))))
    assert isinstance(found, Found)
    assert found.evidence[0].text.startswith("ranks 0-1 asked for")
    assert len(found.evidence) == 2
    assert not report_of(reproduced(*parts)).culprits


def test_a_snapshot_is_told_with_the_command_that_reads_it() -> None:
    event = msgspec.structs.replace(EVENT, snapshot="/snap/oom rank1.pickle")
    found = only(
        OUT_OF_MEMORY.run(facts(reproduced(part(1, outcome=Outcome.OUT_OF_MEMORY, out_of_memory=event))))
    )
    assert isinstance(found, Found)
    assert found.actions[0].command == "distdoctor oom explain '/snap/oom rank1.pickle'"


def test_ranks_that_left_snapshots_are_counted_and_one_that_could_not_is_told() -> None:
    told: list[dict[str, str]] = [{"snapshot": "/a"}, {"snapshot": "/b"}, {"no_snapshot": "disk full"}]
    parts = [
        part(rank, outcome=Outcome.OUT_OF_MEMORY, out_of_memory=msgspec.structs.replace(EVENT, **fields))
        for rank, fields in enumerate(told)
    ]
    found = only(OUT_OF_MEMORY.run(facts(reproduced(*parts), num_ranks=3)))
    assert isinstance(found, Found)
    texts = [line.text for line in found.evidence]
    assert "rank 0 left /a; so did rank 1" in texts
    assert "rank 2 left no snapshot: disk full" in texts


def test_a_run_that_came_to_its_end_passes() -> None:
    assert isinstance(only(OUT_OF_MEMORY.run(facts(reproduced(part(0), part(1))))), Passed)


def test_a_run_that_was_cut_short_is_not_taken_for_one_that_fits() -> None:
    cut = reproduced(part(0), part(1, outcome=Outcome.UNFINISHED, steps_done=1))
    assert isinstance(only(OUT_OF_MEMORY.run(facts(cut))), NotSeen)
    assert isinstance(only(OUT_OF_MEMORY.run(facts(reproduced(part(0))))), NotSeen)


def test_what_cannot_run_here_is_not_applicable() -> None:
    none = reproduced(*(RankPart(rank=rank, outcome=Outcome.CANNOT_RUN, error="no") for rank in range(2)))
    assert isinstance(only(OUT_OF_MEMORY.run(facts(none))), NotApplicable)


# --- failed ---


def test_a_program_that_raised_is_told_with_its_words() -> None:
    failed = part(0, outcome=Outcome.FAILED, error="ValueError: odd", at=At(step=1, phase="forward"))
    peer = part(1, outcome=Outcome.FAILED, error="RuntimeError: Connection reset by peer")
    found = only(FAILED.run(facts(reproduced(failed, peer))))
    assert isinstance(found, Found)
    assert found.scope.ranks == (0,)
    assert "rank 0, step 1, forward: ValueError: odd" in found.evidence[0].text


def test_an_error_that_tells_of_a_peer_is_nobodys_failure() -> None:
    peer = part(1, outcome=Outcome.FAILED, error="RuntimeError: Connection reset by peer")
    assert isinstance(only(FAILED.run(facts(reproduced(part(0), peer)))), Passed)


def test_what_was_not_run_is_not_seen() -> None:
    outcomes = FAILED.run(
        facts(
            reproduced(RankPart(rank=0, outcome=Outcome.CANNOT_RUN, error="torch has none")),
            reproduced(name="ddp", not_begun="the time limit of 5 s came first"),
        )
    )
    first, second = outcomes
    assert isinstance(first, NotSeen) and first.unread.reason == "torch has none"
    assert isinstance(second, NotSeen) and second.what == "ddp"


# --- lost ---


def test_a_rank_that_is_gone_is_named() -> None:
    cut = reproduced(part(0, outcome=Outcome.UNFINISHED), part(1, outcome=Outcome.UNFINISHED))
    found = only(RANK_LOST.run(facts(cut, stopped=lost(1))))
    assert isinstance(found, Found)
    assert found.title == "rank 1 (host-a) is gone: the others waited"


def test_a_rank_that_said_why_is_not_accused_twice() -> None:
    out = part(1, outcome=Outcome.OUT_OF_MEMORY, out_of_memory=EVENT)
    stopped = Stopped(reason="x", phase="fsdp2: step 1 of 2", errors=((1, "OutOfMemoryError: CUDA"),))
    assert isinstance(only(RANK_LOST.run(facts(reproduced(part(0), out), stopped=stopped))), Passed)
    report = report_of(reproduced(part(0), out), stopped=stopped)
    assert [each.id for each in report.findings] == ["oom-reproduced-out-of-memory"]


def test_a_rank_that_raised_between_the_programs_is_named() -> None:
    stopped = Stopped(reason="x", phase="joining", errors=((1, "UsageError: local rank 1 has no GPU"),))
    found = only(RANK_LOST.run(facts(stopped=stopped)))
    assert isinstance(found, Found) and found.scope.ranks == (1,)


@pytest.mark.parametrize(
    ("stopped", "severity", "word"),
    [
        (Stopped(reason="interrupted (Ctrl-C)", phase="a", by_user=True), Severity.INFO, "somebody ended"),
        (Stopped(reason="the launcher ended the job (SIGTERM)", phase="a"), Severity.INFO, "the launcher"),
        (
            Stopped(reason="no progress for 60 s", phase="a", inside=(0, 1)),
            Severity.CRITICAL,
            "none comes out",
        ),
        (Stopped(reason="x", phase="a", only_this_rank=True), Severity.CRITICAL, "meeting point"),
        (
            Stopped(reason="x", phase="a", errors=((0, "RuntimeError: Broken pipe"),)),
            Severity.CRITICAL,
            "a connection between ranks broke",
        ),
    ],
)
def test_other_ends_have_their_own_words(stopped: Stopped, severity: Severity, word: str) -> None:
    found = only(RANK_LOST.run(facts(stopped=stopped)))
    assert isinstance(found, Found)
    assert found.severity is severity and word in found.title


def test_a_complete_run_lost_nobody() -> None:
    assert isinstance(only(RANK_LOST.run(facts(reproduced(part(0), part(1))))), Passed)


# --- prediction ---


def test_a_large_difference_is_told_with_both_sums() -> None:
    found = only(PREDICTION.run(facts(reproduced(part(0), part(1, off=0.5)))))
    assert isinstance(found, Found)
    assert found.title == "fsdp2: rank 1 (host-a) took 50 % more than predicted"
    assert found.severity is Severity.INFO
    assert "give or take 30 %" in str(found.evidence[0].expected)


def test_a_small_difference_passes() -> None:
    passed = only(PREDICTION.run(facts(reproduced(part(0), part(1, off=0.1)))))
    assert isinstance(passed, Passed) and "10 %" in passed.detail


def test_gpus_are_held_to_more() -> None:
    places = tuple(replace(place, device=f"cuda:{place.rank}") for place in PLACES)
    assert isinstance(
        only(PREDICTION.run(facts(reproduced(part(0), part(1, off=0.25)), places=places))), Found
    )


def test_one_step_says_nothing_of_a_prediction() -> None:
    one = reproduced(*(part(rank, steps_done=1) for rank in range(2)))
    assert isinstance(only(PREDICTION.run(facts(one, steps=1))), NotApplicable)


def test_a_run_cut_short_says_nothing_either() -> None:
    cut = reproduced(part(0), part(1, outcome=Outcome.UNFINISHED))
    assert isinstance(only(PREDICTION.run(facts(cut))), NotSeen)


def test_a_rank_is_compared_with_its_own_pipeline_stage() -> None:
    combination = reproduced(part(0), part(1), name="pp-1f1b")
    first, second = combination.role_of(0), combination.role_of(1)
    assert first is not None and second is not None
    assert (first.stage, second.stage) == (0, 1)


# --- the report ---


def test_the_verdict_of_a_healthy_run_says_what_took_most() -> None:
    report = report_of(reproduced(part(0), part(1)), reproduced(part(0), part(1), name="ddp"))
    assert report.verdict.status is Status.OK
    assert report.verdict.title.startswith("2 of 2 strategies ran; most memory: ")
    assert "2 ranks on 1 host over Gloo, model tiny" in report.verdict.summary


def as_said(num_ranks: int, **said: Any) -> Reproduced:
    """A healthy run of a job to which nobody gave a --strategy, unless it is among `said`."""
    (combination,) = choose((), num_ranks=num_ranks, said=Settings(model=preset("tiny"), **said))
    job = resolve(combination.settings)
    parts = tuple(part(rank) for rank in range(num_ranks))
    return Reproduced(name=combination.name, job=job, estimate=estimate(job), parts=parts)


def test_without_a_strategy_it_is_said_which_one_was_run_and_why() -> None:
    verdict = report_of(as_said(2)).verdict
    assert verdict.title.startswith("fsdp2 ran on 2 ranks: ")
    assert "No --strategy was given: fsdp2 is the default; --strategy all runs every one." in verdict.summary
    alone = report_of(as_said(1), num_ranks=1, places=PLACES[:1]).verdict
    assert alone.title.startswith("single ran: ")
    assert "One rank runs the model alone" in alone.summary


def test_a_strategy_that_was_asked_for_needs_no_reason() -> None:
    chosen_one = report_of(reproduced(part(0), part(1))).verdict.summary
    configured = report_of(as_said(2, strategy=DataParallel.DDP)).verdict.summary
    assert "--strategy" not in chosen_one + configured


def test_titles_and_cells_end_behind_whole_words() -> None:
    words = "RuntimeError: " + "unsupportable " * 12
    failed = only(FAILED.run(facts(reproduced(part(0), part(1, outcome=Outcome.FAILED, error=words)))))
    assert isinstance(failed, Found)
    cannot = reproduced(*(part(rank, outcome=Outcome.CANNOT_RUN, error=words.strip()) for rank in range(2)))
    assert report_of(cannot).tables[0].note == "On the CPU; the formulas count CUDA's kernels."
    report = report_of(cannot, reproduced(name="ddp", not_begun="the time limit of 5 s came first"))
    for title in (failed.title, report.verdict.title):
        assert len(title) <= 80
        assert title.endswith(("unsupportable…", "RuntimeError:…"))
    (table,) = [table for table in report.tables if table.name == "oom-reproduced"]
    assert table.rows[0][1] == "cannot run"
    assert table.note is not None and f"fsdp2 cannot run: {words.strip()}." in table.note


def test_a_culprit_is_named_once() -> None:
    out = part(1, outcome=Outcome.OUT_OF_MEMORY, steps_done=0, out_of_memory=EVENT)
    report = report_of(reproduced(part(0), out))
    assert [(each.rank, each.why) for each in report.culprits] == [
        (1, "ran out of memory: fsdp2, step 1, backward")
    ]


def test_one_rank_that_waited_is_one_rank() -> None:
    stopped = replace(lost(1), inside=(0,))
    found = only(RANK_LOST.run(facts(reproduced(part(0), part(1, steps_done=1)), stopped=stopped)))
    assert isinstance(found, Found)
    assert "; rank 0 waited there" in str(found.evidence)


def test_a_picture_shows_no_category_that_is_nothing() -> None:
    at = At(step=2, phase="backward")
    peak = PeakTold(num_bytes=8 * MIB, at=at, by_category={"parameters": 8 * MIB, "inputs": 8})
    (series,) = report_of(reproduced(part(0, peak=peak), part(1, peak=peak))).series
    assert series.names == ("parameters",)


@pytest.mark.parametrize("off", [0.0, 0.6])
def test_all_strategies_stand_on_a_screen_that_has_room_for_them(off: float) -> None:
    combinations = choose(("all",), num_ranks=2, said=Settings(model=preset("tiny")))
    assert len(combinations) == 16
    ran = [
        reproduced(*(part(rank, off=off, name=each.name) for rank in range(2)), name=each.name)
        for each in combinations
    ]
    report = seal(report_of(*ran))
    assert bool(report.findings) == bool(off)
    tall = render_terminal(report, screen_rows=39)
    assert all(f"\n  {each.name} " in tall for each in combinations)
    assert len(tall.splitlines()) <= 39
    low = render_terminal(report)
    assert "more rows" in low and len(low.splitlines()) <= 24


def test_strategies_that_were_left_out_for_one_reason_share_it() -> None:
    why = "the time limit of 5 s came first"
    left_out = [reproduced(name=name, not_begun=why) for name in ("ddp", "tp")]
    report = report_of(reproduced(part(0), part(1)), *left_out)
    (table,) = [table for table in report.tables if table.name == "oom-reproduced"]
    assert [row[1] for row in table.rows] == ["ran", "not run", "not run"]
    assert table.note is not None and f"ddp, tp not run: {why}." in table.note


def test_a_run_in_which_not_all_was_run_is_unknown() -> None:
    report = report_of(
        reproduced(part(0), part(1)), reproduced(name="ddp", not_begun="the time limit of 5 s came first")
    )
    assert report.verdict.status is Status.UNKNOWN
    assert report.verdict.title == "cannot tell: ddp: the time limit of 5 s came first"


def test_both_counts_of_a_rank_stand_side_by_side_with_the_reason() -> None:
    rss = {"rss_before_bytes": 200 * MIB, "rss_peak_bytes": 300 * MIB}
    report = report_of(reproduced(part(0, **rss), part(1, off=0.1, **rss)))
    (table,) = [each for each in report.tables if each.name == "oom-reproduced-ranks"]
    assert [column.name for column in table.columns][2:4] == ["tensors", "process"]
    assert [row[3] for row in table.rows] == [100.0, 100.0]
    assert "Gloo" in (table.note or "")


def test_ranks_that_are_alike_are_one_row() -> None:
    report = report_of(reproduced(part(0), part(1)))
    (table,) = [each for each in report.tables if each.name == "oom-reproduced-ranks"]
    assert [row[1] for row in table.rows] == ["0-1"]


def test_growth_that_was_not_measured_is_not_zero() -> None:
    report = report_of(reproduced(part(0, rss_before_bytes=1), part(1)))
    (table,) = [each for each in report.tables if each.name == "oom-reproduced-ranks"]
    assert table.rows[0][3] is None


def test_categories_stand_in_columns() -> None:
    report = report_of(reproduced(part(0), part(1)))
    (table,) = [each for each in report.tables if each.name == "oom-reproduced-categories"]
    assert [column.name for column in table.columns] == ["strategy", "params", "activ."]
    assert table.rows == (("fsdp2", 8.0, 4.0),)


def test_nothing_at_all_is_a_report_too() -> None:
    report = report_of(reproduced(not_begun="the run ended before it"), places=())
    assert report.verdict.status is Status.UNKNOWN
    assert not report.series


# --- room ---


def hello(rank: int, *, memory_bytes: int | None, device: str = "cpu") -> Hello:
    return Hello(rank=rank, host="host-a", local_rank=rank, memory_bytes=memory_bytes, device=device)


def options(**fields: Any) -> ReproduceOptions:
    return ReproduceOptions(combinations=(), **fields)


def test_what_would_take_a_hosts_memory_is_not_begun() -> None:
    ranks = [hello(rank, memory_bytes=40 * MIB) for rank in range(2)]
    why = why_no_room(chosen("ddp"), ranks, options())
    assert why.startswith("2 ranks on host-a would need") and "40 MiB are left" in why


def test_a_limit_bounds_what_is_needed() -> None:
    ranks = [hello(rank, memory_bytes=40 * MIB) for rank in range(2)]
    assert why_no_room(chosen("ddp"), ranks, options(memory_limit_bytes=10 * MIB)) == ""


def test_enough_room_and_unknown_room_let_it_begin() -> None:
    assert (
        why_no_room(chosen("ddp"), [hello(0, memory_bytes=4 * GIB), hello(1, memory_bytes=None)], options())
        == ""
    )


def test_a_gpu_is_the_ranks_own() -> None:
    ranks = [hello(rank, memory_bytes=MIB, device=f"cuda:{rank}") for rank in range(2)]
    assert why_no_room(chosen("ddp"), ranks, options()) == ""


# --- the process' own count ---


def test_resident_memory_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\n")
    assert process_memory.resident_bytes(tmp_path) == (200 * 1024, 300 * 1024)


def test_what_the_kernel_does_not_tell_is_none(tmp_path: Path) -> None:
    assert process_memory.resident_bytes(tmp_path) == (None, None)
    (tmp_path / "status").write_text("Name:\tpython\n")
    assert process_memory.resident_bytes(tmp_path) == (None, None)


def test_a_peak_that_cannot_be_set_back_says_why(tmp_path: Path) -> None:
    assert "does not set the peak back" in process_memory.reset_peak(tmp_path / "absent")
    assert process_memory.reset_peak(tmp_path) == ""
    assert (tmp_path / "clear_refs").read_text() == "5"
