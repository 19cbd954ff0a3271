"""One rank of many that runs out: imbalance is named before the whole job is made smaller."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.messages.from_files import events_from_text
from distdoctor.report.model import Confidence, Report
from distdoctor.report.request import ReportRequest
from oom.oom_texts import IN_MLP, MOVES_MODEL, modern, prefixed, traceback

OOM = modern("448.00 MiB", "79.15 GiB", "220.56 MiB", "78.02 GiB", "1.05 MiB", process="78.92 GiB")
EXPERTS = (
    (
        "megatron/core/transformer/moe/experts.py",
        "forward",
        "fc1_output = gg.ops.gmm(hidden, self.weight1, tokens_per_expert)",
    ),
)
ROUTED = (
    (
        "transformers/models/mixtral/modeling_mixtral.py",
        "forward",
        "final = self.block_sparse_moe.experts[i](state)",
    ),
)
WORLD = "world_size: 16\nstep 12 | loss 2.1\n"


def report_of(*texts: str) -> Report:
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    return explain_report(request, events_from_text("job.log", "\n".join(texts)))


def failed(rank: int, frames: tuple[tuple[str, str, str], ...]) -> str:
    return prefixed(f"[rank{rank}]: ", (traceback(*frames) if frames else "") + OOM)


def advice(report: Report) -> str:
    return next(
        " ".join(action.text for action in each.actions)
        for each in report.findings
        if each.id == "oom-capacity"
    )


@pytest.mark.parametrize("frames", [(), IN_MLP, EXPERTS, ROUTED])
def test_one_rank_of_many_names_imbalance(frames: tuple[tuple[str, str, str], ...]) -> None:
    report = report_of(WORLD, failed(5, frames))
    told = advice(report)
    for word in ("imbalance", "expert routing", "longest sequence", "stage"):
        assert word in told
    assert told.startswith("imbalance between ranks first")
    before_equal = told.partition("only where all ranks hold the same")[0]
    assert "micro-batch" not in before_equal.replace("micro-batches in flight", "")
    assert report.verdict.confidence is not Confidence.HIGH


@pytest.mark.parametrize("frames", [EXPERTS, ROUTED])
def test_words_of_experts_are_enough_without_the_number_of_ranks(
    frames: tuple[tuple[str, str, str], ...],
) -> None:
    told = advice(report_of("step 12 | loss 2.1\n", failed(5, frames)))
    assert told.startswith("imbalance between ranks first; expert routing")


def test_all_ranks_are_no_imbalance() -> None:
    text = [failed(rank, IN_MLP) for rank in range(4)]
    told = advice(report_of("world_size: 4\nstep 12 | loss 2.1\n", *text))
    assert "imbalance" not in told


@pytest.mark.parametrize("frames", [(), IN_MLP])
def test_without_the_number_of_ranks_one_message_is_no_imbalance(
    frames: tuple[tuple[str, str, str], ...],
) -> None:
    assert "imbalance" not in advice(report_of("step 12 | loss 2.1\n", failed(0, frames)))


def test_at_start_ranks_do_the_same() -> None:
    report = report_of("world_size: 16\n", failed(0, MOVES_MODEL))
    assert "imbalance" not in advice(report)


@pytest.mark.parametrize("word", ["remove_server.py", "commoedore.py", "expertise.py"])
def test_words_that_only_look_like_experts(word: str) -> None:
    frames = ((word, "forward", "y = self.fc(x)"),)
    assert "imbalance" not in advice(report_of("step 12 | loss 2.1\n", failed(0, frames)))
