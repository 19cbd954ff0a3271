"""Logs of DeepSpeed, TorchTitan, nanoGPT, MLPerf, NeMo, HF Trainer, DLRover, RETURNN and NVRx."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs import TRAINER_LOG, TRAINER_STATE


def read(folder: Path, **texts: str) -> Reading:
    paths = []
    for name, text in texts.items():
        path = folder / f"{name}.log"
        path.write_text(text)
        paths.append(str(path))
    return TRAINER_LOG.read(paths, ReadOptions())


def limits(reading: Reading) -> str:
    return " / ".join(note.text for note in reading.notes if note.kind is NoteKind.LIMITED)


def deepspeed(step: int, rate: float, *, second: int = 0) -> str:
    return (
        f"[2023-04-18 01:46:{second:02d},171] [INFO] [timer.py:199:stop] epoch=0/micro_step={step}/global_step={step}, "
        f"RunningAvgSamplesPerSec=999.9, CurrSamplesPerSec={rate}, MemAllocated=3.96GB, MaxMemAllocated=22.95GB\n"
    )


def test_deepspeed_s_current_rate_counts_and_its_running_mean_does_not(tmp_path: Path) -> None:
    reading = read(tmp_path, log="".join(deepspeed(step, 170.0 + step, second=step) for step in (10, 20, 30)))
    (series,) = reading.series
    assert (series.kind, series.unit) == (SeriesKind.RATE, "samples/s")
    assert series.values.tolist() == [180.0, 190.0, 200.0]
    # A line tells its last step alone, although one is printed only every 10.
    assert series.steps_per_value == 1
    assert series.utc_s is not None
    assert np.diff(series.utc_s).tolist() == [10.0, 10.0]


def test_deepspeed_s_breakdown_is_a_time_with_parts(tmp_path: Path) -> None:
    text = ""
    for step in (1, 2):
        text += f"[2024-04-04 09:09:53,312] [INFO] [Rank 0] step={step}, skipped=0, lr=[0.1], mom=[(0.9, 0.999)]\n"
        text += "[Rank 0] time (ms) | fwd_microstep: 65.0 | bwd_microstep: 80.0 | step_microstep: 11.0\n"
        text += f"[Rank 0] time (ms) | fwd: {100 + step}.00 | bwd: 200.00 | bwd_inner: 150.00 | bwd_allreduce: 50.00 | step: 10.00\n"
    (series,) = read(tmp_path, log=text).series
    assert series.unit == "ms"
    assert series.values.tolist() == [311.0, 312.0]
    assert series.splits["forward"].tolist() == [101.0, 102.0]
    assert series.splits["all-reduce"].tolist() == [50.0, 50.0]


def test_two_hosts_that_print_different_metrics_are_two_series_and_no_ranks(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 5):
        text += f"host-b:  iteration {step}/ 9 | elapsed time per iteration (ms): 7500.0 | global batch size: 8 |\n"
        text += "host-a: " + deepspeed(step, 300.0)
    reading = read(tmp_path, log=text)
    assert {(series.name, series.host) for series in reading.series} == {
        ("elapsed time per iteration", "host-b"),
        ("CurrSamplesPerSec", "host-a"),
    }
    assert not reading.steps
    assert "and DeepSpeed" in reading.inputs[0].kind


def titan(step: int, rate: str, *, rank: int = 0, name: str = "tps") -> str:
    return (
        f"[rank{rank}]:[titan] 2025-12-17 01:19:{step:02d},836 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 11.58  "
        f"\x1b[33mgrad_norm:  9.6145  \x1b[36mmemory: 116.51GiB(83.39%)  \x1b[34m{name}: {rate}  \x1b[35mmfu: 33.31%\x1b[39m\n"
    )


@pytest.mark.parametrize("name", ["tps", "wps"])
def test_torchtitan_s_tokens_per_second_are_read_through_colours(tmp_path: Path, name: str) -> None:
    text = "".join(titan(step, f"6,{500 + step}", name=name) for step in range(1, 6))
    text += "[rank0]:[titan] 2025-12-17 01:19:50,836 - root - INFO - validate step:  5  loss: 3.1  memory: 1GiB(2%)  tps: 99\n"
    (series,) = read(tmp_path, log=text).series
    assert series.unit == "tokens/s"
    assert series.values.tolist() == [6501.0, 6502.0, 6503.0, 6504.0, 6505.0]
    assert series.printed_by == "rank 0"


def test_the_same_rate_of_several_ranks_is_kept_once_and_said_so(tmp_path: Path) -> None:
    text = "".join(titan(step, f"6,50{rank}", rank=rank) for step in range(1, 6) for rank in (1, 0, 2))
    reading = read(tmp_path, log=text)
    (series,) = reading.series
    assert series.printed_by == "each of 3 ranks"
    assert "3 processes print" in limits(reading)
    assert "each of 3 ranks prints a number of the whole job" in limits(reading)
    assert "one rank prints for all" not in limits(reading)
    assert not reading.steps


def test_nanogpt_tells_its_time(tmp_path: Path) -> None:
    text = "step 0: train loss 4.1, val loss 4.2\n"
    text += "".join(
        f"iter {step}: loss 3.4821, time {500 + step}.25ms, mfu 38.20%\n" for step in range(0, 40, 10)
    )
    (series,) = read(tmp_path, log=text).series
    assert series.values.tolist() == [500.25, 510.25, 520.25, 530.25]
    assert series.steps_per_value == 10


@pytest.mark.parametrize(
    "line",
    [
        "step   12/19560 | loss 6.1 (+1.2z)| norm 0.9 (+0.1z)| lr 1e-04 | 530.77 ms | 55.0% bf16 MFU | 987654 tok/s\n",
        "step    12 | loss: 6.1 | lr 1.0e-04 | norm: 0.98 | dt: 530.77ms | tok/sec: 987654.32\n",
    ],
)
def test_relatives_of_nanogpt_tell_their_time(tmp_path: Path, line: str) -> None:
    (series,) = read(tmp_path, log=line).series
    assert (series.steps.tolist(), series.values.tolist()) == ([12], [530.77])


def test_a_clock_that_runs_on_gives_differences_and_validation_adds_nothing(tmp_path: Path) -> None:
    text = (
        "step:0/10 val_loss:11.0 train_time:0ms step_avg:nanms\n"
        "step:1/10 train_loss:10.9 train_time:24000ms step_avg:nanms\n"
        "step:2/10 train_loss:10.8 train_time:24100ms step_avg:nanms\n"
        "step:3/10 train_loss:10.7 train_time:90ms step_avg:90.00ms\n"  # the clock was set back
        "step:4/10 train_loss:10.6 train_time:190ms step_avg:95.00ms\n"
        "step:4/10 val_loss:10.5 train_time:210ms step_avg:95.00ms\n"
        "step:5/10 train_loss:10.5 train_time:290ms step_avg:96.00ms\n"
        "step:7/10 train_loss:10.4 train_time:490ms step_avg:97.00ms\n"
    )
    (series,) = read(tmp_path, log=text).series
    assert series.steps.tolist() == [1, 2, 4, 5, 7]
    assert series.values.tolist() == [24000.0, 100.0, 100.0, 100.0, 100.0]


def mllog(key: str, value: object, *, at_s: float = 0.0, **metadata: object) -> str:
    record = {
        "namespace": "",
        "time_ms": round(at_s * 1000),
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
    }
    return (
        ":::MLLOG " + json.dumps({**record, "metadata": {"file": "train.py", "lineno": 1, **metadata}}) + "\n"
    )


def test_statistics_of_mlperf_are_series_of_their_own(tmp_path: Path) -> None:
    text = mllog("global_batch_size", 9)
    for index in range(1, 5):
        text += mllog(
            "tracked_stats", {"throughput": 38.0, "train_step_time": 0.25}, at_s=index * 100.0, step=index
        )
        text += mllog("tracked_stats", {"validation_throughput": 76.0}, at_s=index * 100.0 + 5, step=index)
    series = {each.name: each for each in read(tmp_path, log=text).series}
    assert series["throughput"].values.tolist() == [38.0] * 4
    assert series["train step time"].values.tolist() == [250.0] * 4
    assert series["validation throughput"].values.tolist() == [76.0] * 4
    assert series["throughput"].zone_known


def test_a_count_of_samples_becomes_iterations(tmp_path: Path) -> None:
    text = mllog("global_batch_size", 1280)
    for index in range(1, 6):
        text += mllog("tracked_stats", {"train_step_time": 7.0}, at_s=index * 7.1, step=1280.0 * index)
    assert read(tmp_path, log=text).series[0].steps.tolist() == [1, 2, 3, 4, 5]


def test_iterations_that_happen_to_be_multiples_of_the_batch_size_stay_iterations(tmp_path: Path) -> None:
    text = mllog("global_batch_size", 10)
    for index in range(1, 6):
        text += mllog("tracked_stats", {"throughput": 20.0}, at_s=index * 25.0, step=50 * index)
    assert read(tmp_path, log=text).series[0].steps.tolist() == [50, 100, 150, 200, 250]


def test_a_time_whose_unit_is_not_told_is_refused(tmp_path: Path) -> None:
    known = mllog("global_batch_size", 100)
    unknown = known
    for index in range(1, 4):
        known += mllog("tracked_stats", {"time": 0.2, "data": 0.01, "throughput": 500.0}, step=index)
        unknown += mllog("tracked_stats", {"time": 200.0, "throughput": 500.0}, step=index)
    by_name = {each.name: each for each in read(tmp_path, known=known).series}
    assert by_name["step time"].values.tolist() == [200.0] * 3
    assert by_name["step time"].splits["data"].tolist() == [10.0] * 3
    reading = read(tmp_path, unknown=unknown)
    assert [each.name for each in reading.series] == ["throughput"]
    assert any(note.kind is NoteKind.MIXED_UNITS for note in reading.notes)


@pytest.mark.parametrize("absurd", ["1e400", "-1e308", "1e-320", "NaN", '"7"', "[[[]]]", "true", "1" * 400])
def test_absurd_numbers_of_mlperf_are_left_out(tmp_path: Path, absurd: str) -> None:
    text = mllog("global_batch_size", 100)
    for index in range(1, 5):
        text += mllog("tracked_stats", {"throughput": 500.0, "time": 0.2}, at_s=index * 10.0, step=index)
    for field in ('"throughput": 500.0', '"time": 0.2', '"step": 3', '"value": 100', '"time_ms": 20000'):
        assert field in text
        broken = text.replace(field, field.split(":")[0] + ": " + absurd)
        reading = read(tmp_path, log=broken)
        assert all(np.isfinite(series.values).all() for series in reading.series)


def test_nemo_s_step_timing_is_read_from_lines_and_from_bars(tmp_path: Path) -> None:
    lines = "".join(
        f"Training epoch 0, iteration {step}/249 | lr: 1.961e-06 | global_step: {step} | train_step_timing in s: 2.5\n"
        for step in range(3)
    )
    bars = "".join(
        f"Epoch 0: : {step}%|██| {step}/100 [00:48<10:00, loss=0.0172, global_step={step}.00, train_step_timing in s=3.130]\r"
        for step in (1, 1, 2, 3)
    )
    (series,) = read(tmp_path, lines=lines).series
    assert (series.steps.tolist(), series.values.tolist()) == ([0, 1, 2], [2500.0] * 3)
    (series,) = read(tmp_path, bars=bars).series
    assert (series.steps.tolist(), series.values.tolist()) == ([1, 2, 3], [3130.0] * 3)


def clock(seconds: int) -> str:
    return f"{seconds // 60:02d}:{seconds % 60:02d}"


def test_a_progress_bar_gives_times_by_its_clock_over_windows(tmp_path: Path) -> None:
    text = "Loading checkpoint shards: 100%|██████████| 4/4 [01:10<00:00, 17.6s/it]\n"
    text += "".join(
        f" {step}%|█   | {step}/100 [{clock(step * 5)}<09:00,  5.02s/it]\r" for step in range(1, 41)
    )
    text += "".join(
        f" {step}%|█   | {step}/8 [{clock(step * 25)}<09:00,  5.02s/it]\r" for step in range(1, 5)
    )
    reading = read(tmp_path, log=text)
    (series,) = reading.series
    # 4 steps are 20 seconds, and whole seconds err by one.
    assert series.values.tolist() == [5000.0] * len(series.values)
    assert series.steps_per_value == 4
    assert "whole seconds" in limits(reading)


def test_epochs_of_a_bar_are_counted_on(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch {epoch}: {step}%|█| {step}/10 [{clock(step * 30)}<09:00,  0.03it/s, v_num=1]\r"
        for epoch in range(2)
        for step in range(11)
    )
    (series,) = read(tmp_path, log=text).series
    assert series.steps.tolist() == [*range(1, 11), *range(11, 21)]
    assert series.values.tolist() == [30_000.0] * 20


def test_hf_s_summary_alone_says_that_it_shows_nothing(tmp_path: Path) -> None:
    text = (
        "{'loss': 2.075, 'learning_rate': 0.0002, 'epoch': 0.04}\n"
        "{'train_runtime': 62.31, 'train_samples_per_second': 33.8, 'train_steps_per_second': 1.05, 'epoch': 3.0}\n"
    )
    reading = read(tmp_path, log=text)
    assert not reading.series
    assert reading.inputs[0].read
    assert "whole run only" in limits(reading)


def test_llama_factory_s_clock_gives_times(tmp_path: Path) -> None:
    text = "".join(
        json.dumps(
            {"current_steps": step, "total_steps": 99, "loss": 0.1, "elapsed_time": f"0:{clock(step * 3)}"}
        )
        + "\n"
        for step in range(10, 70, 10)
    )
    (series,) = read(tmp_path, log=text).series
    assert series.values.tolist() == [3000.0] * 5
    assert series.steps.tolist() == [20, 30, 40, 50, 60]


def test_hf_s_state_gives_evaluations_and_says_what_it_lacks(tmp_path: Path) -> None:
    state = {
        "best_metric": None,
        "global_step": 30,
        "log_history": [
            {"loss": 1.0, "step": 10},
            {"eval_loss": 1.0, "eval_samples_per_second": 80.0, "step": 10},
            {"eval_loss": 0.9, "eval_samples_per_second": 82.0, "step": 20},
            {"train_runtime": 300.0, "step": 30},
        ],
    }
    path, broken = tmp_path / "trainer_state.json", tmp_path / "broken.json"
    path.write_text(json.dumps(state))
    broken.write_text(json.dumps(state)[:100])
    assert TRAINER_STATE.sniff(str(path), path.read_bytes()) > 0.9
    reading = TRAINER_STATE.read([str(path), str(broken)], ReadOptions())
    assert reading.series[0].values.tolist() == [80.0, 82.0]
    assert "no step times" in limits(reading)
    assert [each.read for each in reading.inputs] == [True, False]


def test_lightning_s_profiler_says_what_it_cannot_show(tmp_path: Path) -> None:
    text = "FIT Profiler Report\n\n|  Action  |  Mean duration (s)\t|  Num calls  |  Total time (s)  |\n|  Total  |  -  | 1000 | 12.3 |\n"
    reading = read(tmp_path, log=text)
    assert "one process" in limits(reading)
    assert reading.inputs[0].read


def events(durations_s: list[float], *, start: int = 0) -> str:
    text, minute = "", start
    for index, duration in enumerate(durations_s):
        begin = f"2025-04-21T10:{minute:02d}:00.000000"
        end = f"2025-04-21T10:{minute:02d}:{duration:09.6f}"
        text += f'[{begin}] [426] [id{index}] [TrainerV2] [#step] [BEGIN] {{"global_step": {index}, "epoch": 0}}\n'
        text += f'[{end}] [426] [id{index}] [TrainerV2] [#step] [END] {{"global_step": {index + 1}, "epoch": 0}}\n'
        minute += 1
    return text


def test_events_of_dlrover_are_paired_by_id(tmp_path: Path) -> None:
    text = (
        events([15.5, 16.0])
        + '[2025-04-21T11:00:00.0] [426] [x] [TrainerV2] [#step] [BEGIN] {"global_step": 3}\n'
    )
    reading = read(tmp_path, events_0=text)
    (series,) = reading.series
    assert (series.steps.tolist(), series.values.tolist()) == ([1, 2], [15_500.0, 16_000.0])
    assert series.printed_by == "rank 0"


def test_event_logs_of_several_ranks_are_walls_of_ranks(tmp_path: Path) -> None:
    reading = read(tmp_path, events_0=events([15.5, 16.0]), events_1=events([15.25, 16.0]))
    assert not reading.series
    (steps,) = reading.steps
    assert steps.ranks == (0, 1)
    assert steps.sections[Section.STEP].tolist() == [[15_500.0, 16_000.0], [15_250.0, 16_000.0]]
    assert set(steps.sections) == {Section.STEP}
    assert "names nobody" in limits(reading)


def returnn(rank: int, step: int, seconds: float, *, epoch: int = 1) -> str:
    return (
        f"[default{rank}]:ep {epoch} train, step {step}, ce 1.5, num_seqs 12, mem_usage:cuda:{rank} 52.8GB, "
        f"{seconds:.3f} sec/step, elapsed 0:06:53, exp. remaining 0:55:35, complete 11.02%\n"
    )


def test_returnn_s_ranks_are_walls_and_steps_are_counted_over_epochs(tmp_path: Path) -> None:
    text = "".join(
        returnn(rank, step, 0.5 + rank, epoch=epoch)
        for epoch in (1, 2)
        for step in range(3)
        for rank in range(2)
    )
    (steps,) = read(tmp_path, log=text).steps
    assert steps.steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert steps.sections[Section.STEP].tolist() == [[500.0] * 6, [1500.0] * 6]


def test_local_ranks_of_two_files_are_not_taken_for_one(tmp_path: Path) -> None:
    text = "".join(returnn(rank, step, 0.5) for step in range(3) for rank in range(2))
    reading = read(tmp_path, node_a=text, node_b=text)
    assert not reading.steps
    assert len(reading.series) == 2
    assert any(note.kind is NoteKind.MIXED_RUNS for note in reading.notes)


NVRX = """\
[NeMo W 2024-05-01 12:00:00] STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: \
{StragglerId(rank=3, node='gpu-7'), StragglerId(rank=5, node='gpu-8')}
[NeMo I 2024-05-01 12:00:00]
GPU relative performance:
 Worst performing 2/512 ranks:
  Rank=3 Node=gpu-7 Score=0.61
  Rank=5 Node=gpu-8 Score=0.69
 Best performing 2/512 ranks:
  Rank=76 Node=gpu-1 Score=0.99
  Rank=13 Node=gpu-2 Score=0.98

