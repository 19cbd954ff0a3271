"""Kernel logs in every dress, as events."""

from __future__ import annotations

import json

import pytest

from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind
from distdoctor.env.readers import kernel_log

K = KernelEventKind
XID = "NVRM: Xid (PCI:0000:9a:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def events(text: str) -> tuple[KernelEvent, ...]:
    found = kernel_log.read(text, "log").events
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "stamp", "utc", "host"),
    [
        (f"[81234.567890] {XID}", "[81234.567890]", None, None),
        (f"[81234.567890] [ T1234] {XID}", "[81234.567890]", None, None),
        (f"[Tue Mar  5 11:22:33 2024] {XID}", "[Tue Mar  5 11:22:33 2024]", None, None),
        (f"2024-03-05T11:22:33,123456+01:00 {XID}", "2024-03-05T11:22:33,123456+01:00", "2024-03-05T10:22:33Z", None),
        (f"2024-03-05T11:22:33+0000 gpu-3 kernel: {XID}", "2024-03-05T11:22:33+0000", "2024-03-05T11:22:33Z", "gpu-3"),
        (f"Mar  5 11:22:33 gpu-3 kernel: {XID}", "Mar  5 11:22:33", None, "gpu-3"),
        (f"Mar  5 11:22:33 gpu-3 kernel: [  99.123456] {XID}", "Mar  5 11:22:33", None, "gpu-3"),
        (f"3,512,81234567890,-;{XID}", "[81234.567890]", None, None),
        (f"<3>[   12.000001] {XID}", "[12.000001]", None, None),
        (f"kern  :err   : [   12.000001] {XID}", "[12.000001]", None, None),
        (f"1709637753.123456 gpu-3 kernel: {XID}", "1709637753.123456", "2024-03-05T11:22:33Z", "gpu-3"),
        (json.dumps({"MESSAGE": XID, "__REALTIME_TIMESTAMP": "1709637753123456", "_HOSTNAME": "gpu-3",
                     "SYSLOG_IDENTIFIER": "kernel"}), "2024-03-05T11:22:33Z", "2024-03-05T11:22:33Z", "gpu-3"),
        (json.dumps({"MESSAGE": list(XID.encode()), "_HOSTNAME": "gpu-3"}), None, None, "gpu-3"),
        (XID, None, None, None),
    ],
)  # fmt: skip
def test_every_dress_of_a_line(line: str, stamp: str | None, utc: str | None, host: str | None) -> None:
    assert kernel_log.sniff(line)
    (event,) = events(line)
    assert (event.kind, event.code, event.pci, event.pid) == (K.XID, 79, "0000:9a:00", 1234)
    assert (event.stamp, event.utc, event.host) == (stamp, utc, host)


