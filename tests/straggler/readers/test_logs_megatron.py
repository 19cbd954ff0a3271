"""Logs of Megatron-LM: iteration lines of all ages, timers across ranks, its own look for stragglers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs import TRAINER_LOG

ARGUMENT_NAMES = ["accumulate_allreduce_grads_in_fp32", "adam_beta1"] + [
    f"some_option_{index}" for index in range(60)
]


def read(folder: Path, text: str, *, name: str = "train.log", options: ReadOptions | None = None) -> Reading:
    path = folder / name
    path.write_text(text)
    reading = TRAINER_LOG.read([str(path)], options or ReadOptions())
    assert [each.path for each in reading.inputs] == [str(path)]
    return reading


def iteration(step: int, time_ms: float, *, stamp: str = "", batch: int = 64) -> str:
    return (
        f"{stamp} iteration {step:8d}/ 1000 | consumed samples: {step * batch:12d} | elapsed time per iteration (ms): "
        f"{time_ms:.1f} | learning rate: 1.0E-04 | global batch size: {batch:5d} | lm loss: 2.1E+00 |\n"
    )


def arguments(**values: object) -> str:
    shown = {**dict.fromkeys(ARGUMENT_NAMES, "None"), **values}
    lines = sorted(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in shown.items())
    return (
        "------------------------ arguments ------------------------\n"
        + "".join(lines)
        + "-------------------- end of arguments ---------------------\n"
    )


def all_ranks(timers: dict[str, list[float]]) -> str:
    lines = ["times across ranks (ms):\n"]
    for name, values in timers.items():
        lines.append(f"  {name}:\n")
        lines += [f"     rank {rank:2d}: {value:.2f}\n" for rank, value in enumerate(values) if value > 0]
    return "".join(lines)


def notes(reading: Reading, kind: NoteKind) -> list[str]:
    return [note.text for note in reading.notes if note.kind is kind]


@pytest.mark.parametrize(
    ("line", "time_ms"),
    [
        (
            " iteration       20/    1000 | elapsed time per iteration (ms): 412.5 | learning rate: 1E-4 |\n",
            412.5,
        ),
        (
            " iteration       20/ 1000 | consumed samples: 40 | elapsed time per iteration (ms): 412.5 | x: 1 |\n",
            412.5,
        ),
        (" [2025-08-01 07:19:37] iteration 20/ 5000 | elapsed time per iteration (ms): 412.5 |\n", 412.5),
        (
            " iteration 20/ 9 | consumed tokens: 9 | elapsed time per iteration (s): 12.25 | TFLOPs: 3 |\n",
            12_250.0,
        ),
        ("==> iteration 20/ 1000 | elapsed time per iteration (ms): 412.5 |\n", 412.5),
        ("> [default7]: iteration 20/ 1000 | elapsed time per iteration (ms): 412.5 |\n", 412.5),
        (
            "max reserved: 13236.0[Rank 6] iteration 20/ 1000 | elapsed time per iteration (ms): 412.5 |\n",
            412.5,
        ),
    ],
)
def test_iteration_lines_of_every_age_are_read(tmp_path: Path, line: str, time_ms: float) -> None:
    (series,) = read(tmp_path, line).series
    assert (series.kind, series.unit) == (SeriesKind.TIME, "ms")
    assert series.steps.tolist() == [20]
    assert series.values.tolist() == [time_ms]


def test_one_log_is_a_change_over_time_and_says_that_it_cannot_name_a_rank(tmp_path: Path) -> None:
    reading = read(tmp_path, "".join(iteration(step, 400.0 + step) for step in range(10, 60, 10)))
    (series,) = reading.series
    assert series.steps_per_value == 10
    assert series.printed_by == "the last rank"
    assert series.utc_s is None
    (limit,) = [note for note in reading.notes if note.kind is NoteKind.LIMITED]
    assert "a slow rank cannot" in limit.text
    assert "--timing-log-option all" in (limit.how or "")


def test_time_stamps_become_times_whose_zone_is_not_known(tmp_path: Path) -> None:
    (series,) = read(tmp_path, iteration(1, 400.0, stamp=" [2024-03-01 00:00:10]")).series
    assert series.utc_s is not None
    assert series.utc_s.tolist() == [1_709_251_210.0]
    assert not series.zone_known


def test_old_timer_lines_are_parts_of_the_iteration_before_them(tmp_path: Path) -> None:
    text = "time (ms) | model and optimizer: 11333.84\n"
    for step in (1, 2):
        text += iteration(step, 500.0)
        text += f"time (ms) | forward: {100 + step:.2f} | backward: 300.00 | batch generator: 2.50\n"
    (series,) = read(tmp_path, text).series
    assert sorted(series.splits) == ["backward", "data", "forward"]
    assert series.splits["forward"].tolist() == [101.0, 102.0]
    assert series.splits["data"].tolist() == [2.5, 2.5]


def test_a_restart_makes_a_second_attempt(tmp_path: Path) -> None:
    steps = [*range(10, 110, 10), *range(60, 160, 10)]
    reading = read(tmp_path, "".join(iteration(step, 400.0) for step in steps))
    assert [series.steps.tolist() for series in reading.series] == [
        list(range(10, 110, 10)),
        list(range(60, 160, 10)),
    ]
    assert [series.name for series in reading.series] == [
        "elapsed time per iteration",
        "elapsed time per iteration, attempt 2",
    ]
    (note,) = notes(reading, NoteKind.RESTARTED)
    assert "from step 100 to 60" in note


def test_a_line_told_twice_is_no_restart(tmp_path: Path) -> None:
    text = "".join(iteration(step, 400.0) * 2 for step in range(1, 20))
    reading = read(tmp_path, text)
    (series,) = reading.series
    assert len(series.steps) == 19
    assert not notes(reading, NoteKind.RESTARTED)
    assert "19 values" in notes(reading, NoteKind.DROPPED_VALUES)[0]


def test_a_batch_size_that_changes_is_named_and_told_as_a_rate(tmp_path: Path) -> None:
    text = "".join(
        iteration(step, 400.0 if step < 5 else 800.0, batch=32 if step < 5 else 64) for step in range(1, 9)
    )
    reading = read(tmp_path, text)
    rate = next(series for series in reading.series if series.kind is SeriesKind.RATE)
    assert rate.unit == "samples/s"
    assert rate.values.tolist() == [80.0] * 8
    assert any("global batch size changes (32 to 64)" in text for text in notes(reading, NoteKind.LIMITED))


def test_absurd_times_are_left_out_and_counted(tmp_path: Path) -> None:
    values = ["400.0", "nan", "inf", "-5.0", "1e308", "401.0"]
    text = "".join(
        f" iteration {step}/ 9 | elapsed time per iteration (ms): {value} |\n"
        for step, value in enumerate(values)
    )
    reading = read(tmp_path, text)
    assert reading.series[0].values.tolist() == [400.0, 401.0]
    assert "4 values" in notes(reading, NoteKind.DROPPED_VALUES)[0]


def test_only_wanted_steps_are_kept(tmp_path: Path) -> None:
    text = "".join(iteration(step, 400.0) for step in range(1, 20))
    reading = read(tmp_path, text, options=ReadOptions(first_step=5, last_step=7))
    assert reading.series[0].steps.tolist() == [5, 6, 7]


def minmax(timers: dict[str, tuple[float, float]]) -> str:
    lines = [
        f"    {(name + ' ').ljust(48, '.')}: ({low:.2f}, {high:.2f})\n"
        for name, (low, high) in timers.items()
    ]
    return "(min, max) time across ranks (ms):\n" + "".join(lines)


def test_least_and_most_of_timers_are_told_at_their_iteration(tmp_path: Path) -> None:
    text = minmax({"load-checkpoint": (1.0, 2.0)})
    for step in (10, 20):
        text += iteration(step, 400.0)
        text += minmax({"forward-compute": (100.0, 100.0 + step), "optimizer": (5.0, 6.0)})
    reading = read(tmp_path, text)
    forward = next(each for each in reading.extremes if each.name == "forward-compute")
    assert (forward.steps.tolist(), forward.low.tolist()) == ([10, 20], [100.0, 100.0])
    assert forward.high.tolist() == [110.0, 120.0]
    assert forward.low_rank is None
    # Set-up before the first iteration is no part of one.
    assert [each.name for each in reading.extremes] == ["forward-compute", "optimizer"]


def test_the_option_max_leaves_the_least_unknown(tmp_path: Path) -> None:
    text = (
        iteration(10, 400.0)
        + "max time across ranks (ms):\n    forward-compute ........................: 120.50\n"
    )
    (forward,) = read(tmp_path, text).extremes
    assert forward.high.tolist() == [120.5]
    assert np.isnan(forward.low).all()


@pytest.mark.parametrize(
    ("shown", "waiting"),
    [
        ({}, (False, False)),
        ({"overlap_grad_reduce": True}, (False, True)),
        ({"use_megatron_fsdp": True}, (True, True)),
        ({"tensor_model_parallel_size": 4}, (True, True)),
        ({"tensor_model_parallel_size": 2}, (False, False)),
    ],
)
def test_least_and_most_of_passes_in_which_all_ranks_wait_are_said_to_hold_waiting(
    tmp_path: Path, shown: dict[str, object], waiting: tuple[bool, bool]
) -> None:
    block = minmax({"forward-compute": (100.0, 101.0), "backward-compute": (200.0, 202.0)})
    reading = read(tmp_path, arguments(**{**PLAIN, **shown}) + iteration(1, 420.0) + block)
    assert tuple(each.holds_waiting for each in reading.extremes) == waiting


PLAIN = {
    "world_size": 4,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "context_parallel_size": 1,
    "overlap_grad_reduce": False,
    "barrier_with_L1_time": False,
}
TIMERS = {
    "forward-backward": [400.0] * 4,
    "forward-compute": [110.0, 111.0, 150.0, 112.0],
    "backward-compute": [200.0, 201.0, 202.0, 203.0],
    "batch-generator": [10.0, 11.0, 12.0, 13.0],
    "all-grads-sync": [60.0, 59.0, 20.0, 58.0],
    "optimizer-inner-step": [5.0] * 4,
    "optimizer-clip-main-grad": [3.0] * 4,
    "optimizer": [9.0] * 4,
}


def test_timers_of_all_ranks_are_own_work_and_communication_where_nothing_is_sharded(tmp_path: Path) -> None:
    text = arguments(**PLAIN) + "".join(iteration(step, 420.0) + all_ranks(TIMERS) for step in (1, 2, 3))
    (steps,) = read(tmp_path, text).steps
    assert steps.ranks == (0, 1, 2, 3)
    assert steps.steps.tolist() == [1, 2, 3]
    assert set(steps.sections) == {
        Section.DATA,
        Section.FORWARD,
        Section.BACKWARD,
        Section.OPTIMIZER,
        Section.COMM,
        Section.STEP,
    }
    # A barrier of all ranks stands before the iteration's time: it is that of each.
    assert steps.sections[Section.STEP].tolist() == [[420.0] * 3] * 4
    # The data loader's time lies inside forward and is taken out of it.
    assert steps.sections[Section.FORWARD][:, 0].tolist() == [100.0, 100.0, 138.0, 99.0]
    assert steps.sections[Section.COMM][:, 0].tolist() == [60.0, 59.0, 20.0, 58.0]
    # Clipping holds an all-reduce: of the optimizer its own step alone counts.
    assert steps.sections[Section.OPTIMIZER][:, 0].tolist() == [5.0] * 4
    assert steps.world_size == 4
    assert steps.places[3].coords == {"tp": 0, "dp": 3, "pp": 0}


def test_tensor_parallel_puts_collectives_into_forward_which_becomes_a_wall(tmp_path: Path) -> None:
    text = arguments(**{**PLAIN, "tensor_model_parallel_size": 2}) + iteration(1, 420.0) + all_ranks(TIMERS)
    reading = read(tmp_path, text)
    (steps,) = reading.steps
    assert {Section.FORWARD_WALL, Section.BACKWARD_WALL} <= set(steps.sections)
    assert not {Section.FORWARD, Section.BACKWARD, Section.DATA} & set(steps.sections)
    assert steps.sections[Section.FORWARD_WALL][:, 0].tolist() == TIMERS["forward-compute"]
    assert any("tensor parallel 2" in text for text in notes(reading, NoteKind.LIMITED))


def test_gradients_reduced_meanwhile_make_backward_a_wall(tmp_path: Path) -> None:
    text = arguments(**{**PLAIN, "overlap_grad_reduce": True}) + iteration(1, 420.0) + all_ranks(TIMERS)
    (steps,) = read(tmp_path, text).steps
    assert Section.FORWARD in steps.sections
    assert Section.BACKWARD_WALL in steps.sections


def test_without_the_job_s_arguments_nothing_is_taken_for_own_work(tmp_path: Path) -> None:
    reading = read(tmp_path, iteration(1, 420.0) + all_ranks(TIMERS))
    (steps,) = reading.steps
    assert {Section.FORWARD_WALL, Section.BACKWARD_WALL} <= set(steps.sections)
    assert not {Section.FORWARD, Section.BACKWARD} & set(steps.sections)
    assert any("arguments are not in it" in text for text in notes(reading, NoteKind.LIMITED))


@pytest.mark.parametrize(
    "shown", ["", arguments(**PLAIN), arguments(**{**PLAIN, "barrier_with_L1_time": True})]
)
def test_timers_of_level_1_give_no_own_work_that_waiting_for_gradients_could_be_taken_from(
    tmp_path: Path, shown: str
) -> None:
    """Waiting for stages and inside of layers is in forward-backward: the iteration less one timer is no rank's work."""
    level_1 = {name: TIMERS[name] for name in ("forward-backward", "all-grads-sync", "optimizer")}
    text = shown + "".join(iteration(step, 420.0) + all_ranks(level_1) for step in (1, 2, 3))
    reading = read(tmp_path, text)
    (steps,) = reading.steps
    assert set(steps.sections) == {Section.STEP}
    (limit,) = [note for note in reading.notes if "level 1" in note.text]
    assert "--timing-log-level 2 --timing-log-option all" in (limit.how or "")


