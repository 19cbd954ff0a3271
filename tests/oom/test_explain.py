"""What `oom explain` says of messages: the cause, whose it is, and only fixes that the numbers support."""

from __future__ import annotations

import importlib.util
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType

import pytest

from distdoctor.errors import InputError
from distdoctor.oom.checks.explain.all import EXPLAIN_CHECKS
from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.explain.changes import explain_changes
from distdoctor.oom.messages.from_files import events_from_files, events_from_text
from distdoctor.report.model import CheckState, Report, Severity, Status
from distdoctor.report.request import ReportRequest
from oom.oom_texts import (
    ADVICE_OLD,
    EVALUATES,
    FULL,
    GATHERS,
    IN_BACKWARD,
    IN_FOREACH,
    IN_LOSS,
    IN_MLP,
    IN_STATES,
    MOVES_MODEL,
    PINS,
    SAVES,
    SETS_DEVICE,
    cuda_async,
    legacy,
    modern,
    mps,
    prefixed,
    torchrun_table,
    traceback,
)

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "cases" / "oom_logs"


def report_of(text: str, **options: object) -> Report:
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    return explain_report(request, events_from_text("job.log", text), **options)  # type: ignore[arg-type]


def state_of(report: Report, check_id: str) -> CheckState:
    return next(each.state for each in report.checks if each.id == check_id)


def actions_of(report: Report) -> str:
    return "\n".join(
        f"{action.text} {action.command or ''}" for each in report.findings for action in each.actions
    )


