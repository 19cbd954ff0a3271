"""Wrong data, tables that stop, ranks that ran alone, rows that were disturbed: fires, silent, not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.nccl_bench.checks.cut_table import check_cut_table
from distdoctor.nccl_bench.checks.outlier import check_outlier
from distdoctor.nccl_bench.checks.ranks_alone import check_ranks_alone
from distdoctor.nccl_bench.checks.wrong_data import CHECK as WRONG_DATA
from distdoctor.nccl_bench.checks.wrong_data import check_wrong_data
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row, WrongData
from distdoctor.nccl_bench.readers.nccl_tests import read_nccl_tests
from distdoctor.ranks.places import Place
from distdoctor.report.checking import run_check
from distdoctor.report.model import Confidence, Fault, Severity, Team
from distdoctor.units import GIB, KIB, MIB
from nccl_bench.printed_tables import SIZES, Printer

LOG_ONLY = BenchFacts(origin=Origin.LOG, label="nccl.log", nccl_log=NcclLog(origin="nccl.log"))


def table(printer: Printer, *, rows: int | None = None, head: bool = True, footer: bool = True) -> BenchFacts:
    lines = [
        *(printer.head() if head else []),
        *printer.columns(),
        *printer.rows()[:rows],
        *(printer.footer() if footer else []),
    ]
    (facts,) = read_nccl_tests("\n".join(lines), "run.log")
    return facts


def found(outcomes: object) -> Found:
    (outcome,) = outcomes  # type: ignore[misc]
    assert isinstance(outcome, Found)
    assert len(outcome.title) <= 80
    return outcome


def only(outcomes: object) -> Outcome:
    (outcome,) = outcomes  # type: ignore[misc]
    return outcome  # type: ignore[no-any-return]


def live(wrong: dict[str, WrongData | None], *, validated: bool = True, num_ranks: int = 8) -> BenchFacts:
    """A measurement of 8 ranks on two hosts; `wrong` by collective."""
    group = Group(kind=GroupKind.JOB, label="job", ranks=tuple(range(num_ranks)))
    rows = tuple(
        Row(
            collective=name,
            group=group,
            num_ranks=num_ranks,
            size_bytes=MIB,
            time_us=90.0,
            wrong=each,
            validated=validated,
        )
        for name, each in wrong.items()
    )
    places = tuple(
        Place(rank=rank, host=f"node-{'ab'[rank // 4]}", local_rank=rank % 4) for rank in range(num_ranks)
    )
    return BenchFacts(
        origin=Origin.MEASURED, label="this run", num_ranks=num_ranks, num_hosts=2, places=places, rows=rows
    )


# Wrong data.


def test_wrong_elements_of_a_table_are_critical() -> None:
    facts = table(Printer(wrong={(MIB, False): 96, (MIB, True): 32}))
    outcome = found(check_wrong_data(facts))
    assert outcome.severity is Severity.CRITICAL
    assert outcome.confidence is Confidence.HIGH
    assert outcome.title == "all_reduce gave wrong results at 1 MiB"
    assert "96 wrong elements" in outcome.evidence[0].text
    assert outcome.evidence[0].source == f"run.log, line {facts.rows[20].source_line}"
    assert outcome.evidence[-1].value == 2
    assert outcome.scope.ranks == ()
    assert "does not say whose" in outcome.explanation


def test_a_footer_alone_tells_of_wrong_data() -> None:
    text = "\n".join([*Printer(layout="2019").columns(), "# Out of bounds values : 4 FAILED"])
    (facts,) = read_nccl_tests(text, "run.log")
    assert found(check_wrong_data(facts)).severity is Severity.CRITICAL


def test_one_wrong_rank_is_named_with_its_host() -> None:
    bad = WrongData(ranks=(5,), elements=7, example="element 17 is 9, must be 8")
    outcome = found(check_wrong_data(live({"all_reduce": bad, "all_gather": None})))
    assert outcome.title == "wrong results on rank 5 (node-b)"
    assert outcome.scope.ranks == (5,)
    assert outcome.scope.hosts == ("node-b",)
    assert outcome.fault is Fault.GPU
    assert Team.HARDWARE in {action.team for action in outcome.actions}
    assert "element 17" in outcome.evidence[0].text


def test_wrong_on_all_ranks_accuses_nobody() -> None:
    bad = WrongData(ranks=tuple(range(8)), elements=64)
    outcome = found(check_wrong_data(live({"all_reduce": bad})))
    assert outcome.scope.ranks == ()
    assert outcome.scope.hosts == ()
    assert "not known" in outcome.explanation


def test_a_transfer_between_neighbours_narrows_it_down() -> None:
    everywhere = WrongData(ranks=tuple(range(8)), elements=64)
    outcome = found(
        check_wrong_data(live({"all_reduce": everywhere, "sendrecv": WrongData(ranks=(3,), elements=8)}))
    )
    assert outcome.scope.ranks == (3,)


def test_wrong_on_one_host_is_that_host() -> None:
    outcome = found(check_wrong_data(live({"all_gather": WrongData(ranks=(4, 5, 6, 7), elements=9)})))
    assert outcome.scope.hosts == ("node-b",)
    assert outcome.fault is Fault.HOST


def test_right_results_are_passed_with_their_number() -> None:
    outcome = only(check_wrong_data(table(Printer())))
    assert isinstance(outcome, Passed)
    assert (
        outcome.detail == f"{2 * len(SIZES)} of {2 * len(SIZES)} measured rows were compared, none is wrong"
    )


def test_halves_that_are_never_compared_are_counted_apart() -> None:
    outcome = only(check_wrong_data(table(Printer(collective="sendrecv"))))
    assert isinstance(outcome, Passed)
    assert outcome.detail.startswith(f"{len(SIZES)} of {2 * len(SIZES)} ")


@pytest.mark.parametrize(
    "facts", [table(Printer(checks=False)), live({"all_reduce": None}, validated=False), LOG_ONLY]
)
def test_what_was_not_compared_is_not_passed(facts: BenchFacts) -> None:
    outcome = only(check_wrong_data(facts))
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.how is not None


def test_a_choice_not_to_validate_is_no_essential_skip() -> None:
    facts = live({"all_reduce": None}, validated=False)
    _, (skip,), _ = run_check(WRONG_DATA, facts, is_live=True)
    assert not skip.essential


# Tables that stop.


def test_sizes_that_were_asked_for_and_are_missing_may_also_have_been_left_out_by_a_copy() -> None:
    outcome = found(check_cut_table(table(Printer(), rows=9, footer=False)))
    assert (outcome.severity, outcome.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert outcome.title == "the table stops after 256 KiB of 4 GiB: hung, ended or copied in part"
    assert "4 GiB" in (outcome.evidence[0].expected or "")
    assert outcome.cause_class == "truncated"


def test_a_row_that_was_begun_shows_where_the_run_stood() -> None:
    printer = Printer()
    text = "\n".join([*printer.head(), *printer.columns(), *printer.rows()[:9], printer.rows()[9][:60]])
    (facts,) = read_nccl_tests(text, "run.log")
    outcome = found(check_cut_table(facts))
    assert outcome.severity is Severity.CRITICAL
    assert outcome.title == "the network test stopped at 512 KiB: it hung or was ended"
    assert outcome.cause_class == "hang"


def test_rows_of_one_half_only_are_not_rows_that_broke_off() -> None:
    printer = Printer()
    halves = [row[: -len(printer.half(size, True))] for size, row in zip(SIZES, printer.rows(), strict=True)]
    text = "\n".join([*printer.head(), *printer.columns(), *halves])
    (facts,) = read_nccl_tests(text, "run.log")
    assert isinstance(check_cut_table(facts)[0], NotSeen)


def test_rows_quoted_below_a_command_say_nothing_of_the_runs_end() -> None:
    printer = Printer(sizes=[64 * MIB, 128 * MIB, 256 * MIB])
    text = "\n".join(["./build/all_reduce_perf -b 8 -e 8G -f 2 -g 8", *printer.columns(), *printer.rows()])
    (facts,) = read_nccl_tests(text, "run.log")
    assert isinstance(check_cut_table(facts)[0], NotSeen)


def test_lines_of_a_failure_make_it_sure() -> None:
    printer = Printer()
    failure = "node-01: Test NCCL failure common.cu:401 'unhandled system error'"
    text = "\n".join([*printer.head(), *printer.columns(), *printer.rows()[:4], failure])
    (facts,) = read_nccl_tests(text, "run.log")
    outcome = found(check_cut_table(facts))
    assert outcome.confidence is Confidence.HIGH
    assert failure in outcome.evidence[0].text
    assert outcome.evidence[0].source == f"run.log, line {text.count(chr(10)) + 1}"


def test_a_test_that_somebody_ended_is_no_failure_of_its_own() -> None:
    printer = Printer()
    text = "\n".join([*printer.head(), *printer.columns(), *printer.rows()[:9], "^C"])
    (facts,) = read_nccl_tests(text, "run.log")
    outcome = found(check_cut_table(facts))
    assert outcome.confidence is Confidence.MEDIUM
    assert "it hung or was ended" in outcome.title
    assert outcome.evidence[-1].text == "`^C`"


def test_a_head_without_a_row_stopped_before_its_first_size() -> None:
    outcome = found(check_cut_table(table(Printer(), rows=0, footer=False)))
    assert "before its first size" in outcome.title


def test_a_list_of_ranks_alone_may_have_been_pasted_for_itself() -> None:
    (facts,) = read_nccl_tests("\n".join(Printer().head()), "run.log")
    assert found(check_cut_table(facts)).severity is Severity.WARNING


def test_a_shape_that_looks_cut_is_a_warning() -> None:
    printer = Printer(sizes=[128 << power for power in range(11)])
    outcome = found(check_cut_table(table(printer, head=False, footer=False)))
    assert outcome.severity is Severity.WARNING
    assert outcome.cause_class == "truncated"
    assert "hung, ended or copied in part" in outcome.title


def test_a_rise_below_what_smaller_sizes_reached_is_no_climb() -> None:
    sizes = [MIB << power for power in range(11)]
    slow = {(size, half): 8.0 for size in sizes[6:10] for half in (False, True)} | {
        (sizes[10], half): 5.0 for half in (False, True)
    }
    printer = Printer(sizes=sizes, slow=slow)
    assert isinstance(check_cut_table(table(printer, head=False, footer=False))[0], NotSeen)


def test_an_excerpt_is_no_answer() -> None:
    printer = Printer(sizes=[GIB, 2 * GIB, 4 * GIB])
    assert isinstance(only(check_cut_table(table(printer, head=False, footer=False))), NotSeen)


def test_a_footer_ends_it() -> None:
    assert isinstance(only(check_cut_table(table(Printer()))), Passed)


@pytest.mark.parametrize("facts", [LOG_ONLY, live({"all_reduce": None})])
def test_without_a_table_nothing_can_stop(facts: BenchFacts) -> None:
    assert isinstance(only(check_cut_table(facts)), NotApplicable)


def test_failures_that_follow_from_wrong_data_are_told_once() -> None:
    printer = Printer(wrong={(MIB, False): 1})
    text = printer.text() + " .. node-00 pid 4000: Test failure common.cu:1189\n"
    (facts,) = read_nccl_tests(text, "run.log")
    assert isinstance(only(check_cut_table(facts)), Passed)


def test_failures_after_a_whole_table_are_a_warning() -> None:
    text = Printer().text() + "node-00: Test CUDA failure common.cu:1301 'invalid argument'\n"
    (facts,) = read_nccl_tests(text, "run.log")
    assert found(check_cut_table(facts)).severity is Severity.WARNING


# Ranks that ran alone.


def test_a_list_that_begins_at_rank_0_several_times_is_several_jobs() -> None:
    """As an mpirun of binaries without MPI prints it, with two GPUs for each process."""
    printer = Printer(num_ranks=2, layout="2022")
    first = printer.devices()
    second = [each.replace("node-00", "node-01").replace(" 400", " 770") for each in first]
    text = "\n".join([printer.settings(), "#", "# Using devices", *first, *second, *printer.columns()])
    (facts,) = read_nccl_tests(text, "run.log")
    outcome = found(check_ranks_alone(facts))
    assert outcome.severity is Severity.CRITICAL
    assert outcome.title == "no network was tested: 2 processes ran alone, 2 GPUs each"
    assert "nothing of the network" in outcome.explanation


def test_processes_that_never_joined_are_critical() -> None:
    lines = [f"[1,{rank}]<stdout>:{line}" for line in Printer(num_ranks=1).lines() for rank in range(4)]
    for facts in read_nccl_tests("\n".join(lines), "run.log"):
        outcome = found(check_ranks_alone(facts))
        assert (outcome.severity, outcome.confidence) == (Severity.CRITICAL, Confidence.HIGH)
        assert "4 processes ran alone" in outcome.title
        assert "MPI=1" in (outcome.actions[0].command or "")


def test_equal_tables_one_after_another_are_less_sure() -> None:
    facts, _ = read_nccl_tests(Printer(num_ranks=1).text() * 2, "run.log")
    outcome = found(check_ranks_alone(facts))
    assert (outcome.severity, outcome.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert "by hand" in outcome.explanation


def test_one_table_of_one_rank_tests_no_network() -> None:
    outcome = found(check_ranks_alone(table(Printer(num_ranks=1))))
    assert outcome.severity is Severity.WARNING


def test_joined_ranks_are_passed() -> None:
    assert only(check_ranks_alone(table(Printer()))) == Passed(detail="16 ranks took part")


def test_a_number_of_ranks_that_is_not_known_is_not_passed() -> None:
    printer = Printer(collective="broadcast")
    assert isinstance(only(check_ranks_alone(table(printer, head=False))), NotSeen)
    assert isinstance(only(check_ranks_alone(LOG_ONLY)), NotSeen)


def test_our_own_ranks_are_known_to_be_joined() -> None:
    assert isinstance(only(check_ranks_alone(live({"all_reduce": None}))), NotApplicable)


# Rows that were disturbed.


def test_a_half_far_below_its_twin_and_neighbours_is_an_info() -> None:
    facts = table(Printer(slow={(GIB, True): 1.42}))
    outcome = found(check_outlier(facts))
    assert outcome.severity is Severity.INFO
    assert "1 GiB in place" in outcome.title
    assert outcome.evidence[0].unit == "GB/s"
    assert "out of place" in (outcome.evidence[0].expected or "")


def test_the_slowest_iteration_is_told_where_it_is_known() -> None:
    facts = table(Printer(layout="iterations", slow={(GIB, True): 1.42}))
    assert "slowest iteration" in found(check_outlier(facts)).evidence[0].text


def test_many_such_rows_are_a_warning() -> None:
    slow = {(size, size in (64 * MIB, GIB)): 1.6 for size in (16 * MIB, 64 * MIB, 256 * MIB, GIB)}
    outcome = found(check_outlier(table(Printer(slow=slow))))
    assert outcome.severity is Severity.WARNING


@pytest.mark.parametrize(
    "slow",
    [
        {(size, half): 1.5 for size in (64 * KIB, MIB, 4 * MIB) for half in (False, True)},  # latency jitters
        {(64 * KIB, True): 2.0},
        {
            (size, half): 4.0 for size in SIZES if size >= 64 * MIB for half in (False, True)
        },  # a cliff, both halves
        {(size, True): 2.0 for size in SIZES},  # in place is slower throughout
        {(4 * GIB, half): 1.5 for half in (False, True)},
        {},
    ],
)
def test_other_shapes_are_not_this_checks_business(slow: dict[tuple[int, bool], float]) -> None:
    assert isinstance(only(check_outlier(table(Printer(slow=slow)))), Passed)


@given(
    latency_us=st.floats(5, 1000),
    peak_gbps=st.floats(1, 900),
    jitter=st.lists(st.floats(0.95, 1.05), min_size=2 * len(SIZES), max_size=2 * len(SIZES)),
)
@settings(max_examples=60, deadline=None)
def test_smooth_tables_are_left_alone(latency_us: float, peak_gbps: float, jitter: list[float]) -> None:
    keys = [(size, half) for size in SIZES for half in (False, True)]
    slow = dict(zip(keys, jitter, strict=True))
    facts = table(Printer(latency_us=latency_us, peak_gbps=peak_gbps, slow=slow, layout="2025"))
    assert isinstance(only(check_outlier(facts)), Passed)


def test_too_small_sizes_and_single_halves_are_not_passed() -> None:
    small = table(Printer(sizes=[KIB, 2 * KIB, 4 * KIB]))
    assert isinstance(only(check_outlier(small)), NotSeen)
    assert isinstance(only(check_outlier(live({"all_reduce": None}))), NotApplicable)
    assert isinstance(only(check_outlier(LOG_ONLY)), NotSeen)


def test_repeated_sizes_are_no_curve() -> None:
    facts = table(Printer())
    doubled = replace(facts, rows=facts.rows + facts.rows)
    assert isinstance(only(check_outlier(doubled)), NotSeen)
