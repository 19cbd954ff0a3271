"""nvidia-smi's formats, from 2015 to 2026, as GPU facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState
from distdoctor.env.readers import nvidia_smi
from distdoctor.pasted import clean_pasted
from distdoctor.report.model import SkipCause
from distdoctor.units import MIB

HERE = Path(__file__).parent


def read(text: str) -> GpuFacts:
    return nvidia_smi.read(text, "smi.txt")


def devices(text: str) -> tuple[GpuDevice, ...]:
    found = read(text).devices
    assert found is not None
    return found


TABLE = """\
Wed Jun 18 07:00:00 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 575.57.08              Driver Version: 575.57.08      CUDA Version: 12.9     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA B200                    On  |   00000000:1B:00.0 Off |                    0 |
| N/A   33C    P0            141W / 1000W |  170000MiB / 183359MiB |     87%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA B200                    Off |   00000000:43:00.0 Off |                    4 |
| N/A   31C    P0            139W / 1000W |       4MiB / 183359MiB |      0%   E. Process |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A         3141592      C   .../envs/train/bin/python              169996MiB |
+-----------------------------------------------------------------------------------------+
"""


def test_the_table_of_2025() -> None:
    facts = read(TABLE)
    assert (facts.smi_version, facts.driver_version, facts.cuda_driver_version) == (
        "575.57.08",
        "575.57.08",
        "12.9",
    )
    first, second = devices(TABLE)
    assert (first.name, first.pci, first.persistence_mode) == ("NVIDIA B200", "00000000:1B:00.0", True)
    assert (first.power_w, first.power_limit_w, first.utilisation_pct) == (141.0, 1000.0, 87)
    assert first.memory_used_bytes == 170000 * MIB and first.temperature_c == 33
    assert first.processes is not None and first.processes[0].pid == 3141592
    assert second.processes == ()
    assert (second.ecc_uncorrected_volatile, second.compute_mode) == (4, "exclusive_process")
    assert (second.mig_mode, second.persistence_mode) == (True, False)


def test_the_table_of_2015() -> None:
    first, second = devices((HERE / "smi_table_2015.txt").read_text())
    assert (first.name, first.pci) == ("Tesla K80", "00000000:05:00.0")
    assert (first.ecc_uncorrected_volatile, first.compute_mode) == (2, "exclusive_process")
    assert (second.ecc_mode, second.compute_mode, second.persistence_mode) == (False, "prohibited", False)
    assert first.processes is not None and first.processes[0].used_bytes == 33 * MIB


def test_mig_slices_and_cells_that_say_err() -> None:
    first, second, third = devices((HERE / "smi_table_mig_and_errors.txt").read_text())
    assert first.mig_mode is True and len(first.mig_instances) == 2
    assert first.utilisation_pct is None and first.unread["utilisation_pct"].cause is SkipCause.UNSUPPORTED
    assert second.lost is True and second.power_w is None
    assert second.unread["power_w"].cause is SkipCause.FAILED
    # A star beside the mode: it changes at the next reset.
    assert second.mig_mode is None and "mig_mode" in second.unread
    assert third.lost is True and third.name is None and third.pci == "00000000:47:00.0"


def test_one_sensor_that_says_err_does_not_lose_the_gpu() -> None:
    (gpu, _) = devices(TABLE.replace("141W / 1000W", "ERR! / 1000W"))
    assert gpu.lost is None and gpu.power_w is None and gpu.power_limit_w == 1000.0


def test_of_a_watch_loop_the_last_table_counts() -> None:
    later = TABLE.replace("07:00:00", "07:00:05").replace("87%", " 3%")
    assert devices(TABLE + later)[0].utilisation_pct == 3


def test_not_applicable_is_none_and_not_zero() -> None:
    text = TABLE.replace("141W / 1000W", "N/A  /  N/A ").replace(
        "|                    0 |", "|                  N/A |"
    )
    gpu = devices(text)[0]
    assert gpu.power_w is None and gpu.power_limit_w is None
    assert gpu.ecc_uncorrected_volatile is None and gpu.ecc_mode is None


def test_a_whole_query_log() -> None:
    facts = read((HERE / "smi_query_h100.txt").read_text())
    assert (facts.driver_version, facts.cuda_driver_version) == ("535.161.07", "12.2")
    first, second = facts.devices or ()
    assert (first.index, first.uuid) == (0, "GPU-11111111-2222-3333-4444-555555555555")
    assert first.throttle_reasons == ("hw_slowdown", "hw_thermal")
    assert (first.ecc_uncorrected_volatile, first.ecc_corrected_volatile) == (6, 5)
    assert (first.ecc_uncorrected_aggregate, first.sram_threshold_exceeded) == (4, True)
    assert (first.remapped_uncorrectable, first.remap_pending, first.remap_failed) == (3, True, False)
    assert (first.pcie_width, first.pcie_width_max, first.pcie_gen, first.pcie_replays) == (8, 16, 5, 3)
    assert (first.power_w, first.power_limit_w, first.sm_clock_mhz) == (312.45, 700.0, 1200)
    assert (first.fabric_state, first.fabric_status) == (2, None)
    assert first.processes is not None and first.processes[0].name == "/usr/bin/python3"
    assert second.recovery_action == 4 and second.processes == ()
    assert second.pcie_width is None and second.unread["pcie_width"].cause is SkipCause.FAILED
    assert (second.fabric_state, second.fabric_status) == (3, 0)


OLD_ECC = """\
    Ecc Errors
        Volatile
            Single Bit
                Device Memory               : 2
                Total                       : 2
            Double Bit
                Device Memory               : 1
                Total                       : 1
        Aggregate
            Double Bit
                Total                       : 7
    Retired Pages
        Single Bit ECC                      : 3
        Double Bit ECC                      : 1
        Pending                             : Yes
