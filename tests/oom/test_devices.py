"""Advice names the tools of the device that refused memory."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest

from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.messages.from_files import events_from_text
from distdoctor.report.request import ReportRequest
from oom.oom_texts import (
    EVALUATES,
    IN_BACKWARD,
    IN_FOREACH,
    IN_LOSS,
    IN_MLP,
    IN_STATES,
    MOVES_MODEL,
    SAVES,
    modern,
    mps,
    traceback,
)

XPU = (
    modern(
        "448.00 MiB", "63.98 GiB", "220.56 MiB", "62.02 GiB", "1.05 GiB", process="63.70 GiB", device="XPU"
    ),
    modern(
        "448.00 MiB", "63.98 GiB", "220.56 MiB", "30.02 GiB", "32.05 GiB", process="63.70 GiB", device="XPU"
    ),
    modern("448.00 MiB", "63.98 GiB", "220.56 MiB", "30.02 GiB", "1.05 GiB", device="XPU"),
    modern("448.00 MiB", "63.98 GiB", "30.56 GiB", "30.02 GiB", "1.05 GiB", device="XPU"),
    modern("448.00 MiB", "63.98 GiB", "0.56 GiB", "30.02 GiB", "1.05 GiB", process="63.00 GiB", device="XPU"),
    modern("98.00 GiB", "63.98 GiB", "30.56 GiB", "30.02 GiB", "1.05 GiB", device="XPU"),
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB",
)
MPS = (
    mps("17.20 GB", "384.00 KB", "18.13 GB", "1.10 GB"),
    mps("7.20 GB", "10.00 GB", "18.13 GB", "1.10 GB"),
    mps("7.20 GB", "1.00 GB", "18.13 GB", "30.10 GB"),
)
WHERE = ((), IN_MLP, IN_LOSS, IN_BACKWARD, IN_FOREACH, IN_STATES, EVALUATES, MOVES_MODEL, SAVES)
_OF_NVIDIA = re.compile(r"torch\.cuda|nvidia|more sharding|PYTORCH_CUDA|CUDA_VISIBLE|\bCUDA\b", re.IGNORECASE)


def advice(text: str) -> str:
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    report = explain_report(request, events_from_text("job.log", text))
    told = [f"{a.text} {a.command or ''}" for each in report.findings for a in each.actions]
    told += [each.explanation for each in report.findings]
    told += [each.how or "" for each in report.skipped]
    told += [each.how or "" for each in report.missing_evidence]
    return "\n".join(told)


@pytest.mark.parametrize("before", ["", *(f"step {number} | loss 2.1\n" for number in (1, 2, 30))])
@pytest.mark.parametrize("frames", WHERE)
@pytest.mark.parametrize("message", [*XPU, *MPS])
def test_nothing_of_nvidia_is_advised_elsewhere(
    message: str, frames: tuple[tuple[str, str, str], ...], before: str
) -> None:
    found = _OF_NVIDIA.search(advice(before + (traceback(*frames) if frames else "") + message))
    assert found is None, found


def test_the_devices_own_tools_are_named() -> None:
    assert "xpu-smi" in advice(XPU[2])
    later = "".join(f"step {number} | loss 2.1\n" for number in range(1, 9))
    assert "torch.xpu.memory_summary" in advice(later + traceback(*IN_BACKWARD) + XPU[0])
    assert "torch.mps.current_allocated_memory" in advice(later + traceback(*IN_BACKWARD) + MPS[0])


def test_on_nvidia_the_words_stay() -> None:
    told = advice(
        modern("448.00 MiB", "79.15 GiB", "220.56 MiB", "78.02 GiB", "1.05 MiB", process="78.92 GiB")
    )
    assert "more sharding" in told
    assert "torch.cuda.memory._record_memory_history" in told
