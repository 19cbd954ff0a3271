"""Does the PCIe fabric let GPUs and NICs reach each other directly, or send everything through the CPU?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.host import HostFacts
from distdoctor.env.pci import sysfs_address
from distdoctor.env.pci_config import REDIRECTING, acs_names
from distdoctor.report.model import Action, Confidence, Evidence, Fault, GpuRef, Scope, Severity, Team

ACS_SOURCE = "NCCL user guide, troubleshooting: PCI Access Control Services"
IOMMU_SOURCE = "CUDA C++ Programming Guide, IOMMU on Linux"

# DirectTrans+ (bit 6) alone lets translated traffic pass and harms nothing.
HARMLESS = 0x40

# What the kernel prints for a domain that translates addresses: "DMA", "DMA-FQ" (with a flush queue).
TRANSLATED = ("DMA", "DMA-FQ")

MAX_SHOWN = 8


def check_acs(facts: EnvFacts) -> Sequence[Outcome]:
    """ACS on a switch between GPUs and NICs, on bare metal: critical without NVLink, else a warning."""
    host, known_apart = facts.host, _not_bare_metal(facts)
    if known_apart is not None:
        return known_apart
    if host is None or host.acs_bridges is None:
        return [missing(facts, "host.acs_bridges")]
    if not host.acs_relevant_bridges:
        return [NotApplicable(detail="no PCIe bridge leads to a GPU or RDMA device")]
    on = {
        address: control
        for address, control in host.acs_bridges.items()
        if address in host.acs_relevant_bridges and control & ~HARMLESS
    }
    if not on:
        return [
            Passed(detail=f"off on all {len(host.acs_relevant_bridges)} bridges to GPUs and RDMA devices")
        ]
    return [_acs_found(facts, host, on)]


def _acs_found(facts: EnvFacts, host: HostFacts, on: Mapping[str, int]) -> Found:
    types = host.acs_port_types or {}
    at_switch = [
        address
        for address, control in on.items()
        if control & REDIRECTING and types.get(address) != "root port"
    ]
    nvlink = _has_nvlink(facts)
    shown = [
        f"{address} ({types.get(address, 'bridge')}): {acs_names(control)}" for address, control in on.items()
    ]
    more = f" and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
    return Found(
        title=f"{len(on)} PCIe bridge{'s' if len(on) > 1 else ''} may send GPU traffic through the CPU (ACS is on)",
        severity=Severity.CRITICAL if at_switch and nvlink is False else Severity.WARNING,
        confidence=Confidence.HIGH if at_switch and nvlink is not None else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text="; ".join(shown[:MAX_SHOWN]) + more,
                value=len(on),
                unit="bridges",
                expected="no bit on",
                expected_source=ACS_SOURCE,
                source=host.sources.get("acs_bridges"),
            ),
        ),
        explanation=(
            "With Access Control Services on, a PCIe switch sends what one GPU writes to another GPU or to a network "
            "card up to the CPU first. That is slow, and with some chipsets direct transfers hang or corrupt data."
            if at_switch
            else "ACS is on at root ports, or without the bits that redirect. Traffic between root ports passes the "
            "CPU anyway; on hosts without PCIe switches this changes little."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Turn ACS off in the BIOS (often with IO virtualisation / VT-d), or after every boot, per bridge",
                command="; ".join(
                    f"sudo setpci -s {address} ECAP_ACS+0x6.w=0000" for address in list(on)[:MAX_SHOWN]
                ),
            ),
        ),
        scope=Scope(links=tuple(on)),
        cause_class="comm_stuck:p2p_iommu_acs",
        fault=Fault.CONFIG,
    )


def check_iommu(facts: EnvFacts) -> Sequence[Outcome]:
    """Several GPUs behind an IOMMU that translates addresses, on bare metal: a warning."""
    host, known_apart = facts.host, _not_bare_metal(facts)
    if known_apart is not None:
        return known_apart
    if host is None or host.device_iommu_types is None:
        return [missing(facts, "host.device_iommu_types")]
    if host.gpu_numa_nodes is None:
        return [missing(facts, "host.gpu_numa_nodes")]
    gpus = tuple(host.gpu_numa_nodes)
    if len(gpus) < 2:
        return [NotApplicable(detail="fewer than two GPUs on the PCI bus")]
    translated = [gpu for gpu in gpus if host.device_iommu_types.get(gpu) in TRANSLATED]
    if not translated:
        kinds = sorted({host.device_iommu_types.get(gpu, "no IOMMU") for gpu in gpus})
        return [Passed(detail=f"{len(gpus)} GPUs: {', '.join(kinds)}")]
    return [_iommu_found(facts, host, translated)]


def _iommu_found(facts: EnvFacts, host: HostFacts, translated: list[str]) -> Found:
    arm = host.architecture in ("aarch64", "arm64")
    kinds = sorted({(host.device_iommu_types or {})[gpu] for gpu in translated})
    nvlink = _has_nvlink(facts)
    return Found(
        title=f"the IOMMU translates what {len(translated)} GPUs send to each other over PCIe",
        severity=Severity.INFO if arm else Severity.WARNING,
        # NVLink carries most traffic where it is; Arm servers with a coherent GPU translate by design.
        confidence=Confidence.HIGH if nvlink is False and not arm else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"IOMMU domain {', '.join(kinds)} for GPU {', '.join(translated[:MAX_SHOWN])}",
                value=len(translated),
                unit="GPUs",
                expected="identity (pass-through), or no IOMMU",
                expected_source=IOMMU_SOURCE,
                source=host.sources.get("device_iommu_types"),
            ),
            Evidence(text=f"kernel command line: {_iommu_words(host)}", source="/proc/cmdline"),
        ),
        explanation=(
            "CUDA does not support direct PCIe transfers between GPUs through a translating IOMMU on bare metal: "
            "they are slow, hang, or deliver wrong data."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Boot with the IOMMU in pass-through mode (it needs a reboot), or turn it off in the BIOS",
                command=f"sudo grubby --update-kernel=ALL --args={_pass_through(host)}",
            ),
        ),
        scope=Scope(gpus=tuple(_gpu_ref(facts, address) for address in translated)),
        cause_class="comm_stuck:p2p_iommu_acs",
        fault=Fault.CONFIG,
    )


def _not_bare_metal(facts: EnvFacts) -> Sequence[Outcome] | None:
    """The outcome in a virtual machine, or when it is not known whether this is one; None on bare metal."""
    host = facts.host
    if host is None or host.virtualisation is None:
        return [missing(facts, "host.virtualisation")]
    if host.virtualisation != "none":
        return [
            NotApplicable(
                detail=f"a virtual machine ({host.virtualisation}): the hypervisor owns the PCIe fabric"
            )
        ]
    return None


def _has_nvlink(facts: EnvFacts) -> bool | None:
    """True when any NVLink is active; None when links were not read."""
    devices = facts.gpus.devices if facts.gpus is not None else None
    if devices is None:
        return None
    if any(link.active for device in devices for link in device.nvlinks or ()):
        return True
    return False if all(device.nvlinks is not None for device in devices) else None


def _iommu_words(host: HostFacts) -> str:
    words = [word for word in (host.kernel_command_line or "").split() if "iommu" in word]
    return " ".join(words) or "says nothing of the IOMMU"


def _pass_through(host: HostFacts) -> str:
    return "iommu.passthrough=1" if host.architecture in ("aarch64", "arm64") else "iommu=pt"


def _gpu_ref(facts: EnvFacts, address: str) -> GpuRef:
    for device in (facts.gpus.devices if facts.gpus is not None else None) or ():
        if device.pci is not None and sysfs_address(device.pci) == address:
            return GpuRef(
                host=facts.host_name, index=device.index, pci=device.pci, uuid=device.uuid, model=device.name
            )
    return GpuRef(host=facts.host_name, pci=address)


ACS = Check(id="pcie-acs", title="PCIe access control between GPUs and NICs", run=check_acs, preflight=True)
IOMMU = Check(id="iommu-translated", title="IOMMU between GPUs", run=check_iommu, preflight=True)