def test_copies_of_the_optimizer_are_own_work_at_level_1_too(tmp_path: Path) -> None:
    level_1 = {name: TIMERS[name] for name in ("forward-backward", "all-grads-sync", "optimizer-inner-step")}
    (steps,) = read(tmp_path, iteration(1, 420.0) + all_ranks(level_1)).steps
    assert set(steps.sections) == {Section.STEP, Section.OPTIMIZER}


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[default0]:",
        "[rank0]: ",
        "0: ",
        "node-1: ",
        "[2025-08-01 07:19:37] ",
        "2025-08-01 07:19:37,123 ",
        "Aug  1 07:19:37 ",
        "2025-08-01T07:19:37.123456789Z stdout F ",
    ],
)
@pytest.mark.parametrize("name", ["  ", "args."])
def test_arguments_are_found_behind_prefixes_and_wherever_they_stand(
    tmp_path: Path, prefix: str, name: str
) -> None:
    shown = arguments(**PLAIN).replace("\n  ", f"\n{name}")
    text = "a first line\n" * 50 + shown + "> building the tokenizer\n"
    text += "".join(iteration(step, 420.0) + all_ranks(TIMERS) for step in (1, 2, 3))
    reading = read(tmp_path, "".join(f"{prefix}{line}\n" for line in text.splitlines()))
    (steps,) = reading.steps
    assert {Section.FORWARD, Section.BACKWARD, Section.DATA} <= set(steps.sections)
    assert steps.ranks == (0, 1, 2, 3) and steps.num_steps == 3


