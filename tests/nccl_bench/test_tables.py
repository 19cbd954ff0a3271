"""Tables of nccl-tests: every layout behind every prefix gives the same facts; what nothing names is inferred."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.nccl_bench.definitions import canonical_name
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin, TableNotes
from distdoctor.nccl_bench.readers.nccl_tests import read_nccl_tests
from distdoctor.pasted import clean_pasted
from distdoctor.units import GIB, KIB, MIB
from nccl_bench.printed_tables import FACTORS, SIZES, Printer, number

LAYOUTS = ("2019", "2022", "2025", "iterations", "algo")

PREFIXES: dict[str, Callable[[str, int], str]] = {
    "none": lambda line, index: line,
    "mpirun": lambda line, index: f"[1,0]<stdout>:{line}",
    "mpirun with a blank": lambda line, index: f"[1,0]<stdout>: {line}",
    "mpirun whose tag a browser ate": lambda line, index: f"[1,0]:{line}",
    "mpirun with time": lambda line, index: f"Tue Mar  5 12:00:{index % 60:02} 2024[1,0]<stdout>:{line}",
    "srun": lambda line, index: f"0: {line}",
    "srun, wide": lambda line, index: f" 0: {line}",
    "hydra": lambda line, index: f"[0] {line}",
    "kubectl": lambda line, index: f"[pod/nccl-launcher-x7k2p/mpi] {line}",
    "kubectl with time": lambda line, index: f"2024-03-05T12:00:{index % 60:02}.{index:09}Z {line}",
    "docker compose": lambda line, index: f"worker-0  | {line}",
    "pdsh": lambda line, index: f"node-00: {line}",
    "journal": lambda line, index: f"Mar  5 12:00:{index % 60:02} node-00 nccl[812]: {line}",
    "log with date": lambda line, index: f"[2024-03-05 12:00:{index % 60:02},{index % 1000:03}] {line}",
    "klog": lambda line, index: f"I0305 12:00:{index % 60:02}.000001 {line}",
    "quoted": lambda line, index: f"> {line}",
    "indented": lambda line, index: f"        {line}",
    "colours": lambda line, index: f"\x1b[32m{line}\x1b[0m",
    "CRLF": lambda line, index: f"{line}\r",
    "Markdown table": lambda line, index: (
        line if line.startswith("#") else "|" + "|".join(line.split()) + "|"
    ),
    "NCCL's log on the same line": lambda line, index: (
        line if line.startswith("#") else f"node-00:41:77 [0] NCCL INFO Launch mode Parallel{line}"
    ),
}


def read(text: str, label: str = "run.log") -> BenchFacts:
    (facts,) = read_nccl_tests(clean_pasted(text), label)
    return facts


def notes(facts: BenchFacts) -> TableNotes:
    assert facts.table is not None
    return facts.table


def behind(printer: Printer, prefix: str) -> str:
    return "\n".join(PREFIXES[prefix](line, index) for index, line in enumerate(printer.lines()))


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_behind_every_prefix(layout: str, prefix: str) -> None:
    printer = Printer(layout=layout)
    facts = read(behind(printer, prefix))
    assert facts.origin is Origin.TABLE
    assert len(facts.rows) == 2 * len(SIZES)
    assert (facts.num_ranks, facts.num_hosts) == (16, 2)
    assert notes(facts).ended
    assert notes(facts).cut is None
    assert not notes(facts).each_alone
    assert {row.collective for row in facts.rows} == {"all_reduce"}
    assert {row.num_ranks for row in facts.rows} == {16}
    last = facts.rows[-1]
    assert last.in_place is True
    assert last.size_bytes == SIZES[-1]
    assert last.busbw_gbps == pytest.approx(390, rel=0.01)
    assert last.validated
    assert last.wrong is None


@pytest.mark.parametrize("collective", FACTORS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_ranks_of_every_collective_follow_from_its_rows(layout: str, collective: str) -> None:
    printer = Printer(layout=layout, collective=collective, num_ranks=24)
    facts = read("\n".join([*printer.columns(), *printer.rows(), *printer.footer()]), f"{collective}.txt")
    assert {row.collective for row in facts.rows} == {canonical_name(collective)}
    known_by_ratio = FACTORS[collective](24) != 1
    assert facts.num_ranks == (24 if known_by_ratio else None)


def test_times_survive_each_width() -> None:
    printer = Printer(
        layout="2025", latency_us=1.25, peak_gbps=0.9, sizes=[1 << 10, 1 << 20, 1 << 27, 1 << 33]
    )
    facts = read(printer.text())
    for row in facts.rows:
        assert row.time_us == pytest.approx(printer.time_us(row.size_bytes, bool(row.in_place)), rel=0.05)
    assert "e+07" in printer.text()


def test_places_come_from_the_list_of_ranks() -> None:
    facts = read(Printer(layout="2025").text())
    place = facts.places[11]
    assert (place.rank, place.host, place.local_rank, place.gpu_index) == (11, "node-01", 3, 3)
    assert place.gpu_pci == "0000:13:00.0"
    assert place.gpu_model == "NVIDIA H100 80GB HBM3"
    assert [hardware.host for hardware in facts.hardware] == ["node-00", "node-01"]
    assert facts.hardware[0].gpu_models == ("NVIDIA H100 80GB HBM3",) * 8
    assert facts.rows[0].group.ranks == tuple(range(16))
    assert facts.rows[0].iters == 20
    assert facts.versions.nccl == "2.29.7"
    assert not facts.shares_gpus


def test_the_library_of_old_tables_is_in_its_banner() -> None:
    facts = read(Printer(layout="2022").text())
    assert (facts.versions.nccl, facts.versions.cuda, facts.backend) == ("2.21.5", "12.4", "nccl")


def test_bare_bus_numbers_are_no_pci_address() -> None:
    facts = read(Printer(layout="2019").text())
    assert facts.places[0].gpu_pci is None
    assert not facts.shares_gpus


def test_two_ranks_on_one_gpu_say_nothing_about_a_fabric() -> None:
    printer = Printer(layout="2025", num_ranks=2)
    text = printer.text().replace("device  1 [0000:11:00]", "device  0 [0000:10:00]")
    assert read(text).shares_gpus


def test_a_list_that_shows_its_last_rank_only_tells_how_many_there_are() -> None:
    printer = Printer(num_ranks=96, sizes=[GIB, 2 * GIB, 4 * GIB])
    facts = read("\n".join([printer.devices()[-1], *printer.columns(), *printer.rows(), *printer.footer()]))
    assert facts.num_ranks == 96
    assert facts.num_hosts is None


def test_without_a_list_rounding_may_leave_the_ranks_open() -> None:
    printer = Printer(num_ranks=1500, peak_gbps=400, sizes=[4 * GIB])
    facts = read("\n".join([*printer.columns(), *printer.rows(), *printer.footer()]))
    assert facts.num_ranks is None
    assert facts.rows[-1].busbw_gbps is not None


def test_settings_of_the_command_are_kept_and_secrets_are_not() -> None:
    command = (
        "$ mpirun -np 16 -x NCCL_DEBUG=INFO -x NCCL_IB_HCA=mlx5_0,mlx5_1 -x HF_TOKEN=hf_secret \\\n"
        '    --export=ALL,NCCL_ALGO=Ring,NCCL_PROTO="Simple" -genv NCCL_NVLS_ENABLE 0 \\\n'
        "    /opt/nccl-tests/build/all_gather_perf -b 1K -e 4G -f 2 -g 1\n"
    )
    printer = Printer(collective="all_gather", checks=False)
    facts = read(command + "\n".join([*printer.columns(), *printer.rows(), *printer.footer()]))
    assert dict(facts.overrides) == {
        "NCCL_ALGO": "Ring",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5_0,mlx5_1",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_PROTO": "Simple",
    }
    assert facts.rows[0].collective == "all_gather"
    assert notes(facts).collective_known
    assert notes(facts).planned_max_bytes == 4 * GIB


def test_a_sentence_sets_no_variable() -> None:
    text = "We also tried with NCCL_P2P_DISABLE=1 and it was no better.\n\n" + Printer().text()
    assert read(text).overrides == ()


def test_the_settings_of_one_command_are_not_those_of_the_next() -> None:
    first = "mpirun -x NCCL_ALGO=Tree ./build/all_reduce_perf -b 8 -e 4G\n" + Printer().text()
    second = "mpirun ./build/all_reduce_perf -b 8 -e 4G\n" + Printer().text()
    one, two = read_nccl_tests("export NCCL_NET=IB\n" + first + second, "x")
    assert dict(one.overrides) == {"NCCL_ALGO": "Tree", "NCCL_NET": "IB"}
    assert dict(two.overrides) == {"NCCL_NET": "IB"}


@pytest.mark.parametrize("layout", ["2022", "2025", "iterations", "algo"])
def test_wrong_elements_are_kept_with_their_line(layout: str) -> None:
    printer = Printer(layout=layout, wrong={(MIB, False): 96, (2 * MIB, True): 1_048_576})
    facts = read(printer.text())
    wrong = [(row.size_bytes, row.in_place, row.wrong.elements) for row in facts.rows if row.wrong]
    assert wrong == [(MIB, False, 96), (2 * MIB, True, pytest.approx(1_048_576, rel=1e-4))]
    assert (notes(facts).out_of_bounds, notes(facts).out_of_bounds_ok) == (2, False)
    row = next(row for row in facts.rows if row.wrong)
    assert row.source_line is not None
    assert f"{MIB} " in printer.lines()[row.source_line - 1]


def test_an_error_column_counts_nothing_and_large_errors_are_wrong() -> None:
    printer = Printer(layout="2019")
    assert all(row.wrong is None and row.validated for row in read(printer.text()).rows)
    spoilt = printer.text().replace("5e-07", "2e+02", 1).replace("values : 0 OK", "values : 1 FAILED")
    (row,) = [row for row in read(spoilt).rows if row.wrong]
    assert row.wrong is not None
    assert row.wrong.elements == 0
    assert "2e+02" in row.wrong.example


def test_of_errors_the_footer_decides_but_not_of_nan() -> None:
    """Each data type may lose as much as it does, which the run's footer knows; "nan" passes its comparison."""
    printer = Printer(layout="2019")
    assert not any(row.wrong for row in read(printer.text().replace("5e-07", "2e-02", 1)).rows)
    assert any(row.wrong for row in read(printer.text().replace("5e-07", "  nan", 1)).rows)


