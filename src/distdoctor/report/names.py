"""How hosts, ranks and GPUs are named so that somebody can find them. Pure text, used by every renderer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from distdoctor.report.model import Culprit, Fact, GpuRef, Scope
from distdoctor.units import fold_ints

# Beyond this many groups a list of hosts is counted, not spelled out.
MAX_HOST_GROUPS = 4
MAX_LISTED = 4

# Host names in a title are cut here, so that the title stays one line; where two stand in it, at the second.
MAX_NAME = 28
MAX_NAME_OF_TWO = 20

_NUMBERED = re.compile(r"(?P<head>.*?[^\d])(?P<number>\d{1,9})(?P<tail>\D*)", re.DOTALL)
_LONG_PCI = re.compile(r"(?i)0000(?=[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.)")


def fold_hosts(hosts: Iterable[str], *, max_groups: int = MAX_HOST_GROUPS) -> str:
    """Hosts as Slurm writes them: `node[001-063,070]`. More than `max_groups` groups are counted: `… and 9 more`."""
    groups = _host_groups(dict.fromkeys(hosts))
    shown = [_spell(*group) for group in groups[:max_groups]]
    rest = sum(len(names) for _, names in groups[max_groups:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _host_groups(hosts: Iterable[str]) -> list[tuple[tuple[str, int, str], list[str]]]:
    """Names that differ only in one number, of one width, in the order of first sight."""
    groups: dict[tuple[str, int, str], list[str]] = {}
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        key = (match["head"], len(match["number"]), match["tail"]) if match else (host, 0, "")
        groups.setdefault(key, []).append(host)
    return list(groups.items())


def _spell(key: tuple[str, int, str], names: list[str]) -> str:
    head, width, tail = key
    if len(names) == 1 or width == 0:
        return names[0]
    numbers = [int(name[len(head) : len(head) + width]) for name in names]
    ranges = fold_ints(numbers).split(",")
    if len(ranges) > MAX_LISTED:
        return f"{names[0]} … {names[-1]} ({len(names)} hosts)"
    padded = ",".join("-".join(part.zfill(width) for part in each.split("-")) for each in ranges)
    return f"{head}[{padded}]{tail}"


def count_hosts(hosts: Sequence[str]) -> str:
    """`host-a`, or `node[01-64] (64 hosts)` when there are several."""
    folded = fold_hosts(hosts)
    if len(hosts) < 2 or folded.endswith("hosts)"):
        return folded
    return f"{folded} ({len(hosts)} hosts)"


def short_host(name: str, most: int = MAX_NAME) -> str:
    """A host's name as a title can hold it: a long one without its domain, cut if need be."""
    if len(name) > most:
        name = name.partition(".")[0]
    return name if len(name) <= most else name[: most - 1] + "…"


def pci_name(pci: str) -> str:
    """A PCI address with the four-digit domain that lspci and sysfs use (NVML pads it to eight)."""
    return _LONG_PCI.sub("", pci)


def gpu_name(gpu: GpuRef, *, host: bool = True) -> str:
    """`host-a gpu 3 (0000:3B:00.0, NVIDIA H100)`, as far as known."""
    name = f"gpu {gpu.index}" if gpu.index is not None else "gpu"
    identity = pci_name(gpu.pci) if gpu.pci else gpu.uuid
    inside = ", ".join(each for each in (identity, gpu.model) if each)
    prefix = f"{gpu.host} " if host and gpu.host else ""
    return f"{prefix}{name} ({inside})" if inside else f"{prefix}{name}"


def ranks_name(ranks: Sequence[int], hosts: Sequence[str] = ()) -> str:
    """`rank 5 (host-c)` or `ranks 8-15 (host-b)`."""
    if not ranks:
        return ""
    folded = fold_ints(tuple(ranks))
    parts = folded.split(",")
    if len(parts) > 2 * MAX_LISTED:
        folded = ",".join(parts[: 2 * MAX_LISTED]) + f" … ({len(ranks)} ranks)"
    word = "rank" if len(set(ranks)) == 1 else "ranks"
    return f"{word} {folded}" + (f" ({fold_hosts(hosts)})" if hosts else "")


def scope_name(scope: Scope) -> str:
    """Whom a finding is about, in one phrase; empty for the whole subject."""
    parts: list[str] = []
    if scope.ranks:
        parts.append(ranks_name(scope.ranks, scope.hosts))
    elif scope.hosts:
        parts.append(count_hosts(scope.hosts))
    one_host = len(set(scope.hosts)) == 1
    gpus = [gpu_name(gpu, host=not (one_host and gpu.host in scope.hosts)) for gpu in scope.gpus]
    parts += _listed(gpus)
    parts += _listed(list(scope.links))
    return ", ".join(parts)


def _listed(names: list[str]) -> list[str]:
    if len(names) <= MAX_LISTED:
        return names
    return [*names[: MAX_LISTED - 1], f"{len(names) - MAX_LISTED + 1} more"]


def culprit_name(culprit: Culprit) -> str:
    """`rank 5 (host-c, pod trainer-5), gpu 1 (0000:3B:00.0, NVIDIA H100), port mlx5_1/1`."""
    place = [each for each in (culprit.host, culprit.pod and f"pod {culprit.pod}") if each]
    ranks = culprit.ranks or (() if culprit.rank is None else (culprit.rank,))
    parts = []
    if ranks:
        local = "" if culprit.local_rank is None else f"local rank {culprit.local_rank}"
        inside = ", ".join([*place, local] if local else place)
        parts.append(ranks_name(ranks) + (f" ({inside})" if inside else ""))
    else:
        parts += place
    if culprit.gpu is not None:
        parts.append(gpu_name(culprit.gpu, host=culprit.gpu.host != culprit.host))
    if culprit.nic_port:
        parts.append(f"port {culprit.nic_port}")
    return ", ".join(parts)


def fact_value(fact: Fact) -> str:
    """A fact's value with its unit; what is not measured says so, with the reason."""
    if fact.value is None:
        return f"not measured: {fact.why}" if fact.why else "not measured"
    return scalar_text(fact.value) + (f" {fact.unit}" if fact.unit else "")


def scalar_text(value: str | int | float | bool | None) -> str:
    """One cell: integers with thousands separators from 10,000 on, floats with at most four digits, None as `-`."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return value
