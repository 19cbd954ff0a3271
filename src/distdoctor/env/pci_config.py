"""What a PCI device's configuration space says about Access Control Services. Pure functions over its bytes.

Offsets and bits: PCI Express Base Specification, "PCI Express Capability Structure" and "ACS Extended
Capability"; the same names in Linux' include/uapi/linux/pci_regs.h.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

# Without CAP_SYS_ADMIN in the host's user namespace the kernel gives only this much.
UNPRIVILEGED_BYTES = 64

LEGACY_BYTES = 256
FULL_BYTES = 4096

CAPABILITY_POINTER = 0x34
CAPABILITY_PCIE = 0x10
EXTENDED_CAPABILITY_ACS = 0x000D
ACS_CONTROL_OFFSET = 6


class Acs(IntFlag):
    """Bits of the ACS control register, by lspci's names."""

    SrcValid = 0x01
    TransBlk = 0x02
    ReqRedir = 0x04
    CmpltRedir = 0x08
    UpstreamFwd = 0x10
    EgressCtrl = 0x20
    DirectTrans = 0x40


# These send what one device writes to another up to the root complex, or refuse it.
REDIRECTING = Acs.ReqRedir | Acs.CmpltRedir | Acs.UpstreamFwd | Acs.EgressCtrl


class PortType(IntEnum):
    """Device/Port Type of the PCI Express capability, as far as bridges go."""

    ENDPOINT = 0
    ROOT_PORT = 4
    SWITCH_UPSTREAM = 5
    SWITCH_DOWNSTREAM = 6
    PCIE_TO_PCI = 7
    PCI_TO_PCIE = 8


def acs_control(config: bytes) -> int | None:
    """The ACS control register, or None when the device has no such capability.

    Raises ValueError when the extended configuration space (above 256 bytes) is not in `config`, or when the
    device does not answer (all bits set).
    """
    if len(config) <= LEGACY_BYTES:
        raise ValueError(f"only {len(config)} bytes of configuration space are readable")
    if config[:4] == b"\xff\xff\xff\xff":
        raise ValueError("the device does not answer (configuration space reads as all ones)")
    offset = extended_capability(config, EXTENDED_CAPABILITY_ACS)
    if offset is None:
        return None
    register = config[offset + ACS_CONTROL_OFFSET : offset + ACS_CONTROL_OFFSET + 2]
    if len(register) < 2:
        raise ValueError("configuration space ends inside the ACS capability")
    return int.from_bytes(register, "little") & 0x7F


def extended_capability(config: bytes, wanted: int) -> int | None:
    """Offset of an extended capability. A list that loops or leaves the space counts as ended."""
    offset, seen = LEGACY_BYTES, set[int]()
    while LEGACY_BYTES <= offset <= len(config) - 4 and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == wanted:
            return offset
        offset = (header >> 20) & 0xFFC
    return None


def port_type(config: bytes) -> PortType | None:
    """What kind of PCI Express port this is; None for conventional PCI, or when it cannot be told."""
    if len(config) <= CAPABILITY_POINTER:
        return None
    offset, seen = config[CAPABILITY_POINTER] & 0xFC, set[int]()
    while 0x40 <= offset <= min(len(config), LEGACY_BYTES) - 4 and offset not in seen:
        seen.add(offset)
        if config[offset] == CAPABILITY_PCIE:
            value = (config[offset + 2] >> 4) & 0xF
            return PortType(value) if value in set(PortType) else None
        offset = config[offset + 1] & 0xFC
    return None


def acs_names(control: int) -> str:
    """The bits that are on, as lspci prints them: "SrcValid+ ReqRedir+"; empty when none is."""
    return " ".join(f"{bit.name}+" for bit in Acs if control & bit)
