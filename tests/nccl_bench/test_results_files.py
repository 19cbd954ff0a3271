"""Results in JSON and CSV, what a file is, and what becomes of files that are given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import InputError
from distdoctor.explain import best_reader
from distdoctor.nccl_bench.facts.bench import Origin
from distdoctor.nccl_bench.readers.files import facts_from_files
from distdoctor.nccl_bench.readers.nccl_tests_json import read_nccl_tests_json
from distdoctor.nccl_bench.readers.rccl_results import read_rccl_results
from distdoctor.nccl_bench.readers.sniff import sniff_table, sniff_table_json
from distdoctor.units import GIB, MIB
from nccl_bench.printed_tables import FACTORS, SIZES, Printer


def nccl_json(printer: Printer, *, per_process: int = 1, **changes: object) -> dict[str, object]:
    """As nccl-tests 2.19 writes it with -J: booleans as strings, a padded root, the whole environment."""
    devices = [
        {
            "rank": rank,
            "group": 0,
            "pid": 700 + rank,
            "hostname": f"node-{rank // 8:02}",
            "device": rank % 8,
            "device_hex": f"0000:{0x10 + rank % 8:02x}:00",
            "device_info": "NVIDIA H200",
        }
        for rank in range(0, printer.num_ranks, per_process)
    ]
    results = []
    for size in printer.sizes:
        result: dict[str, object] = {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
        }
        for name, in_place in (("out_of_place", False), ("in_place", True)):
            time = printer.time_us(size, in_place)
            algbw = size / time / 1e3
            wrong = float(printer.wrong.get((size, in_place), 0)) if printer.checks else None
            busbw = algbw * FACTORS[printer.collective](printer.num_ranks)
            result[name] = {"time": time, "alg_bw": algbw, "bus_bw": busbw, "nwrong": wrong}
            result[f"{name}_per_iter"] = {
                "min_us": time * 0.9,
                "max_us": time * 2,
                "p95_us": time * 1.2,
                "p99_us": time * 1.9,
                "times_us": [time] * 20,
            }
        results.append({**result, "actual_iterations": 20, "experiment_name": ""})
    return {
        "version": 3,
        "start_time": "2026-07-01 10:00:00",
        "args": [f"./build/{printer.collective}_perf", "-b", "1K", "-e", "4G", "-J", "out.json"],
        "env": ["HF_TOKEN=hf_hidden", "NCCL_DEBUG=INFO", "PATH=/usr/bin", "NCCL_IB_HCA=mlx5_0,mlx5_1"],
        "nccl_version": 22907,
        "config": {
            "nthreads": 1,
            "ngpus": per_process,
            "minimum_bytes": 1024,
            "maximum_bytes": 4 * GIB,
            "step_factor": 2,
            "iterations": 20,
            "validation": 1 if printer.checks else 0,
            "blocking_collectives": "false",
            "devices": devices,
        },
        "results": results,
        "out_of_bounds": {"count": len(printer.wrong), "okay": "false" if printer.wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": 123.4, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-07-01 10:05:00",
        **changes,
    }


def test_a_json_file_of_nccl_tests() -> None:
    printer = Printer(wrong={(MIB, True): 32})
    (facts,) = read_nccl_tests_json(json.dumps(nccl_json(printer)), "out.json")
    assert facts.origin is Origin.TABLE
    assert (facts.num_ranks, facts.num_hosts, facts.versions.nccl) == (16, 2, "2.29.7")
    assert len(facts.rows) == 2 * len(SIZES)
    row = facts.rows[-1]
    assert (row.collective, row.in_place, row.iters, row.validated) == ("all_reduce", True, 20, True)
    assert row.p99_us == pytest.approx(1.9 * row.time_us)
    assert row.p95_us == pytest.approx(1.2 * row.time_us)
    assert [(row.size_bytes, row.wrong.elements) for row in facts.rows if row.wrong] == [(MIB, 32)]
    assert facts.table is not None
    assert (facts.table.ended, facts.table.out_of_bounds, facts.table.out_of_bounds_ok) == (True, 1, False)
    assert facts.places[9].host == "node-01"


def test_secrets_of_its_environment_are_not_kept() -> None:
    (facts,) = read_nccl_tests_json(json.dumps(nccl_json(Printer())), "out.json")
    assert dict(facts.overrides) == {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0,mlx5_1"}
    assert "hf_hidden" not in repr(facts)


def test_a_process_with_several_gpus_names_its_first_only() -> None:
    (facts,) = read_nccl_tests_json(json.dumps(nccl_json(Printer(), per_process=8)), "out.json")
    assert facts.num_ranks == 16
    assert facts.places == ()
    assert facts.num_hosts is None


def test_a_json_file_that_was_cut_keeps_what_is_whole() -> None:
    text = json.dumps(nccl_json(Printer()))
    cut = text[: text.index('"size": 16777216') + 300]
    (facts,) = read_nccl_tests_json(cut, "out.json")
    assert [row.size_bytes for row in facts.rows if row.in_place][-1] == 8 * MIB
    assert facts.rows[-1].size_bytes == 16 * MIB
    assert facts.table is not None
    assert not facts.table.ended
    assert facts.num_ranks == 16


def test_bare_inf_and_quoted_nan_cost_one_row() -> None:
    report = nccl_json(Printer(sizes=[MIB, GIB]))
    first = report["results"][0]["out_of_place"]  # type: ignore[index]
    first["time"], first["alg_bw"] = "nan", "INF"
    text = json.dumps(report).replace('"INF"', "inf")
    (facts,) = read_nccl_tests_json(text, "out.json")
    assert len(facts.rows) == 3


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["config", "results", "size", "count", "out_of_place", "time", "devices", "args", "env", "nccl_version", "out_of_bounds", "errors"]), inner, max_size=6), max_leaves=30))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_json_is_survived(value: object) -> None:
    text = json.dumps({"args": ["x"], "config": value, "results": value, "out_of_bounds": value})
    read_nccl_tests_json(text, "x")
    read_nccl_tests_json(json.dumps(value), "x")
    read_nccl_tests_json(text[: len(text) // 2], "x")


def test_deep_nesting_is_no_crash() -> None:
    assert read_nccl_tests_json("[" * 100_000, "x") == ()
    assert read_nccl_tests_json('{"args":' * 50_000, "x") == ()


def rccl_records(name: str = "AllReduce", factor: float = 1.75, share: int = 1) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for size in (MIB, 64 * MIB, GIB):
        for in_place in (0, 1):
            time = 20 + size / 300e3
            algbw = size / time / 1e3
            records.append(
                {
                    "numCycle": 0,
                    "name": name,
                    "nodes": 1,
                    "ranks": 8,
                    "ranksPerNode": 8,
                    "gpusPerRank": 1,
                    "size": size // share,
                    "type": "bfloat16",
                    "redop": "sum",
                    "inPlace": in_place,
                    "time": round(time, 6),
                    "algBw": round(algbw, 6),
                    "busBw": round(algbw * factor, 6),
                    "wrong": "0" if in_place else "N/A",
                }
            )
    return records


@pytest.mark.parametrize("as_list", [False, True])
def test_json_records_of_rccl_tests(as_list: bool) -> None:
    records = rccl_records()
    text = json.dumps(records, indent=1) if as_list else "\n".join(map(json.dumps, records))
    (facts,) = read_rccl_results(text, "out.json")
    assert (facts.backend, facts.num_ranks, len(facts.rows)) == ("rccl", 8, 6)
    assert [row.validated for row in facts.rows[:2]] == [False, True]
    assert facts.rows[0].dtype == "bfloat16"


def test_csv_records_have_more_columns_than_their_header() -> None:
    lines = [
        "collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time, algbw, busbw, #wrong"
    ]
    lines += [
        ", ".join(str(value) for key, value in record.items() if key != "numCycle")
        for record in rccl_records()
    ]
    text = "\n".join(lines)
    (facts,) = read_rccl_results(text, "out.csv")
    assert (facts.num_ranks, len(facts.rows)) == (8, 6)
    assert facts.rows[-1].size_bytes == GIB
    assert facts.rows[-1].source_line == 7
    assert sniff_table_json("out.csv", text.encode()) > 0.9


def test_a_ranks_part_becomes_the_whole_size() -> None:
    text = "\n".join(map(json.dumps, rccl_records("ReduceScatter", 0.875, share=8)))
    (facts,) = read_rccl_results(text, "out.json")
    assert {row.size_bytes for row in facts.rows} == {MIB, 64 * MIB, GIB}


def test_damaged_records_are_passed_over() -> None:
    text = "\n".join([json.dumps(rccl_records()[0]), '{"size": 8, "time": "x"', "[]", "{}", "null"])
    (facts,) = read_rccl_results(text, "x")
    assert len(facts.rows) == 1


# What a file is.


@pytest.mark.parametrize("layout", ["2019", "2022", "2025", "iterations", "algo"])
def test_tables_are_known_by_their_first_bytes(layout: str) -> None:
    assert sniff_table("x", Printer(layout=layout).text().encode()) > 0.9


def test_rows_alone_and_tables_inside_a_log_are_known() -> None:
    assert sniff_table("x", "\n".join(Printer().rows()[-3:]).encode()) > 0.9
    log = "\n".join(
        f"node-00:41:{each} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM" for each in range(99)
    )
    assert sniff_table("x", (log + "\n" + Printer().text()).encode()) > 0.9
    assert sniff_table("x", log.encode()) == 0


@pytest.mark.parametrize(
    "text",
    [
        "Collecting environment information...\nPyTorch version: 2.13.0\n",
        "[   12.345678] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n",
        "export NCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5_0\n",
        "step 10: loss 3.1, 12 34 float32\n",
        '{"tool": {"name": "distdoctor"}}',
        "",
    ],
)
def test_other_evidence_is_left_to_others(text: str) -> None:
    assert sniff_table("x", text.encode()) < 0.5
    assert sniff_table_json("x", text.encode()) == 0


def test_the_surest_reader_of_a_table_is_this_one() -> None:
    text = "export NCCL_DEBUG=INFO\nexport NCCL_IB_HCA=mlx5_0\n" + Printer().text()
    chosen = best_reader("x", text.encode())
    assert chosen is not None
    assert chosen.name == "nccl-bench"


# Files.


def test_each_file_is_read_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(Printer().text())
    (tmp_path / "b.json").write_text(json.dumps(nccl_json(Printer())))
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rccl_records())))
    facts, inputs = facts_from_files([str(tmp_path)])
    assert [each.num_ranks for each in facts] == [16, 16, 8]
    assert [file.kind for file in inputs] == [
        "nccl-tests table, NCCL log",
        "nccl-tests results",
        "nccl-tests results",
    ]
    assert all(file.read for file in inputs)


def test_a_table_takes_the_log_of_its_file(tmp_path: Path) -> None:
    log = (
        "node-00:41:77 [0] NCCL INFO Using network IB\n"
        "node-00:41:77 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
    )
    path = tmp_path / "run.log"
    path.write_text(log + Printer(layout="2025").text())
    (facts,), _ = facts_from_files([str(path)])
    assert facts.origin is Origin.TABLE
    assert facts.nccl_log is not None
    assert facts.nccl_log.network == "IB"


def test_a_log_alone_is_facts_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "node-00:41:77 [0] NCCL INFO Using network Socket\nnode-00:41:77 [0] NCCL INFO Init COMPLETE\n"
    )
    (facts,), (file,) = facts_from_files([str(path)])
    assert (facts.origin, facts.rows, file.kind) == (Origin.LOG, (), "NCCL log")


def test_files_that_hold_neither_are_named_and_leave_the_others_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(Printer().text())
    (tmp_path / "b.txt").write_text("hello\n")
    (tmp_path / "c.bin").write_bytes(b"\x7fELF" + bytes(200))
    facts, inputs = facts_from_files([str(tmp_path)])
    assert len(facts) == 1
    assert [file.read for file in inputs] == [True, False, False]
    assert "begins `hello`" in (inputs[1].why_not or "")


def test_nothing_to_read_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("busbw was low today\n")
    with pytest.raises(InputError, match="no table of nccl-tests and no log of NCCL") as error:
        facts_from_files([str(path)])
    assert "NCCL_DEBUG=INFO" in (error.value.hint or "")


def test_a_table_torn_by_nul_bytes_and_one_in_utf16(tmp_path: Path) -> None:
    text = Printer(layout="2025").text()
    (tmp_path / "a.txt").write_bytes(text[:600].encode() + bytes(300) + text[600:].encode())
    (tmp_path / "b.txt").write_bytes(text.encode("utf-16"))
    facts, _ = facts_from_files([str(tmp_path)])
    assert len(facts[0].rows) >= 2 * len(SIZES) - 2
    assert len(facts[1].rows) == 2 * len(SIZES)
