"""collect_env in its layouts, as facts. Dumps are built line by line from the grammar of `env_info_fmt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.env.facts.gpu import NvmlState
from distdoctor.env.facts.torch import ProbeState
from distdoctor.env.from_text import facts_from_text
from distdoctor.env.readers import collect_env

HERE = Path(__file__).parent


def dump(
    *, before: str = "", gpus: str = "GPU 0: NVIDIA L40S", pip: str = "torch==2.8.0", **fields: str
) -> str:
    """A dump of a current torch; `fields` replace single values."""
    values = {
        "torch": "2.8.0+cu129", "cuda": "12.9", "rocm": "N/A", "os": "Rocky Linux 9.5 (Blue Onyx) (x86_64)",
        "python": "3.11.9 (main, May  1 2024, 00:00:00) [GCC 11.4.1] (64-bit runtime)",
        "platform": "Linux-5.14.0-503.el9.x86_64-x86_64-with-glibc2.34", "available": "True",
        "toolkit": "12.9.86", "driver": "575.57.08", **fields,
    }  # fmt: skip
    return f"""Collecting environment information...
{before}PyTorch version: {values["torch"]}
Is debug build: False
CUDA used to build PyTorch: {values["cuda"]}
ROCM used to build PyTorch: {values["rocm"]}

OS: {values["os"]}
GCC version: (GCC) 11.5.0
Clang version: Could not collect
CMake version: Could not collect
Libc version: glibc-2.34

Python version: {values["python"]}
Python platform: {values["platform"]}
Is CUDA available: {values["available"]}
CUDA runtime version: {values["toolkit"]}
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration: {gpus}
Nvidia driver version: {values["driver"]}
cuDNN version: Could not collect
Is XPU available: False
HIP runtime version: N/A
MIOpen runtime version: N/A
Is XNNPACK available: True
Caching allocator config: {values.get("allocator", "N/A")}

CPU:
Architecture:                         x86_64
CPU(s):                               64
Model name:                           AMD EPYC 9354 32-Core Processor
Socket(s):                            1
NUMA node(s):                         1
NUMA node0 CPU(s):                    0-63

Versions of relevant libraries:
[pip3] {pip}
[conda] Could not collect
"""


def test_a_current_dump_fills_every_section() -> None:
    facts = collect_env.read(dump(), "env.txt")
    assert facts.torch is not None and facts.torch_probe is not None and facts.gpus is not None
    assert facts.host is not None and facts.python is not None
    assert (facts.torch.version, facts.torch.cuda_build) == ("2.8.0+cu129", "12.9")
    assert facts.torch.is_cpu_build is False
    assert facts.torch_probe.state is ProbeState.OK and facts.torch_probe.cuda_available is True
    assert facts.gpus.driver_version == "575.57.08" and facts.gpus.toolkit_version == "12.9.86"
    assert [device.name for device in facts.gpus.devices or ()] == ["NVIDIA L40S"]
    assert (facts.host.os_name, facts.host.architecture) == ("Rocky Linux 9.5 (Blue Onyx)", "x86_64")
    assert facts.host.kernel == "5.14.0-503.el9.x86_64"
    assert (facts.host.num_cpus, facts.host.num_sockets) == (64, 1)
    assert facts.python.version == "3.11.9" and facts.python.distributions["torch"] == "2.8.0"
    assert facts.gpus.sources["driver_version"] == "env.txt: Nvidia driver version"


def test_gpus_on_several_lines_with_mig_slices() -> None:
    gpus = (
        "\nGPU 0: NVIDIA H100 PCIe\n  MIG 1g.10gb     Device  0: (UUID: MIG-1)\n  MIG 2g.20gb     Device  1:\n"
        "GPU 1: NVIDIA H100 PCIe\n"
    )
    facts = collect_env.read(dump(gpus=gpus), "x")
    assert facts.gpus is not None and facts.gpus.devices is not None
    first, second = facts.gpus.devices
    assert first.mig_mode is True
    assert [each.profile for each in first.mig_instances] == ["1g.10gb", "2g.20gb"]
    assert second.mig_mode is None and second.mig_instances == ()


@pytest.mark.parametrize("cuda", ["None", "Could not collect"])
def test_a_build_without_cuda_is_known_by_its_cuda_line_not_by_its_suffix(cuda: str) -> None:
    facts = collect_env.read(dump(torch="2.9.1", cuda=cuda, available="False"), "x")
    assert facts.torch is not None and facts.torch.is_cpu_build is True


@pytest.mark.parametrize("torch", ["2.6.0+rocm6.2.4", "2.7.0+xpu"])
def test_builds_for_other_vendors_are_no_cpu_builds(torch: str) -> None:
    facts = collect_env.read(dump(torch=torch, cuda="None"), "x")
    assert facts.torch is not None and facts.torch.is_cpu_build is False


def test_rocm_prints_one_gpu_whatever_there_is() -> None:
    text = dump(torch="2.6.0+rocm6.2.4", cuda="N/A", rocm="6.2.41134-65d174c3e", driver="Could not collect",
                gpus="AMD Instinct MI250X (gfx90a:sramecc+:xnack-)")  # fmt: skip
    facts = collect_env.read(text, "x")
    assert facts.torch is not None and facts.torch.hip_build == "6.2.41134-65d174c3e"
    assert facts.gpus is not None and facts.gpus.devices is not None
    assert [(each.vendor, each.name) for each in facts.gpus.devices] == [("amd", "AMD Instinct MI250X")]
    assert facts.gpus.source_note is not None and "one GPU" in facts.gpus.source_note


def test_no_cuda_is_no_proof_that_there_is_no_gpu() -> None:
    text = dump(
        torch="2.8.0+cpu", cuda="None", available="False", toolkit="No CUDA", gpus="No CUDA", driver="No CUDA"
    )
    facts = collect_env.read(text, "x")
    assert facts.gpus is not None and facts.gpus.devices is None
    assert "no proof" in facts.gpus.unread["devices"].reason
    assert facts.gpus.toolkit_version is None and facts.gpus.driver_version is None


OLD = """Collecting environment information...
PyTorch version: 1.2.0
Is debug build: No
CUDA used to build PyTorch: 10.0.130

