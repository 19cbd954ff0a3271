"""What loader messages, requirements and metadata names say: pure readers, and the tables behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.env.catalog.drivers import driver_floor, generation_toolkit, toolkit_driver
from distdoctor.env.catalog.gpu_models import capability_of_model
from distdoctor.env.catalog.libraries import library_supplier
from distdoctor.env.catalog.nccl_symbols import nccl_symbol_origin
from distdoctor.env.catalog.tables import read_table
from distdoctor.env.catalog.torch_wheels import default_nccl, is_published_wheel, wheel_archs
from distdoctor.env.checks.torch_arch import runs_on
from distdoctor.env.distributions import parse_folder_name
from distdoctor.env.readers.import_error import ImportFault, read_import_fault
from distdoctor.env.readers.requirements import read_requirements, satisfies
from distdoctor.env.versions import parse_version

LINUX = {
    "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "python_version": "3.12", "extra": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "libcudart.so.12: cannot open shared object file: No such file or directory",
            ImportFault(missing_library="libcudart.so.12"),
        ),
        (
            "/opt/x/libfoo.so: cannot open shared object file: Permission denied",
            ImportFault(missing_library="/opt/x/libfoo.so", why_missing="Permission denied"),
        ),
        (
            "/v/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommShrink",
            ImportFault(undefined_symbol="ncclCommShrink", wanted_by="/v/torch/lib/libtorch_cuda.so"),
        ),
        (
            "/v/nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
            ImportFault(
                undefined_symbol="__nvJitLinkComplete_12_4",
                symbol_version="libnvJitLink.so.12",
                wanted_by="/v/nvidia/cusparse/lib/libcusparse.so.12",
            ),
        ),
        (
            "python3: symbol lookup error: /v/torch/lib/libtorch_python.so: undefined symbol: _ZN3c104cuda9SetDeviceEa",
            ImportFault(
                undefined_symbol="_ZN3c104cuda9SetDeviceEa", wanted_by="/v/torch/lib/libtorch_python.so"
            ),
        ),
        (
            "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by /v/torch/lib/libtorch_cpu.so)",
            ImportFault(
                missing_library="GLIBC_2.32",
                wanted_by="/v/torch/lib/libtorch_cpu.so",
                provider="/lib/x86_64-linux-gnu/libc.so.6",
            ),
        ),
        (
            "/v/torch/lib/libgomp-a1.so.1: cannot allocate memory in static TLS block",
            ImportFault(
                bad_file="/v/torch/lib/libgomp-a1.so.1",
                file_fault="cannot allocate memory in static TLS block",
            ),
        ),
        (
            "/v/libnccl.so.2: wrong ELF class: ELFCLASS32",
            ImportFault(bad_file="/v/libnccl.so.2", file_fault="wrong ELF class: ELFCLASS32"),
        ),
        (
            "libcublas.so.*[0-9] not found in the system path ['', '/v/lib']",
            ImportFault(missing_library="libcublas.so"),
        ),
        (
            "Error loading shared library libgomp.so.1: No such file or directory (needed by /v/torch/lib/libtorch_cpu.so)",
            ImportFault(missing_library="libgomp.so.1", wanted_by="/v/torch/lib/libtorch_cpu.so"),
        ),
        ("module 'torch' has no attribute 'float8_e4m3fn'", ImportFault()),
        ("", ImportFault()),
    ],
)
def test_the_loaders_words(text: str, fault: ImportFault) -> None:
    assert read_import_fault(text) == fault


@given(st.text(max_size=2000))
def test_any_text_is_read(text: str) -> None:
    read_import_fault(text)
    read_requirements(f"Requires-Dist: {text}", LINUX)
    parse_folder_name(text)
    capability_of_model(text)


@pytest.mark.parametrize(
    ("line", "pins"),
    [
        (
            "nvidia-nccl-cu12==2.27.5; platform_system == 'Linux' and platform_machine == 'x86_64'",
            {"nvidia-nccl-cu12": "2.27.5"},
        ),
        ('nvidia-nccl-cu11 (==2.14.3) ; platform_system == "Linux"', {"nvidia-nccl-cu11": "2.14.3"}),
        ("nvidia_nccl.cu12 === 2.27.5", {"nvidia-nccl-cu12": "2.27.5"}),
        ("nvidia-a==1; platform_machine == 'aarch64'", {}),
        ("nvidia-a==1; python_version < '3.10' or python_version >= '3.12'", {"nvidia-a": "1"}),
        ("nvidia-a==1; python_version < '3.9'", {}),
        ("nvidia-a==1; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'x'", {}),
        ("nvidia-a==1; platform_machine in 'x86_64 amd64'", {"nvidia-a": "1"}),
        ("nvidia-a==1; no_such_variable == 'x'", {}),
        ("nvidia-a==1; sys_platform ==", {}),
        ("nvidia-a>=1,<2", {"nvidia-a": None}),
        ("nvidia-a==13.0.96.*", {"nvidia-a": "13.0.96.*"}),
    ],
)
def test_requirements(line: str, pins: dict[str, str | None]) -> None:
    assert {each.name: each.pin for each in read_requirements(f"Requires-Dist: {line}\n", LINUX)} == pins


@pytest.mark.parametrize(
    ("version", "pin", "same"),
    [
        ("2.27.5", "2.27.5", True),
        ("2.26.2.post1", "2.26.2", True),
        ("13.0.96", "13.0.96.*", True),
        ("13.0.961", "13.0.96.*", False),
        ("2.27.3", "2.27.5", False),
        ("2.8.0+cu128", "2.8.0", True),
    ],
)
def test_installed_versions_against_pins(version: str, pin: str, same: bool) -> None:
    assert satisfies(version, pin) is same


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("torch-2.9.1+cu128.dist-info", "torch", "2.9.1+cu128"),
        ("nvidia_nccl_cu12-2.27.5.dist-info", "nvidia-nccl-cu12", "2.27.5"),
        ("torch-1.13.1-py3.10.egg-info", "torch", "1.13.1"),
        ("typing_extensions-4.12.2.dist-info", "typing-extensions", "4.12.2"),
    ],
)
def test_metadata_folder_names(folder: str, name: str, version: str) -> None:
    distribution = parse_folder_name(folder)
    assert distribution is not None
    assert (distribution.name, distribution.version) == (name, version)


@pytest.mark.parametrize("folder", ["torch", "~orch-2.8.0.dist-info", "torch-2.9.1.data", "RECORD"])
def test_other_names_are_no_metadata(folder: str) -> None:
    assert parse_folder_name(folder) is None


@pytest.mark.parametrize(
    ("cuda", "floor"),
    [
        ("13.0", "580.65.06"), ("13.3", "580.65.06"), ("12.8", "525.60.13"), ("12.1", "525.60.13"), ("11.8", "450.80.02"),
        ("11.0", "450.36.06"), ("10.2", "440.33"), ("10.1", "418.39"), ("10.0.130", "410.48"), ("9.2", "396.26"), ("8.0", "367.48"),
    ],
)  # fmt: skip
def test_driver_floors(cuda: str, floor: str) -> None:
    need = driver_floor(cuda)
    assert need is not None
    assert need.version == floor


def test_a_toolkit_that_the_table_lacks_has_no_driver_of_its_own() -> None:
    assert toolkit_driver("12.7") is None
    assert driver_floor("6.5") is None
    assert driver_floor("nonsense") is None


def test_every_toolkit_is_at_or_above_its_floor() -> None:
    for row in read_table("drivers")["toolkits"]:
        floor = driver_floor(row["cuda"])
        assert floor is not None
        assert (parse_version(floor.version) or ()) <= (parse_version(row["driver"]) or ())


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0)), ("NVIDIA H200", (9, 0)), ("NVIDIA GH200 480GB", (9, 0)), ("NVIDIA B200", (10, 0)),
        ("NVIDIA GB200", (10, 0)), ("NVIDIA B300 SXM6 AC", (10, 3)), ("NVIDIA GB300", (10, 3)), ("NVIDIA GB10", (12, 1)),
        ("NVIDIA GeForce RTX 5090 D", (12, 0)), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0)), ("NVIDIA L4", (8, 9)),
        ("NVIDIA L40S", (8, 9)), ("NVIDIA RTX 6000 Ada Generation", (8, 9)), ("NVIDIA GeForce RTX 4090", (8, 9)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)), ("NVIDIA A30", (8, 0)), ("NVIDIA A10G", (8, 6)), ("NVIDIA RTX A6000", (8, 6)),
        ("NVIDIA A40", (8, 6)), ("Tesla T4", (7, 5)), ("Quadro RTX 6000", (7, 5)), ("TITAN RTX", (7, 5)), ("TITAN V", (7, 0)),
        ("Tesla V100-DGXS-32GB", (7, 0)), ("Tesla P100-PCIE-16GB", (6, 0)), ("Tesla P40", (6, 1)), ("Tesla P4", (6, 1)),
        ("NVIDIA GeForce GTX 1080 Ti", (6, 1)), ("Tesla K80", (3, 7)), ("GRID K2", (3, 0)),
        ("AMD Instinct MI300X", None), ("NVIDIA DGX Display", None), ("", None),
    ],
)  # fmt: skip
def test_models(name: str, capability: tuple[int, int] | None) -> None:
    assert capability_of_model(name) == capability


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        ("sm_80 sm_86 sm_90", (8, 9), True),
        ("sm_90", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (10, 0), False),
        ("sm_100", (10, 3), True),
        ("sm_120", (12, 1), True),
        ("sm_120", (10, 0), False),
        ("sm_86", (8, 0), False),
        ("sm_70 compute_70", (12, 0), True),
        ("compute_120", (9, 0), False),
        ("sm_100f", (10, 3), True),
        ("", (8, 0), False),
        ("gfx90a", (9, 0), False),
    ],
)
def test_which_code_runs_where(archs: str, capability: tuple[int, int], runs: bool) -> None:
    assert runs_on(archs.split(), capability) is runs


def test_published_wheels_and_their_lists() -> None:
    assert is_published_wheel("2.9.1")
    assert is_published_wheel("2.7.0.dev20250310+cu124")
    assert not is_published_wheel("2.5.0a0+872d972e41.nv24.8")
    wheel = wheel_archs("2.6.0+cu126", "12.6")
    assert wheel is not None
    assert "sm_90" in wheel.archs
    assert "sm_120" not in wheel.archs
    assert wheel_archs("2.5.0a0+872d972e41.nv24.8", "12.6") is None
    assert wheel_archs("2.7.0.dev20250310+cu124", "12.4") is None
    assert wheel_archs("2.9.1", "12.8", "aarch64") is None
    assert default_nccl("2.9.1+cu128") == "2.27.5"
    assert default_nccl("1.13.0") is None


def test_toolkits_that_know_a_generation() -> None:
    blackwell, ada = generation_toolkit((12, 0)), generation_toolkit((8, 9))
    assert blackwell is not None
    assert blackwell.version == "12.8"
    assert ada is not None
    assert ada.version == "11.0"
    assert generation_toolkit((3, 7)) is None


@pytest.mark.parametrize(
    ("symbol", "version"),
    [
        ("ncclCommSplit", "2.18.1"), ("ncclCommRegister", "2.19.3"), ("ncclMemAlloc", "2.19.3"), ("ncclCommInitRankScalable", "2.23.4"),
        ("ncclCommWindowRegister", "2.27.3"), ("ncclCommShrink", "2.27.3"), ("ncclCommResume", "2.29.7"), ("pncclCommResume", "2.29.7"),
    ],
)  # fmt: skip
def test_nccl_symbols(symbol: str, version: str) -> None:
    origin = nccl_symbol_origin(symbol)
    assert origin is not None
    assert (origin.version, origin.is_measured) == (version, True)


def test_old_and_unknown_nccl_symbols() -> None:
    guarded = nccl_symbol_origin("ncclRedOpDestroy")
    assert guarded is not None
    assert not guarded.is_measured
    assert nccl_symbol_origin("ncclNoSuchThing") is None


@pytest.mark.parametrize(
    ("file", "cuda_major", "package"),
    [
        ("libcudart.so.12", 12, "nvidia-cuda-runtime-cu12"), ("libcudart.so.13", 13, "nvidia-cuda-runtime"),
        ("libcudart.so.11.0", 11, "nvidia-cuda-runtime-cu11"), ("libcublas.so.12", 12, "nvidia-cublas-cu12"),
        ("libcudnn.so.9", 13, "nvidia-cudnn-cu13"), ("libnccl.so.2", 12, "nvidia-nccl-cu12"), ("libcupti.so.12", 12, "nvidia-cuda-cupti-cu12"),
        ("libcusparseLt.so.0", 12, "nvidia-cusparselt-cu12"), ("libcuda.so.1", 12, None), ("libibverbs.so.1", 12, "libibverbs1"),
    ],
)  # fmt: skip
def test_suppliers(file: str, cuda_major: int, package: str | None) -> None:
    supplier = library_supplier(file, cuda_major)
    assert supplier is not None
    assert supplier.package == package


def test_an_unknown_library_has_no_supplier() -> None:
    assert library_supplier("libsomething.so.1") is None