@pytest.mark.parametrize("collective", ["alltoall", "sendrecv"])
def test_an_error_of_a_half_that_nothing_is_compared_with_is_no_error(collective: str) -> None:
    """Versions with a column of errors print one for these, and it is as large as it likes."""
    printer = Printer(collective=collective, layout="2019")
    text = "\n".join([*printer.head(), *printer.columns(), *printer.rows()]).replace("  N/A", "1e+00")
    facts = read(text)
    assert facts.rows[0].collective == canonical_name(collective)
    assert not any(row.wrong for row in facts.rows)
    assert not any(row.validated for row in facts.rows if row.in_place)


@pytest.mark.parametrize("tag", ["[0]", "[1,0]<stdout>:"])
def test_marks_before_each_part_of_a_row_are_not_of_it(tag: str) -> None:
    """A launcher marks what one write brings, and a row is written in three."""
    printer = Printer()
    rows = []
    for size, row in zip(SIZES, printer.rows(), strict=True):
        first, second = printer.half(size, False), printer.half(size, True)
        rows.append(tag + row[: -len(first + second)] + tag + first + tag + second)
    facts = read("\n".join([*(tag + line for line in (*printer.head(), *printer.columns())), *rows]))
    assert [row.busbw_gbps for row in facts.rows] == [row.busbw_gbps for row in read(printer.text()).rows]


