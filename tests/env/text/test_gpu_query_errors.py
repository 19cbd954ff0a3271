"""GPUs that answer with ERR!: several errors, one, none, no GPU seen."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.gpu_query_errors import check_query_errors
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.readers import nvidia_smi
from distdoctor.report.model import Severity

ROW = (
    "|   0  NVIDIA GeForce RTX 4090    Off | 00000000:01:00.0 Off |                  N/A |\n"
    "|{fan}   {temp}   P2   {power} / 450W |  23010MiB / 24564MiB |     98%      Default |\n+---+\n"
)


def facts(fan: str, temp: str, power: str) -> EnvFacts:
    text = ROW.format(fan=fan, temp=temp, power=power)
    return EnvFacts(origin="smi.txt", gpus=nvidia_smi.read(text, "smi.txt"))


def test_several_errors_are_a_warning() -> None:
    (found,) = check_query_errors(facts("ERR!", "ERR!", "ERR!"))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING and "00000000:01:00.0" in found.title


def test_one_error_is_information() -> None:
    (found,) = check_query_errors(facts(" 30%", " 45C", "ERR!"))
    assert isinstance(found, Found) and found.severity is Severity.INFO


def test_not_applicable_is_no_error() -> None:
    (outcome,) = check_query_errors(facts(" N/A", " 45C", " N/A"))
    assert isinstance(outcome, Passed)


def test_no_gpu_seen_is_not_passed() -> None:
    (outcome,) = check_query_errors(EnvFacts(origin="env.txt"))
    assert isinstance(outcome, NotSeen)
