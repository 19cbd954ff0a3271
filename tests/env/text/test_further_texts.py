"""Texts that were once judged wrongly: images that inherit NCCL_VERSION, health of the fabric, two hosts' dumps."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from distdoctor.env.build import Request
from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import run_checks
from distdoctor.env.checks.job import JOB_CHECKS, job_differences
from distdoctor.env.from_text import facts_from_text, members_of
from distdoctor.env.text_report import report_from_text
from distdoctor.explain import best_reader
from distdoctor.report.model import Confidence, Finding, Severity, Status

DUMP = """Collecting environment information...
PyTorch version: {torch}
Is debug build: False
CUDA used to build PyTorch: {cuda}
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
Python version: 3.10.12 (64-bit runtime)
Is CUDA available: True
GPU models and configuration:
GPU 0: {gpu}
GPU 1: {gpu}

Nvidia driver version: {driver}

Versions of relevant libraries:
[pip3] numpy=={numpy}
[pip3] nvidia-nccl-cu12=={nccl}
[pip3] torch=={torch}
[conda] Could not collect
{end}"""


def dump(
    *,
    torch: str = "2.7.1+cu128",
    cuda: str = "12.8",
    gpu: str = "NVIDIA H100 80GB HBM3",
    driver: str = "570.133.20",
    nccl: str = "2.26.2",
    numpy: str = "2.2.6",
    end: str = "",
) -> str:
    return DUMP.format(torch=torch, cuda=cuda, gpu=gpu, driver=driver, nccl=nccl, numpy=numpy, end=end)


def findings(text: str) -> list[Finding]:
    (facts,) = facts_from_text(text, "x")
    return list(run_checks(ENV_CHECKS, facts)[0])


def one(text: str, check: str) -> Finding:
    (found,) = [each for each in findings(text) if each.id == check]
    return found


def test_an_inherited_nccl_version_is_no_warning() -> None:
    found = one(dump(end="NCCL_VERSION=2.25.1-1\n"), "nccl-not-the-pinned-one")
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)
    package = "NCCL_VERSION=2.25.1-1\nNV_LIBNCCL_PACKAGE_VERSION=2.25.1-1\n"
    assert one(dump(end=package), "nccl-not-the-pinned-one").severity is Severity.WARNING


@pytest.mark.parametrize(("driver", "tag"), [("570.133.20", "cu128"), ("580.95.05", "cu130")])
def test_the_wheel_that_is_advised_runs_on_the_driver(driver: str, tag: str) -> None:
    text = dump(torch="2.7.0+cu126", cuda="12.6", gpu="NVIDIA B200", driver=driver)
    found = one(text, "torch-gpu-arch")
    assert found.confidence is Confidence.MEDIUM
    assert (found.actions[0].command or "").endswith(tag)


FABRIC = """
==============NVSMI LOG==============

Driver Version                            : 570.133.20
Attached GPUs                             : 1
GPU 00000008:01:00.0
    Product Name                          : NVIDIA GB200
    Fabric
        State                             : Completed
        Status                            : {status}
        CliqueId                          : 32766
        ClusterUUID                       : dc6e40c4-d722-4357-9ba6-5291dd461278
        Health
            Summary                       : {summary}
            Bandwidth                     : Full
"""


def test_an_unhealthy_fabric_is_read() -> None:
    text = FABRIC.format(status="Success", summary="Unhealthy")
    assert one(text, "gpu-fabric").severity is Severity.CRITICAL
    for fine in ("Healthy", "N/A", "Not Supported"):
        assert findings(FABRIC.format(status="Success", summary=fine)) == []


def test_a_failed_registration_is_worded_and_no_local_manager_is_restarted_on_a_rack() -> None:
    found = one(FABRIC.format(status="Insufficient Resources", summary="N/A"), "gpu-fabric")
    assert found.evidence[0].text == "fabric status: insufficient resources"
    assert "systemctl" not in (found.actions[0].command or "")


def test_a_fabric_manager_that_came_up_again_is_active() -> None:
    failed = (
        "Mar 11 04:10:23 dgx-07 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n"
    )
    started = "Mar 11 04:12:41 dgx-07 systemd[1]: Started nvidia-fabricmanager.service - NVIDIA fabric manager service.\n"
    for text, state in ((failed + started, "active"), (started + failed, "failed")):
        gpus = [each.gpus for each in facts_from_text(text, "x") if each.gpus is not None]
        assert [each.fabric_manager for each in gpus] == [state]


def test_nccl_comes_first_among_what_two_hosts_differ_in() -> None:
    hosts = [
        *facts_from_text(dump(), "node-01.txt"),
        *facts_from_text(dump(nccl="2.27.3", numpy="2.2.5", driver="570.86.15"), "node-02.txt"),
    ]
    members = members_of(hosts)
    differences = job_differences(members)
    assert differences[0].key == "python.distributions.nvidia-nccl-cu12"
    check = next(each for each in JOB_CHECKS if each.id == "job-versions-differ")
    outcomes = check.run(members, differences)
    titles = [getattr(each, "title", "") for each in outcomes]
    assert "hosts" in titles[0] and "python.distributions" not in " ".join(titles)


def test_a_text_that_no_check_can_judge_is_no_clean_bill(tmp_path: Path) -> None:
    path = tmp_path / "netdevs.txt"
    path.write_text("mlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 ==> ib1 (Down)\n")
    report = report_from_text(
        Request(command="explain", argv=(), checks=ENV_CHECKS, started=datetime.now(timezone.utc)),
        [str(path)],
    )
    assert report.verdict.status is Status.UNKNOWN


def test_what_a_text_shows_as_switched_off_leaves_no_record_of_a_hang() -> None:
    found = one(dump(end="TORCH_NCCL_TRACE_BUFFER_SIZE=0\n"), "hang-evidence")
    assert "switched off" in found.explanation
    assert not [each for each in findings(dump(end="NCCL_DEBUG=WARN\n")) if each.id == "hang-evidence"]


@pytest.mark.parametrize(
    "header",
    [
        "index, name, clocks_throttle_reasons.hw_slowdown, temperature.gpu",
        "timestamp, name, memory.used [MiB], power.draw [W]",
        "index, ecc.errors.uncorrected.volatile.total",
    ],
)
def test_a_query_of_nvidia_smi_is_known_by_its_header(header: str) -> None:
    reader = best_reader("x.csv", header.encode())
    assert reader is not None and reader.name == "env"


def test_the_count_of_link_losses_agrees_with_the_downs_that_a_reader_counts() -> None:
    text = "".join(
        f"[Thu Jan  9 21:{minute}:11 2025] mlx5_core 0000:86:00.0 ens5np0: Link {word}\n"
        for minute, word in ((10, "down"), (11, "up"), (24, "down"), (25, "up"), (40, "down"), (41, "up"))
    )
    found = one(text, "kernel-nic")
    assert found.title == "Link of ens5np0 went down 2 times"
    assert "3 downs in the log" in found.evidence[-1].text