def test_rows_of_several_jobs_tell_no_number_of_ranks() -> None:
    columns = Printer(layout="2019").columns()
    rows = [Printer(num_ranks=ranks, layout="2019").row(1 << 30) for ranks in (8, 16, 32)]
    assert read("\n".join([*columns, rows[0]])).num_ranks == 8
    assert read("\n".join([*columns, *rows])).num_ranks is None


def test_a_host_that_somebody_renamed_may_have_a_blank() -> None:
    facts = read(Printer(num_ranks=8).text().replace("node-00", "NODE A"))
    assert (facts.num_ranks, facts.num_hosts) == (8, 1)
    assert {place.host for place in facts.places} == {"NODE A"}


def test_validation_that_is_off_is_not_validation() -> None:
    facts = read(Printer(checks=False).text())
    assert not any(row.validated for row in facts.rows)
    assert notes(facts).validated is False


def test_rows_of_size_zero_are_counted_and_skipped() -> None:
    printer = Printer(collective="all_gather")
    zero = "           0             0     float    none      -1     0.30    0.00    0.00      0     0.26    0.00    0.00      0"
    lines = printer.lines()
    at = lines.index(printer.rows()[0])
    facts = read("\n".join([*lines[:at], zero, zero, zero, *lines[at:]]))
    assert notes(facts).skipped_rows == 3
    assert len(facts.rows) == 2 * len(SIZES)