@pytest.mark.parametrize("dots", [1, 2, 6, 22, 60])
def test_any_number_of_dots_will_do(tmp_path: Path, dots: int) -> None:
    lines = [f"  tensor_model_parallel_size {'.' * dots} 2\n"]
    reading = read(tmp_path, "".join(lines) + iteration(1, 420.0) + all_ranks(TIMERS))
    assert any("tensor parallel 2" in text for text in notes(reading, NoteKind.LIMITED))


def test_arguments_that_are_lacking_are_named(tmp_path: Path) -> None:
    text = "using world size: 4, data-parallel size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n"
    reading = read(tmp_path, text + iteration(1, 420.0) + all_ranks(TIMERS))
    (note,) = [text for text in notes(reading, NoteKind.LIMITED) if "lack" in text]
    assert "context_parallel_size, expert_model_parallel_size" in note and "overlap_grad_reduce" in note
    assert " tensor_model_parallel_size" not in note
    assert Section.FORWARD_WALL in reading.steps[0].sections


def test_a_dump_whose_beginning_is_cut_off_does_not_prove_that_there_is_no_context_parallelism(
    tmp_path: Path,
) -> None:
    whole = arguments(**{name: value for name, value in PLAIN.items() if name != "context_parallel_size"})
    cut = whole[whole.index("  some_option_0 ") :]
    reading = read(tmp_path, cut + iteration(1, 420.0) + all_ranks(TIMERS))
    assert Section.FORWARD_WALL in reading.steps[0].sections
    assert any("lack context_parallel_size" in text for text in notes(reading, NoteKind.LIMITED))


