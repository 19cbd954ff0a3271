"""What kernel lines mean: one row a pattern. Sources: kernel drivers' own messages, NVIDIA's Xid catalogue.

Groups that a pattern may name: pci, code, device, pid, process, uuid, detail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.env.facts.kernel_log import KernelEventKind

_PCI = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_FULL_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_NIC = rf"(?:mlx5_core|mlx4_core|bnxt_en|ice|irdma|i40e|ixgbe|ionic|efa|ena|qede) (?P<pci>{_FULL_PCI})(?: (?P<device>[\w.-]+)(?: \([\w ]+\))?)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """`words` are cheap to look for first; `regex` decides."""

    kind: KernelEventKind
    words: tuple[str, ...]
    regex: re.Pattern[str]
    fatal: bool | None = None


def _row(
    kind: KernelEventKind, words: str | tuple[str, ...], regex: str, *, fatal: bool | None = None
) -> Pattern:
    words = (words,) if isinstance(words, str) else words
    return Pattern(kind=kind, words=words, regex=re.compile(regex), fatal=fatal)


_K = KernelEventKind

# The first row that matches decides.
PATTERNS: tuple[Pattern, ...] = (
    # "NVRM: Xid (PCI:0000:ae:00): 79, pid=…", before 2014 "NVRM: Xid (0000:ae:00): 79", with MIG "(… GPU-I:05)".
    _row(_K.XID, "Xid", rf"\bXid \((?:PCI:)?(?P<pci>{_PCI})(?: GPU-I:\d+)?\): (?P<code>\d{{1,4}})(?:, (?P<detail>.*))?"),
    _row(_K.SXID, "SXid",
         rf"(?:(?P<device>nvidia-nvswitch\d+): )?SXid \((?:PCI:)?(?P<pci>{_PCI})\): (?P<code>\d{{1,6}})(?:, (?P<detail>.*))?"),
    _row(_K.OFF_BUS, "fallen off the bus", rf"(?:GPU (?P<pci>{_PCI}).{{0,40}})?fallen off the bus"),
    _row(_K.NVML_LOST, "GPU_IS_LOST",
         r"(?:(?P<uuid>GPU-[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}).{0,80})?(?:ERROR_)?GPU_IS_LOST"),
    _row(_K.RM_INIT_FAILED, ("RmInitAdapter", "rm_init_adapter"),
         rf"(?:GPU (?P<pci>{_PCI}).{{0,20}})?(?:RmInitAdapter failed|rm_init_adapter failed)(?P<detail>.*)"),
    _row(_K.MISMATCH, "API mismatch", r"NVRM: API mismatch(?P<detail>.*)"),
    _row(_K.OOM_KILL, "Kill", r"(?:Out of memory|out of memory).{0,20}: Kill(?:ed)? process (?P<pid>\d+),? \((?P<process>[^)]{1,64})\)(?P<detail>.*)"),
    _row(_K.OOM_KILL, "oom-kill:", r"oom-kill:constraint=(?P<detail>.*?)task=(?P<process>[^,]{1,64}),pid=(?P<pid>\d+)"),
    _row(_K.OOM_KILL, "due to memory", r"systemd-oomd.*Killed (?P<process>\S+) due to memory(?P<detail>.*)"),
    _row(_K.NIC_POWER, "nsufficient power", rf"{_NIC}.*(?:[Dd]etected insufficient power|[Ii]nsufficient power)(?P<detail>.*)"),
    _row(_K.NIC_CABLE, "Port module event", rf"{_NIC}:? .*?Port module event(?:\[error\])?: (?P<detail>module \d+, (?:Cable error|Bad).*)"),
    _row(_K.NIC_CABLE, "igh temperature", rf"{_NIC}:? (?P<detail>.*[Hh]igh temperature.*)"),
    _row(_K.NIC_FATAL, ("health", "atal", "tx timeout", "TX timeout", "internal error"),
         rf"{_NIC}:? .*?(?P<detail>(?:health compromised|[Ff]atal error|FW fatal|firmware fatal|health poll failed|"
         r"handling bad device|device's health|mlx5_error_sw_reset|internal error|TX timeout on queue|"
         r"reached miss count).*)", fatal=True),
    _row(_K.LINK_DOWN, ("Link DOWN", "ink down", "ink is Down", "ink is down", "Link Down", "lost carrier"),
         rf"{_NIC}:? .*(?:Link DOWN|[Ll]ink down|[Ll]ink is [Dd]own)(?P<detail>.*)"),
    _row(_K.LINK_DOWN, ("ink is Down", "ink is down", "Link down"),
         r"(?:^|\s)(?P<device>(?:eth|en|ib|bond|roce|rdma)[\w.-]*): (?:NIC )?[Ll]ink (?:is )?[Dd]own(?P<detail>.*)"),
    _row(_K.LINK_UP, ("Link ACTIVE", "ink up", "ink is Up", "ink is up", "Link Up"),
         rf"{_NIC}:? .*(?:Link ACTIVE|[Ll]ink up|[Ll]ink is [Uu]p)(?P<detail>.*)"),
    _row(_K.LINK_UP, ("ink is Up", "ink is up", "Link up", "becomes ready"),
         r"(?:^|\s)(?P<device>(?:eth|en|ib|bond|roce|rdma)[\w.-]*): (?:(?:NIC )?[Ll]ink (?:is )?[Uu]p|link becomes ready)(?P<detail>.*)"),
    _row(_K.PCIE_LIMITED, "available PCIe bandwidth",
         rf"(?P<pci>{_FULL_PCI}): (?P<detail>[\d.]+ Gb/s available PCIe bandwidth, limited by .*)"),
    _row(_K.PCIE_ERROR, ("AER: Uncorrected", "AER: Multiple Uncorrected", "severity=Uncorrect", "severity=Fatal"),
         rf"(?P<pci>{_FULL_PCI}): (?P<detail>(?:AER: )?(?:(?:Multiple )?Uncorrect(?:ed|able).*|PCIe Bus Error: severity=(?:Uncorrect(?:ed|able)|Fatal).*))",
         fatal=True),
    _row(_K.PCIE_ERROR, "DPC", rf"(?P<pci>{_FULL_PCI}): (?P<detail>(?:pciehp.*|DPC: containment event.*|.*Surprise Down.*))", fatal=True),
    _row(_K.PCIE_ERROR, ("AER: Correct", "AER: Multiple Correct", "severity=Correct"),
         rf"(?P<pci>{_FULL_PCI}): (?P<detail>(?:AER: )?(?:(?:Multiple )?Correct(?:ed|able).*|PCIe Bus Error: severity=Correct(?:ed|able).*))",
         fatal=False),
    _row(_K.NCCL_SEGFAULT, "libnccl",
         r"(?P<process>[^\s\[\]]{1,64})\[(?P<pid>\d+)\]:? (?P<detail>(?:segfault at|general protection|traps?:).*libnccl[\w.-]*\.so.*)"),
    _row(_K.NCCL_SEGFAULT, "libnccl", r"traps: (?P<process>[^\s\[\]]{1,64})\[(?P<pid>\d+)\] (?P<detail>.*libnccl[\w.-]*\.so.*)"),
    _row(_K.MEMORY_ERROR, ("EDAC", "CE memory", "UE memory"), r"(?P<device>EDAC \w+\d*): (?P<detail>(?:\d+ )?(?:UE|Uncorrected)\b.*)", fatal=True),
    _row(_K.MEMORY_ERROR, "EDAC", r"(?P<device>EDAC \w+\d*): (?P<detail>(?:\d+ )?(?:CE|Corrected)\b.*)", fatal=False),
    _row(_K.MEMORY_ERROR, ("Memory failure", "hardware memory error", "Hardware Memory Error"),
         r"(?P<detail>Memory failure: 0x[0-9a-f]+.*|[Uu]ncorrected [Hh]ardware [Mm]emory [Ee]rror.*)", fatal=True),
    _row(_K.MEMORY_ERROR, "[Hardware Error]: event severity",
         r"(?P<detail>\[Hardware Error\]: event severity: (?:fatal|recoverable|panic).*)", fatal=True),
    _row(_K.MEMORY_ERROR, "Machine Check", r"(?P<detail>\[Hardware Error\]: .*Machine Check(?: Exception)?: .*|mce: .*Machine check events logged)"),
    _row(_K.FABRIC_MANAGER, ("fabricmanager", "NVSwitch driver"),
         r"(?P<device>nv-fabricmanager|nvidia-fabricmanager(?:\.service)?|fabricmanager)(?:\[\d+\])?: (?P<detail>.*(?:[Ff]ail|FAIL|[Ee]rror|NV_WARN|NV_ERR|[Aa]bort|n[o']t match).*)"),
    _row(_K.FABRIC_MANAGER, ("NVSwitch", "NV_WARN"),
         r"(?P<detail>.*NVSwitch.*(?:failed with error|NV_WARN_NOTHING_TO_DO|NV_ERR_).*)"),
)  # fmt: skip

# A boot begins with one of these lines.
BOOT = re.compile(r"^(?:Linux version \d|Booting Linux on physical CPU|microcode: microcode updated early)")
