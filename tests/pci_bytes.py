"""PCI configuration spaces as bytes, built from the offsets of the PCI Express specification."""

from __future__ import annotations


def config_space(*, acs: int | None, port_type: int = 6, vendor: int = 0x10B5, size: int = 4096) -> bytes:
    """A bridge with a PCI Express capability at 0x68, AER at 0x100 and, when `acs` is given, ACS at 0x148."""
    data = bytearray(size)
    data[0:2] = vendor.to_bytes(2, "little")
    if size > 64:
        data[0x34] = 0x40
        data[0x40], data[0x41] = 0x01, 0x68  # power management, next 0x68
        data[0x68], data[0x69], data[0x6A] = 0x10, 0x00, (port_type << 4) | 2
    if size > 256:
        after_aer = 0x148 if acs is not None else 0
        data[0x100:0x104] = (0x0001 | 1 << 16 | after_aer << 20).to_bytes(4, "little")
        if acs is not None:
            data[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
            data[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(data)