""".replace("Ecc", "ECC")


def test_an_excerpt_of_a_volta_log() -> None:
    (gpu,) = devices(OLD_ECC)
    assert gpu.index == UNKNOWN_INDEX and gpu.pci is None
    assert (gpu.ecc_corrected_volatile, gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate) == (
        2,
        1,
        7,
    )
    assert (gpu.retired_pages, gpu.retired_pages_pending) == (4, True)


@pytest.mark.parametrize("heading", ["Clocks Throttle Reasons", "Clocks Event Reasons"])
def test_throttle_reasons_by_both_names_and_without_indentation(heading: str) -> None:
    lines = [
        f"    {heading}",
        "        Idle            : Not Active",
        "        HW Power Brake Slowdown : Active",
    ]
    for text in ("\n".join(lines), "\n".join(line.strip() for line in lines)):
        assert devices(text)[0].throttle_reasons == ("power_brake",)


def test_numbers_of_a_mig_slice_are_not_the_gpus() -> None:
    text = (
        "GPU 00000000:07:00.0\n    MIG Mode\n        Current : Enabled\n    MIG Device\n        Index : 0\n"
        "        FB Memory Usage\n            Total : 9856 MiB\n    FB Memory Usage\n        Total : 81920 MiB\n"
    )
    assert devices(text)[0].memory_total_bytes == 81920 * MIB


def test_lists_with_links_of_each_spelling() -> None:
    text = (
        "GPU 4: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000004)\n"
        "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n\t Link 2: Active\n\t Link 10: 26.562 GB/s\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-bbbb)\n"
    )
    (gpu,) = devices(text)
    assert gpu.index == 4 and gpu.nvlinks is not None
    assert [(link.link, link.active, link.speed_gbps) for link in gpu.nvlinks] == [
        (0, True, 25.0), (1, False, None), (2, True, None), (10, True, 26.562),
    ]  # fmt: skip
    assert gpu.mig_mode is True


def test_a_topology_with_named_nics_and_underlines() -> None:
    facts = read(clean_pasted((HERE / "smi_topo_underlined.txt").read_text()))
    kinds = {(link.a, link.b): link.kind for link in facts.pair_links}
    assert kinds[("GPU0", "GPU1")] == "NV12" and kinds[("GPU0", "mlx5_0")] == "PXB"
    assert [gpu.numa_node for gpu in facts.devices or ()] == [0, 1]
    assert len((facts.devices or ())[0].local_cpus or ()) == 128


def test_a_topology_cut_at_80_columns() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-3,1\nGPU1\tSYS\t X \tN/A\n"
    facts = read(text)
    assert facts.pair_links[0].kind == "SYS"
    assert [gpu.local_cpus for gpu in facts.devices or ()] == [(0, 1, 2, 3), None]


def test_csv_with_units_errors_and_a_lost_gpu() -> None:
    text = (
        "index, name, pci.bus_id, power.draw [W], clocks_event_reasons.hw_slowdown, memory.used [MiB]\n"
        "0, NVIDIA A30, 00000000:3B:00.0, 91.20 W, Active, 12 MiB\n"
        "1, NVIDIA A30, 00000000:5E:00.0, [Unknown Error], Not Active, [N/A]\n"
        "2, NVIDIA A30, 00000000:AF:00.0, [GPU is lost], [GPU is lost], [GPU is lost]\n"
    )
    first, second, third = devices(text)
    assert (first.power_w, first.throttle_reasons, first.memory_used_bytes) == (
        91.2,
        ("hw_slowdown",),
        12 * MIB,
    )
    assert second.power_w is None and second.unread["power_w"].cause is SkipCause.FAILED
    assert second.throttle_reasons == ()
    assert third.lost is True


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", NvmlState.VERSION_MISMATCH),
        ("Failed to initialize NVML: Unknown Error", NvmlState.UNKNOWN_ERROR),
        ("Failed to initialize NVML: Insufficient Permissions", NvmlState.NO_PERMISSION),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
         "NVIDIA driver is installed and running.", NvmlState.DRIVER_NOT_LOADED),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", NvmlState.NO_LIBRARY),
        ("No devices were found", NvmlState.UNKNOWN_ERROR),
    ],
)  # fmt: skip
def test_errors_in_one_line(line: str, state: NvmlState) -> None:
    facts = read(f"$ nvidia-smi\n{line}\n")
    assert facts.nvml_state is state and facts.nvml_error is not None and facts.nvml_error in line


def test_a_mismatch_names_both_versions() -> None:
    assert read("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560.35\n"
                ).nvml_library_version == "560.35"  # fmt: skip
    facts = read(
        "Jan  2 03:04:05 n1 kernel: NVRM: API mismatch: the client has the version 550.54.14, but\n"
        "Jan  2 03:04:05 n1 kernel: NVRM: this kernel module has the version 550.54.15.  Please\n"
    )
    assert (facts.nvml_library_version, facts.kernel_module_version) == ("550.54.14", "550.54.15")


@pytest.mark.parametrize(
    ("line", "index", "pci"),
    [
        ("Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot the system", UNKNOWN_INDEX,
         "00000000:C1:00.0"),
        ("Unable to determine the device handle for GPU5: 0000:C1:00.0: Unknown Error", 5, "00000000:C1:00.0"),
        ("Unable to determine the device handle for gpu 0000:C1:00.0: Unknown Error", UNKNOWN_INDEX, "00000000:C1:00.0"),
    ],
)  # fmt: skip
def test_a_gpu_without_handle_is_lost(line: str, index: int, pci: str) -> None:
    (gpu,) = devices(line)
    assert (gpu.lost, gpu.index, gpu.pci) == (True, index, pci)
    assert read(line).source_note is not None


def test_formats_pasted_one_after_another_are_joined_by_gpu() -> None:
    text = TABLE.replace("NVIDIA B200 ", "NVIDIA B2... ") + (
        "GPU 0: NVIDIA B200 (UUID: GPU-cccccccc-0000-0000-0000-000000000000)\n\t Link 0: 53.125 GB/s\n"
    )
    first, second = devices(text)
    assert (first.name, first.uuid) == ("NVIDIA B200", "GPU-cccccccc-0000-0000-0000-000000000000")
    assert first.pci == "00000000:1B:00.0" and first.nvlinks is not None
    assert second.nvlinks is None


def test_prose_is_no_nvidia_smi() -> None:
    for text in (
        "Our GPU 0 is slow\nECC Errors\nhappen often",
        "Fabric\nis nice",
        "a, b, c\n1, 2, 3",
        "name, index",
    ):
        assert not nvidia_smi.sniff(text), text
