"""Host facts of a bare-metal server, a virtual machine, a GH200, and trees with holes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distdoctor.env.collect.host import collect_host
from distdoctor.env.collect.world import this_world
from distdoctor.report.model import SkipCause
from distdoctor.units import KIB
from fake_world import make_world
from host_trees import (
    ARM_CPUINFO,
    HalfReadableWorld,
    bare_metal,
    meminfo,
    pci_device,
    plain_file,
    x86_cpuinfo,
)
from pci_bytes import config_space

GPU_A = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"


def test_a_bare_metal_server_is_described(tmp_path: Path) -> None:
    facts = collect_host(make_world(tmp_path, bare_metal()))
    assert (facts.os_name, facts.kernel, facts.architecture) == (
        "Ubuntu 22.04.4 LTS",
        "5.15.0-105-generic",
        "x86_64",
    )
    assert (facts.num_cpus, facts.num_sockets) == (4, 2)
    assert facts.cpu_model == "Intel(R) Xeon(R) Platinum 8480C"
    assert facts.numa_nodes is not None
    assert [node.cpus for node in facts.numa_nodes] == [(0, 1), (2, 3)]
    assert facts.numa_nodes[1].memory_total_bytes == 1056500000 * KIB
    assert (facts.memory_total_bytes, facts.swap_total_bytes) == (2_113_000_000 * KIB, 0)
    assert facts.boot_utc == "2025-10-09T08:53:20+00:00"
    assert (facts.numa_balancing, facts.transparent_hugepage) == (1, "madvise")
    assert facts.cpu_governors == {"powersave": 4}
    assert facts.port_range == (32768, 60999)
    assert facts.virtualisation == "none"
    assert facts.iommu_groups == {"DMA": 2, "identity": 1}
    assert facts.kernel_modules == ("mlx5_core", "nvidia", "nvidia_uvm")
    assert facts.gpu_numa_nodes == {"0000:01:00.0": 0, "0000:81:00.0": 1}
    assert facts.acs_relevant_bridges == ("0000:00:01.0", "0000:80:01.0")


def test_a_clock_is_not_asked_of_a_copied_tree(tmp_path: Path) -> None:
    facts = collect_host(make_world(tmp_path, bare_metal()))
    assert facts.clock_synchronised is None
    assert facts.clock_utc is None


@pytest.mark.parametrize(("leap", "synchronised"), [("Normal", True), ("Not synchronised", False)])
def test_chrony_is_believed_about_the_clock(tmp_path: Path, leap: str, synchronised: bool) -> None:
    script = f"#!/bin/sh\necho 'Reference ID    : 0A000001 (ntp1)'\necho 'Leap status     : {leap}'\n"
    facts = collect_host(make_world(tmp_path, {**bare_metal(), "/usr/bin/chronyc": script}))
    assert facts.clock_synchronised is synchronised
    assert facts.sources["clock_synchronised"] == "chronyc tracking"


def test_a_chronyd_that_cannot_be_asked_decides_nothing(tmp_path: Path) -> None:
    script = "#!/bin/sh\necho '506 Cannot talk to daemon'\nexit 1\n"
    facts = collect_host(make_world(tmp_path, {**bare_metal(), "/usr/bin/chronyc": script}))
    assert facts.clock_synchronised is None


def test_acs_is_read_from_configuration_space(tmp_path: Path) -> None:
    world = make_world(tmp_path, bare_metal())
    plain_file(tmp_path, "/sys/devices/pci0000:00/0000:00:01.0/config", config_space(acs=0x1D, port_type=6))
    plain_file(tmp_path, "/sys/devices/pci0000:80/0000:80:01.0/config", config_space(acs=0, port_type=4))
    facts = collect_host(world)
    assert facts.acs_bridges == {"0000:00:01.0": 0x1D, "0000:80:01.0": 0}
    assert facts.acs_port_types == {"0000:00:01.0": "switch downstream", "0000:80:01.0": "root port"}


def test_without_root_acs_is_unread_not_off(tmp_path: Path) -> None:
    world = make_world(tmp_path, bare_metal())
    for folder in ("pci0000:00/0000:00:01.0", "pci0000:80/0000:80:01.0"):
        plain_file(tmp_path, f"/sys/devices/{folder}/config", config_space(acs=0x1D, size=64))
    facts = collect_host(world)
    assert facts.acs_bridges is None
    assert facts.unread["acs_bridges"].cause is SkipCause.NEEDS_ROOT


def test_iommu_domains_are_told_per_gpu(tmp_path: Path) -> None:
    files = {**bare_metal(), f"{GPU_A}/iommu_group/type": "DMA-FQ\n"}
    assert collect_host(make_world(tmp_path, files)).device_iommu_types == {"0000:01:00.0": "DMA-FQ"}


def test_an_amd_accelerator_and_an_rdma_nic_are_endpoints(tmp_path: Path) -> None:
    files = {
        **pci_device("0000:0c:00.0", "pci0000:00/0000:00:03.1", vendor="0x1002", kind="0x120000"),
        **pci_device("0000:0d:00.0", "pci0000:00/0000:00:03.2", vendor="0x15b3", kind="0x020700"),
        "/sys/devices/pci0000:00/0000:00:03.2/0000:0d:00.0/infiniband/mlx5_0/node_guid": "x\n",
    }
    assert collect_host(make_world(tmp_path, files)).acs_relevant_bridges == ("0000:00:03.1", "0000:00:03.2")


def test_a_gh200_is_read_in_arms_words(tmp_path: Path) -> None:
    node = "/sys/devices/system/node"
    files = {
        "/proc/cpuinfo": ARM_CPUINFO,
        "/proc/meminfo": meminfo(500_000_000, 400_000_000),
        "/proc/sys/kernel/arch": "aarch64\n",
        "/sys/devices/system/cpu/online": "0-3\n",
        "/sys/class/dmi/id/sys_vendor": "NVIDIA\n",
        "/sys/class/dmi/id/product_name": "GH200 P3880\n",
        f"{node}/node0/cpulist": "0-3\n",
        f"{node}/node1/cpulist": "\n",
        f"{node}/node1/meminfo": "Node 1 MemTotal:       99614720 kB\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    }
    for cpu in range(4):
        files[f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = "0\n"
    facts = collect_host(make_world(tmp_path, files))
    assert facts.cpu_model == "Arm Neoverse V2"
    assert facts.virtualisation == "none"
    assert (facts.num_cpus, facts.num_sockets) == (4, 1)
    assert facts.numa_nodes is not None
    assert facts.numa_nodes[1].cpus == (), "the GPU's memory is a node without CPUs"
    assert facts.iommu_groups == {}


@pytest.mark.parametrize(
    ("vendor", "product", "flag", "kind"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", True, "kvm"),
        ("Amazon EC2", "p5.48xlarge", True, "kvm"),
        ("Amazon EC2", "i3.metal", False, "none"),
        ("Google", "Google Compute Engine", True, "kvm"),
        ("Microsoft Corporation", "Virtual Machine", True, "microsoft"),
        ("VMware, Inc.", "VMware7,1", True, "vmware"),
        ("", "", True, "vm"),
        ("Dell Inc.", "PowerEdge XE9680", False, "none"),
    ],
)
def test_virtual_machines_are_told_by_flag_and_dmi(
    tmp_path: Path, vendor: str, product: str, flag: bool, kind: str
) -> None:
    files = {
        "/proc/cpuinfo": x86_cpuinfo(1, 1, hypervisor=flag),
        "/sys/class/dmi/id/sys_vendor": f"{vendor}\n",
        "/sys/class/dmi/id/product_name": f"{product}\n",
    }
    assert collect_host(make_world(tmp_path, files)).virtualisation == kind


def test_wsl_is_told_by_its_kernel(tmp_path: Path) -> None:
    files = {"/proc/version": "Linux version 5.15.146.1-microsoft-standard-WSL2 (root@x)\n"}
    assert collect_host(make_world(tmp_path, files)).virtualisation == "wsl"


def test_an_arm_machine_without_dmi_is_neither(tmp_path: Path) -> None:
    facts = collect_host(make_world(tmp_path, {"/proc/cpuinfo": ARM_CPUINFO}))
    assert facts.virtualisation is None
    assert "virtualisation" in facts.unread


@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"/etc/systemd/logind.conf": "[Login]\n#RemoveIPC=yes\n"}, True),
        ({"/etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, False),
        ({"/etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n#RemoveIPC=yes\n"}, False),
        (
            {
                "/etc/systemd/logind.conf": "[Login]\n#RemoveIPC=yes\n",
                "/usr/lib/systemd/logind.conf.d/50-site.conf": "[Login]\nRemoveIPC=no\n",
            },
            False,
        ),
        (
            {
                "/etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n",
                "/etc/systemd/logind.conf.d/90-late.conf": "[Login]\nRemoveIPC=yes\n",
                "/etc/systemd/logind.conf.d/10-early.conf": "[Login]\nRemoveIPC=no\n",
            },
            True,
        ),
        ({"/etc/systemd/logind.conf": "[Login]\nRemoveIPC=perhaps\n"}, None),
        ({"/etc/hostname": "x\n"}, None),
    ],
)
def test_remove_ipc_follows_systemds_order_of_files(
    tmp_path: Path, files: dict[str, str], value: bool | None
) -> None:
    facts = collect_host(make_world(tmp_path, files))
    assert facts.remove_ipc is value
    if value is None:
        assert "remove_ipc" in facts.unread


def test_half_readable_files_leave_the_rest_readable(tmp_path: Path) -> None:
    make_world(tmp_path, bare_metal())
    broken = {
        "/proc/meminfo": errno.EIO,
        "/sys/devices/system/node/node1/cpulist": errno.EACCES,
        "/proc/sys/kernel/numa_balancing": errno.EACCES,
    }
    facts = collect_host(HalfReadableWorld(root=tmp_path, broken=broken))
    assert facts.unread["memory_total_bytes"].cause is SkipCause.FAILED
    assert facts.unread["numa_nodes"].cause is SkipCause.NEEDS_ROOT
    assert facts.unread["numa_balancing"].cause is SkipCause.NEEDS_ROOT
    assert facts.num_cpus == 4


def test_nonsense_in_files_is_unread(tmp_path: Path) -> None:
    files = {
        "/proc/stat": "btime 99999999999999999999\n",
        "/proc/uptime": "soon\n",
        "/proc/loadavg": "\n",
        "/proc/meminfo": "MemTotal: plenty\n",
        "/proc/cpuinfo": "nothing here\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise never\n",
        "/proc/sys/net/ipv4/ip_local_port_range": "1\n",
        "/sys/devices/system/cpu/online": "x\n",
    }
    facts = collect_host(make_world(tmp_path, files))
    for name in (
        "boot_utc", "uptime_s", "load_1min", "memory_total_bytes", "cpu_model", "num_cpus", "num_sockets",
        "transparent_hugepage", "port_range", "cpu_governors",
    ):  # fmt: skip
        assert getattr(facts, name) is None, name
        assert name in facts.unread, name


def test_this_machine_is_read_without_an_error() -> None:
    facts = collect_host(this_world())
    assert facts.kernel
    assert facts.num_cpus
    assert facts.clock_utc
