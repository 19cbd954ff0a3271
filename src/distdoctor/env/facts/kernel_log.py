"""Facts from the kernel log: Xid, SXid, lost GPUs, link events, out-of-memory kills."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from distdoctor.env.facts.base import Section


class KernelEventKind(str, Enum):
    """What a kernel line tells."""

    XID = "xid"
    SXID = "sxid"
    OFF_BUS = "gpu fallen off the bus"
    NVML_LOST = "gpu lost"
    RM_INIT_FAILED = "nvidia adapter initialisation failed"
    MISMATCH = "nvidia version mismatch"
    OOM_KILL = "out-of-memory kill"
    LINK_DOWN = "link down"
    LINK_UP = "link up"
    PCIE_LIMITED = "pcie bandwidth limited"
    PCIE_ERROR = "pcie error"
    NIC_FATAL = "nic fatal"
    NIC_POWER = "nic insufficient power"
    NIC_CABLE = "nic cable or module error"
    NCCL_SEGFAULT = "segfault in libnccl"
    FABRIC_MANAGER = "fabric manager"
    MEMORY_ERROR = "memory error"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """One event, in the order of the log."""

    kind: KernelEventKind
    text: str
    code: int | None = None
    """Xid or SXid number."""
    pci: str | None = None
    """"0000:3b:00", as the line has it."""
    device: str | None = None
    """NIC or interface name."""
    utc: str | None = None
    """ISO 8601 when the line has a date with its zone or the boot time is known."""
    stamp: str | None = None
    """The stamp as printed: "[52034.118223]", "Feb 14 05:03:41"."""
    seconds_ago: float | None = None
    process: str | None = None
    pid: int | None = None
    line: int | None = None
    host: str | None = None
    """The host that syslog names."""
    uuid: str | None = None
    detail: str = ""
    """What follows the code: "pid=4242, name=python3, Ch 00000008"."""
    fatal: bool | None = None
    """As the line itself says: SXid and NVLink 5 (Fatal, Nonfatal), PCIe and memory errors (uncorrected, corrected)."""
    boots_ago: int = 0
    """Boots that the same log shows after this line."""
    times: int = 1
    """How many alike lines this one stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogFacts(Section):
    """Events found, and how much of the log was seen."""

    events: tuple[KernelEvent, ...] | None = None
    """None: the log could not be read."""
    source: str | None = None
    """"/dev/kmsg", "journalctl -k", "dmesg", "/var/log/kern.log", or the file's path."""
    covers_since_utc: str | None = None
    num_lines: int | None = None
    oldest_s: float | None = None
    """How long ago the oldest line seen was written, where known."""
