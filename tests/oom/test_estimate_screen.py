"""What stands on a screen of 80 x 24 when two estimates are asked for, or all of them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from rich.cells import cell_len

from distdoctor.oom.catalog.gpus import parse_cluster
from distdoctor.oom.estimate import estimate
from distdoctor.oom.estimate_build import estimate_report
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Adapter, Settings
from distdoctor.oom.variants import variants_of
from distdoctor.report.render.terminal import SCREEN_ROWS, render_terminal
from distdoctor.report.request import ReportRequest
from distdoctor.report.seal import seal


def screen(model: str, gpus: str, *, compare: bool, **said: object) -> list[str]:
    cluster = parse_cluster(gpus)
    job = resolve(Settings(model=preset(model), world_size=cluster.num_gpus, **said))  # type: ignore[arg-type]
    facts = EstimateFacts(
        job=job,
        estimate=estimate(job),
        cluster=cluster,
        variants=variants_of(job) if compare else (),
    )
    return render_terminal(
        seal(
            estimate_report(
                ReportRequest(command="oom-estimate", argv=(), started=datetime.now(timezone.utc)), facts
            )
        ),
        width=80,
    ).splitlines()


def test_a_fit_that_was_not_to_be_judged_is_not_judged_by_the_way() -> None:
    cluster = parse_cluster("8xa100-40gb")
    job = resolve(Settings(model=preset("llama3-70b"), world_size=8))
    only = ReportRequest(
        command="oom-estimate",
        argv=(),
        started=datetime.now(timezone.utc),
        only=frozenset(["oom-estimate-init"]),
    )
    report = estimate_report(only, EstimateFacts(job=job, estimate=estimate(job), cluster=cluster))
    assert report.verdict.title.startswith("whether it fits is left out here: needs 215 to ")


@pytest.mark.parametrize("gpus", ["8xa100-80gb", "64xh100-80gb", "2048xh100-80gb"])
@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x22b", "deepseek-v3"])
def test_side_by_side_the_screen_is_the_table(model: str, gpus: str) -> None:
    lines = screen(model, gpus, compare=True)
    assert len(lines) <= SCREEN_ROWS
    assert max(cell_len(line) for line in lines) <= 80
    assert any(line.startswith("  strategy ") for line in lines), "the comparison, not the breakdown"
    assert any(line.startswith("  FSDP2, checkpointed") for line in lines), "down to its last rows"


def test_side_by_side_only_what_all_assume_is_said() -> None:
    text = " ".join(screen("llama3-70b", "64xh100-80gb", compare=True))
    assert "AdamW" in text
    assert "no" in text and "checkpointing" in text
    assert "--init" not in text, "an assumption of sharded strategies alone"


def test_megatron_trains_no_adapters() -> None:
    text = "\n".join(screen("llama3-8b", "8xh100-80gb", compare=True, adapter=Adapter(rank=8)))
    assert "Megatron" not in text


@pytest.mark.parametrize("gpus", ["1xrtx-4090", "8xv100-32gb", "64xh100-80gb"])
def test_the_verdict_its_peak_and_what_would_help_are_on_one_screen(gpus: str) -> None:
    lines = screen("mixtral-8x22b", gpus, compare=False)
    text = "\n".join(lines)
    assert len(lines) <= SCREEN_ROWS
    assert max(cell_len(line) for line in lines) <= 80
    for part in ("does not fit", "allocated at the peak", "saves", "Assumed"):
        assert part in text, part
