"""The report over evidence of ranks: every answer that there is, and the command line around it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import distdoctor.report
from distdoctor.__main__ import run
from distdoctor.cli.straggler_options import parse_around
from distdoctor.exit_codes import ExitCode
from distdoctor.report.codec import encode
from distdoctor.report.exit_code import FailOn, exit_code_for
from distdoctor.report.model import Report, Status, Table
from distdoctor.report.request import ReportRequest
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.build import straggler_report
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from distdoctor.straggler.facts.telemetry import Metric
from distdoctor.straggler.verdict import Answer
from straggler.monitored_gpus import telemetry
from straggler.simulated_mesh import Mesh
from straggler.worlds import NOON_S, Slow, facts_of, job, only, write_csv

S = Section
SCHEMA = json.loads((Path(distdoctor.report.__file__).parent / "report.schema.json").read_text())


def report_of(facts: Analysed, *, only: Sequence[str] = (), ignore: Sequence[str] = ()) -> Report:
    report = straggler_report(
        ReportRequest(
            argv=("straggler", "analyze", "times.csv"),
            started=datetime(2026, 11, 30, 13, tzinfo=timezone.utc),
            command="straggler-analyze",
            only=tuple(only),
            ignore=tuple(ignore),
        ),
        facts,
    )
    well_formed(report)
    return report


def well_formed(report: Report) -> None:
    """The schema holds, and tables and pictures have the cells that they say."""
    jsonschema.validate(json.loads(encode(report)), SCHEMA)
    assert len(report.verdict.title) <= 80
    assert report.verdict.summary.strip()
    assert not [each for each in report.skipped if "a bug in this check" in each.reason]
    names = [each.name for each in (*report.tables, *report.series)]
    assert len(names) == len(set(names))
    for table in report.tables:
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows), table.name
    for series in report.series:
        assert len(series.values) == len(series.names), series.name
        assert all(len(row) == len(series.x) for row in series.values), series.name
        assert all(0 <= hot < max(len(series.x), len(series.names)) for hot in series.hot)


def rotating() -> Analysed:
    timings = job(8, 200)
    length = np.random.default_rng(3).lognormal(0, 0.25, (8, 200)).astype(np.float32)
    for section in (S.FORWARD, S.BACKWARD):
        timings.sections[section][:] *= length
    return facts_of(only(timings, S.FORWARD, S.BACKWARD))


def whole_job(factor: float, *steps: int) -> Analysed:
    """All ranks take so many times as long in these steps of 400."""
    common = np.ones(400)
    common[list(steps)] = factor
    return facts_of(job(8, 400, common=common, started_s=NOON_S))


def log(values: Sequence[float]) -> JobSeries:
    return JobSeries(
        name="step time",
        kind=SeriesKind.TIME,
        unit="ms",
        source="a log",
        path="train.log",
        steps=np.arange(len(values)),
        values=np.asarray(values, dtype=np.float64),
    )


def wavering() -> JobSeries:
    """A slow step some fifty steps apart, never exactly: a rhythm that nobody planned."""
    rng = np.random.default_rng(1)
    values = 400 * (1 + 0.01 * rng.standard_normal(1000))
    values[np.cumsum(rng.integers(45, 56, 19))] *= 6
    return log(values)


HOST_1 = Slow(ranks=range(8, 16), ms=40)
ANSWERS = {
    Answer.SLOW_RANK: (Status.WARNING, lambda: facts_of(job(slow=[Slow(ranks=[3], ms=40)]))),
    Answer.SLOW_HOST: (Status.WARNING, lambda: facts_of(job(32, gpus_per_host=8, slow=[HOST_1]))),
    Answer.SLOW_LINK: (
        Status.WARNING,
        lambda: analyse(Reading(collectives=(Mesh(slow_tp_links={2: 3.0}).run(),))),
    ),
    Answer.INTERMITTENT: (
        Status.WARNING,
        lambda: facts_of(job(slow=[Slow(ranks=[6], ms=250, section=S.DATA, every=10)])),
    ),
    Answer.RANK0_EXTRA_WORK: (
        Status.WARNING,
        lambda: facts_of(job(slow=[Slow(ranks=[0], ms=40, section=None)])),
    ),
    Answer.STAGE_IMBALANCE: (Status.WARNING, lambda: facts_of(job(32, stages=(1, 1, 1, 1.6)))),
    Answer.DATA_IMBALANCE: (Status.WARNING, rotating),
    Answer.DATA_BOUND: (Status.WARNING, lambda: facts_of(job(more_parts={S.DATA: 150.0}))),
    Answer.JOB_WIDE: (Status.WARNING, lambda: whole_job(1.3, *range(200, 400))),
    Answer.STALLS: (
        Status.WARNING,
        lambda: whole_job(20.0, 50, 151, 290),
    ),
    Answer.PERIODIC: (Status.WARNING, lambda: facts_of(series=(wavering(),))),
    Answer.GPU_UNLIKE_PEERS: (
        Status.WARNING,
        lambda: facts_of(
            telemetry=(telemetry(unlike={3: {Metric.THROTTLE_REASONS: 0x48, Metric.SM_CLOCK: 1065}}),)
        ),
    ),
    Answer.NONE: (Status.OK, lambda: facts_of(job())),
    Answer.INCONCLUSIVE: (Status.UNKNOWN, lambda: facts_of(only(job(), S.STEP))),
}


@pytest.mark.parametrize("answer", Answer, ids=lambda answer: answer.value)
def test_every_answer_of_the_closed_list_is_given(answer: Answer) -> None:
    status, facts = ANSWERS[answer]
    report = report_of(facts())
    verdict = report.verdict
    assert verdict.cause_class is not None
    assert verdict.cause_class.partition(":")[0] == answer.value
    assert verdict.status is status
    expected = {Status.OK: 0, Status.WARNING: 10, Status.UNKNOWN: 3}[status]
    assert exit_code_for(report, FailOn.WARNING) == expected


NAMES_NOBODY = set(Answer) - {Answer.SLOW_RANK, Answer.SLOW_HOST, Answer.INTERMITTENT}


@pytest.mark.parametrize("answer", sorted(NAMES_NOBODY), ids=lambda answer: answer.value)
def test_answers_about_nobody_have_no_culprit(answer: Answer) -> None:
    report = report_of(ANSWERS[answer][1]())
    assert (report.culprits, report.since, report.drain) == ((), None, ())


def test_a_slow_rank_has_culprit_victims_onset_and_cost() -> None:
    slow = Slow(ranks=[3], ms=60, start=150)
    timings = job(8, 300, gpus_per_host=4, gpu_model="H100", started_s=NOON_S, slow=[slow])
    report = report_of(facts_of(timings))
    culprit, victims = report.culprits
    assert (culprit.role, culprit.rank, culprit.host, culprit.local_rank) == ("culprit", 3, "host-0", 3)
    assert culprit.gpu is not None and culprit.gpu.host == "host-0"
    assert (victims.role, victims.ranks) == ("victim", (0, 1, 2, 4, 5, 6, 7))
    assert report.since is not None
    assert report.since.step == 150
    assert report.since.utc is not None and report.since.utc.startswith("2026-11-30T12:00:5")
    assert report.impact is not None
    # From there on 56 ms of 396 ms a step are waiting for it: the job would take 340 ms.
    assert report.impact.slowdown_pct == pytest.approx(100 * 56 / 340, abs=0.7)
    assert report.impact.gpu_hours_per_day == pytest.approx(24 * 8 * 56 / 396, rel=0.05)
    assert (report.impact.gpus_held, report.impact.basis) == (8, "estimated")
    assert [(each.host, each.answer) for each in report.drain] == [("host-0", "not enough evidence")]
    assert report.subject.hosts == ("host-0", "host-1")


def test_a_rank_that_is_slow_from_the_start_began_no_later_than_what_was_judged() -> None:
    since = report_of(facts_of(job(slow=[Slow(ranks=[3], ms=40)]))).since
    assert since is not None
    assert (since.step, since.utc) == (1, None)
    assert since.exactness == "at or before the first step judged"


def test_a_slow_host_has_its_ranks_and_its_onset() -> None:
    timings = job(32, 300, gpus_per_host=8, started_s=NOON_S, slow=[replace(HOST_1, start=150)])
    report = report_of(facts_of(timings))
    culprit, victims = report.culprits
    assert (culprit.host, culprit.ranks, culprit.rank) == ("host-1", tuple(range(8, 16)), None)
    assert len(victims.ranks) == 24
    assert report.since is not None
    assert abs((report.since.step or 0) - 150) <= 2
    assert report.since.utc is not None
    assert report.drain[0].host == "host-1"


@pytest.mark.parametrize("end", [100, 150])
def test_what_is_over_since_long_has_no_onset_to_act_on(end: int) -> None:
    report = report_of(facts_of(job(8, 300, slow=[Slow(ranks=[3], ms=60, end=end)])))
    assert report.culprits[0].rank == 3
    assert report.since is None
    assert "up to step" in report.culprits[0].why


def test_time_lost_in_the_job_s_own_work_drains_no_host() -> None:
    timings = job(gpus_per_host=8, slow=[Slow(ranks=[3], ms=60, section=S.DATA)])
    assert report_of(facts_of(timings)).drain[0].answer == "no"


def test_what_costs_a_fifth_of_the_job_is_critical() -> None:
    report = report_of(facts_of(job(slow=[Slow(ranks=[3], ms=200)])))
    assert report.verdict.status is Status.CRITICAL
    assert exit_code_for(report) == ExitCode.CRITICAL


@pytest.mark.parametrize("basis", [(S.WAIT,), (S.WAIT, S.STEP), (S.FORWARD, S.BACKWARD), (S.FORWARD, S.STEP)])
@pytest.mark.parametrize("slow", [[], [Slow(ranks=[3], ms=80, section=S.FORWARD)]])
def test_every_basis_makes_a_whole_report(basis: tuple[Section, ...], slow: list[Slow]) -> None:
    report = report_of(facts_of(only(job(16, gpus_per_host=8, slow=slow), *basis)))
    assert [each.rank for each in report.culprits if each.rank is not None] == [
        each.ranks[0] for each in slow
    ]


def test_who_is_accused_is_not_missing_from_the_evidence() -> None:
    """A step timer that leaves waiting out: usually it names nobody, here it does."""
    timings = job(slow=[Slow(ranks=[3], ms=80)])
    own = sum(timings.sections[each] for each in (S.DATA, S.FORWARD, S.BACKWARD, S.OPTIMIZER))
    report = report_of(facts_of(replace(timings, sections={S.STEP: own})))
    assert report.culprits[0].rank == 3
    assert [each.what for each in report.missing_evidence] == []


def test_ranks_that_are_missing_leave_the_question_open() -> None:
    report = report_of(facts_of(job(world_size=16)))
    assert report.verdict.status is Status.UNKNOWN
    assert "8 of 16 ranks" in report.verdict.title
    assert report.missing_evidence[0].what == "who is slow"


@pytest.mark.filterwarnings("error")
def test_evidence_without_any_value_is_never_called_free_of_stragglers() -> None:
    timings = job()
    gone = {section: times * np.float32(np.nan) for section, times in timings.sections.items()}
    assert report_of(facts_of(replace(timings, sections=gone))).verdict.status is Status.UNKNOWN


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("num_steps", [1, 2, 5, 19])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_small_evidence_makes_a_report(num_ranks: int, num_steps: int) -> None:
    slow = [Slow(ranks=[num_ranks - 1], ms=150)]
    report = report_of(facts_of(job(num_ranks, num_steps, slow=slow, started_s=NOON_S)))
    named = num_ranks == 8 and num_steps >= 5
    assert [each.rank for each in report.culprits if each.role == "culprit"] == ([7] if named else [])


def test_a_job_of_many_ranks_keeps_tables_and_pictures_small() -> None:
    timings = job(640, 300, gpus_per_host=8, slow=[Slow(ranks=[333], ms=60)])
    report = report_of(facts_of(timings))
    first = report.tables[0]
    assert (first.place, first.rows[0][0], first.rows[0][-1]) == ("first", 333, "slow, all the time")
    assert max(len(table.rows) for table in report.tables) <= 512
    assert max(len(series.x) for series in report.series) <= 200
    heat = next(each for each in report.series if each.kind == "heat")
    assert [heat.names[row] for row in heat.hot] == ["333 host-41"]
    bars = next(each for each in report.series if each.kind == "stacked")
    assert [bars.x[column] for column in bars.hot] == ["333"]


def test_around_an_onset_both_curves_are_drawn() -> None:
    report = report_of(facts_of(job(8, 1000, slow=[Slow(ranks=[3], ms=60, start=600)])))
    lines = next(each for each in report.series if each.name == "straggler-onset")
    assert lines.names == ("rank 3", "median of its peers")
    assert min(lines.x) >= 480 and max(lines.x) <= 720  # type: ignore[type-var,operator]
    before, after = (
        [value for x, value in zip(lines.x, lines.values[0], strict=True) if (x < 600) == early]
        for early in (True, False)
    )  # type: ignore[operator]
    assert np.median(after) - np.median(before) == pytest.approx(60, abs=5)


def test_what_cannot_be_shown_is_a_table_with_what_would() -> None:
    note = Note(kind=NoteKind.LIMITED, text="one rank's log names nobody", how="record all ranks")
    report = report_of(facts_of(job(), notes=[note, note]))
    limits: Table = next(each for each in report.tables if each.name == "limits")
    assert limits.rows == (("one rank's log names nobody", "record all ranks"),)


def test_a_finding_that_is_ignored_does_not_decide() -> None:
    facts = facts_of(job(slow=[Slow(ranks=[3], ms=40)]))
    report = report_of(facts, ignore=["straggler-slow-rank"])
    assert report.verdict.status is Status.OK
    assert [each.ignored is not None for each in report.findings] == [True]


def test_only_the_checks_asked_for_are_run() -> None:
    report = report_of(facts_of(job()), only=["straggler-data-bound"])
    assert [each.id for each in report.checks] == ["straggler-data-bound"]


def test_two_sources_have_tables_and_pictures_of_their_own() -> None:
    other = replace(job(seed=5), source="traces")
    report = report_of(facts_of(job(slow=[Slow(ranks=[3], ms=40)]), other))
    assert report.culprits[0].rank == 3
    assert {"ranks-first", "ranks-first-2"} <= {each.name for each in report.tables}


# --- the command line ----------------------------------------------------------------------------------------


def analyze(*arguments: object) -> int:
    return run(["straggler", "analyze", *map(str, arguments)])


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = analyze(*arguments, "--format", "json")
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    return code, report


def cause(report: dict[str, Any]) -> str:
    return str(report["verdict"].get("cause_class"))


def culprits(report: dict[str, Any]) -> list[int | None]:
    return [each.get("rank") for each in report.get("culprits", ()) if each.get("role") != "victim"]


@pytest.fixture
def slow_csv(tmp_path: Path) -> Path:
    timings = job(8, 120, slow=[Slow(ranks=[3], ms=60, start=60)], started_s=NOON_S, tells_coordinates=False)
    return write_csv(timings, tmp_path / "times.csv")


def test_a_table_of_a_slow_rank_names_it(slow_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = told(capsys, slow_csv)
    assert code == ExitCode.OK
    assert (cause(report), culprits(report)) == ("slow_rank:compute", [3])
    assert abs(report["since"]["step"] - 60) <= 2
    assert report["since"]["utc"].startswith("2026-11-30T12:00:2")
    assert report["inputs"][0]["path"].endswith("times.csv")
    assert told(capsys, slow_csv, "--fail-on", "warning")[0] == ExitCode.WARNING


def test_people_get_the_verdict_first(slow_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(slow_csv) == ExitCode.OK
    out = capsys.readouterr().out
    assert "rank 3 computes 19 % longer than its peers" in out.splitlines()[0] + out.splitlines()[1]
    assert "next" in out
    assert len(out.splitlines()) <= 40


def test_equal_step_times_alone_are_inconclusive_with_what_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timings = only(job(4, 60, slow=[Slow(ranks=[2], ms=90)], tells_coordinates=False), S.STEP)
    code, report = told(capsys, write_csv(timings, tmp_path / "steps.csv"))
    assert code == ExitCode.UNANSWERED
    assert (report["verdict"]["status"], cause(report), culprits(report)) == ("unknown", "inconclusive", [])
    assert "straggler record" in report["missing_evidence"][0]["how"]
    assert "straggler record" in report["verdict"]["summary"]


def test_a_mesh_turns_a_heavy_block_into_a_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timings = job(16, 80, stages=(1, 1, 1, 1.5), tells_coordinates=False)
    path = write_csv(timings, tmp_path / "times.csv")
    code, report = told(capsys, path)
    assert (code, cause(report), culprits(report)) == (ExitCode.UNANSWERED, "inconclusive", [])
    assert "--mesh" in report["missing_evidence"][0]["how"]
    code, report = told(capsys, path, "--mesh", "pp=4,dp=4")
    assert (code, cause(report), culprits(report)) == (ExitCode.OK, "stage_imbalance", [])


def test_a_mesh_of_more_ranks_than_the_evidence_is_refused_unless_the_job_has_so_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks compared by the mesh of another job would be accused of their heavier work."""
    path = write_csv(job(8, 40, tells_coordinates=False), tmp_path / "times.csv")
    assert analyze(path, "--mesh", "dp=16") == ExitCode.USAGE
    assert "multiply to 8" in capsys.readouterr().err
    code, report = told(capsys, path, "--mesh", "dp=16", "--gpus", "16")
    assert code == ExitCode.UNANSWERED
    assert "8 of 16 ranks" in report["verdict"]["title"]


