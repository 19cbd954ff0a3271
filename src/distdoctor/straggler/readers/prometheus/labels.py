"""Which GPU of which host a series is of, and whose pod runs on it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from distdoctor.report.model import GpuRef

MAX_LABEL = 256

# Where clusters put the node's name. What the exporter itself says (`Hostname`) comes before, unless it is the name of
# the exporter's own pod, as when it runs without the host's network.
_HOST_LABELS = ("Hostname", "hostname", "host")
_NODE_LABELS = ("node", "kubernetes_node", "node_name", "nodename", "kubernetes_io_hostname", "exported_node")

# A pod of a DaemonSet ends in five letters or digits, one of a Deployment in two such groups.
_EXPORTER_POD = re.compile(r"[a-z0-9.-]*exporter[a-z0-9.-]*-[a-z0-9]{5}(?:\.[a-z0-9.-]+)?")

# What containers call themselves when nobody names them (Docker: 12 hexadecimal digits of their id). A machine may be
# called so after its network card, and so such a name is the last choice and not refused.
_CONTAINER_ID = re.compile(r"[0-9a-f]{12}|[0-9a-f]{64}")

# A service of Kubernetes stands for all exporters behind it.
_SERVICE = re.compile(r"[^.]+\.[^.]+\.svc(?:\..*)?")

_POD_LABELS = ("exported_pod", "pod", "pod_name")
_JOB_LABELS = ("hpc_job", "slurm_job_id", "job_id", "exported_job")
_UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
_MODEL_LABELS = ("modelName", "card_model", "card_series")
_INDEX_LABELS = ("gpu", "gpu_id")


def host_of(labels: Mapping[str, str]) -> str | None:
    """The machine, never the exporter's pod or service; None when only that is told."""
    names = [
        _first(labels, _HOST_LABELS),
        _first(labels, _NODE_LABELS),
        _without_port(labels.get("instance")),
    ]
    machines = [
        name
        for name in names
        if name is not None and not is_exporter(name, labels) and not _SERVICE.fullmatch(name)
    ]
    named = [name for name in machines if not _CONTAINER_ID.fullmatch(name)]
    return next(iter(named or machines), None)


def is_exporter(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a name is that of the exporter's pod."""
    # With an `exported_pod`, `pod` is that of whoever was scraped.
    is_scraped = "exported_pod" in labels and labels.get("pod") == name
    return is_scraped or _EXPORTER_POD.fullmatch(name) is not None


def gpu_of(labels: Mapping[str, str]) -> GpuRef | None:
    """The GPU; None when the series is not of a single one."""
    index = _first(labels, _INDEX_LABELS)
    if index is None:
        device = labels.get("device", "")
        index = device.removeprefix("nvidia") if device.startswith("nvidia") else None
    number = int(index) if index is not None and index.isdecimal() and len(index) < 6 else None
    uuid = _first(labels, _UUID_LABELS)
    pci = _first(labels, ("pci_bus_id",))
    if number is None and uuid is None and pci is None:
        return None
    return GpuRef(host=host_of(labels), index=number, pci=pci, uuid=uuid, model=_first(labels, _MODEL_LABELS))


def is_slice(labels: Mapping[str, str]) -> bool:
    """Whether the series is of a part of a GPU (MIG)."""
    return bool(labels.get("GPU_I_ID"))


def pod_of(labels: Mapping[str, str]) -> str | None:
    """The pod that uses the GPU, never the exporter's."""
    for label in _POD_LABELS:
        name = _first(labels, (label,))
        if name is not None and (label == "exported_pod" or not is_exporter(name, labels)):
            return name
    return None


def job_of(labels: Mapping[str, str]) -> str | None:
    """The scheduler's job. Prometheus' own label `job` is that of the scrape, and is not meant."""
    return _first(labels, _JOB_LABELS)


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((labels[name][:MAX_LABEL] for name in names if labels.get(name)), None)


def _without_port(instance: str | None) -> str | None:
    if not instance:
        return None
    name = re.sub(r":\d+$", "", instance.rpartition("//")[2].partition("/")[0])
    return name.strip("[]")[:MAX_LABEL] or None


_PAIR = re.compile(r'\s*([^\s=,{}"]+|"(?:[^"\\]|\\.)*")\s*(?:=~?)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


def parse_series(text: str) -> tuple[str, dict[str, str]] | None:
    """`NAME{label="value",…}` or `{__name__="NAME",…}` as name and labels; None when it is nothing of the kind."""
    text = text.strip()
    name, brace, rest = text.partition("{")
    name = name.strip()
    if not brace:
        return (name, {}) if re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name) else None
    if not rest.endswith("}"):
        return None
    labels = parse_labels(rest[:-1])
    if labels is None:
        return None
    name = labels.pop("__name__", "") or name
    return (name, labels) if name else None


def parse_labels(text: str) -> dict[str, str] | None:
    """`label="value",…` without braces; None when it is nothing of the kind."""
    labels: dict[str, str] = {}
    at = 0
    text = text.strip().removesuffix(",")
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            return None
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value)
        labels[match[1].strip('"')] = value
        at = match.end()
    return labels
