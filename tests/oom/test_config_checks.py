"""Checks of configurations: each fires, stays silent, and says when the files do not say enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.oom.checks.config.all import CONFIG_CHECKS
from distdoctor.oom.checks.config.base import ConfigCheck
from distdoctor.oom.configs.join import config_facts
from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.facts.launch import ConfigFacts
from distdoctor.oom.settings import Settings
from distdoctor.report.checking import run_check
from distdoctor.report.model import CheckState, Confidence, Finding, Severity

DOCS = Path(__file__).parents[2] / "docs" / "checks"

GOOD = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
machine_rank: $NODE_RANK
main_process_ip: node-0
main_process_port: 29500
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true, fsdp_offload_params: false}
"""
GOOD_BATCH = """{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
 "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}"""
# Says neither ranks, nor nodes, nor batch sizes, nor types, nor a strategy.
SILENT = """base_model: some/model
datasets: [{path: a, type: b}]
deepspeed: conf/zero3.json
val_set_size: 0
"""

FIRES = {
    "oom-config-world": GOOD.replace("num_processes: 16", "num_processes: 15"),
    "oom-config-batch": GOOD_BATCH.replace("64", "63"),
    "oom-config-address": GOOD.replace("node-0", "<MASTER_IP>"),
    "oom-config-conflict": GOOD_BATCH.replace('"bf16"', '"fp16": {"enabled": true}, "bf16"'),
    "oom-config-unset": GOOD.replace("main_process_ip: node-0\n", "main_process_ip:\n"),
    "oom-config-names": GOOD_BATCH.replace('"stage": 2', '"stage": 2, "overlap_com": true'),
    "oom-config-precision": GOOD.replace("mixed_precision: bf16\n", ""),
    "oom-config-host-memory": GOOD.replace("fsdp_offload_params: false", "fsdp_offload_params: true"),
    "oom-config-ineffective": GOOD.replace(
        "fsdp_version: 2,", "fsdp_version: 2, fsdp_use_orig_params: true,"
    ),
    "oom-config-slow": GOOD_BATCH.replace('"bf16"', '"wall_clock_breakdown": true, "bf16"'),
}
# Checks that compare what is there: nothing in a file can leave them open.
ALWAYS_DECIDED = {
    "oom-config-conflict",
    "oom-config-unset",
    "oom-config-names",
    "oom-config-ineffective",
    "oom-config-slow",
}


def facts(*texts: str) -> ConfigFacts:
    return config_facts([read_config_text(f"file{number}", text) for number, text in enumerate(texts)])


def by_id(check_id: str) -> ConfigCheck:
    return next(each for each in CONFIG_CHECKS if each.id == check_id)


def found_in(check_id: str, *texts: str) -> list[Finding]:
    return run_check(by_id(check_id), facts(*texts))[0]


@pytest.mark.parametrize("check_id", sorted(FIRES))
def test_a_check_fires(check_id: str) -> None:
    findings, _, result = run_check(by_id(check_id), facts(FIRES[check_id]))
    assert result.state is CheckState.FOUND
    for each in findings:
        assert len(each.title) <= 80
        assert each.evidence
        assert each.actions
        assert (each.cause_class or "").startswith("config:")


@pytest.mark.parametrize("check_id", sorted(FIRES))
@pytest.mark.parametrize("text", [GOOD, GOOD_BATCH], ids=["accelerate", "deepspeed"])
def test_a_check_stays_silent(check_id: str, text: str) -> None:
    findings, _, result = run_check(by_id(check_id), facts(text))
    assert findings == []
    assert result.state in (CheckState.PASSED, CheckState.NOT_APPLICABLE, CheckState.SKIPPED)


@pytest.mark.parametrize("check_id", sorted(FIRES))
def test_a_file_that_does_not_say_it_is_no_clean_bill(check_id: str) -> None:
    _, skipped, result = run_check(by_id(check_id), facts(SILENT))
    if check_id in ALWAYS_DECIDED:
        assert result.state is CheckState.PASSED
    else:
        assert result.state is CheckState.SKIPPED
        assert skipped[0].reason


@pytest.mark.parametrize("check_id", sorted(FIRES))
def test_without_any_file_every_check_is_skipped(check_id: str) -> None:
    _, skipped, result = run_check(by_id(check_id), ConfigFacts(configs=(), joined=Settings()))
    assert result.state is CheckState.SKIPPED
    assert skipped[0].how


def test_every_check_has_a_page_and_a_case() -> None:
    ids = {each.id for each in CONFIG_CHECKS}
    # The estimate over configurations has tests of its own: test_config_states.py.
    assert set(FIRES) == ids - {"oom-config-states"}
    for check_id in ids:
        assert (DOCS / f"{check_id}.md").read_text().startswith(f"# {check_id}\n")


def test_what_surely_stops_the_job_is_critical_and_names_file_and_line() -> None:
    (finding,) = found_in("oom-config-batch", FIRES["oom-config-batch"])
    assert (finding.severity, finding.confidence) == (Severity.CRITICAL, Confidence.HIGH)
    assert [each.source for each in finding.evidence] == ["file0:1", "file0:1", "file0:1"]


def test_what_may_be_meant_is_to_know() -> None:
    text = GOOD.replace("machine_rank: $NODE_RANK", "machine_rank: 0")
    (finding,) = found_in("oom-config-address", text)
    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.MEDIUM)


def test_another_file_settles_the_precision() -> None:
    trainer = "per_device_train_batch_size: 1\nbf16: true\nmodel_name_or_path: gpt2\n"
    plain = GOOD.replace("mixed_precision: bf16\n", "")
    assert found_in("oom-config-precision", plain)
    assert found_in("oom-config-precision", plain, trainer) == []


def test_a_contradiction_between_files_names_both() -> None:
    trainer = "per_device_train_batch_size: 1\nbf16: true\nmodel_name_or_path: gpt2\n"
    (finding,) = found_in("oom-config-conflict", GOOD_BATCH, trainer)
    assert {each.source for each in finding.evidence} == {"file0:1", "file1:1"}
    assert finding.severity is Severity.CRITICAL
