"""NVML in a child process, against a double of its library; and what files say when NVML cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdoctor.env.collect.gpu import collect_gpus
from distdoctor.env.collect.gpu_files import parse_module_version
from distdoctor.env.collect.nvml_process import child_environ, parse_lines, read_answers
from distdoctor.env.facts.gpu import GpuFacts, NvmlState
from distdoctor.report.model import SkipCause
from fake_nvml.build import build_fake_nvml
from fake_world import make_world

# The child takes 0.1 s; a loaded machine may need far longer, and a hang is tested with a short limit.
LIMIT_S = 60.0

PROC_VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@host)\n"
)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake_nvml(tmp_path_factory.mktemp("nvml"))


def pci_gpu(
    address: str, driver: str = "nvidia", vendor: str = "0x10de", kind: str = "0x030200"
) -> dict[str, str]:
    folder = f"/sys/bus/pci/devices/{address}"
    return {
        f"{folder}/vendor": f"{vendor}\n",
        f"{folder}/class": f"{kind}\n",
        f"{folder}/numa_node": "1\n",
        f"{folder}/local_cpulist": "0-3,8\n",
        f"{folder}/driver": f"-> ../../drivers/{driver}",
    }


def collect(
    root: Path, library: Path | None, *, count: int = 3, faults: str = "", limit_s: float = LIMIT_S
) -> GpuFacts:
    """Facts of a host with three GPUs on the bus, whose NVML is the double (None: there is no library)."""
    files = {"/proc/driver/nvidia/version": PROC_VERSION, "/dev/nvidiactl": "", "/dev/nvidia-nvswitch0": ""}
    for index, bus in enumerate(("1b", "2b", "3b")):
        files |= pci_gpu(f"0000:{bus}:00.0")
        files |= {f"/dev/nvidia{index}": "", f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information": ""}
    environ = {"PATH": os.environ["PATH"], "FAKE_NVML_COUNT": str(count), "FAKE_NVML_FAULTS": faults}
    if library is not None:
        environ["LD_LIBRARY_PATH"] = str(library)
    return collect_gpus(make_world(root, files, environ=environ), timeout_s=limit_s)


def test_three_gpus_are_read_with_units_and_sources(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library)
    assert facts.nvml_state is NvmlState.OK
    assert (facts.driver_version, facts.cuda_driver_version) == ("570.86.15", "12.8")
    assert (facts.kernel_module_version, facts.kernel_module_open) == ("570.86.15", True)
    assert (facts.num_pci_gpus, facts.num_device_nodes, facts.num_proc_gpus, facts.num_nvswitches) == (
        3,
        3,
        3,
        1,
    )
    assert facts.devices is not None
    gpu = facts.devices[1]
    assert (gpu.index, gpu.pci, gpu.name) == (1, "00000000:2B:00.0", "NVIDIA H100 80GB HBM3")
    assert (gpu.power_w, gpu.power_limit_w, gpu.temperature_c) == (112.0, 700.0, 41)
    assert (gpu.numa_node, gpu.local_cpus) == (1, (0, 1, 2, 3, 8))
    assert gpu.lost is False
    assert gpu.sources["power_w"] == "NVML"
    assert gpu.processes is not None
    assert gpu.processes[0].pid == 4242


def test_memory_used_leaves_out_what_the_driver_reserves(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library)
    assert facts.devices is not None
    assert facts.devices[0].memory_used_bytes == 0


def test_an_older_driver_is_asked_by_the_older_calls(tmp_path: Path, library: Path) -> None:
    """The double has the throttle reasons' old name only, and refuses version 3 of the fabric structure."""
    facts = collect(tmp_path, library)
    assert facts.devices is not None
    gpu = facts.devices[0]
    assert gpu.throttle_reasons == ("idle",)
    import pynvml

    if hasattr(pynvml, "c_nvmlGpuFabricInfo_v2_t"):  # not in the oldest binding that we accept
        assert (gpu.fabric_state, gpu.fabric_status, gpu.fabric_health) == (3, 0, 1)
    else:
        assert "fabric_state" in gpu.unread
    assert gpu.unread["vbios" if gpu.vbios is None else "serial"].cause is SkipCause.UNSUPPORTED