def test_ranks_of_a_host_are_counted_off_where_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timings = job(32, 80, slow=[HOST_1])
    path = write_csv(timings, tmp_path / "times.csv")
    _, report = told(capsys, path, "--gpus-per-host", 8, "--gpus", 64)
    assert cause(report) == "slow_host:compute"
    assert report["culprits"][0]["host"] == "host 1"
    assert report["impact"]["gpus_held"] == 64


@pytest.mark.parametrize(
    ("steps", "expected"),
    [("0:50", "none"), ("60:", "slow_rank:compute"), (":50", "none"), ("70:119", "slow_rank:compute")],
)
def test_only_some_steps_are_judged(
    slow_csv: Path, capsys: pytest.CaptureFixture[str], steps: str, expected: str
) -> None:
    _, report = told(capsys, slow_csv, "--steps", steps)
    assert cause(report) == expected


def test_steps_that_are_not_there_give_a_report_without_an_answer(
    slow_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = told(capsys, slow_csv, "--steps", "5000:6000")
    assert code == ExitCode.UNANSWERED
    assert report["verdict"]["status"] == "unknown"


def test_a_time_at_which_it_got_slow_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = np.where(np.arange(400) < 200, 1.0, 1.4)
    path = write_csv(job(4, 400, common=common, started_s=NOON_S), tmp_path / "times.csv")
    for around in ("2026-11-30T12:01:10Z", "2026-11-30T14:01:10+02:00"):
        _, report = told(capsys, path, "--around", around)
        assert cause(report) == "job_wide"


NIGHT = datetime(2026, 11, 30, 23, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("14:20Z", "2026-11-30T14:20"),
        ("14:20 utc", "2026-11-30T14:20"),
        ("14:20:30+02:00", "2026-11-30T12:20:30"),
        ("14:20+0200", "2026-11-30T12:20"),
        ("00:30+02:00", "2026-11-30T22:30"),
        ("23:40Z", "2026-11-29T23:40"),
        ("20:00-05:00", "2026-11-30T01:00"),
        ("18:00-05:00", "2026-11-30T23:00"),
        ("2026-11-30T12:20Z", "2026-11-30T12:20"),
        ("2026-11-30 14:20+02:00", "2026-11-30T12:20"),
    ],
)
def test_a_time_of_day_is_the_last_one_that_was(text: str, expected: str) -> None:
    seconds = parse_around(text, NIGHT)
    assert seconds == datetime.fromisoformat(f"{expected}+00:00").timestamp()