def test_the_configuration_of_deepspeed_is_not_taken_for_a_whole_dump(tmp_path: Path) -> None:
    lines = [
        f"[2023-11-29 08:51:11,653] [INFO] [config.py:978:print]   {name} {'.' * 20} 16\n"
        for name in ["activation_checkpointing_config", "world_size", *(f"zero_{i}" for i in range(60))]
    ]
    reading = read(tmp_path, "".join(lines) + iteration(1, 420.0) + all_ranks(TIMERS))
    assert Section.FORWARD_WALL in reading.steps[0].sections


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expert_model_parallel_size", 2),
        ("context_parallel_size", 2),
        ("use_torch_fsdp2", True),
        ("overlap_param_gather", True),
        ("ds_sequence_parallel_size", 2),
        ("zero_stage", 3),
    ],
)
def test_what_puts_collectives_into_forward_makes_it_a_wall(tmp_path: Path, name: str, value: object) -> None:
    text = arguments(**{**PLAIN, name: value}) + iteration(1, 420.0) + all_ranks(TIMERS)
    (steps,) = read(tmp_path, text).steps
    assert {Section.FORWARD_WALL, Section.BACKWARD_WALL} <= set(steps.sections)


@pytest.mark.parametrize(
    ("shown", "is_told"),
    [
        ({"tensor_model_parallel_size": 2}, True),
        ({"tensor_model_parallel_size": 4}, False),
        ({"tensor_model_parallel_size": 2, "context_parallel_size": 2}, False),
        ({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}, False),
        ({"use_megatron_fsdp": True}, False),
        ({"zero_stage": 3}, False),
    ],
)
def test_where_all_peers_wait_inside_of_forward_the_step_less_other_waiting_is_no_work(
    tmp_path: Path, shown: dict[str, object], is_told: bool
) -> None:
    """One group of all ranks of a stage, or parameters gathered from all: whoever is slow, all take as long."""
    text = arguments(**{**PLAIN, **shown}) + iteration(1, 420.0) + all_ranks(TIMERS)
    (steps,) = read(tmp_path, text).steps
    assert (Section.COMM in steps.sections) is is_told


