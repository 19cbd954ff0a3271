"""State of NVIDIA's fabric manager from `systemctl status` and its log lines."""

from __future__ import annotations

import re

from distdoctor.env.facts.gpu import GpuFacts

_UNIT = re.compile(r"nvidia-fabricmanager(?:\.service)?|nv-fabricmanager|nvlsm")
_ACTIVE = re.compile(
    r"^[ \t]*Active: (?P<state>active|inactive|failed|activating|deactivating)\b", re.MULTILINE
)
_FAILED = re.compile(
    r"nvidia-fabricmanager\.service: (?:Control process exited|Main process exited|Failed with result|start request "
    r"repeated)[^\n]*"
)
# The unit's and the daemon's word that it is done.
_STARTED = re.compile(
    r"systemd\[\d+\]: Started (?:nvidia-fabricmanager\.service|[^\n]*NVIDIA fabric ?manager service)|"
    r"Successfully configured all the available (?:GPUs and )?NVSwitches",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"(?:nv-fabricmanager|fabricmanager)(?:\[\d+\])?: (?P<text>[^\n]*?(?:fail|error|NV_[A-Z_]+|abort|n[o']t match)[^\n]*)",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"Unit nvidia-fabricmanager\.service (?:could not be found|not found)|not-found", re.IGNORECASE
)
_VERSION = re.compile(
    r"Fabric Manager version is\s*:?\s*(?P<version>\d[\d.]+)|fabric ?manager\S* version[: ]+(?P<other>\d[\d.]+)",
    re.IGNORECASE,
)


def sniff(text: str) -> bool:
    """True when the fabric manager's unit or daemon is named."""
    return bool(_UNIT.search(text))


def read(text: str, origin: str) -> GpuFacts:
    """systemd's word, the daemon's version and its last error line, as far as the text has them."""
    source = f"{origin}: fabric manager"
    error = None
    for match in _ERROR.finditer(text):
        error = match["text"].strip()[:400]
    version = _VERSION.search(text)
    return GpuFacts(
        fabric_manager=_state(text),
        fabric_manager_error=error,
        fabric_manager_version=(version["version"] or version["other"]) if version else None,
        sources=dict.fromkeys(("fabric_manager", "fabric_manager_error", "fabric_manager_version"), source),
    )


def _state(text: str) -> str | None:
    position = _UNIT.search(text)
    after = text[position.start() :] if position else text
    active = _ACTIVE.search(after[:4000])
    if active:
        return active["state"]
    failed = [match.start() for match in _FAILED.finditer(text)]
    started = [match.start() for match in _STARTED.finditer(text)]
    if failed or started:
        return "active" if max(started, default=-1) > max(failed, default=-1) else "failed"
    return "not installed" if _MISSING.search(after[:400]) else None