def test_per_iteration_columns_become_min_max_and_p99() -> None:
    printer = Printer(layout="iterations")
    row = read(printer.text()).rows[-1]
    time = printer.time_us(row.size_bytes, True)
    assert row.min_us == pytest.approx(0.9 * time, rel=0.01)
    assert row.max_us == pytest.approx(1.5 * time, rel=0.01)
    assert row.p99_us == pytest.approx(1.4 * time, rel=0.01)


def test_rccl_tells_algorithm_protocol_and_channels() -> None:
    facts = read(Printer(layout="algo", model="AMD Instinct MI300X").text())
    row = facts.rows[0]
    assert (row.algorithm, row.protocol, row.channels) == ("RING", "SIMPLE", 32)
    assert facts.backend == "rccl"
    assert notes(facts).tool == "rccl-tests develop:0c1f5a3"


def test_a_table_of_one_half_only() -> None:
    printer = Printer()
    rows = [line[:52] + printer.half(size, True) for line, size in zip(printer.rows(), SIZES, strict=True)]
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    facts = read(
        "\n".join(["#                              in-place          ", head, *rows, *printer.footer()])
    )
    assert len(facts.rows) == len(SIZES)
    assert {row.in_place for row in facts.rows} == {True}


def test_milliseconds_of_2016_become_microseconds() -> None:
    lines = [
        "#      bytes             N    type      op     time  algbw  busbw  res     time  algbw  busbw  res",
        "    10000000       2500000   float     sum    0.428  23.35  23.35  1e-06   0.421  23.75  23.75  1e-06",
        "    20000000       5000000   float     sum    0.842  23.75  23.75  1e-06   0.838  23.87  23.87  1e-06",
    ]
    facts = read("\n".join(lines))
    assert facts.rows[0].time_us == pytest.approx(428)
    assert facts.rows[0].busbw_gbps == pytest.approx(23.35)


def test_cpu_time_is_not_the_time_of_the_transfer() -> None:
    printer = Printer(sizes=[GIB, 2 * GIB])
    text = printer.text().replace(" time ", " cputime ")
    lines = [line.replace(f"{printer.time_us(GIB, False):7.1f}", "  12.34") for line in text.split("\n")]
    row = read("\n".join(lines)).rows[0]
    assert row.time_us == pytest.approx(printer.time_us(GIB, False), rel=0.01)


def test_time_stamps_at_the_end_of_rows() -> None:
    printer = Printer()
    lines = [line + "  2024-03-05 12:00:01" if "float" in line else line for line in printer.lines()]
    assert len(read("\n".join(lines)).rows) == 2 * len(SIZES)


def test_rows_that_a_narrow_terminal_broke_are_joined() -> None:
    printer = Printer()
    lines = [f"{line[:80]}\n{line[80:]}" if "float" in line else line for line in printer.lines()]
    facts = read("\n".join(lines))
    assert len(facts.rows) == 2 * len(SIZES)


def test_a_row_that_was_begun_is_not_lost() -> None:
    printer = Printer()
    lines = [*printer.head(), *printer.columns(), *printer.rows()[:8], printer.rows()[8][:88]]
    facts = read("\n".join(lines))
    assert notes(facts).unfinished_bytes == SIZES[8]
    assert len(facts.rows) == 17
    assert not notes(facts).ended


# How tables end.


def test_a_table_without_its_footer_and_short_of_its_plan_is_cut() -> None:
    printer = Printer()
    facts = read("\n".join([*printer.head(), *printer.columns(), *printer.rows()[:9]]))
    assert not notes(facts).ended
    assert "256 KiB" in (notes(facts).cut or "")
    assert "4 GiB" in (notes(facts).cut or "")


def test_all_rows_of_the_plan_without_the_footer_are_an_excerpt() -> None:
    printer = Printer()
    facts = read("\n".join([*printer.head(), *printer.columns(), *printer.rows()]))
    assert (notes(facts).ended, notes(facts).excerpt) == (True, True)