def test_without_arguments_communication_is_told_as_it_is_printed(tmp_path: Path) -> None:
    (steps,) = read(tmp_path, iteration(1, 420.0) + all_ranks(TIMERS)).steps
    assert Section.COMM in steps.sections


def test_behind_a_barrier_collectives_are_transfer_and_the_waiting_is_said_to_be_unseen(
    tmp_path: Path,
) -> None:
    text = arguments(**{**PLAIN, "barrier_with_L1_time": True}) + iteration(1, 420.0) + all_ranks(TIMERS)
    reading = read(tmp_path, text)
    (steps,) = reading.steps
    assert Section.TRANSFER in steps.sections
    assert Section.COMM not in steps.sections
    assert any("barrier" in text for text in notes(reading, NoteKind.LIMITED))


def test_sending_between_pipeline_stages_is_communication_and_not_forward(tmp_path: Path) -> None:
    timers = {
        "forward-compute": [100.0, 101.0],
        "forward-recv": [0.0, 30.0],
        "backward-send-forward-recv": [7.0, 8.0],
    }
    place = {**PLAIN, "world_size": 2, "pipeline_model_parallel_size": 2}
    (steps,) = read(tmp_path, arguments(**place) + iteration(1, 420.0) + all_ranks(timers)).steps
    assert steps.sections[Section.COMM][:, 0].tolist() == [7.0, 38.0]
    assert steps.sections[Section.FORWARD][:, 0].tolist() == [100.0, 101.0]
    assert [place.coords["pp"] for place in steps.places] == [0, 1]


