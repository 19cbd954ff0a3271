"""Metrics of GPUs as Prometheus, Grafana, VictoriaMetrics and exporters give them away."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.telemetry import GpuSeries, Metric
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.prometheus import PROMETHEUS

CASES = Path(__file__).parents[4] / "shared/cases/straggler/dlrover_xpu_timer"

GPU0 = {
    "gpu": "0",
    "UUID": "GPU-916b8073-39e4-200a-f89a-45fa79439232",
    "pci_bus_id": "00000000:31:00.0",
    "device": "nvidia0",
    "modelName": "NVIDIA H100 80GB HBM3",
    "Hostname": "node-1",
}


def labels_text(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def answer(*series: tuple[str | None, dict[str, str], list[tuple[float, str]]]) -> dict[str, Any]:
    result = [
        {
            "metric": {**({"__name__": name} if name else {}), **labels},
            "values": [list(pair) for pair in pairs],
        }
        for name, labels, pairs in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def read(*paths: str | Path) -> Reading:
    return PROMETHEUS.read([str(path) for path in paths], ReadOptions())


def read_text(tmp_path: Path, text: str, name: str = "metrics") -> Reading:
    path = tmp_path / name
    path.write_text(text)
    return read(path)


def read_answer(tmp_path: Path, document: object) -> Reading:
    return read_text(tmp_path, json.dumps(document), "answer.json")


def series_of(reading: Reading) -> list[GpuSeries]:
    return [series for telemetry in reading.telemetry for series in telemetry.series]


def only(reading: Reading) -> GpuSeries:
    (series,) = series_of(reading)
    return series


def refusal(reading: Reading) -> str:
    (entry,) = reading.inputs
    assert entry.read is False
    assert entry.why_not and "\n" not in entry.why_not
    return entry.why_not


def test_a_query_range_gives_a_series_of_a_gpu_of_a_host(tmp_path: Path) -> None:
    pairs = [(1714557600.5, "1980"), (1714557630.5, "1065")]
    series = only(read_answer(tmp_path, answer(("DCGM_FI_DEV_SM_CLOCK", GPU0, pairs))))
    assert series.metric is Metric.SM_CLOCK
    assert series.utc_s.tolist() == [1714557600.5, 1714557630.5]
    assert series.values.tolist() == [1980.0, 1065.0]
    assert (series.gpu.host, series.gpu.index, series.gpu.pci) == ("node-1", 0, "00000000:31:00.0")
    assert series.gpu.uuid == GPU0["UUID"]
    assert series.gpu.model == "NVIDIA H100 80GB HBM3"


def test_an_instant_query_and_what_jq_leaves_of_an_answer_are_read(tmp_path: Path) -> None:
    entry = {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP", **GPU0}, "value": [1714557600, "61"]}
    vector = {"status": "success", "data": {"resultType": "vector", "result": [entry]}}
    for document in (vector, vector["data"], [entry]):
        assert only(read_answer(tmp_path, document)).values.tolist() == [61.0]


def test_lines_of_victoriametrics_are_read_and_times_are_milliseconds(tmp_path: Path) -> None:
    line = {
        "metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", **GPU0},
        "values": [300.5, 310],
        "timestamps": [1714557600000, 1714557630000],
    }
    reading = read_text(tmp_path, json.dumps(line) + "\n" + json.dumps(line)[:50] + "\n")
    assert only(reading).utc_s.tolist() == [1714557600.0, 1714557630.0]
    assert any("1 lines are no JSON" in note.text for note in reading.notes)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution\nof points"},
            "bad_data: exceeded maximum resolution of points",
        ),
        (answer(), "the query matched nothing"),
        (answer((None, {"gpu": "0"}, [(1714557600, "3")])), "query the plain metric"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1714557600, "1"]}}, "scalar"),
        ({"status": "success", "data": ["DCGM_FI_DEV_SM_CLOCK"]}, "no answer to a query"),
        ({"results": {"A": {"frames": [{"schema": {}}]}}}, "Grafana's own JSON"),
        (answer(("up", {"instance": "a:9400"}, [(1714557600, "1")])), "say nothing of GPUs"),
        (answer(("DCGM_FI_DEV_SM_CLOCK", {"Hostname": "a"}, [(1714557600, "1")])), "name no single GPU"),
        (answer(("DCGM_FI_DEV_SM_CLOCK", GPU0, [(1714557600, "NaN")])), "no numbers"),
        ([[[[]]]], "no series of numbers"),
    ],
)
def test_answers_without_series_are_refused_in_words(tmp_path: Path, document: object, words: str) -> None:
    assert words in refusal(read_answer(tmp_path, document))


@pytest.mark.parametrize(
    "text", ['{"status":"success","data":{"resultType":"matrix","result":[{"met', "{", "[1", "[]"]
)
def test_cut_answers_are_refused_in_words(tmp_path: Path, text: str) -> None:
    refusal(read_text(tmp_path, text))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    refusal(read_text(tmp_path, '{"data":' + "[" * 200_000))


@pytest.mark.parametrize(
    ("labels", "host", "pod"),
    [
        ({"Hostname": "node-1", "node": "node-1.cluster"}, "node-1", None),
        ({"Hostname": "nvidia-dcgm-exporter-xpn6b", "node": "node-1"}, "node-1", None),
        ({"Hostname": "dcgm-exporter-1687144945-xpn6b", "instance": "10.0.3.4:9400"}, "10.0.3.4", None),
        ({"Hostname": "dcgm-exporter-abcde"}, None, None),
        ({"Hostname": "gpu-exporter-host"}, "gpu-exporter-host", None),
        ({"pod": "train-worker-3", "node": "n7"}, "n7", "train-worker-3"),
        ({"pod": "dcgm-exporter-4kq2z", "exported_pod": "train-0", "Hostname": "n7"}, "n7", "train-0"),
        ({"pod": "mon-x", "exported_pod": "train-0", "Hostname": "mon-x", "node": "n8"}, "n8", "train-0"),
        ({"pod": "dcgm-exporter-4kq2z", "Hostname": "n7"}, "n7", None),
        ({"instance": "http://node-5:9400/metrics"}, "node-5", None),
        # A container's id, and a machine that is called after its network card.
        ({"Hostname": "3f2a9c01d7be", "node": "n7", "instance": "10.0.3.4:9400"}, "n7", None),
        ({"Hostname": "3f2a9c01d7be", "instance": "n7:9400"}, "n7", None),
        ({"Hostname": "3f2a9c01d7be"}, "3f2a9c01d7be", None),
        ({"instance": "gpu-metrics.monitoring.svc:9400"}, None, None),
        ({"instance": "http://gpu-metrics.monitoring.svc.cluster.local:9400/metrics"}, None, None),
    ],
)
def test_the_host_is_never_the_pod_of_the_exporter(
    tmp_path: Path, labels: dict[str, str], host: str | None, pod: str | None
) -> None:
    series = only(
        read_answer(tmp_path, answer(("DCGM_FI_DEV_SM_CLOCK", {"gpu": "2", **labels}, [(1714557600, "1")])))
    )
    assert (series.gpu.host, series.gpu.index, series.pod) == (host, 2, pod)


@pytest.mark.parametrize(
    ("name", "metric", "value"),
    [
        ("DCGM_FI_DEV_MEM_CLOCK", Metric.MEMORY_CLOCK, 2619.0),
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", Metric.POWER_LIMIT, 700.0),
        ("DCGM_FI_DEV_MEMORY_TEMP", Metric.MEMORY_TEMPERATURE, 70.0),
        ("DCGM_FI_DEV_GPU_UTIL", Metric.UTILISATION, 99.0),
        ("DCGM_FI_PROF_SM_ACTIVE", Metric.SM_ACTIVE, 0.7),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Metric.TENSOR_ACTIVE, 0.5),
        ("DCGM_FI_PROF_DRAM_ACTIVE", Metric.DRAM_ACTIVE, 0.3),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Metric.THROTTLE_REASONS, 4.0),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", Metric.THROTTLE_REASONS, 4.0),
        # Nanoseconds, whatever older lists of the exporter say.
        ("DCGM_FI_DEV_POWER_VIOLATION", Metric.POWER_VIOLATION, 123456789.0),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", Metric.THERMAL_VIOLATION, 5.0),
        ("DCGM_FI_DEV_XID_ERRORS", Metric.XID, 79.0),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", Metric.PCIE_REPLAYS, 3.0),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", Metric.NVLINK_ERRORS, 2.0),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", Metric.ROW_REMAP_FAILURE, 0.0),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", Metric.PCIE_RX, 1e9),
        ("DCGM_FI_PROF_NVLINK_TX_BYTES", Metric.NVLINK_TX, 2e9),
    ],
)
def test_names_of_dcgm_are_known(tmp_path: Path, name: str, metric: Metric, value: float) -> None:
    series = only(read_answer(tmp_path, answer((name, GPU0, [(1714557600, repr(value))]))))
    assert series.metric is metric
    assert series.values.tolist() == [value]


def test_a_metric_whose_unit_is_not_certain_is_not_used(tmp_path: Path) -> None:
    reading = read_answer(
        tmp_path,
        answer(
            ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", GPU0, [(1714557600, "5")]),
            ("DCGM_FI_DEV_SM_CLOCK", GPU0, [(1714557600, "5")]),
        ),
    )
    assert only(reading).metric is Metric.SM_CLOCK
    assert any("DCGM_FI_DEV_PCIE_TX_THROUGHPUT" in note.text for note in reading.notes)


def test_gaps_stale_markers_and_blanks_leave_no_sample(tmp_path: Path) -> None:
    pairs = [
        (1.0e9, "1980"),
        (1.1e9, "NaN"),
        (1.2e9, "+Inf"),
        (1.3e9, "2147483632"),
        (1.4e9, "9223372036854775794"),
        (1.5e9, "-5"),
        (1.6e9, "not a number"),
        (1.7e9, "1975"),
    ]
    reading = read_answer(tmp_path, answer(("DCGM_FI_DEV_SM_CLOCK", GPU0, pairs)))
    assert only(reading).values.tolist() == [1980.0, 1975.0]
    texts = [note.text for note in reading.notes]
    assert any("3 samples are no numbers" in text for text in texts)
    assert any("3 samples are blanks" in text for text in texts)


def test_times_rise_and_each_counts_once(tmp_path: Path) -> None:
    pairs = [(1.2e9, "2"), (1.1e9, "1"), (1.3e9, "3"), (1.1e9, "1")]
    series = only(read_answer(tmp_path, answer(("DCGM_FI_DEV_SM_CLOCK", GPU0, pairs))))
    assert series.utc_s.tolist() == [1.1e9, 1.2e9, 1.3e9]
    assert series.values.tolist() == [1.0, 2.0, 3.0]


def test_series_of_other_labels_stay_apart_where_the_gpu_is_not_told_apart(tmp_path: Path) -> None:
    """Exporters of two hosts behind one service: without UUIDs both have a GPU 0."""
    shared = {"gpu": "0", "instance": "gpu-metrics.monitoring.svc:9400"}
    reading = read_answer(
        tmp_path,
        answer(
            ("DCGM_FI_DEV_SM_CLOCK", {**shared, "pod": "dcgm-exporter-4kq2z"}, [(1.1e9, "1755")]),
            ("DCGM_FI_DEV_SM_CLOCK", {**shared, "pod": "dcgm-exporter-9xw7h"}, [(1.1e9, "1065")]),
        ),
    )
    assert sorted(series.values.tolist() for series in series_of(reading)) == [[1065.0], [1755.0]]
    assert {series.gpu.host for series in series_of(reading)} == {None}


def test_a_counter_that_went_back_is_told_and_kept(tmp_path: Path) -> None:
    pairs = [(1.1e9, "900"), (1.2e9, "950"), (1.3e9, "10")]
    reading = read_answer(tmp_path, answer(("DCGM_FI_DEV_POWER_VIOLATION", GPU0, pairs)))
    assert only(reading).values.tolist() == [900.0, 950.0, 10.0]
    assert NoteKind.RESTARTED in [note.kind for note in reading.notes]


def test_of_two_names_for_one_thing_one_is_taken(tmp_path: Path) -> None:
    reading = read_answer(
        tmp_path,
        answer(
            ("DCGM_FI_DEV_POWER_MGMT_LIMIT", GPU0, [(1.1e9, "700")]),
            ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", GPU0, [(1.1e9, "500")]),
        ),
    )
    assert only(reading).values.tolist() == [500.0]


def test_parts_of_a_gpu_are_left_out(tmp_path: Path) -> None:
    slice_of = {**GPU0, "GPU_I_ID": "1", "GPU_I_PROFILE": "1g.10gb"}
    assert "parts of a GPU" in refusal(
        read_answer(tmp_path, answer(("DCGM_FI_PROF_SM_ACTIVE", slice_of, [(1.1e9, "0.4")])))
    )


EXPOSITION = f"""\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{labels_text(GPU0)} 1980
DCGM_FI_DEV_SM_CLOCK{{gpu="1",UUID="GPU-b",Hostname="node-1",note="a }} b, \\"c\\""}} 1.065e+03
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{labels_text(GPU0)} 0
"""


def test_one_scrape_of_an_exporter_is_one_sample_without_a_time(tmp_path: Path) -> None:
    reading = read_text(tmp_path, EXPOSITION)
    first, second = series_of(reading)
    assert (first.gpu.index, first.values.tolist()) == (0, [1980.0])
    assert (second.gpu.index, second.values.tolist()) == (1, [1065.0])
    assert np.isnan(first.utc_s).all()
    assert any("without a time" in note.text and "are not compared" in note.text for note in reading.notes)


def test_many_scrapes_without_times_are_one_note(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.prom" for number in range(5)]
    for path in paths:
        path.write_text(EXPOSITION)
    timed = tmp_path / "timed.prom"
    timed.write_text(f"DCGM_FI_DEV_SM_CLOCK{labels_text(GPU0)} 1980 1714557600000\n")
    (note,) = [each for each in read(*paths, timed).notes if "without a time" in each.text]
    assert "0.prom` and 4 more files" in note.text


def test_times_of_a_scrape_are_milliseconds(tmp_path: Path) -> None:
    reading = read_text(tmp_path, f"DCGM_FI_DEV_SM_CLOCK{labels_text(GPU0)} 1980 1714557600000\n")
    assert only(reading).utc_s.tolist() == [1714557600.0]


def test_amds_exporter_is_read_where_its_names_are_clear(tmp_path: Path) -> None:
    gpu = '{card_model="Instinct MI300X",gpu_id="3",hostname="node-a",pod="",serial_number="SN",'
    reading = read_text(
        tmp_path,
        "# TYPE gpu_package_power gauge\n"
        f"gpu_package_power{gpu}}} 748\n"
        f"amd_gpu_junction_temperature{gpu}}} 76\n"
        f'gpu_clock{gpu}clock_type="GPU_CLOCK_TYPE_SYSTEM",clock_index="1"}} 132\n'
        f'gpu_clock{gpu}clock_type="GPU_CLOCK_TYPE_SYSTEM",clock_index="0"}} 1533\n'
        f'gpu_clock{gpu}clock_type="GPU_CLOCK_TYPE_MEMORY",clock_index="8"}} 1292\n'
        f'gpu_clock{gpu}clock_type="GPU_CLOCK_TYPE_VIDEO",clock_index="9"}} 22\n',
    )
    values = {series.metric: series.values.tolist() for series in series_of(reading)}
    assert values == {
        Metric.POWER: [748.0],
        Metric.TEMPERATURE: [76.0],
        Metric.SM_CLOCK: [1533.0],
        Metric.MEMORY_CLOCK: [1292.0],
    }
    assert {(series.gpu.host, series.gpu.index) for series in series_of(reading)} == {("node-a", 3)}


def test_text_of_other_exporters_is_refused_in_words(tmp_path: Path) -> None:
    text = '# TYPE node_load1 gauge\nnode_load1 0.3\nnode_cpu_seconds_total{cpu="0"} 4\n'
    assert "node_load1" in refusal(read_text(tmp_path, text))
    assert "no sample" in refusal(read_text(tmp_path, "# TYPE node_load1 gauge\n"))


def test_grafanas_joined_series_are_columns(tmp_path: Path) -> None:
    column = "DCGM_FI_DEV_SM_CLOCK" + labels_text(GPU0).replace('"', '""')
    other = '{__name__=""DCGM_FI_DEV_GPU_TEMP"", gpu=""1"", Hostname=""node-2""}'
    text = f'"Time","{column}","{other}"\n1714557600000,1980,60\n1714557615000,,61\n1714557630000,1065,62\n'
    clock, temperature = series_of(read_text(tmp_path, text, "export.csv"))
    assert clock.values.tolist() == [1980.0, 1065.0]
    assert clock.utc_s.tolist() == [1714557600.0, 1714557630.0]
    assert (temperature.gpu.host, temperature.gpu.index) == ("node-2", 1)
    assert temperature.values.tolist() == [60.0, 61.0, 62.0]


def test_headers_that_were_not_quoted_are_read(tmp_path: Path) -> None:
    text = (
        'sep=;\ntime;DCGM_FI_DEV_SM_CLOCK{gpu="0";Hostname="node-1"}\n'.replace(";Hostname", ",Hostname")
        + "2024-05-01T10:00:00Z;1980\n"
    )
    series = only(read_text(tmp_path, text))
    assert (series.gpu.host, series.utc_s.tolist()) == ("node-1", [1714557600.0])
    comma = 'time,DCGM_FI_DEV_SM_CLOCK{gpu="0",Hostname="node-1"},DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="node-1"}\n'
    clock, temperature = series_of(read_text(tmp_path, comma + "1714557600,1980,60\n"))
    assert (clock.values.tolist(), temperature.values.tolist()) == ([1980.0], [60.0])


def test_times_without_a_zone_are_taken_as_utc_and_told(tmp_path: Path) -> None:
    column = '"DCGM_FI_DEV_SM_CLOCK{gpu=""0"",Hostname=""n""}"'
    text = f'"Time",{column}\n2024-05-01 10:00:00,1\n2024-05-01 12:00:30.250+02:00,2\nnoon,3\n'
    reading = read_text(tmp_path, text)
    assert only(reading).utc_s.tolist() == [1714557600.0, 1714557630.25]
    texts = [note.text for note in reading.notes]
    assert any("1 times have no zone" in text and "left out" not in text for text in texts)
    assert any("1 rows have a time that cannot be read" in text for text in texts)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("time,metric,labels,value", '1714557600,DCGM_FI_DEV_SM_CLOCK,"{gpu=""0"",Hostname=""n""}",1980'),
        (
            "time,metric,labels,value",
            '1714557600,DCGM_FI_DEV_SM_CLOCK,"{""gpu"": ""0"", ""Hostname"": ""n""}",1980',
        ),
        ("time,metric,labels,value", '1714557600,DCGM_FI_DEV_SM_CLOCK,"gpu=0,Hostname=n",1980'),
        ("Timestamp,name,gpu,Hostname,Value", "2024-05-01T10:00:00.000Z,DCGM_FI_DEV_SM_CLOCK,0,n,1980"),
        ("Series;Time;Value", '"DCGM_FI_DEV_SM_CLOCK{gpu=""0"",Hostname=""n""}";2024-05-01T10:00:00Z;1980'),
    ],
)
def test_long_tables_are_read(tmp_path: Path, header: str, row: str) -> None:
    assert PROMETHEUS.sniff("a.csv", header.encode() + b"\n") > 0.8
    series = only(read_text(tmp_path, f"{header}\n{row}\n"))
    assert (series.gpu.host, series.gpu.index) == ("n", 0)
    assert (series.utc_s.tolist(), series.values.tolist()) == ([1714557600.0], [1980.0])


def test_values_with_units_and_columns_with_legends_are_refused(tmp_path: Path) -> None:
    column = '"DCGM_FI_DEV_SM_CLOCK{gpu=""0"",Hostname=""n""}"'
    formatted = refusal(read_text(tmp_path, f'"Time",{column}\n1714557600000,1.98 GHz\n'))
    assert "1.98 GHz" in formatted and "Formatted data" in formatted
    legend = refusal(read_text(tmp_path, '"Time","node-1 GPU 0"\n1714557600000,1980\n'))
    assert "legend" in legend
    listed = "# DCGM FIELD, Prometheus metric type, help message\nDCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency.\n"
    assert PROMETHEUS.sniff("default-counters.csv", listed.encode()) > 0.8
    assert "without values" in refusal(read_text(tmp_path, listed))


def test_one_bad_file_costs_only_itself(tmp_path: Path) -> None:
    good = tmp_path / "good.json.gz"
    good.write_bytes(
        gzip.compress(json.dumps(answer(("DCGM_FI_DEV_SM_CLOCK", GPU0, [(1.1e9, "1")]))).encode())
    )
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)) * 10)
    empty = tmp_path / "empty"
    empty.touch()
    reading = read(good, binary, empty, tmp_path / "absent", tmp_path)
    assert len(series_of(reading)) == 1
    assert [entry.read for entry in reading.inputs] == [True, False, False, False, False]


def test_each_kind_is_known_by_sight() -> None:
    assert PROMETHEUS.sniff("a", json.dumps(answer()).encode()) > 0.9
    assert PROMETHEUS.sniff("a", b'{"status":"error","errorType":"timeout","error":"x"}') > 0.9
    assert PROMETHEUS.sniff("a", b'{"metric":{"__name__":"up"},"values":[1]}') > 0.9
    assert PROMETHEUS.sniff("a", EXPOSITION.encode()) > 0.9
    assert PROMETHEUS.sniff("a", b"# TYPE node_load1 gauge\nnode_load1 0.3\n") > 0.5
    assert PROMETHEUS.sniff("a", b'"Time","DCGM_FI_DEV_SM_CLOCK{gpu=""0""}"\n1,2\n') > 0.8
    assert 0 < PROMETHEUS.sniff("a", b'"Time","node-1 GPU 0"\n1,2\n') < 0.4
    for other in (
        b'{"traceEvents":[]}',
        b"step,rank,forward_ms\n1,0,3\n",
        b"\x80\x04\x95",
        b"step: 3 loss: 2.1 tps: 100",
        b"",
        b'{"rank": 0, "status": "ok"}',
    ):
        assert PROMETHEUS.sniff("a", other) == 0.0


def xpu_timer_text(hanging: set[int]) -> str:
    lines = ["# TYPE XPU_TIMER_MM_KERNEL_AVG_LATENCY gauge"]
    for rank in range(4):
        labels = f'ip="10.0.0.{rank // 2}",level="7",local_rank="{rank % 2}",operation="Matmul",rank="{rank}"'
        lines.append(f"XPU_TIMER_MM_KERNEL_AVG_LATENCY{{{labels}}} {3700 if rank else 19063}")
        lines.append(f"XPU_TIMER_COMMON_HANG{{{labels}}} {int(rank in hanging)}")
    return "\n".join(lines) + "\n"


def test_averages_of_xpu_timer_name_nobody(tmp_path: Path) -> None:
    """Rank 0's average is five times the others': it holds other sizes, and is no step time."""
    reading = read_text(tmp_path, xpu_timer_text(set()))
    assert reading.telemetry == reading.steps == reading.claims == ()
    assert [note.kind for note in reading.notes] == [NoteKind.LIMITED]
    assert "averages of kernels" in reading.notes[0].text
    assert reading.inputs[0].read is True


def test_what_xpu_timer_says_of_a_hang_is_its_claim(tmp_path: Path) -> None:
    (claim,) = read_text(tmp_path, xpu_timer_text({1, 2})).claims
    assert claim.tool == "xpu_timer"
    assert claim.ranks == (1, 2)
    assert claim.hosts == ("10.0.0.0", "10.0.0.1")


def test_averages_of_nccl_inspector_name_nobody(tmp_path: Path) -> None:
    labels = '{version="v5.1",node="n1",gpu="GPU0",comm_name="DP",nranks="4",collective="AllReduce"}'
    reading = read_text(
        tmp_path,
        f"nccl_bus_bandwidth_gbs{labels} 678.2\nnccl_collective_exec_time_microseconds{labels} 9498.4\n",
    )
    assert reading.telemetry == ()
    assert any("NCCL_INSPECTOR_PROM_DUMP=0" in (note.how or "") for note in reading.notes)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("xpu_timer_metric_0", ()),
        ("xpu_timer_metric_all", tuple(range(8))),
        ("xpu_timer_metric_some", (0, 2, 5)),
    ],
)
def test_published_metrics_of_xpu_timer(name: str, ranks: tuple[int, ...]) -> None:
    path = CASES / name
    if not path.is_file():
        pytest.skip(f"no {path} beside the project: the published metrics are not tested")
    assert PROMETHEUS.sniff(str(path), path.read_bytes()[:65536]) > 0.9
    reading = read(path)
    assert tuple(rank for claim in reading.claims for rank in claim.ranks) == ranks
    assert reading.steps == () and reading.telemetry == ()


def series_at(
    address: str, uuid: str, begin: int, num: int = 4
) -> tuple[str, dict[str, str], list[tuple[float, str]]]:
    labels = {"gpu": "3", "UUID": uuid, "instance": f"{address}:9400"}
    return "DCGM_FI_DEV_SM_CLOCK", labels, [(begin + 15.0 * at, "1755") for at in range(num)]


def test_an_address_of_several_hosts_is_no_host(tmp_path: Path) -> None:
    """A load balancer before the exporters: GPU 3 is two GPUs at once."""
    reading = read_answer(
        tmp_path,
        answer(
            series_at("10.1.1.1", "GPU-a", 1714557600),
            series_at("10.1.1.1", "GPU-b", 1714557615),
            series_at("10.1.1.2", "GPU-c", 1714557600),
        ),
    )
    assert [(each.gpu.uuid, each.gpu.host) for each in series_of(reading)] == [
        ("GPU-a", None),
        ("GPU-b", None),
        ("GPU-c", "10.1.1.2"),
    ]
    assert any("`10.1.1.1`, behind which several hosts are" in note.text for note in reading.notes)


def test_a_gpu_that_was_exchanged_keeps_its_host(tmp_path: Path) -> None:
    reading = read_answer(
        tmp_path,
        answer(series_at("10.1.1.1", "GPU-a", 1714557600), series_at("10.1.1.1", "GPU-b", 1714557900)),
    )
    assert {each.gpu.host for each in series_of(reading)} == {"10.1.1.1"}
