"""From the list of ranks above a table: places, hardware, groups, and whether ranks share a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.nccl_bench.facts.rows import Group, GroupKind
from distdoctor.nccl_bench.readers.head import DeviceLine
from distdoctor.ranks.places import Place


def by_rank(devices: Iterable[DeviceLine]) -> list[DeviceLine]:
    """Each rank once, the first line of it, in the order of ranks."""
    found: dict[int, DeviceLine] = {}
    for device in devices:
        found.setdefault(device.rank, device)
    return [found[rank] for rank in sorted(found)]


def places_of(devices: Sequence[DeviceLine]) -> tuple[Place, ...]:
    """The places of the ranks; local ranks are counted on each host in the order of ranks."""
    seen: dict[str, int] = {}
    places = []
    for device in devices:
        local_rank = seen.get(device.host, 0)
        seen[device.host] = local_rank + 1
        places.append(
            Place(
                rank=device.rank,
                host=device.host,
                local_rank=local_rank,
                gpu_index=device.device,
                gpu_pci=device.pci,
                gpu_model=device.model,
                device=f"cuda:{device.device}",
            )
        )
    return tuple(places)


def hardware_of(devices: Sequence[DeviceLine]) -> tuple[HostHardware, ...]:
    """The GPU models of each host, one for each GPU that a rank used."""
    models: dict[str, dict[tuple[int, str | None], str | None]] = {}
    for device in devices:
        models.setdefault(device.host, {}).setdefault((device.device, device.pci), device.model)
    return tuple(
        HostHardware(
            host=host,
            gpu_models=None
            if None in of_host.values()
            else tuple(model for model in of_host.values() if model),
        )
        for host, of_host in models.items()
    )


def is_complete(devices: Sequence[DeviceLine]) -> bool:
    """Every rank from 0 to the last is there."""
    return bool(devices) and len(devices) == devices[-1].rank + 1


def share_gpus(devices: Sequence[DeviceLine]) -> bool:
    """Two ranks name the same GPU. Only whole PCI addresses count: old versions print the bus alone."""
    gpus = [(device.host, device.pci) for device in devices if device.pci]
    return len(set(gpus)) < len(gpus)


def group_of(devices: Sequence[DeviceLine]) -> tuple[Group, bool]:
    """The group that the rows are about, which is rank 0's, and whether others ran at the same time."""
    groups = {device.group for device in devices if device.group is not None}
    if len(groups) < 2:
        ranks = tuple(device.rank for device in devices) if is_complete(devices) else ()
        return Group(kind=GroupKind.TABLE, label="table", ranks=ranks), False
    own = devices[0].group
    ranks = tuple(device.rank for device in devices if device.group == own) if is_complete(devices) else ()
    return Group(kind=GroupKind.TABLE, label=f"group {own} of {len(groups)}", ranks=ranks), True
