"""One PCI address, written in the kernel's way or in NVML's way, whatever way it was found."""

from __future__ import annotations

import re

# Seen: "00000000:3B:00.0" (NVML), "0000:3b:00.0" (sysfs), "PCI:0000:3b:00" (Xid lines), "3b:00.0" (lspci),
# "000:BA:80.0" (a broken nvidia-smi message). The domain of a cloud VM or of VMD is not zero.
_ADDRESS = re.compile(
    r"(?:PCI:)?(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


def sysfs_address(text: str) -> str | None:
    """`text` as in /sys/bus/pci/devices: "0000:3b:00.0". None when it is no PCI address.

    A missing domain or function counts as 0. The domain keeps four digits, or more when it needs them.
    """
    parts = _parts(text)
    return None if parts is None else "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)


def nvml_address(text: str) -> str | None:
    """`text` as NVML and nvidia-smi print: "00000000:3B:00.0". None when it is no PCI address."""
    parts = _parts(text)
    return None if parts is None else "{:08X}:{:02X}:{:02X}.{:X}".format(*parts)


def same_device(a: str | None, b: str | None) -> bool:
    """True when both texts name the same PCI function."""
    if a is None or b is None:
        return False
    parts = _parts(a)
    return parts is not None and parts == _parts(b)


def _parts(text: str) -> tuple[int, int, int, int] | None:
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.group("domain", "bus", "device", "function")
    return int(domain or "0", 16), int(bus, 16), int(device, 16), int(function or "0")
