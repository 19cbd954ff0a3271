"""What have others measured on such hardware? Published bus bandwidths; data and sources: expected_busbw.json."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.nccl_bench.catalog.tables import read_table
from distdoctor.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One figure that somebody published with its circumstances; None: the source does not say."""

    gpu: str
    """Family, as in catalog/gpus.json."""
    form: str
    num_ranks: int | None
    num_hosts: int | None
    fabric: str
    """What carried the data between the GPUs that are farthest apart (see the table's own text)."""
    collective: str
    size_bytes: int | None
    busbw_gbps: float
    nics_per_host: int | None = None
    nic_gbit: int | None = None
    nccl: str | None = None
    note: str | None = None
    source: str = ""

    @property
    def in_words(self) -> str:
        """ "78.3 GB/s (16 ranks on 2 hosts, efa 4 × 100 Gbit/s, 2 GiB)"."""
        parts = []
        if self.num_ranks is not None:
            parts.append(f"{self.num_ranks} ranks")
        if self.num_hosts is not None:
            parts.append(f"{self.num_hosts} host{'s' if self.num_hosts > 1 else ''}")
        nics = f" {self.nics_per_host} × {self.nic_gbit} Gbit/s" if self.nics_per_host else ""
        parts.append(f"{self.fabric}{nics}")
        if self.size_bytes is not None:
            parts.append(format_bytes(self.size_bytes))
        return f"{self.busbw_gbps:.4g} GB/s ({', '.join(parts)})"


@functools.cache
def all_published() -> tuple[Published, ...]:
    """Every figure of the table."""
    return tuple(
        Published(
            gpu=row["gpu"],
            form=row["form"],
            num_ranks=row["ranks"],
            num_hosts=row["hosts"],
            fabric=row["fabric"],
            collective=row["collective"],
            size_bytes=row["bytes"],
            busbw_gbps=row["busbw_gbps"],
            nics_per_host=row.get("nics_per_host"),
            nic_gbit=row.get("nic_gbit"),
            nccl=row.get("nccl"),
            note=row.get("note"),
            source=row["source"],
        )
        for row in read_table("expected_busbw")["points"]
    )


def published_for(
    *, gpu: str, collective: str, several_hosts: bool, fabrics: Iterable[str] | None = None
) -> tuple[Published, ...]:
    """All figures for one GPU family and collective, within a host or across hosts, on the named fabrics."""
    wanted = None if fabrics is None else set(fabrics)
    return tuple(
        each
        for each in all_published()
        if each.gpu == gpu
        and each.collective == collective
        and each.num_hosts is not None
        and (each.num_hosts > 1) is several_hosts
        and (wanted is None or each.fabric in wanted)
    )
