"""The one-line errors with which nvidia-smi and NVML give up, as GPU facts."""

from __future__ import annotations

import re

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState
from distdoctor.report.model import SkipCause

# "… for GPU 0000:02:00.0: GPU is lost.", "… for GPU0: 0000:02:00.0: Unknown Error", "… GPU 000:BA:80.0: …" (sic).
_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu) ?(?P<index>\d{1,3}(?=:\s))?:?\s*"
    r"(?P<pci>[0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])?:?\s*(?P<why>[A-Z][^\n]{2,160})"
)
_LOST_BY_UUID = re.compile(r"(?P<uuid>GPU-[0-9a-fA-F]{8}-[0-9a-fA-F-]{27})[^\n]{0,80}?(?:ERROR_)?GPU_IS_LOST")
_KERNEL_TELLS = re.compile(r"Xid \([^)]*\): 79\b|NVRM:[^\n]*fallen off the bus")
_LOST_BY_INDEX = re.compile(r"GPU (?P<index>\d{1,3})\b[^\n]{0,60}?(?:NVML_ERROR_GPU_IS_LOST|GPU is lost)")

_STATES = (
    (re.compile(r"Failed to initialize NVML: Driver/library version mismatch", re.IGNORECASE), NvmlState.VERSION_MISMATCH),
    (re.compile(r"nvml\w*: ?Driver/library version mismatch", re.IGNORECASE), NvmlState.VERSION_MISMATCH),
    (re.compile(r"couldn't communicate with the NVIDIA driver", re.IGNORECASE), NvmlState.DRIVER_NOT_LOADED),
    (re.compile(r"Failed to initialize NVML: (?:Driver Not Loaded|ERROR_DRIVER_NOT_LOADED)", re.IGNORECASE),
     NvmlState.DRIVER_NOT_LOADED),
    (re.compile(r"Failed to initialize NVML: Insufficient Permissions", re.IGNORECASE), NvmlState.NO_PERMISSION),
    (re.compile(r"couldn't find libnvidia-ml\.so|Failed to initialize NVML: (?:ERROR_)?LIBRARY_NOT_FOUND|"
                r"NVML Shared Library Not Found", re.IGNORECASE), NvmlState.NO_LIBRARY),
    (re.compile(r"Failed to initialize NVML: (?:Unknown Error|GPU access blocked by the operating system)",
                re.IGNORECASE), NvmlState.UNKNOWN_ERROR),
)  # fmt: skip
_NO_DEVICES = re.compile(r"^[ \t]*No devices were found[ \t]*$", re.MULTILINE)
_LIBRARY = re.compile(r"NVML library version:\s*(?P<version>\d[\d.]+)")
# The kernel's own words for the mismatch; quotation marks and line breaks differ between versions.
_MISMATCH = re.compile(
    r"API mismatch: (?:the|this)?\s*client .{0,80}?has the version\s+(?P<client>\d[\d.]+\d),?\s+but\b.{0,120}?"
    r"this kernel module has the version\s+(?P<module>\d[\d.]+\d)",
    re.DOTALL,
)


def has_error(text: str) -> bool:
    """True when one of the lines is in the text."""
    return bool(
        _HANDLE.search(text)
        or _NO_DEVICES.search(text)
        or (_LOST_BY_UUID.search(text) and not _KERNEL_TELLS.search(text))
        or _LOST_BY_INDEX.search(text)
        or _MISMATCH.search(text)
        or any(pattern.search(text) for pattern, _ in _STATES)
    )


def read_errors(text: str, origin: str) -> GpuFacts:
    """How NVML's initialisation ended and which GPUs are lost. The other GPUs of the host are then not shown."""
    source = f"{origin}: nvidia-smi"
    state, words = _state(text)
    library, mismatch = _LIBRARY.search(text), _MISMATCH.search(text)
    if mismatch and state is None:
        state, words = NvmlState.VERSION_MISMATCH, mismatch.group().replace("\n", " ")
    lost = _lost(text, source)
    none_found = _NO_DEVICES.search(text) is not None
    if none_found and state is None:
        # The driver is loaded, and none of its GPUs could be started or shown to this process.
        state, words = NvmlState.UNKNOWN_ERROR, "No devices were found"
    unread: dict[str, Unread] = {}
    if none_found:
        unread["devices"] = Unread(
            cause=SkipCause.FAILED,
            reason="nvidia-smi says `No devices were found`: the driver is loaded, and it shows no GPU that works",
            how="run `lspci -d 10de:` and `dmesg | grep -i nvrm` on the host",
        )
    return GpuFacts(
        nvml_state=state,
        nvml_error=words,
        nvml_library_version=library["version"] if library else (mismatch["client"] if mismatch else None),
        kernel_module_version=mismatch["module"] if mismatch else None,
        devices=lost or None,
        source_note="nvidia-smi ended at the GPU that it could not reach; others are not shown"
        if lost
        else None,
        sources=dict.fromkeys(("nvml_state", "nvml_error", "devices", "nvml_library_version"), source),
        unread=unread,
    )


def _state(text: str) -> tuple[NvmlState | None, str | None]:
    for pattern, state in _STATES:
        match = pattern.search(text)
        if match:
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            return state, text[start : end if end >= 0 else None].strip()[:300]
    return None, None


def _lost(text: str, source: str) -> tuple[GpuDevice, ...]:
    found: dict[str, GpuDevice] = {}
    for match in _HANDLE.finditer(text):
        why = match["why"].strip()
        index = int(match["index"]) if match["index"] else UNKNOWN_INDEX
        key = (match["pci"] or str(index)).lower()
        found.setdefault(key, _lost_device(index, why, source, pci=_pci(match["pci"])))
    # Beside the kernel's own lines, tools that stumble over the lost GPU add nothing but another name for it.
    followers = () if _KERNEL_TELLS.search(text) else _LOST_BY_UUID.finditer(text)
    for match in followers:
        found.setdefault(
            match["uuid"], _lost_device(UNKNOWN_INDEX, "GPU is lost", source, uuid=match["uuid"])
        )
    for match in _LOST_BY_INDEX.finditer(text):
        found.setdefault(match["index"], _lost_device(int(match["index"]), "GPU is lost", source))
    return tuple(found.values())


def _lost_device(
    index: int, why: str, source: str, *, pci: str | None = None, uuid: str | None = None
) -> GpuDevice:
    return GpuDevice(
        index=index, lost=True, lost_reason=why[:160], pci=pci, uuid=uuid, sources={"lost": source}
    )


def _pci(text: str | None) -> str | None:
    """The address as NVML prints it; an irregular one ("000:BA:80.0") is kept as it was printed."""
    if text is None:
        return None
    domain, _, rest = text.partition(":")
    return f"{domain.zfill(8)}:{rest}" if len(domain) in (4, 8) else text