OS: Ubuntu 16.04.6 LTS
GCC version: (Ubuntu 5.4.0-6ubuntu1~16.04.11) 5.4.0 20160609
CMake version: version 3.5.1

Python version: 3.7
Is CUDA available: Yes
CUDA runtime version: 9.0.176
GPU models and configuration:
GPU 0: GeForce GTX 1080 Ti
GPU 1: GeForce GTX 1080 Ti

Nvidia driver version: 418.67
cuDNN version: Could not collect

Versions of relevant libraries:
[pip] numpy (1.16.4)
[pip] torch==1.2.0
[conda] mkl                       2019.4                      243
"""


def test_the_layout_of_2019_is_understood() -> None:
    facts = collect_env.read(OLD, "x")
    assert facts.torch is not None and facts.torch.version == "1.2.0" and facts.torch.is_cpu_build is False
    assert facts.torch_probe is not None and facts.torch_probe.cuda_available is True
    assert facts.python is not None
    assert facts.python.distributions == {"numpy": "1.16.4", "torch": "1.2.0", "mkl": "2019.4"}
    assert facts.gpus is not None and len(facts.gpus.devices or ()) == 2


WARNING = "/opt/x/torch/cuda/__init__.py:{line}: UserWarning: "


@pytest.mark.parametrize(
    ("warning", "error"),
    [
        ("CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before "
         "calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized "
         "(Triggered internally at /c10/cuda/CUDAFunctions.cpp:109.)", "Error 802: system not yet initialized"),
        ("CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 46: all CUDA-capable devices are "
         "busy or unavailable", "Error 46: all CUDA-capable devices are busy or unavailable"),
        ("CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update",
         "The NVIDIA driver on your system is too old (found version 11040)"),
        ("CUDA initialization: Found no NVIDIA driver on your system. Please check",
         "Found no NVIDIA driver on your system"),
    ],
)  # fmt: skip
def test_warnings_before_the_dump_tell_why_cuda_does_not_start(warning: str, error: str) -> None:
    facts = collect_env.read(dump(before=f"{WARNING}{warning}\n", available="False"), "x")
    assert facts.torch_probe is not None and facts.torch_probe.cuda_init_error == error


def test_found_version_becomes_the_drivers_cuda() -> None:
    before = (
        f"{WARNING}CUDA initialization: The NVIDIA driver on your system is too old (found version 10010).\n"
    )
    facts = collect_env.read(dump(before=before), "x")
    assert facts.gpus is not None and facts.gpus.cuda_driver_version == "10.1"


def test_an_incompatible_gpu_gives_arch_list_and_capability() -> None:
    before = (
        f"{WARNING}\n    NVIDIA B200 with CUDA capability sm_100 is not compatible with the current PyTorch "
        "installation.\n    The current PyTorch install supports CUDA capabilities sm_75 sm_80 sm_90 compute_90.\n"
    )
    facts = collect_env.read(dump(before=before, gpus="GPU 0: NVIDIA B200"), "x")
    assert facts.torch is not None and facts.torch.arch_list == ("sm_75", "sm_80", "sm_90", "compute_90")
    assert facts.gpus is not None and facts.gpus.devices is not None
    assert facts.gpus.devices[0].compute_capability == (10, 0)


def test_a_gpu_that_is_too_old_names_the_oldest_arch() -> None:
    before = (
        "UserWarning: Found GPU1 Tesla K40c which is of cuda capability 3.5.\n    PyTorch no longer supports this GPU "
        "because it is too old.\n    The minimum cuda capability supported by this library is 3.7.\n"
    )
    facts = collect_env.read(dump(before=before, gpus="\nGPU 0: NVIDIA A10\nGPU 1: Tesla K40c\n"), "x")
    assert facts.torch is not None and facts.torch.arch_list == ("sm_37",)
    assert facts.gpus is not None and facts.gpus.devices is not None
    assert [device.compute_capability for device in facts.gpus.devices] == [None, (3, 5)]


def test_torch_that_cannot_be_imported_but_is_installed_raised() -> None:
    facts = collect_env.read(dump(torch="N/A", cuda="N/A", available="N/A", pip="torch==2.12.0"), "x")
    assert facts.torch_probe is not None and facts.torch_probe.state is ProbeState.RAISED
    assert facts.torch is not None and facts.torch.version is None and facts.torch.found is True


def test_torch_that_is_not_in_the_list_is_not_installed() -> None:
    facts = collect_env.read(dump(torch="N/A", cuda="N/A", available="N/A", pip="numpy==1.26.4"), "x")
    assert facts.torch_probe is not None and facts.torch_probe.state is ProbeState.NOT_FOUND


def test_a_users_own_traceback_says_nothing_about_the_import() -> None:
    mine = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: no data\n'
    facts = collect_env.read(mine + dump(), "x")
    assert facts.torch_probe is not None and facts.torch_probe.state is ProbeState.OK
    assert facts.torch_probe.error_type is None


def test_a_failed_import_alone_is_understood() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import torch\n'
        '  File "/v/lib/python3.12/site-packages/torch/__init__.py", line 405, in <module>\n'
        "    from torch._C import *\nImportError: libcudart.so.13: cannot open shared object file\n"
    )
    assert collect_env.sniff(text)
    facts = collect_env.read(text, "x")
    assert facts.torch_probe is not None and facts.torch_probe.state is ProbeState.RAISED
    assert facts.torch_probe.error_type == "ImportError"


def test_the_allocators_variables_are_kept() -> None:
    (facts,) = facts_from_text(dump(allocator="{'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}"), "x")
    assert facts.variables is not None
    assert facts.variables.environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert "environment" in facts.variables.unread


def test_labels_of_an_issue_template_above_the_dump_are_not_taken() -> None:
    template = " - OS: MyOS\n - GPU models and configuration: 8 x something\n - CUDA runtime version: 1\n\n"
    facts = collect_env.read(template + dump(), "x")
    assert facts.host is not None and facts.host.os_name == "Rocky Linux 9.5 (Blue Onyx)"
    assert facts.gpus is not None and facts.gpus.toolkit_version == "12.9.86"


def test_vllms_dump_gives_topology_and_variables_too() -> None:
    (facts,) = facts_from_text((HERE / "collect_env_vllm.txt").read_text(), "vllm")
    assert facts.torch is not None and facts.torch.version == "2.7.0+cu128"
    assert facts.host is not None and facts.host.num_cpus == 192
    assert [len(node.cpus) for node in facts.host.numa_nodes or ()] == [96, 96]
    assert facts.gpus is not None and facts.gpus.nvml_state is NvmlState.OK
    assert ("GPU0", "GPU1", "NV18") in [(link.a, link.b, link.kind) for link in facts.gpus.pair_links]
    assert ("GPU0", "mlx5_0", "PIX") in [(link.a, link.b, link.kind) for link in facts.gpus.pair_links]
    assert facts.variables is not None and facts.variables.value("NCCL_IB_DISABLE") == "1"
    assert facts.nccl is not None and facts.nccl.image_version == "2.26.2"


def test_wsl_is_told_by_its_kernel() -> None:
    platform = "Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.35"
    facts = collect_env.read(dump(platform=platform), "x")
    assert facts.host is not None and facts.host.virtualisation == "wsl"


def test_nccl_that_torch_reports_is_the_loaded_one() -> None:
    facts = collect_env.read(dump() + "torch.cuda.nccl.version(): (2, 27, 3)\nNCCL_VERSION=2.25.1-1\n", "x")
    assert facts.nccl is not None
    assert (facts.nccl.loaded_version, facts.nccl.image_version) == ("2.27.3", "2.25.1")