def test_a_unit_for_columns_that_tell_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(job(8, 60, slow=[Slow(ranks=[3], ms=60)]), tmp_path / "times.csv")
    path.write_text(path.read_text().replace("step_ms", "step_time").replace("_ms", ""))
    code, report = told(capsys, path)
    assert code == ExitCode.UNANSWERED
    assert "--unit ms" in json.dumps(report)
    _, report = told(capsys, path, "--unit", "ms")
    assert culprits(report) == [3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mesh", "pp4"], "--mesh `pp4` is no mesh"),
        (["--mesh", "pp=2,pp=4"], "each dimension once"),
        (["--mesh", "pp=0"], "of 1 and more"),
        (["--mesh", ""], "--mesh"),
        (["--mesh", "pp=2,dp=2"], "there is a rank 7 in the evidence"),
        (["--gpus-per-host", "0"], "--gpus-per-host"),
        (["--gpus-per-host", "eight"], "--gpus-per-host"),
        (["--steps", "10"], "--steps `10` is no range"),
        (["--steps", ":"], "is no range"),
        (["--steps", "20:10"], "the first step is behind the last one"),
        (["--steps", "-5:10"], "is no range"),
        (["--around", "14:20"], "tells no zone"),
        (["--around", "2026-11-30T14:20"], "tells no zone"),
        (["--around", "half past two"], "is no time"),
        (["--around", "25:99Z"], "is no time"),
        (["--unit", "minutes"], "--unit `minutes`"),
        (["--gpus", "0"], "--gpus"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_a_usage_error(
    slow_csv: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert analyze(slow_csv, *options) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert len([line for line in captured.err.splitlines() if line.lower().startswith("error")]) == 1


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (None, "nowhere.csv"),
        (b"", "empty.csv"),
        (b"\x00\xff\x13" * 500, "noise.bin"),
        (b"hello\n", "hello.txt"),
    ],
    ids=["absent", "empty", "binary", "words"],
)
def test_evidence_that_cannot_be_read_is_json_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, name: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    code = analyze(tmp_path / name, "--format", "json")
    captured = capsys.readouterr()
    assert code == ExitCode.UNANSWERED
    report = json.loads(captured.out)
    jsonschema.validate(report, SCHEMA)
    assert report["verdict"]["status"] == "unknown"
    assert "Traceback" not in captured.err


def test_a_usage_error_is_json_all_the_same(slow_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(slow_csv, "--steps", "ten", "--format", "json") == ExitCode.USAGE
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert "--steps" in report["verdict"]["title"]


def test_one_broken_file_among_others_costs_only_itself(
    slow_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (slow_csv.parent / "broken.csv").write_bytes(b"\x00\xff\x13" * 500)
    code, report = told(capsys, slow_csv.parent)
    assert culprits(report) == [3]
    assert {each["path"].rsplit("/", 1)[-1]: each.get("read", True) for each in report["inputs"]} == {
        "times.csv": True,
        "broken.csv": False,
    }
    assert code == ExitCode.UNANSWERED


def test_files_of_every_kind_are_written(slow_csv: Path, tmp_path: Path) -> None:
    for suffix in ("md", "html", "json", "txt"):
        path = tmp_path / f"report.{suffix}"
        assert analyze(slow_csv, "-o", path) == ExitCode.OK
        assert "rank 3" in path.read_text()


def test_a_path_without_a_verb_is_analyzed(slow_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["straggler", str(slow_csv), "--format", "json"])
    assert cause(json.loads(capsys.readouterr().out)).startswith("slow_rank")


def test_a_rank_a_little_below_the_threshold_is_neither_accused_nor_cleared() -> None:
    near = report_of(facts_of(job(8, 200, noise=0.02, slow=[Slow(ranks=[5], ms=8.6)])))
    assert (near.verdict.status, near.verdict.cause_class) == (Status.UNKNOWN, "inconclusive")
    assert near.culprits == ()
    assert near.verdict.title.startswith("inconclusive: rank 5 takes")
    assert report_of(facts_of(job(8, 200, noise=0.005))).verdict.cause_class == "none"


def test_a_range_without_steps_is_refused_with_the_steps_that_there_are(
    slow_csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze(slow_csv, "--steps", "100000:200000") == ExitCode.UNANSWERED
    error = capsys.readouterr().err
    assert "the evidence has steps" in error and "none of them in --steps" in error


def test_a_time_of_day_that_nothing_can_be_set_against_is_said_to_be_of_no_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_csv(job(8, 40), tmp_path / "times.csv")
    _, report = told(capsys, path, "--around", "12:00Z")
    assert any("`--around` says nothing" in each["what"] for each in report["missing_evidence"])