def test_memory_may_reduce_the_plan() -> None:
    printer = Printer(sizes=SIZES[:-3], max_bytes=64 * GIB)
    reduced = "# Reducing maxBytes to 715827882 due to memory limitation"
    facts = read("\n".join([*printer.head(), reduced, *printer.columns(), *printer.rows()]))
    assert notes(facts).ended


@pytest.mark.parametrize("head", [True, False])
def test_a_few_large_rows_are_an_excerpt(head: bool) -> None:
    printer = Printer(sizes=[GIB, 2 * GIB, 4 * GIB], latency_us=30)
    facts = read("\n".join([*(printer.columns() if head else []), *printer.rows()]))
    assert (notes(facts).ended, notes(facts).excerpt) == (True, True)


def test_a_sweep_that_stops_small_looks_cut() -> None:
    printer = Printer(sizes=[128 << power for power in range(11)])
    facts = read("\n".join(printer.rows()))
    assert not notes(facts).ended
    assert notes(facts).planned_max_bytes is None


def test_a_sweep_that_stops_while_it_rises_looks_cut() -> None:
    printer = Printer(sizes=[KIB << power for power in range(16)], latency_us=300)
    facts = read("\n".join([*printer.columns(), *printer.rows()]))
    assert "rising" in (notes(facts).cut or "")


def test_left_out_rows_make_an_excerpt() -> None:
    printer = Printer()
    rows = printer.rows()
    facts = read("\n".join([*printer.columns(), *rows[:3], "      ...", *rows[-3:]]))
    assert (notes(facts).ended, notes(facts).excerpt) == (True, True)
    assert len(facts.rows) == 12


def test_failures_are_kept_with_their_line() -> None:
    printer = Printer()
    lines = [
        *printer.head(),
        *printer.columns(),
        *printer.rows()[:12],
        "node-01: Test CUDA failure common.cu:958 'unspecified launch failure'",
        " .. node-01 pid 4009: Test failure common.cu:401",
        "slurmstepd: error: *** STEP 77.0 ON node-00 CANCELLED AT 2024-03-05T12:00:00 DUE TO TIME LIMIT ***",
    ]
    facts = read("\n".join(lines))
    assert len(notes(facts).errors) == 3
    assert "node-01: Test CUDA failure" in notes(facts).errors[0]
    assert notes(facts).error_lines[0] == len(lines) - 2
    assert not notes(facts).ended


def test_a_head_without_rows_is_cut() -> None:
    printer = Printer()
    facts = read("\n".join([*printer.head(), *printer.columns()]))
    assert not notes(facts).ended
    assert facts.rows == ()
    assert facts.num_ranks == 16


# Several tables.


def test_one_binary_after_another() -> None:
    names = ("all_reduce", "all_gather", "alltoall", "sendrecv")
    text = "".join(f"==== {name} ====\n" + Printer(layout="2025", collective=name).text() for name in names)
    found = read_nccl_tests(text, "suite.log")
    assert [facts.rows[0].collective for facts in found] == [
        "all_reduce",
        "all_gather",
        "all_to_all",
        "sendrecv",
    ]
    assert [facts.label for facts in found][1] == "suite.log, table 2"


def test_repetitions_with_a_header_each() -> None:
    printer = Printer(sizes=[GIB, 2 * GIB])
    part = "\n".join([*printer.columns(), *printer.rows(), *printer.footer()]) + "\n"
    assert [len(facts.rows) for facts in read_nccl_tests(part * 3, "x")] == [4, 4, 4]


def test_cycles_of_one_run_are_one_table() -> None:
    printer = Printer(sizes=[GIB, 2 * GIB])
    lines = [*printer.head(), *printer.columns(), *printer.rows(), "# Testing 2 cycle.", *printer.rows()]
    assert len(read("\n".join([*lines, *printer.footer()])).rows) == 8


def test_a_run_that_hung_and_was_repeated_is_two_tables() -> None:
    printer = Printer(layout="2025")
    hung = "\n".join([*printer.head(), *printer.columns(), *printer.rows()[:5]]) + "\n"
    first, second = read_nccl_tests(hung + printer.text(), "x")
    assert not notes(first).ended
    assert notes(second).ended