def test_absent_calls_are_unsupported_and_cost_nothing_else(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library)
    assert facts.devices is not None
    unread = facts.devices[0].unread["serial"]
    assert unread.cause is SkipCause.UNSUPPORTED
    assert "13" in unread.reason


def test_nvlinks_have_state_speed_and_errors(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library)
    assert facts.devices is not None
    links = facts.devices[0].nvlinks
    assert links is not None
    assert len(links) == 18
    assert (links[17].active, links[17].speed_gbps, links[17].replay_errors) == (True, 26.562, 0)
    assert [(pair.a, pair.b, pair.kind, pair.p2p_read) for pair in facts.pair_links] == [
        ("GPU0", "GPU1", "NV18", "ok"),
        ("GPU0", "GPU2", "NV18", "ok"),
        ("GPU1", "GPU2", "NV18", "ok"),
    ]


def test_a_lost_gpu_does_not_hide_the_others(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library, faults="nvmlDeviceGetHandleByIndex_v2@1=15")
    assert facts.nvml_state is NvmlState.OK
    assert facts.devices is not None
    assert [device.lost for device in facts.devices] == [False, True, False]
    assert "GPU_IS_LOST" in (facts.devices[1].lost_reason or "")
    assert facts.devices[2].name == "NVIDIA H100 80GB HBM3"


def test_a_gpu_lost_in_the_middle_keeps_what_it_said(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library, faults="nvmlDeviceGetTemperature@2=15")
    assert facts.devices is not None
    gpu = facts.devices[2]
    assert gpu.lost is True
    assert gpu.pci == "00000000:3B:00.0"
    assert gpu.power_w is None


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (4, NvmlState.NO_PERMISSION),
        (9, NvmlState.DRIVER_NOT_LOADED),
        (18, NvmlState.VERSION_MISMATCH),
        (999, NvmlState.UNKNOWN_ERROR),
    ],
)
def test_failures_of_initialisation_keep_nvmls_words(
    tmp_path: Path, library: Path, code: int, state: NvmlState
) -> None:
    facts = collect(tmp_path, library, faults=f"nvmlInitWithFlags={code},nvmlInit_v2={code}")
    assert facts.nvml_state is state
    assert f"(NVML {code} " in (facts.nvml_error or "")
    assert facts.devices is None
    assert facts.unread["devices"].reason
    assert facts.num_pci_gpus == 3


def test_a_call_that_needs_root_says_so(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library, faults="nvmlDeviceValidateInforom=4")
    assert facts.devices is not None
    assert facts.devices[0].inforom_valid is None
    assert facts.devices[0].unread["inforom_valid"].cause is SkipCause.NEEDS_ROOT


def test_a_corrupted_inforom_is_a_value(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library, faults="nvmlDeviceValidateInforom@0=14")
    assert facts.devices is not None
    assert [device.inforom_valid for device in facts.devices] == [False, True, True]


@pytest.mark.once
def test_a_hang_ends_at_the_limit_with_what_was_known(tmp_path: Path, library: Path) -> None:
    began = time.monotonic()
    facts = collect(tmp_path, library, faults="nvmlDeviceGetTemperature@2=hang", limit_s=8.0)
    assert time.monotonic() - began < 30
    assert facts.nvml_state is NvmlState.HUNG
    assert "GPU 2" in (facts.nvml_error or "")
    assert facts.devices is not None
    assert [device.index for device in facts.devices] == [0, 1]
    assert facts.num_pci_gpus == 3


@pytest.mark.once
def test_a_hang_of_initialisation_leaves_the_files(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library, faults="nvmlInitWithFlags=hang,nvmlInit_v2=hang", limit_s=3.0)
    assert facts.nvml_state is NvmlState.HUNG
    assert facts.devices is None
    assert facts.unread["devices"].cause is SkipCause.TIMED_OUT
    assert facts.kernel_module_version == "570.86.15"


def test_a_crash_of_the_library_is_reported(tmp_path: Path, library: Path) -> None:
    facts = collect(tmp_path, library, faults="nvmlDeviceGetName@1=crash")
    assert facts.nvml_state is NvmlState.UNKNOWN_ERROR
    assert "SIGABRT" in (facts.nvml_error or "")
    assert facts.devices is not None
    assert len(facts.devices) == 1


