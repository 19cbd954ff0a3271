"""`nvidia-smi topo -m`: who is joined to whom, and which CPUs and NUMA node are near."""

from __future__ import annotations

import re

from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, PairLink

_COLUMN = re.compile(r"(?:GPU|NIC)\d+|(?:mlx|bnxt|irdma|hfi|qedr|efa|rdmap|ibp|roce|cxgb)\w*")
_HEADER = re.compile(r"^\s*GPU\d+(?:\s|$)")
_ROW = re.compile(
    r"^\s*(?P<name>(?:GPU|NIC)\d+|(?:mlx|bnxt|irdma|hfi|qedr|efa|rdmap|ibp|roce|cxgb)\w*)\s+(?P<cells>\S.*)$"
)
_CELL = re.compile(r"^(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|QPI|PSB|C2C|N/A)$")
_LEGEND = re.compile(r"^\s*(?P<nic>NIC\d+): (?P<device>\S+)\s*$")


def has_matrix(text: str) -> bool:
    """True when a header of GPU columns is followed by a row with link kinds."""
    return bool(_matrix(text))


def read_topology(text: str, origin: str) -> GpuFacts:
    """Pairs of GPUs and NICs with their link kind; CPU and NUMA affinity of each GPU where the text has them."""
    rows = _matrix(text)
    nics = _legend(text)
    pairs: dict[tuple[str, str], PairLink] = {}
    devices: list[GpuDevice] = []
    source = f"{origin}: nvidia-smi topo -m"
    for name, cells, rest in rows:
        for other, kind in cells.items():
            if kind in ("X", "N/A") or other == name:
                continue
            a, b = nics.get(name, name), nics.get(other, other)
            pairs.setdefault((a, b) if (b, a) not in pairs else (b, a), PairLink(a=a, b=b, kind=kind))
        if name.startswith("GPU") and rest:
            cpus = _cpus(rest[0])
            numa = int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else None
            devices.append(
                GpuDevice(
                    index=int(name[3:]),
                    local_cpus=cpus,
                    numa_node=numa,
                    sources={"local_cpus": source, "numa_node": source},
                )
            )
        elif name.startswith("GPU"):
            devices.append(GpuDevice(index=int(name[3:])))
    return GpuFacts(
        devices=tuple(devices) or None, pair_links=tuple(pairs.values()), sources={"pair_links": source}
    )


def _cpus(text: str) -> tuple[int, ...] | None:
    """CPUs of the affinity column; None for "N/A" and for a list that a narrow terminal cut."""
    try:
        return parse_cpu_list(text) or None
    except ValueError:
        return None


def _matrix(text: str) -> list[tuple[str, dict[str, str], list[str]]]:
    """Rows of the (last) matrix: (name, link kind by column, what follows the link columns)."""
    rows: list[tuple[str, dict[str, str], list[str]]] = []
    columns: list[str] = []
    for line in text.split("\n"):
        if _HEADER.match(line) and not any(_CELL.match(word) for word in line.split()[1:]):
            columns = [word for word in line.split() if _COLUMN.fullmatch(word)]
            rows = []
            continue
        row = _ROW.match(line) if columns else None
        if row is None or row["name"] not in columns:
            continue
        words = row["cells"].split()
        links = words[: len(columns)]
        if not all(_CELL.match(word) for word in links) or not links:
            continue
        rows.append((row["name"], dict(zip(columns, links, strict=False)), words[len(columns) :]))
    return rows


def _legend(text: str) -> dict[str, str]:
    """ "NIC0: mlx5_0" below the matrix."""
    found = (_LEGEND.match(line) for line in text.split("\n"))
    return {match["nic"]: match["device"] for match in found if match}