def test_processes_side_by_side_are_told_apart_by_their_mark() -> None:
    left = [f"[job-a] {line}" for line in Printer(collective="all_gather", layout="2025").lines()]
    right = [f"[job-b] {line}" for line in Printer(collective="alltoall", layout="2025").lines()]
    mixed = [line for pair in zip(left, right, strict=True) for line in pair]
    found = read_nccl_tests("\n".join(mixed), "x")
    assert [facts.rows[0].collective for facts in found] == ["all_gather", "all_to_all"]
    assert all(len(facts.rows) == 2 * len(SIZES) for facts in found)


def test_groups_that_run_at_once_are_those_of_rank_0() -> None:
    printer = Printer(layout="2025", num_ranks=8)
    devices = [
        line.replace("Group  0", f"Group {int(line.split()[2]) % 2:2}")
        for line in Printer(layout="2025", num_ranks=16).devices()
    ]
    facts = read("\n".join([*devices, *printer.columns(), *printer.rows(), *printer.footer()]))
    assert facts.num_ranks == 16
    row = facts.rows[-1]
    assert row.num_ranks == 8
    assert row.concurrent
    assert row.group.ranks == tuple(range(0, 16, 2))


def test_groups_that_an_old_list_hides_show_in_the_rows() -> None:
    printer = Printer(num_ranks=4)
    facts = read(
        "\n".join([*Printer(num_ranks=16).devices(), *printer.columns(), *printer.rows(), *printer.footer()])
    )
    assert facts.num_ranks == 16
    assert {row.num_ranks for row in facts.rows} == {4}
    assert facts.rows[0].group.ranks == ()


# Processes that ran alone.


def alone(layout: str = "2025") -> Printer:
    return Printer(layout=layout, num_ranks=1)


def test_one_rank_has_no_bus_bandwidth() -> None:
    facts = read(alone().text())
    assert facts.num_ranks == 1
    assert {row.busbw_gbps for row in facts.rows} == {None}
    assert not notes(facts).each_alone


def test_processes_that_never_joined_are_told_by_their_marks() -> None:
    text = "\n".join(f"[1,{rank}]<stdout>:{line}" for line in alone().lines() for rank in range(4))
    found = read_nccl_tests(text, "x")
    assert len(found) == 4
    assert all(notes(facts).each_alone and notes(facts).processes == 4 for facts in found)


def test_processes_that_never_joined_and_mix_without_a_mark() -> None:
    text = "\n".join(line for line in alone().lines() for _ in range(3))
    facts = read(text)
    assert notes(facts).each_alone
    assert notes(facts).processes == 3
    assert notes(facts).ended


def test_processes_that_begin_at_different_times_and_mix() -> None:
    lines = alone().lines()
    first, second = lines[:30], lines[30:]
    text = "\n".join([*first, *lines[:12], *second, *lines[12:]])
    facts = read(text)
    assert notes(facts).each_alone
    assert notes(facts).ended


def test_processes_one_after_another_may_be_runs_by_hand() -> None:
    found = read_nccl_tests(alone().text() * 2, "x")
    assert all(notes(facts).each_alone and notes(facts).processes is None for facts in found)


def test_a_launchers_count_proves_that_they_never_joined() -> None:
    facts = read("mpirun -np 8 ./build/all_reduce_perf -b 1K -e 4G -g 1\n" + alone().text())
    assert notes(facts).each_alone
    assert notes(facts).processes == 8


def test_one_rank_of_several_collectives_is_not_each_alone() -> None:
    text = alone().text() + replace(alone(), collective="all_gather").text()
    assert not any(notes(facts).each_alone for facts in read_nccl_tests(text, "x"))


# Names.


def test_what_prints_the_same_is_said_to_be_unknown() -> None:
    printer = Printer(collective="all_gather", checks=False)
    body = "\n".join([*printer.columns(), *printer.rows(), *printer.footer()])
    facts = read(body, "out.txt")
    assert facts.rows[0].collective == "all_gather"
    assert not notes(facts).collective_known
    assert "all_to_all" in notes(facts).collective_from
    assert notes(read(body, "alltoall-4n.txt")).collective_known


def test_hypercube_is_not_called_something_else() -> None:
    text = Printer(layout="2025").text().replace("all_reduce_perf", "hypercube_perf")
    facts = read(text)
    assert facts.rows == ()
    assert facts.not_measured[0].what == "rows of hypercube_perf"


