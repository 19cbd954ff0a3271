"""torch against driver, GPUs and libraries: each rule where it fires, where it is silent, and where it cannot tell."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from distdoctor.env.checks import cuda_compat, cuda_init, gpu_vendors, pynvml_shadow, torch_pins, torch_tested
from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.torch_arch import check_torch_arch
from distdoctor.env.checks.torch_build import check_torch_build
from distdoctor.env.checks.torch_driver import check_torch_driver
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.torch import ProbeState, PythonFacts, TorchFacts, TorchProbe
from distdoctor.report.model import Confidence, Severity, SkipCause

UNREAD = Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason="not shown")


def torch(
    version: str = "2.9.1", cuda: str | None = None, hip: str | None = None, xpu: str | None = None
) -> TorchFacts:
    return TorchFacts(
        found=True,
        version=version,
        cuda_build=cuda,
        hip_build=hip,
        xpu_build=xpu,
        is_cpu_build=not (cuda or hip or xpu),
    )


def gpus(*names: str, driver: str | None = None, vendor: str = "nvidia", **more: object) -> GpuFacts:
    devices = tuple(GpuDevice(index=index, name=name, vendor=vendor) for index, name in enumerate(names))
    return GpuFacts(**{"devices": devices or None, "kernel_module_version": driver, **more})  # type: ignore[arg-type]


NO_GPU = GpuFacts(devices=(), num_pci_gpus=0)


def first(outcomes: Sequence[Outcome], kind: type[Outcome]) -> Outcome:
    outcome = outcomes[0]
    assert isinstance(outcome, kind), outcome
    if isinstance(outcome, Found):
        assert len(outcome.title) <= 80
        assert outcome.evidence
    return outcome


def a_finding(outcomes: Sequence[Outcome]) -> Found:
    outcome = first(outcomes, Found)
    assert isinstance(outcome, Found)
    return outcome


# ---- torch-cpu-build


@pytest.mark.parametrize(
    ("facts", "kind", "severity"),
    [
        (EnvFacts(torch=torch(), gpus=gpus("NVIDIA GB200", driver="580.82.07")), Found, Severity.CRITICAL),
        (EnvFacts(torch=torch("2.9.1+cpu"), gpus=GpuFacts(num_pci_gpus=8)), Found, Severity.CRITICAL),
        (EnvFacts(torch=torch(), gpus=gpus("NVIDIA L4", cuda_visible_devices="")), Found, Severity.WARNING),
        (EnvFacts(torch=torch(), gpus=gpus("AMD Instinct MI300X", vendor="amd")), Found, Severity.WARNING),
        (EnvFacts(torch=torch(), gpus=NO_GPU), NotApplicable, None),
        (EnvFacts(torch=torch(cuda="12.8"), gpus=gpus("NVIDIA L4")), Passed, None),
        (EnvFacts(torch=torch(hip="6.2"), gpus=gpus("NVIDIA L4")), NotApplicable, None),
        (EnvFacts(torch=torch(xpu="2025"), gpus=gpus("NVIDIA L4")), NotApplicable, None),
        (EnvFacts(torch=torch(), gpus=GpuFacts(unread={"devices": UNREAD}), origin="t.txt"), NotSeen, None),
        (EnvFacts(torch=torch(), origin="t.txt"), NotSeen, None),
        (EnvFacts(torch=TorchFacts(found=False)), NotApplicable, None),
        (EnvFacts(), NotSeen, None),
    ],
)
def test_cpu_build(facts: EnvFacts, kind: type[Outcome], severity: Severity | None) -> None:
    outcome = first(check_torch_build(facts), kind)
    assert getattr(outcome, "severity", None) is severity


# ---- torch-driver-too-old


@pytest.mark.parametrize(
    ("cuda", "driver", "too_old"),
    [
        ("12.8", "535.104.05", False),
        ("12.1", "525.147.05", False),
        ("12.1", "525.60.13", False),
        ("12.4", "515.105.01", True),
        ("13.0", "575.57.08", True),
        ("13.0", "580.65.06", False),
        ("13.2", "580.95.05", False),
        ("11.8", "450.80.02", False),
        ("11.8", "450.51.06", True),
        ("11.0", "450.51.05", False),
        ("11.7", "418.226.00", True),
        ("10.2", "410.104", True),
        ("10.0.130", "410.79", False),
        ("10.1", "442.92", False),
        ("9.2", "390.46", True),
        ("12.8", "610.10", False),
    ],
)
def test_driver_against_the_floor_of_the_major(cuda: str, driver: str, too_old: bool) -> None:
    outcomes = check_torch_driver(EnvFacts(torch=torch(cuda=cuda), gpus=gpus("NVIDIA A100", driver=driver)))
    outcome = first(outcomes, Found if too_old else Passed)
    if isinstance(outcome, Found):
        assert outcome.severity is Severity.CRITICAL
        assert driver in outcome.evidence[0].text


def test_minor_version_compatibility_is_said() -> None:
    outcome = first(
        check_torch_driver(EnvFacts(torch=torch(cuda="12.8"), gpus=gpus("A100", driver="535.104.05"))), Passed
    )
    assert isinstance(outcome, Passed)
    assert "minor-version compatibility" in outcome.detail


def probe(**fields: object) -> TorchProbe:
    return TorchProbe(**{"state": ProbeState.OK, "torch_version": "2.9.0", **fields})  # type: ignore[arg-type]


def test_cudas_own_words_decide() -> None:
    error = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver"
    facts = EnvFacts(torch=torch(cuda="13.0"), torch_probe=probe(cuda_init_error=error, cuda_build="13.0"))
    outcome = a_finding(check_torch_driver(facts))
    assert error in outcome.evidence[0].text
    assert outcome.evidence[1].value == "12.4"
    assert isinstance(cuda_init.check_cuda_init(facts)[0], NotApplicable), "one cause, one finding"


@pytest.mark.parametrize(
    ("cuda", "of_driver", "too_old"),
    [
        ("13.0", "12.4", True),
        ("12.8", "12.0", False),
        ("12.1", "11.8", True),
        ("10.2", "10.1", True),
        ("10.2", "11.0", False),
    ],
)
def test_only_the_drivers_cuda_version_is_known(cuda: str, of_driver: str, too_old: bool) -> None:
    facts = EnvFacts(torch=torch(cuda=cuda), gpus=gpus("NVIDIA A100", cuda_driver_version=of_driver))
    first(check_torch_driver(facts), Found if too_old else Passed)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (
            EnvFacts(
                torch=torch(cuda="13.0"),
                gpus=gpus("L4", driver="550.54"),
                torch_probe=probe(cuda_available=True),
            ),
            Passed,
        ),
        (
            EnvFacts(
                torch=torch(cuda="13.0"),
                gpus=gpus(
                    "H100",
                    driver="550.54",
                    libcuda_path="/usr/local/cuda/compat/libcuda.so.1",
                    libcuda_version="580.65.06",
                ),
            ),
            Passed,
        ),
        (EnvFacts(torch=torch(), gpus=gpus("L4", driver="470.1")), NotApplicable),
        (EnvFacts(torch=torch(cuda="13.0"), gpus=NO_GPU), NotApplicable),
        (EnvFacts(torch=torch(cuda="13.0"), gpus=gpus("L4"), origin="t.txt"), NotSeen),
        (EnvFacts(torch=torch(cuda="13.0"), origin="t.txt"), NotSeen),
        (EnvFacts(origin="t.txt"), NotSeen),
    ],
)
def test_driver_stays_silent(facts: EnvFacts, kind: type[Outcome]) -> None:
    first(check_torch_driver(facts), kind)


def test_a_gpu_newer_than_its_driver() -> None:
    outcomes = check_torch_driver(
        EnvFacts(torch=torch(cuda="12.8"), gpus=gpus("NVIDIA B200", driver="550.54.15"))
    )
    assert any(isinstance(each, Found) and each.key == "generation" for each in outcomes)


# ---- torch-gpu-arch

OLD_LIST = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


@pytest.mark.parametrize(
    ("facts", "kind", "confidence"),
    [
        (
            EnvFacts(
                torch=torch(cuda="12.6"),
                torch_probe=probe(arch_list=OLD_LIST),
                gpus=gpus("NVIDIA GeForce RTX 5090"),
            ),
            Found,
            Confidence.HIGH,
        ),
        (
            EnvFacts(
                torch=torch(cuda="12.6"),
                torch_probe=probe(arch_list=OLD_LIST),
                gpus=gpus("NVIDIA L40S", "NVIDIA H100"),
            ),
            Passed,
            None,
        ),
        (EnvFacts(torch=torch("2.6.0+cu126", "12.6"), gpus=gpus("NVIDIA B200")), Found, Confidence.MEDIUM),
        (
            EnvFacts(torch=torch("2.9.1+cu130", "13.0"), gpus=gpus("Tesla V100-SXM2-32GB")),
            Found,
            Confidence.MEDIUM,
        ),
        (EnvFacts(torch=torch("2.9.1+cu130", "13.0"), gpus=gpus("NVIDIA GB300")), Passed, None),
        (
            EnvFacts(torch=torch("2.7.0.dev20250310+cu124", "12.4"), gpus=gpus("NVIDIA GeForce RTX 5090")),
            Found,
            Confidence.MEDIUM,
        ),
        (EnvFacts(torch=torch("2.5.0a0+872d972e41.nv24.8", "12.6"), gpus=gpus("NVIDIA H100")), NotSeen, None),
        (EnvFacts(torch=torch("2.0.1+cu117", "11.7"), gpus=gpus("NVIDIA A100 80GB PCIe")), NotSeen, None),
        (
            EnvFacts(torch=torch(cuda="12.8"), gpus=gpus("NVIDIA Unheard-of 9000"), origin="t.txt"),
            NotSeen,
            None,
        ),
        (EnvFacts(torch=torch(cuda="12.8"), gpus=NO_GPU), NotApplicable, None),
        (EnvFacts(torch=torch(), gpus=gpus("NVIDIA L4")), NotApplicable, None),
        (EnvFacts(), NotSeen, None),
    ],
)
def test_gpu_arch(facts: EnvFacts, kind: type[Outcome], confidence: Confidence | None) -> None:
    outcome = first(check_torch_arch(facts), kind)
    assert getattr(outcome, "confidence", None) is confidence


def test_only_the_gpus_without_code_are_named() -> None:
    facts = EnvFacts(
        torch=torch(cuda="12.6"),
        torch_probe=probe(arch_list=OLD_LIST),
        gpus=gpus("NVIDIA H100 80GB HBM3", "NVIDIA B200"),
    )
    assert [each.model for each in a_finding(check_torch_arch(facts)).scope.gpus] == ["NVIDIA B200"]


def test_a_text_that_names_only_the_oldest_architecture_accuses_no_newer_gpu() -> None:
    files = TorchFacts(
        found=True, version="2.0.1", cuda_build="11.7", is_cpu_build=False, arch_list=("sm_37",)
    )
    facts = EnvFacts(torch=files, gpus=gpus("Tesla K40c", "Tesla V100-SXM2-16GB"), origin="t.txt")
    assert [each.model for each in a_finding(check_torch_arch(facts)).scope.gpus] == ["Tesla K40c"]


@pytest.mark.parametrize(
    ("name", "hip", "archs", "kind", "severity"),
    [
        ("AMD Radeon Graphics (gfx906:sramecc+:xnack-)", "6.2.41133", (), Found, Severity.WARNING),
        ("AMD Radeon Graphics (gfx906:sramecc+:xnack-)", "5.4.2", (), Passed, None),
        ("AMD Instinct MI300X (gfx942:sramecc+:xnack-)", "6.3", ("gfx90a", "gfx942"), Passed, None),
        ("AMD Radeon (gfx1151)", "6.3", ("gfx90a", "gfx942"), Found, Severity.CRITICAL),
        ("AMD Instinct", "6.3", (), NotSeen, None),
    ],
)
def test_amd_targets(
    name: str, hip: str, archs: tuple[str, ...], kind: type[Outcome], severity: Severity | None
) -> None:
    facts = EnvFacts(
        torch=torch(hip=hip), torch_probe=probe(arch_list=archs, hip_build=hip), gpus=gpus(name, vendor="amd")
    )
    assert getattr(first(check_torch_arch(facts), kind), "severity", None) is severity


# ---- torch-dependency-pins

PINS = {"nvidia-nccl-cu12": "2.27.5", "nvidia-cublas": "13.1.0.3.*"}
SOURCES = {"required_nvidia": "METADATA"}


@pytest.mark.parametrize(
    ("distributions", "kind", "words"),
    [
        ({"nvidia-nccl-cu12": "2.27.5", "nvidia-cublas": "13.1.0.3"}, Passed, ""),
        ({"nvidia-nccl-cu12": "2.27.5.post1", "nvidia-cublas": "13.1.0.3"}, Passed, ""),
        ({"nvidia-nccl-cu12": "2.29.3", "nvidia-cublas": "13.1.0.3"}, Found, "2.29.3 differs"),
        ({"nvidia-nccl-cu12": "2.29.3", "nvidia-cublas": "13.0.0.1"}, Found, "2 CUDA libraries differ"),
        ({}, Found, "not installed"),
    ],
)
def test_pins(distributions: dict[str, str], kind: type[Outcome], words: str) -> None:
    facts = EnvFacts(
        torch=TorchFacts(found=True, required_nvidia=PINS, sources=SOURCES),
        python=PythonFacts(distributions=distributions),
    )
    outcome = first(torch_pins.check_torch_pins(facts), kind)
    assert words in getattr(outcome, "title", "")


def test_two_metadata_folders_in_one_place_but_not_in_two() -> None:
    site = "/venv/site-packages"
    twice = TorchFacts(
        found=True,
        dist_infos=(f"{site}/torch-2.4.0.dist-info", f"{site}/torch-2.9.1.dist-info"),
        sources=SOURCES,
    )
    apart = TorchFacts(
        found=True,
        dist_infos=(f"{site}/torch-2.9.1.dist-info", "/usr/lib/torch-2.4.0.dist-info"),
        sources=SOURCES,
    )
    assert a_finding(torch_pins.check_torch_pins(EnvFacts(torch=twice, python=PythonFacts()))).key == "twice"
    first(torch_pins.check_torch_pins(EnvFacts(torch=apart, python=PythonFacts())), NotApplicable)


def test_pins_that_were_not_read() -> None:
    files = TorchFacts(found=True, unread={"required_nvidia": UNREAD})
    first(torch_pins.check_torch_pins(EnvFacts(torch=files, python=PythonFacts())), NotSeen)
    first(torch_pins.check_torch_pins(EnvFacts()), NotSeen)


# ---- cuda-compat-library, cuda-init-error

COMPAT = "/usr/local/cuda-12.8/compat/libcuda.so.1"


def compat(
    name: str, driver: str, version: str | None, error: str | None = None, path: str = COMPAT
) -> EnvFacts:
    return EnvFacts(
        gpus=gpus(name, driver=driver, libcuda_path=path, libcuda_version=version),
        torch_probe=probe(cuda_init_error=error),
    )


@pytest.mark.parametrize(
    ("facts", "kind", "severity"),
    [
        (compat("NVIDIA H100", "535.104.05", "570.26"), Found, Severity.INFO),
        (compat("NVIDIA GeForce RTX 3060", "525.147.05", "570.26"), Found, Severity.WARNING),
        (compat("NVIDIA H100", "580.65.06", "570.26"), Found, Severity.WARNING),
        (
            compat("NVIDIA H100", "535.104.05", "570.26", "Error 803: system has unsupported display driver"),
            Found,
            Severity.CRITICAL,
        ),
        (compat("NVIDIA H100", "570.26", "570.26"), Passed, None),
        (
            compat("NVIDIA H100", "535.104.05", "535.104.05", path="/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
            Passed,
            None,
        ),
        (compat("NVIDIA H100", "535.104.05", None), NotSeen, None),
        (EnvFacts(gpus=gpus("NVIDIA H100", driver="535.1")), NotSeen, None),
        (EnvFacts(gpus=NO_GPU), NotApplicable, None),
    ],
)
def test_compat_library(facts: EnvFacts, kind: type[Outcome], severity: Severity | None) -> None:
    assert getattr(first(cuda_compat.check_cuda_compat(facts), kind), "severity", None) is severity


@pytest.mark.parametrize(
    ("error", "words", "cause_class"),
    [
        ("Error 2: out of memory", "out of memory", "env:cuda_init"),
        ("Error 46: all CUDA-capable devices are busy or unavailable", "busy", "env:cuda_init"),
        ("Error 100: no CUDA-capable device is detected", "no GPU", "env:cuda_init"),
        ("Error 214: uncorrectable ECC error encountered", "memory error", "gpu:ecc_uncorrectable"),
        ("Error 802: system not yet initialized", "fabric", "env:fabric_manager"),
        (
            "Error 803: system has unsupported display driver / cuda driver combination",
            "kernel module",
            "env:driver_mismatch",
        ),
        (
            "Error 804: forward compatibility was attempted on non supported HW",
            "forward compatibility",
            "env:cuda_compat",
        ),
        ("Error 999: unknown error", "999", "env:cuda_init"),
        ("CUDA unknown error - this may be due to an incorrectly set up environment", "999", "env:cuda_init"),
        ("Found no NVIDIA driver on your system", "no NVIDIA driver", "env:cuda_init"),
        ("Error 12345: made up", "12345"[:4], "env:cuda_init"),
        ("HIP initialization: Unexpected error from hipGetDeviceCount()", "ROCm", "env:rocm_init"),
    ],
)
def test_init_errors(error: str, words: str, cause_class: str) -> None:
    outcome = a_finding(
        cuda_init.check_cuda_init(EnvFacts(origin="t.txt", torch_probe=probe(cuda_init_error=error)))
    )
    assert words in outcome.title or words in outcome.evidence[0].text
    assert error in outcome.evidence[0].text
    assert outcome.cause_class == cause_class


def test_init_error_told_by_the_compat_library() -> None:
    facts = compat(
        "NVIDIA GeForce RTX 3060", "525.147.05", "570.26", "Error 804: forward compatibility was attempted"
    )
    first(cuda_init.check_cuda_init(facts), NotApplicable)
    assert a_finding(cuda_compat.check_cuda_compat(facts)).severity is Severity.CRITICAL


def test_no_init_error() -> None:
    first(cuda_init.check_cuda_init(EnvFacts(torch_probe=probe())), NotApplicable)
    first(cuda_init.check_cuda_init(EnvFacts(origin="t.txt", torch_probe=probe(cuda_available=True))), Passed)
    first(cuda_init.check_cuda_init(EnvFacts(origin="t.txt")), NotSeen)


# ---- vendors, tested range, pynvml


@pytest.mark.parametrize(
    ("facts", "kind", "severity"),
    [
        (
            EnvFacts(torch=torch(hip="6.2"), gpus=gpus("AMD (gfx906)", vendor="amd", driver="550.90.07")),
            Found,
            Severity.WARNING,
        ),
        (
            EnvFacts(
                torch=torch(cuda="12.8"),
                gpus=GpuFacts(devices=(), num_pci_gpus=0, amd_pci_gpus=("0000:01:00.0",)),
            ),
            Found,
            Severity.CRITICAL,
        ),
        (
            EnvFacts(torch=torch(hip="6.3"), gpus=gpus("AMD Instinct MI300X (gfx942)", vendor="amd")),
            Passed,
            None,
        ),
        (EnvFacts(torch=torch(cuda="12.8"), gpus=gpus("NVIDIA L4")), Passed, None),
        (EnvFacts(torch=torch(cuda="12.8"), origin="t.txt"), NotSeen, None),
        (EnvFacts(torch=torch(), gpus=NO_GPU), NotApplicable, None),
        (EnvFacts(), NotSeen, None),
    ],
)
def test_vendors(facts: EnvFacts, kind: type[Outcome], severity: Severity | None) -> None:
    assert getattr(first(gpu_vendors.check_gpu_vendors(facts), kind), "severity", None) is severity


CRASHED = TorchProbe(
    state=ProbeState.RAISED,
    last_step="collect_env",
    error_type="IndexError",
    error_text="list index out of range",
)


@pytest.mark.parametrize(
    ("facts", "kind", "severity"),
    [
        (
            EnvFacts(origin="t.txt", torch=TorchFacts(found=True, is_cpu_build=False), torch_probe=CRASHED),
            Found,
            Severity.CRITICAL,
        ),
        (EnvFacts(torch=torch(hip="6.2"), gpus=NO_GPU), Found, Severity.WARNING),
        (EnvFacts(torch=torch(hip="6.2"), gpus=gpus("AMD Instinct", vendor="amd")), Passed, None),
        (EnvFacts(torch=torch(cuda="12.8"), gpus=NO_GPU), NotApplicable, None),
        (EnvFacts(torch=torch(hip="6.2"), origin="t.txt"), NotSeen, None),
        (EnvFacts(), NotSeen, None),
    ],
)
def test_rocm_runtime(facts: EnvFacts, kind: type[Outcome], severity: Severity | None) -> None:
    assert getattr(first(gpu_vendors.check_rocm_runtime(facts), kind), "severity", None) is severity


@pytest.mark.parametrize(
    ("version", "origin", "kind"),
    [
        ("99.0.0", "this machine", Found),
        ("99.0.0", "t.txt", Found),
        ("1.5.0", "this machine", Found),
        ("1.5.0", "t.txt", Passed),
        (torch_tested.NEWEST_TESTED + ".0+cpu", "this machine", Passed),
        ("unknown", "t.txt", NotSeen),
    ],
)
def test_tested_range(version: str, origin: str, kind: type[Outcome]) -> None:
    outcome = first(torch_tested.check_torch_tested(EnvFacts(origin=origin, torch=torch(version))), kind)
    assert getattr(outcome, "severity", Severity.INFO) is Severity.INFO


@pytest.mark.parametrize(
    ("facts", "kind", "severity"),
    [
        (
            EnvFacts(python=PythonFacts(distributions={"pynvml": "11.5.3", "nvidia-ml-py": "12.560.30"})),
            Found,
            Severity.WARNING,
        ),
        (
            EnvFacts(python=PythonFacts(distributions={"pynvml": "12.0.0", "nvidia-ml-py": "12.560.30"})),
            Found,
            Severity.INFO,
        ),
        (EnvFacts(gpus=GpuFacts(pynvml_shadowed=True), origin="t.txt"), Found, Severity.WARNING),
        (
            EnvFacts(torch_probe=probe(warnings=("FutureWarning: The pynvml package is deprecated.",))),
            Found,
            Severity.INFO,
        ),
        (
            EnvFacts(python=PythonFacts(distributions={"nvidia-ml-py": "13.580.1", "torch": "2.9.1"})),
            Passed,
            None,
        ),
        (EnvFacts(python=PythonFacts(distributions={"torch": "2.9.1"})), NotApplicable, None),
        (EnvFacts(), NotSeen, None),
    ],
)
def test_pynvml(facts: EnvFacts, kind: type[Outcome], severity: Severity | None) -> None:
    assert getattr(first(pynvml_shadow.check_pynvml(facts), kind), "severity", None) is severity