@pytest.mark.parametrize(
    ("line", "kind", "values"),
    [
        ("NVRM: Xid (0000:05:00): 13, 0001 00000000 0000a0c0", K.XID, {"code": 13, "pci": "0000:05:00"}),
        ("NVRM: Xid (PCI:0000:CB:00 GPU-I:05): 94, pid=7, Contained: SM (0x1)", K.XID, {"code": 94, "pci": "0000:CB:00"}),
        ("NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08", K.XID, {"code": 149, "fatal": True}),
        ("NVRM: Xid (PCI:0000:18:00): 144, SAW_MVB Non-fatal XC0 i0", K.XID, {"code": 144, "fatal": False}),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", K.SXID,
         {"code": 20034, "fatal": True, "device": "nvidia-nvswitch3"}),
        ("NVRM: GPU 0000:9a:00.0: RmInitAdapter failed! (0x24:0xffff:1220)", K.RM_INIT_FAILED, {"pci": "0000:9a:00.0"}),
        ("Out of memory: Killed process 812 (pt_main_thread) total-vm:1kB", K.OOM_KILL,
         {"pid": 812, "process": "pt_main_thread"}),
        ("Out of memory: Kill process 812 (python) score 912 or sacrifice child", K.OOM_KILL, {"process": "python"}),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task=python3,pid=99,uid=0", K.OOM_KILL,
         {"pid": 99, "process": "python3"}),
        ("mlx5_core 0000:3b:00.0 mlx5_2: Port: 1 Link DOWN", K.LINK_DOWN, {"device": "mlx5_2"}),
        ("mlx5_core 0000:3b:00.0 ens3np0: Link up", K.LINK_UP, {"device": "ens3np0"}),
        ("bnxt_en 0000:19:00.0 eth2: NIC Link is Down", K.LINK_DOWN, {"device": "eth2"}),
        ("mlx5_core 0000:3b:00.0: mlx5_pcie_event:299:(pid 1): Detected insufficient power on the PCIe slot (27W).",
         K.NIC_POWER, {"pci": "0000:3b:00.0"}),
        ("mlx5_core 0000:3b:00.0: poll_health:850:(pid 0): device's health compromised - reached miss count",
         K.NIC_FATAL, {"pci": "0000:3b:00.0", "fatal": True}),
        ("mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
         K.NIC_CABLE, {"pci": "0000:3b:00.0"}),
        ("pcieport 0000:00:03.1: AER: Corrected error received: 0000:3b:00.0", K.PCIE_ERROR, {"fatal": False}),
        ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", K.PCIE_ERROR,
         {"fatal": True}),
        ("python3[77]: segfault at 18 ip 00007f sp 00007f error 4 in libnccl.so.2.26.2[7f00+1000]", K.NCCL_SEGFAULT,
         {"pid": 77, "process": "python3"}),
        ("EDAC MC1: 12 CE memory scrubbing error on CPU_SrcID#1", K.MEMORY_ERROR, {"fatal": False}),
        ("EDAC skx MC2: HANDLING MCE MEMORY ERROR", None, {}),
        ("mce: Uncorrected hardware memory error in user-access at 3b116c400", K.MEMORY_ERROR, {"fatal": True}),
        ("nv-fabricmanager[912]: failed to initialize NVSwitch, error NV_ERR_OPERATING_SYSTEM", K.FABRIC_MANAGER, {}),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455", None, {}),
        ("usb 1-1: new high-speed USB device number 4", None, {}),
        ("mlx5_core 0000:3b:00.0 mlx5_2: Port: 1 Link INIT", None, {}),
    ],
)  # fmt: skip
def test_what_lines_mean(line: str, kind: KernelEventKind | None, values: dict[str, object]) -> None:
    found = events(f"[ 4000.000001] {line}")
    assert [event.kind for event in found] == ([kind] if kind else [])
    for name, value in values.items():
        assert getattr(found[0], name) == value, name


def test_a_gpu_that_fell_off_the_bus_over_three_lines() -> None:
    (event,) = events(
        "[1.000001] NVRM: The NVIDIA GPU 0000:e1:00.0\n[1.000001] NVRM: (PCI ID: 10de:2330) installed in this system "
        "has\n[1.000001] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    assert (event.kind, event.pci) == (K.OFF_BUS, "0000:e1:00.0")


def test_prose_about_the_bus_is_no_event() -> None:
    assert events("I think it has fallen off the bus again") == ()


def test_one_kill_written_twice_is_one_event() -> None:
    text = (
        "[9.000001] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=4711,uid=1000\n"
        "[9.000002] Out of memory: Killed process 4711 (python3) total-vm:9kB\n"
        "[9.000003] oom_reaper: reaped process 4711 (python3)\n"
    )
    (event,) = events(text)
    assert "Killed" in event.text and event.line == 1


def test_a_flood_is_counted_and_not_kept() -> None:
    line = "[7.000001] mlx5_core 0000:3b:00.0 mlx5_2: Port: 1 Link DOWN\n"
    found = events(line * 1000)
    assert len(found) == kernel_log.MAX_ALIKE
    assert sum(event.times for event in found) == 1000


def test_events_before_a_boot_are_marked() -> None:
    text = f"[5.000001] {XID}\n[0.000000] Linux version 6.8.0 (x@y) #1\n[6.000001] {XID}\n"
    assert [event.boots_ago for event in events(text)] == [1, 0]


def test_the_uuid_that_the_driver_names_goes_with_the_event() -> None:
    uuid = "GPU-dddddddd-0000-0000-0000-000000000001"
    (event,) = events(f"NVRM: GPU at PCI:0000:9a:00: {uuid}\nNVRM: GPU Board Serial Number: 1\n{XID}\n")
    assert event.uuid == uuid


def test_a_log_without_events_is_recognised_by_its_lines() -> None:
    text = "\n".join(f"[{number:5d}.000001] usb {number}: nothing special" for number in range(10))
    assert kernel_log.sniff(text) and events(text) == ()
    assert not kernel_log.sniff("2024-03-05 11:22:33 INFO step 1 loss 2.0\n" * 10)
    assert not kernel_log.sniff("[rank0]: step 1\n[rank1]: step 1\n" * 10)