# Text that is no table.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "We ran all_reduce_perf and the busbw was low.",
        "time algbw busbw in-place and size",
        "[rank0] 12 34 float32 tensors",
        "node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "step 10 20 loss 3.2",
    ],
)
def test_text_without_a_table_gives_nothing(text: str) -> None:
    assert read_nccl_tests(text, "x") == ()


def test_prose_between_rows_and_footer_changes_nothing() -> None:
    printer = Printer(layout="2025")
    lines = printer.lines()
    at = lines.index(printer.rows()[4])
    prose = [
        "here the in-place busbw drops, size vs time vs algbw",
        "export NCCL_DEBUG=INFO",
        "see all_gather_perf too",
    ]
    assert len(read("\n".join([*lines[:at], *prose, *lines[at:]])).rows) == 2 * len(SIZES)


# Hostile text.


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_text_is_survived(text: str) -> None:
    read_nccl_tests(clean_pasted(text), "x")


WORDS = [
    "8",
    "16",
    "float",
    "sum",
    "none",
    "-1",
    "0",
    "12.3",
    "nan",
    "inf",
    "1e999",
    "N/A",
    "...",
    "#",
    "#wrong",
    "time",
]
WORDS += [
    "size",
    "algbw",
    "busbw",
    "Rank",
    "Pid",
    "on",
    "device",
    "# Out of bounds values :",
    "99999999999999999999",
    "-8",
]
WORDS += [
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 16",
    "\n",
    "\n",
    "\n",
    "[1,0]<stdout>:",
    "Test failure ",
    "# Using devices",
]


@given(st.lists(st.sampled_from(WORDS), max_size=120))
@settings(max_examples=300, deadline=None)
def test_any_order_of_its_own_words_is_survived(words: list[str]) -> None:
    for facts in read_nccl_tests(" ".join(words), "x"):
        for row in facts.rows:
            assert row.size_bytes > 0
            assert 0 < row.time_us < 1e16


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "1e999", "-5.0", "1e308"])
def test_numbers_that_are_none_are_left_out(bad: str) -> None:
    printer = Printer(sizes=[GIB, 2 * GIB, 4 * GIB])
    rows = printer.rows()
    spoilt = rows[1].replace(old := rows[1].split()[5], bad.rjust(len(old)))
    facts = read("\n".join([*printer.columns(), rows[0], spoilt, rows[2], *printer.footer()]))
    assert {row.size_bytes for row in facts.rows} >= {GIB, 4 * GIB}
    assert all(0 < row.time_us < 1e15 for row in facts.rows)


def test_long_lines_and_many_rows_are_bounded() -> None:
    printer = Printer(sizes=[MIB], wrong={})
    row = printer.row(MIB)
    bad = Printer(sizes=[MIB], wrong={(MIB, False): 7}).row(MIB)
    text = "\n".join([*printer.columns(), "8 " * 200_000, *[row] * 30_000, bad, *printer.footer()])
    facts = read(text)
    assert len(facts.rows) <= 40_002
    assert notes(facts).left_out_rows == 20_000
    assert any(each.wrong for each in facts.rows)


@given(
    collective=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    num_ranks=st.integers(2, 64),
    latency_us=st.floats(3, 2000),
    peak_gbps=st.floats(20, 900),
    layout=st.sampled_from(LAYOUTS),
)
@settings(max_examples=60, deadline=None)
def test_what_was_printed_is_read_back(
    collective: str, num_ranks: int, latency_us: float, peak_gbps: float, layout: str
) -> None:
    printer = Printer(
        collective=collective, num_ranks=num_ranks, latency_us=latency_us, peak_gbps=peak_gbps, layout=layout
    )
    facts = read(printer.text())
    assert facts.num_ranks == num_ranks
    assert len(facts.rows) == 2 * len(SIZES)
    for row in facts.rows:
        assert row.time_us == pytest.approx(printer.time_us(row.size_bytes, bool(row.in_place)), rel=0.05)
        assert row.busbw_gbps == pytest.approx(
            row.size_bytes / printer.time_us(row.size_bytes, False) / 1e3 * FACTORS[collective](num_ranks),
            rel=0.06,
        )


def test_the_printer_prints_as_getfloatstr_does() -> None:
    assert [number(value, 7) for value in (1.5, 12345.6, 123456.7, 1234567.0, 123456789.0)] == [
        "   1.50",
        "12345.6",
        " 123457",
        "1234567",
        "1.2e+08",
    ]