def test_the_librarys_version_comes_from_its_real_name(tmp_path: Path, library: Path) -> None:
    files = {
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "-> libnvidia-ml.so.570.133.20",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.133.20": "",
        "/usr/local/cuda/compat/libcuda.so.1": "-> libcuda.so.575.57.08",
        "/usr/local/cuda/compat/libcuda.so.575.57.08": "",
    }
    environ = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}
    facts = collect_gpus(make_world(tmp_path, files, environ=environ), timeout_s=LIMIT_S)
    assert facts.nvml_library_version == "570.133.20"
    assert facts.libcuda_version == "575.57.08"
    assert facts.libcuda_path is not None
    assert "/compat/" in facts.libcuda_path


def test_without_any_trace_of_nvidia_no_child_is_started(tmp_path: Path) -> None:
    world = make_world(tmp_path, {"/sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086\n", "/dev/null": ""})
    facts = collect_gpus(world, timeout_s=LIMIT_S)
    assert facts.devices == ()
    assert facts.num_pci_gpus == 0


def test_amd_gpus_are_named_as_such(tmp_path: Path) -> None:
    files = pci_gpu("0000:c1:00.0", driver="amdgpu", vendor="0x1002", kind="0x120000")
    facts = collect_gpus(make_world(tmp_path, files), timeout_s=LIMIT_S)
    assert facts.devices is not None
    assert [(device.vendor, device.pci) for device in facts.devices] == [("amd", "0000:c1:00.0")]


def test_an_unreadable_bus_is_not_zero_gpus(tmp_path: Path) -> None:
    facts = collect_gpus(make_world(tmp_path, {"/dev/null": ""}), timeout_s=LIMIT_S)
    assert facts.num_pci_gpus is None
    assert facts.unread["num_pci_gpus"].cause is SkipCause.ABSENT


def test_a_failed_fabric_manager_tells_why(tmp_path: Path) -> None:
    files = pci_gpu("0000:1b:00.0") | {
        "/usr/bin/systemctl": "#!/bin/sh\necho LoadState=loaded\necho ActiveState=failed\necho SubState=failed\n",
        "/usr/bin/journalctl": "#!/bin/sh\necho starting\necho 'request to query NVSwitch failed [NV_WARN_NOTHING_TO_DO]'\n",
        "/usr/bin/nv-fabricmanager": "#!/bin/sh\necho Fabric Manager version is : 570.86.15\n",
        "/dev/nvidia-nvswitch0": "",
    }
    facts = collect_gpus(make_world(tmp_path, files), timeout_s=LIMIT_S)
    assert facts.fabric_manager == "failed"
    assert facts.fabric_manager_version == "570.86.15"
    assert "NV_WARN_NOTHING_TO_DO" in (facts.fabric_manager_error or "")


def test_the_proprietary_module_is_told_from_the_open_one() -> None:
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"
    assert parse_module_version(line) == "535.183.01"


def test_a_line_cut_in_half_is_left_out() -> None:
    assert parse_lines(b'{"state": 0}\nnoise\n[1]\n{"device": {"index"') == [{"state": 0}]


def load_binding_with(folder: Path) -> str:
    """What `load_binding` says in an interpreter that looks in `folder` first."""
    code = "from distdoctor import nvml\ntry: print(nvml.load_binding().shadowed)\nexcept nvml.BindingError as e: print(e)"
    environ = child_environ({}) | {"PYTHONPATH": f"{folder}{os.pathsep}{child_environ({})['PYTHONPATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )
    return done.stdout.strip()


def test_the_official_binding_is_found_behind_the_old_package(tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml/__init__.py").write_text("__version__ = '8.0.4'\n")
    (tmp_path / "pynvml.py").write_text("def nvmlInit_v2(): ...\n")
    assert load_binding_with(tmp_path) == "True"


def test_the_old_package_alone_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml/__init__.py").write_text("__version__ = '8.0.4'\n")
    assert "pip uninstall pynvml" in load_binding_with(tmp_path)


def test_a_binding_that_cannot_be_loaded_is_no_fault_of_the_driver() -> None:
    answers = read_answers([{"binding": "nvidia-ml-py is not installed"}], stopped=None)
    assert answers.state is NvmlState.NOT_ASKED
    assert "nvidia-ml-py" in answers.unread["devices"].reason