GPU individual performance:
  Rank=3 Node=gpu-7 Score=0.97
"""


def test_nvrx_s_warning_is_a_claim_with_scores_and_its_rule(tmp_path: Path) -> None:
    flagged, calm = read(tmp_path, log=NVRX).claims
    assert (flagged.ranks, flagged.hosts, flagged.line) == ((3, 5), ("gpu-7", "gpu-8"), 1)
    assert flagged.scores == {3: 0.61, 5: 0.69, 76: 0.99, 13: 0.98}
    assert "33 % slower than the fastest" in flagged.rule
    assert (calm.ranks, calm.scores) == ((), {3: 0.97})
    assert "no rank was flagged" in calm.text


def test_a_warning_said_again_is_one_claim(tmp_path: Path) -> None:
    claims = read(tmp_path, log=NVRX * 50).claims
    assert len(claims) == 2
    assert "(50 times)" in claims[0].text


def test_nvrx_s_plain_detector_line_is_a_claim(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, log="DETECTED RELATIVE STRAGGLER GPU RANK=3 NODE=gpu-7\n").claims
    assert (claim.ranks, claim.hosts) == ((3,), ("gpu-7",))


def test_scores_alone_accuse_nobody(tmp_path: Path) -> None:
    text = "GPU relative performance:\n  Rank=1 Node=a Score=0.94\n  Rank=0 Node=a Score=1.00\n"
    (claim,) = read(tmp_path, log=text).claims
    assert claim.ranks == ()
    assert claim.scores == {1: 0.94, 0: 1.0}
