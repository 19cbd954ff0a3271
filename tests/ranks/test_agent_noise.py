"""What torchrun says after a report is kept from people; what ranks say is not, however late it is read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from distdoctor.ranks.agent_noise import AgentListener

RANKS = b"error: --backend nccl: torch was built without NCCL\n"
AGENT = (
    b"W1130 09:51:12.493000 3052 torch/distributed/elastic/multiprocessing/api.py:1028] Sending SIGTERM\n"
    b"Traceback (most recent call last):\n"
    b'  File "torchrun", line 8, in <module>\n'
    b"distdoctor FAILED\n"
)


@pytest.mark.parametrize("report_is_out", [True, False])
def test_a_ranks_words_pass_and_the_agents_only_without_a_report(
    report_is_out: bool, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    said, status = tmp_path / "said", tmp_path / "status"
    said.write_bytes(RANKS + AGENT)
    if report_is_out:
        status.write_text("2\n")
    with subprocess.Popen(["cat", str(said)], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # A rank's standard error and torchrun's are one pipe to us.
        process.stderr, process.stdout = process.stdout, process.stderr
        listener = AgentListener(process, status)
        process.wait()
        listener.finish()
    shown = capfdbinary.readouterr().err
    assert shown.startswith(RANKS)
    assert (b"distdoctor FAILED" in shown) is not report_is_out