def test_timers_over_an_interval_are_said_to_be_means(tmp_path: Path) -> None:
    text = arguments(**PLAIN) + "".join(iteration(step, 420.0) + all_ranks(TIMERS) for step in (10, 20, 30))
    assert any("mean over 10 iterations" in text for text in notes(read(tmp_path, text), NoteKind.LIMITED))


def test_a_rank_that_is_missing_is_named(tmp_path: Path) -> None:
    reading = read(
        tmp_path, arguments(**{**PLAIN, "world_size": 6}) + iteration(1, 420.0) + all_ranks(TIMERS)
    )
    assert "4-5" in notes(reading, NoteKind.MISSING_RANKS)[0]


def test_lines_of_other_processes_within_a_block_do_no_harm(tmp_path: Path) -> None:
    block = all_ranks(TIMERS).replace("     rank  1:", "[W socket.cpp:601] a warning\n     rank  1:")
    (steps,) = read(tmp_path, arguments(**PLAIN) + iteration(1, 420.0) + block).steps
    assert steps.sections[Section.BACKWARD][:, 0].tolist() == TIMERS["backward-compute"]


def test_an_absurd_rank_is_left_out(tmp_path: Path) -> None:
    block = all_ranks(TIMERS) + f"     rank {10**8}: 1.00\n     rank {10**18}: 1.00\n"
    (steps,) = read(tmp_path, arguments(**PLAIN) + iteration(1, 420.0) + block).steps
    assert steps.ranks == (0, 1, 2, 3)


def straggler_line(low: float, high: float, etpt: float = 297.3) -> str:
    return (
        f" 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: {low:.2f}ms/8 | MxRtt/Rnk: {high:.2f}ms/3 | "
        "MnPwr/Rnk: 601796.00W/8 | MxPwr/Rnk: 683801.00W/18 | MnClk/Rnk: 1200.00MHz/3 | MxClk/Rnk: 1980.00MHz/0 | "
        f"MnDRtt/Rnk: 14.27ms/23 | MxDRtt/Rnk: 34.65ms/3 | MnEtpt/Rnk: 296.02TF/3 | MxEtpt/Rnk: {etpt:.2f}TF/8\n"
    )


def test_straggler_lines_are_extremes_with_ranks(tmp_path: Path) -> None:
    text = (
        iteration(10, 420.0)
        + straggler_line(300.0, 330.0)
        + iteration(20, 420.0)
        + straggler_line(301.0, 340.0)
    )
    reading = read(tmp_path, text)
    by_name = {each.name: each for each in reading.extremes}
    trip = by_name["round trip"]
    assert trip.steps.tolist() == [10, 20]
    assert (trip.low.tolist(), trip.high.tolist()) == ([300.0, 301.0], [330.0, 340.0])
    assert trip.low_rank is not None
    assert trip.high_rank is not None
    assert (trip.low_rank.tolist(), trip.high_rank.tolist()) == ([8, 8], [3, 3])
    assert not by_name["estimated throughput"].more_is_worse
    assert "power" not in " ".join(by_name)
    assert not reading.claims


def test_an_estimated_throughput_that_ran_away_is_left_out_and_named(tmp_path: Path) -> None:
    reading = read(tmp_path, straggler_line(300.0, 330.0, etpt=147_000.0) + straggler_line(300.0, 330.0))
    etpt = next(each for each in reading.extremes if each.name == "estimated throughput")
    assert etpt.high.tolist() == [297.3]
    assert "147,000" in notes(reading, NoteKind.DROPPED_VALUES)[0]


def test_a_slow_rank_of_the_sniff_test_is_a_claim_and_a_fast_one_is_not(tmp_path: Path) -> None:
    text = (
        "  GEMM throughput (8192x8192x8192, bf16) [TFLOP/s/GPU]: median=701.20, mean=698.10, min=611.00, max=790.00\n"
        "    OUTLIER rank 3 (gpu-host-7): 611.00 (-12.9%)\n"
        "    OUTLIER rank 5 (gpu-host-7): 790.00 (+12.7%)\n"
        "  Result: OUTLIERS DETECTED\n"
    )
    (claim,) = read(tmp_path, text).claims
    assert (claim.ranks, claim.hosts, claim.line) == ((3,), ("gpu-host-7",), 2)
    assert claim.scores[3] == pytest.approx(-0.129)
    assert "12.9%" in claim.text
    assert "10 %" in claim.rule
