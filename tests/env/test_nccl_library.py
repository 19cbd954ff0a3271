"""NCCL in use against torch's own, and copies that get in each other's way."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.nccl_library import check_duplicates, check_pinned
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclFacts, NcclLibrary
from distdoctor.env.facts.torch import ProbeState, PythonFacts, TorchFacts, TorchProbe
from distdoctor.report.model import Confidence, Severity

SITE = "/env/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"


def library(path: str, version: str, found_by: str) -> NcclLibrary:
    return NcclLibrary(path=path, real_path=path, version=version, cuda=None, owner=None, found_by=found_by)


def test_an_older_library_than_torchs_pin_is_critical() -> None:
    nccl = NcclFacts(
        loaded_path="/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        loaded_version="2.18.5",
        predicted_path="/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        predicted_why="LD_LIBRARY_PATH entry 1 (/usr/lib/x86_64-linux-gnu)",
        expected_version="2.27.5",
    )
    (found,) = check_pinned(EnvFacts(nccl=nccl))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.confidence is Confidence.HIGH
    assert "LD_LIBRARY_PATH entry 1" in found.explanation
    assert "/usr/lib/x86_64-linux-gnu/libnccl.so.2" in found.evidence[0].text


def test_a_newer_one_is_a_warning_and_less_sure_when_only_predicted() -> None:
    nccl = NcclFacts(predicted_path=SITE, predicted_version="2.28.9", expected_version="2.27.5")
    (found,) = check_pinned(EnvFacts(nccl=nccl))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert found.confidence is Confidence.MEDIUM
    assert "would be loaded" in found.title


def test_the_pinned_one_passes() -> None:
    nccl = NcclFacts(loaded_path=SITE, loaded_version="2.27.5", expected_version="2.27.5")
    (outcome,) = check_pinned(EnvFacts(nccl=nccl))
    assert isinstance(outcome, Passed)


def test_a_system_copy_of_another_version_is_a_warning() -> None:
    nccl = NcclFacts(
        loaded_path=SITE,
        loaded_version="2.19.3",
        expected_version="2.19.3",
        libraries=(
            library(SITE, "2.19.3", "site-packages"),
            library("/usr/lib/libnccl.so.2", "2.15.5", "ldconfig"),
        ),
        image_version="2.15.5",
    )
    (found,) = check_pinned(EnvFacts(nccl=nccl))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert found.title == "The system has NCCL 2.15.5; torch brings 2.19.3"


def test_a_text_with_the_compiled_version_accuses_nobody() -> None:
    """torch.cuda.nccl.version() tells the version of compile time: a newer wheel is what is loaded."""
    nccl = NcclFacts(
        loaded_version="2.27.5",
        expected_version="2.28.9",
        sources={"loaded_version": "dump.txt: torch.cuda.nccl.version()"},
    )
    (found,) = check_pinned(EnvFacts(origin="dump.txt", nccl=nccl))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert "2.28.9" in found.title


def test_a_library_replaced_under_a_running_job_is_told() -> None:
    nccl = NcclFacts(loaded_path=SITE, loaded_deleted=True, expected_version="2.27.5")
    outcomes = check_pinned(EnvFacts(nccl=nccl))
    assert any(isinstance(each, Found) and each.key == "replaced" for each in outcomes)
    assert any(isinstance(each, NotSeen) for each in outcomes)


def test_a_cpu_build_has_no_nccl() -> None:
    (outcome,) = check_pinned(EnvFacts(torch=TorchFacts(found=True, is_cpu_build=True)))
    assert isinstance(outcome, NotApplicable)


def test_nothing_known_is_not_passed() -> None:
    assert isinstance(check_pinned(EnvFacts())[0], NotSeen)
    assert isinstance(check_pinned(EnvFacts(nccl=NcclFacts(expected_version="2.27.5")))[0], NotSeen)
    assert isinstance(check_duplicates(EnvFacts())[0], NotSeen)


WHEELS = PythonFacts(
    distributions={"nvidia-nccl-cu12": "2.29.3", "nvidia-nccl-cu13": "2.29.7", "torch": "2.13.0"}
)


def test_both_wheels_are_critical_when_nothing_shows_that_torch_imports() -> None:
    (found,) = check_duplicates(EnvFacts(python=WHEELS, torch=TorchFacts(found=True, cuda_build="13.0")))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    command = found.actions[0].command
    assert command is not None
    assert command.startswith("pip uninstall -y nvidia-nccl-cu12")
    assert "nvidia-nccl-cu13==2.29.7" in command


def test_both_wheels_are_surely_the_cause_of_an_undefined_nccl_symbol() -> None:
    probe = TorchProbe(
        state=ProbeState.RAISED, error_text="libtorch_cuda.so: undefined symbol: ncclCommResume"
    )
    (found,) = check_duplicates(EnvFacts(python=WHEELS, torch_probe=probe))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert found.confidence is Confidence.HIGH


def test_both_wheels_are_a_warning_while_torch_imports() -> None:
    (found,) = check_duplicates(EnvFacts(python=WHEELS, torch_probe=TorchProbe(state=ProbeState.OK)))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_several_versions_on_disk_are_worth_knowing() -> None:
    nccl = NcclFacts(
        libraries=(library(SITE, "2.27.5", "site-packages"), library("/a", "2.15.5", "ldconfig"))
    )
    (found,) = check_duplicates(EnvFacts(nccl=nccl, python=PythonFacts()))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


def test_one_wheel_passes_and_none_is_not_applicable() -> None:
    one = PythonFacts(distributions={"nvidia-nccl-cu12": "2.27.5"})
    assert isinstance(check_duplicates(EnvFacts(python=one))[0], Passed)
    assert isinstance(check_duplicates(EnvFacts(python=PythonFacts(), nccl=NcclFacts()))[0], NotApplicable)
