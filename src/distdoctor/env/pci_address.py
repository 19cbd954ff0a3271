"""PCI addresses compare equal however they are written: `3b:00`, `0000:3b:00.0`, `00000000:3B:00.0`."""

from __future__ import annotations


def pci_key(address: str) -> str:
    """Domain, bus and device of an address in one spelling: "0:3b:00". The function of a GPU is always 0.

    nvidia-smi pads the domain to eight digits, the kernel to four, and Xid lines leave the function out.
    """
    parts = address.lower().split(".", maxsplit=1)[0].split(":")
    domain = parts[-3].lstrip("0") if len(parts) >= 3 else ""
    return f"{domain or '0'}:{':'.join(parts[-2:])}"
