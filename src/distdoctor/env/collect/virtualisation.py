"""Is this a virtual machine, and whose?"""

from __future__ import annotations

import re

from distdoctor.env.collect.cpu import CPUINFO
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import UnreadError
from distdoctor.report.model import SkipCause

NONE = "none"
UNNAMED = "vm"

# Vendor or product in DMI → hypervisor, as systemd-detect-virt names them.
DMI_NAMES = (
    (
        re.compile(r"\bKVM\b|QEMU|OpenStack|Google|Amazon EC2|Alibaba Cloud|DigitalOcean|oVirt|RHEV", re.I),
        "kvm",
    ),
    (re.compile(r"VMware", re.I), "vmware"),
    (re.compile(r"Microsoft Corporation Virtual Machine", re.I), "microsoft"),
    (re.compile(r"innotek|VirtualBox", re.I), "oracle"),
    (re.compile(r"\bXen\b", re.I), "xen"),
    (re.compile(r"Parallels", re.I), "parallels"),
    (re.compile(r"Bochs|BHYVE", re.I), "bhyve"),
)

# Amazon's bare-metal instances carry the vendor's name too: `m7g.metal`, `p5.metal-48xl`.
METAL = re.compile(r"\.metal\b|bare ?metal", re.I)


def read_virtualisation(world: World) -> str:
    """ "none", "kvm", "vmware", "microsoft", "xen", "wsl", …; "vm" when only the CPU says so.

    On x86 the CPU flag `hypervisor` decides and DMI names it; Arm has no such flag, so DMI (or the device
    tree) decides. Raises UnreadError when neither can be read.
    """
    if "microsoft" in _text(world, "/proc/version").lower():
        return "wsl"
    dmi = " ".join(
        _text(world, f"/sys/class/dmi/id/{name}").strip() for name in ("sys_vendor", "product_name")
    )
    named = next((name for pattern, name in DMI_NAMES if pattern.search(dmi)), None)
    flags = re.search(r"^flags\s*:(.*)$", _text(world, CPUINFO), re.MULTILINE)
    if flags:
        if "hypervisor" not in flags[1].split():
            return NONE
        # Xen's privileged domain and Hyper-V's root partition set the flag and own the hardware.
        if "control_d" in _text(world, "/proc/xen/capabilities"):
            return NONE
        return named or _text(world, "/sys/hypervisor/type").strip() or UNNAMED
    tree = _text(world, "/sys/firmware/devicetree/base/hypervisor/compatible")
    if tree:
        return "kvm" if "kvm" in tree else "xen" if "xen" in tree else UNNAMED
    if not dmi.strip():
        raise UnreadError(
            SkipCause.UNSUPPORTED,
            "neither the CPU's flags nor DMI tell whether this is a virtual machine",
            "systemd-detect-virt",
        )
    return NONE if named is None or METAL.search(dmi) else named


def _text(world: World, path: str) -> str:
    try:
        return world.read_text(path)
    except (OSError, ValueError):
        return ""