def benchmark() -> ModuleType:
    specification = importlib.util.spec_from_file_location("oom_cases", ROOT / "benchmarks" / "oom_cases.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    import sys

    sys.modules["oom_cases"] = module
    specification.loader.exec_module(module)
    return module


PEERS = tuple((100 + number, "1.10 GiB") for number in range(7))
BARE_DRIVER = "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call\n"
ZERO3 = '{"zero_optimization": {"stage": 3}}\n'

# (cause class, id of the check that tells it, message)
CASES = (
    ("capacity", "oom-capacity", FULL),
    ("capacity", "oom-capacity", legacy("162.00 MiB", "39.59 GiB", "38.01 GiB", "46.19 MiB", "38.05 GiB")),
    (
        "capacity",
        "oom-capacity",
        modern(
            "158.00 MiB", "23.69 GiB", "115.69 MiB", "22.14 GiB", "910.35 MiB", others=((214, "23.57 GiB"),)
        ),
    ),
    ("capacity", "oom-capacity", modern("1002.00 MiB", "8.00 GiB", "0 bytes", "13.98 GiB", "129.48 MiB")),
    ("capacity", "oom-capacity", cuda_async("22.16 GiB", "512.00 MiB", "23.57 GiB", "101.00 MiB")),
    ("capacity", "oom-capacity", mps("17.20 GiB", "4.00 MiB", "18.13 GiB", "1.00 GiB")),
    ("capacity", "oom-capacity", "torch.OutOfMemoryError: CUDA out of memory."),
    ("capacity:logits", "oom-capacity", traceback(*IN_LOSS) + FULL),
    (
        "capacity:logits",
        "oom-capacity",
        "vocab_size: 128256\n"
        + traceback(*IN_BACKWARD)
        + modern("7.83 GiB", "79.15 GiB", "1.20 GiB", "75.00 GiB", "612.20 MiB", process="77.90 GiB"),
    ),
    ("capacity:activations", "oom-capacity", traceback(*IN_MLP) + FULL),
    (
        "capacity:cublas-workspace",
        "oom-workspace",
        traceback(*IN_BACKWARD)
        + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    (
        "fragmentation",
        "oom-fragmentation",
        modern("2.25 GiB", "63.29 GiB", "1.82 GiB", "22.97 GiB", "36.00 GiB", process="61.46 GiB"),
    ),
    (
        "fragmentation",
        "oom-fragmentation",
        legacy("152.00 MiB", "31.72 GiB", "25.10 GiB", "6.12 MiB", "30.60 GiB"),
    ),
    (
        "other-process",
        "oom-other-process",
        modern(
            "86.00 MiB",
            "23.64 GiB",
            "20.00 MiB",
            "7.63 GiB",
            "40.11 MiB",
            process="8.04 GiB",
            others=((5, "15.50 GiB"),),
        ),
    ),
    (
        "other-process",
        "oom-other-process",
        legacy("22.00 MiB", "60.97 GiB", "10.24 GiB", "19.52 MiB", "10.65 GiB", device="NPU"),
    ),
    ("other-process", "oom-other-process", traceback(*SETS_DEVICE) + BARE_DRIVER),
    (
        "other-process:peer-ranks",
        "oom-other-process",
        modern(
            "52.00 MiB",
            "31.74 GiB",
            "39.62 MiB",
            "22.54 GiB",
            "677.26 MiB",
            process="24.00 GiB",
            others=PEERS,
        ),
    ),
    (
        "process-cap",
        "oom-process-cap",
        modern("512.00 MiB", "79.15 GiB", "40.00 GiB", "38.90 GiB", "427.46 MiB", allowed="39.57 GiB"),
    ),
    (
        "process-cap",
        "oom-process-cap",
        modern(
            "64.00 MiB",
            "79.15 GiB",
            "38.09 GiB",
            "39.10 GiB",
            "430.00 MiB",
            process="41.06 GiB",
            capacity="capacty",
        ),
    ),
    (
        "process-cap",
        "oom-process-cap",
        cuda_async("9.70 GiB", "512.00 MiB", "23.57 GiB", "13.12 GiB", "10.00 GiB"),
    ),
    (
        "single-request>capacity",
        "oom-request-too-large",
        modern("31.25 GiB", "8.00 GiB", "3.66 GiB", "2.86 GiB", "424.57 MiB"),
    ),
    ("single-request>capacity", "oom-request-too-large", "RuntimeError: Invalid buffer size: 58.07 GB"),
    (
        "wrong-visible-capacity",
        "oom-wrong-capacity",
        modern("14.00 GiB", "13.37 GiB", "13.20 GiB", "0 bytes", "0 bytes", device="HIP"),
    ),
    (
        "wrong-visible-capacity",
        "oom-wrong-capacity",
        "device: NVIDIA A100-SXM4-80GB\n"
        + modern("224.00 MiB", "19.50 GiB", "101.00 MiB", "19.01 GiB", "12.00 MiB", process="19.38 GiB"),
    ),
    (
        "not-capacity:driver-limit",
        "oom-driver-limit",
        modern("2.00 MiB", "191.98 GiB", "103.49 GiB", "72.63 GiB", "14.93 GiB", device="HIP"),
    ),
    ("sharding-ineffective", "oom-sharding", traceback(*GATHERS) + FULL),
    ("not-sharded:parameters", "oom-sharding", ZERO3 + traceback(*MOVES_MODEL) + FULL),
    ("optimizer-step:foreach", "oom-optimizer-step", traceback(*IN_FOREACH) + FULL),
    ("optimizer-step", "oom-optimizer-step", traceback(*IN_STATES) + FULL),
    (
        "nccl-buffers",
        "oom-nccl-buffers",
        "n1:31:77 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\nn1:31:77 [3] NCCL WARN Failed to CUDA calloc 10485760 bytes\n",
    ),
    (
        "non-torch-or-async-pool",
        "oom-outside-pool",
        cuda_async("10.24 GiB", "114.00 MiB", "23.57 GiB", "16.12 MiB"),
    ),
    (
        "non-torch-or-async-pool",
        "oom-outside-pool",
        modern("128.00 MiB", "79.33 GiB", "16.00 MiB", "59.59 GiB", "118.90 MiB", process="79.29 GiB"),
    ),
    ("other-allocations", "oom-outside-pool", mps("9.57 GiB", "17.35 GiB", "27.20 GiB", "300.00 MiB")),
    ("host-ram", "oom-host-memory", torchrun_table(11, 3, 4444)),
    ("host-ram", "oom-host-memory", "RuntimeError: DataLoader worker (pid 8) is killed by signal: Killed. "),
    ("host-ram", "oom-host-memory", "OSError: [Errno 12] Cannot allocate memory"),
    ("host-pinned", "oom-host-pinned", traceback(*PINS) + BARE_DRIVER),
    (
        "host:shm_full",
        "oom-host-shm",
        "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    ),
    (
        "secondary:corrupt-size",
        "oom-corrupt-size",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
    ),
    (
        "secondary:corrupt-size",
        "oom-corrupt-size",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 7310593858020254331 bytes.",
    ),
)


@pytest.mark.parametrize(("cause", "check", "text"), CASES)
def test_the_cause_is_told_by_its_check(cause: str, check: str, text: str) -> None:
    report = report_of(text)
    assert report.verdict.cause_class == cause
    assert report.verdict.status is Status.CRITICAL
    assert len(report.verdict.title) <= 80
    found = [each for each in report.findings if each.severity is Severity.CRITICAL]
    assert [(each.id, each.cause_class) for each in found] == [(check, cause)]
    assert found[0].evidence
    assert found[0].actions


@pytest.mark.parametrize(("cause", "check", "text"), CASES)
def test_no_advice_is_given_that_the_numbers_contradict(cause: str, check: str, text: str) -> None:
    report = report_of(text)
    words = actions_of(report)
    assert not benchmark().contradictions(report)
    if cause != "fragmentation":
        assert "expandable_segments" not in words


def test_every_check_is_silent_where_another_cause_is_certain() -> None:
    report = report_of(traceback(*IN_MLP) + FULL)
    for check in EXPLAIN_CHECKS:
        if check.id != "oom-capacity":
            assert state_of(report, check.id) is not CheckState.FOUND, check.id


def test_every_check_that_needs_sizes_says_when_they_are_missing() -> None:
    report = report_of("torch.OutOfMemoryError: CUDA out of memory.")
    for check_id in (
        "oom-other-process",
        "oom-process-cap",
        "oom-request-too-large",
        "oom-wrong-capacity",
        "oom-fragmentation",
        "oom-outside-pool",
        "oom-driver-limit",
        "oom-optimizer-step",
        "oom-sharding",
    ):
        assert state_of(report, check_id) is CheckState.SKIPPED, check_id
    assert [each.what for each in report.missing_evidence][:2] == [
        "what the GPU held when memory was refused",
        "the phase of the job",
    ]


def test_what_does_not_concern_the_host_or_a_gpu_is_not_applicable() -> None:
    on_gpu = report_of(FULL)
    for check_id in (
        "oom-host-memory",
        "oom-host-pinned",
        "oom-host-shm",
        "oom-nccl-buffers",
        "oom-workspace",
    ):
        assert state_of(on_gpu, check_id) is CheckState.NOT_APPLICABLE, check_id
    on_host = report_of("OSError: [Errno 12] Cannot allocate memory")
    for check_id in ("oom-capacity", "oom-fragmentation", "oom-other-process", "oom-corrupt-size"):
        assert state_of(on_host, check_id) is CheckState.NOT_APPLICABLE, check_id


def test_which_call_pinned_memory_must_be_seen() -> None:
    assert state_of(report_of(BARE_DRIVER), "oom-host-pinned") is CheckState.SKIPPED
    assert report_of(BARE_DRIVER).verdict.confidence.value == "low"


def test_the_first_line_says_how_much_is_missing_in_which_phase_and_for_whom() -> None:
    text = prefixed("[rank3]: ", "  0%|          | 0/500 [00:00<?, ?it/s]\n" + traceback(*IN_BACKWARD) + FULL)
    title = report_of(text).verdict.title
    assert title == "the job's own tensors fill the GPU: 302 MiB short, first backward, rank 3"


def test_in_initialisation_no_batch_is_spoken_of() -> None:
    words = actions_of(report_of(traceback(*MOVES_MODEL) + FULL))
    assert "micro-batch" not in words
    assert "batch size" not in words


@pytest.mark.parametrize(
    ("frames", "word"), [(EVALUATES, "eval_accumulation_steps"), (SAVES, "SHARDED_STATE_DICT")]
)
def test_advice_fits_the_phase(frames: tuple[tuple[str, str, str], ...], word: str) -> None:
    assert word in actions_of(report_of(traceback(*frames) + FULL))


def test_expandable_segments_that_are_on_are_not_advised_again() -> None:
    text = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" + modern(
        "2.25 GiB", "63.29 GiB", "1.82 GiB", "22.97 GiB", "36.00 GiB", process="61.46 GiB"
    )
    words = actions_of(report_of(text))
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" not in words
    assert "on already" in words


def test_slack_of_the_pool_is_no_fragmentation() -> None:
    report = report_of(
        modern("138.00 MiB", "79.15 GiB", "8.44 MiB", "75.12 GiB", "2.40 GiB", process="79.00 GiB")
    )
    assert report.verdict.cause_class == "capacity"
    assert state_of(report, "oom-fragmentation") is CheckState.PASSED


def test_a_request_above_what_is_idle_is_no_fragmentation() -> None:
    report = report_of(
        modern("12.00 GiB", "79.15 GiB", "1.44 GiB", "66.12 GiB", "10.40 GiB", process="77.60 GiB")
    )
    assert report.verdict.cause_class == "capacity"


def test_this_process_seen_from_a_container_is_no_other_process() -> None:
    report = report_of(
        modern(
            "380.00 MiB", "23.64 GiB", "14.81 MiB", "22.83 GiB", "162.87 MiB", others=((2588, "23.62 GiB"),)
        )
    )
    assert report.verdict.cause_class == "capacity"
    assert state_of(report, "oom-other-process") is CheckState.PASSED


def test_a_small_other_process_is_named_without_being_blamed() -> None:
    report = report_of(
        modern(
            "138.00 MiB",
            "15.90 GiB",
            "8.44 MiB",
            "14.12 GiB",
            "410.41 MiB",
            process="15.32 GiB",
            others=((7, "577.00 MiB"),),
        )
    )
    assert report.verdict.cause_class == "capacity"
    assert report.verdict.confidence.value == "medium"
    assert "another process on the GPU" in report.findings[0].explanation


def test_a_limit_and_the_driver_are_both_named_where_neither_is_certain() -> None:
    report = report_of(modern("9.00 GiB", "79.15 GiB", "30.00 GiB", "40.00 GiB", "1.00 GiB"))
    assert report.verdict.confidence.value == "low"
    assert "a limit on the process" in report.findings[0].explanation


def test_a_rank_that_was_killed_after_gpu_memory_ran_out_is_a_consequence() -> None:
    text = prefixed("[rank0]: ", traceback(*IN_MLP) + FULL) + torchrun_table(5, 5, 91)
    report = report_of(text)
    assert report.verdict.cause_class == "capacity:activations"
    assert state_of(report, "oom-host-memory") is CheckState.PASSED


def test_a_kill_that_the_kernel_explains_counts_beside_gpu_memory() -> None:
    text = FULL + "\nslurmstepd: error: Detected 1 oom_kill event in StepId=9.0.\n"
    report = report_of(text)
    assert {each.cause_class for each in report.findings} == {"capacity", "host-ram"}


def test_the_rank_that_holds_more_is_named() -> None:
    even = modern("18.00 GiB", "79.15 GiB", "17.20 GiB", "60.40 GiB", "612.20 MiB", process="61.90 GiB")
    text = "".join(prefixed(f"[rank{rank}]: ", even) for rank in range(5)) + prefixed("[rank5]: ", FULL)
    report = report_of(text)
    uneven = next(each for each in report.findings if each.id == "oom-ranks")
    assert uneven.severity is Severity.WARNING
    assert uneven.scope.ranks == (5,)


def test_equal_ranks_are_not_called_uneven() -> None:
    text = "".join(prefixed(f"[rank{rank}]: ", FULL) for rank in range(8))
    report = report_of(text)
    assert state_of(report, "oom-ranks") is CheckState.PASSED
    assert report.findings[0].scope.ranks == tuple(range(8))
    assert "ranks 0-7" in report.verdict.title
    assert report.tables[0].rows[0][0] == "ranks 0-7"


def test_several_anonymous_messages_say_that_ranks_are_missing() -> None:
    other = legacy("274.00 MiB", "23.70 GiB", "21.95 GiB", "25.69 MiB", "22.28 GiB", gpu=1)
    assert state_of(report_of(f"{FULL}\n{other}\n"), "oom-ranks") is CheckState.SKIPPED


def test_the_events_are_a_table_for_programs() -> None:
    report = report_of(prefixed("[rank3]: ", FULL))
    table = next(each for each in report.tables if each.name == "oom-events")
    assert table.place == "data"
    row = dict(zip((column.name for column in table.columns), table.rows[0], strict=True))
    assert (row["rank"], row["requested"], row["cause"]) == (3, 512 << 20, "capacity")


def test_files_of_ranks_are_read_together(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank_{rank}.log").write_text(traceback(*IN_MLP) + FULL + "\n")
    folder = tmp_path / "attempt_0" / "4"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text(FULL)
    (tmp_path / "notes.txt").write_text("nothing of interest\n")
    facts, inputs = events_from_files([str(tmp_path)])
    assert sorted(event.rank for event in facts.events if event.rank is not None) == [0, 1, 2, 3]
    assert [event.local_rank for event in facts.events if event.rank is None] == [4]
    assert [file.read for file in inputs].count(False) == 1


def test_files_without_any_message_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text("all is well\n")
    with pytest.raises(InputError, match="holds no out-of-memory message"):
        events_from_files([str(file)])


def test_a_report_of_snapshots_is_added() -> None:
    beside = report_of(
        modern("2.25 GiB", "63.29 GiB", "1.82 GiB", "22.97 GiB", "36.00 GiB", process="61.46 GiB")
    )
    report = report_of(FULL, beside=beside)
    assert {each.cause_class for each in report.findings} == {"capacity", "fragmentation"}
    assert report.verdict.cause_class == "capacity"


def test_what_changed_between_two_failures_is_told() -> None:
    old = events_from_text("old.log", traceback(*IN_MLP) + FULL)
    new = events_from_text(
        "new.log",
        traceback(*IN_FOREACH)
        + FULL.replace("76.40 GiB", "71.10 GiB").replace("78.90", "73.60").replace("210.31 MiB", "5.40 GiB"),
    )
    rows = {what: differs for what, _, _, differs in explain_changes(old, new)}
    assert rows["cause"]
    assert rows["tensors"]
    assert not rows["size of the GPU"]
    report = report_of(FULL, was=old)
    changed = next(each for each in report.findings if each.id == "oom-changed")
    assert changed.severity is Severity.INFO
    assert report.tables[0].name == "oom-changes"


def test_an_equal_failure_is_called_the_same() -> None:
    report = report_of(FULL, was=events_from_text("old.log", FULL))
    changed = next(each for each in report.findings if each.id == "oom-changed")
    assert changed.title.startswith("the same failure")


@pytest.mark.skipif(not (SHARED / "index.json").is_file(), reason="no shared cases beside the project")
def test_known_messages_get_their_known_cause(capsys: pytest.CaptureFixture[str]) -> None:
    scored = benchmark().score(SHARED)
    for each in scored:
        print(f"{each.name}: {each.said} [{each.label}]")
    wrong = [f"{each.name}: {each.said}, not {each.label}" for each in scored if not each.is_right]
    assert wrong == []
    assert [words for each in scored for words in each.contradicted] == []


def test_advice_of_the_message_is_no_setting_of_the_job() -> None:
    facts = events_from_text("a.log", FULL + ADVICE_OLD)
    assert facts.hints.expandable_segments is None
