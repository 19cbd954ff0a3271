"""Hand-made benchmark facts: tables, live runs, hosts with their GPUs and NICs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from distdoctor.nccl_bench.definitions import algbw_gbps, busbw_gbps
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.places import HostHardware, Nic
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row, Style
from distdoctor.ranks.places import Place
from distdoctor.units import GIB, MIB

H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-80GB"
B200 = "NVIDIA B200"

TABLE_GROUP = Group(kind=GroupKind.TABLE, label="table", ranks=())

PLATEAU_SIZES = (512 * MIB, GIB, 2 * GIB, 4 * GIB, 8 * GIB)


def job_group(num_ranks: int) -> Group:
    return Group(kind=GroupKind.JOB, label="job", ranks=tuple(range(num_ranks)))


def row(
    size_bytes: int,
    *,
    busbw: float | None = None,
    time_us: float | None = None,
    collective: str = "all_reduce",
    num_ranks: int | None = 8,
    group: Group | None = None,
    repeats_us: Sequence[float] = (),
    in_place: bool | None = None,
    style: Style = Style.STREAMING,
    **fields: object,
) -> Row:
    """One row, by its bus bandwidth in GB/s or its time; the other follows by definition."""
    ranks = num_ranks or 2
    if time_us is None:
        assert busbw is not None
        one_us = busbw_gbps(collective, size_bytes, 1.0, ranks)
        assert one_us is not None
        time_us = one_us / busbw
    made = Row(
        collective=collective,
        group=group if group is not None else job_group(ranks),
        num_ranks=num_ranks,
        size_bytes=size_bytes,
        time_us=time_us,
        repeats_us=tuple(repeats_us),
        in_place=in_place,
        style=style,
        algbw_gbps=algbw_gbps(size_bytes, time_us),
        busbw_gbps=busbw_gbps(collective, size_bytes, time_us, ranks),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def flat_rows(busbw: float, *, sizes: Iterable[int] = PLATEAU_SIZES, **fields: object) -> tuple[Row, ...]:
    """Rows that all reach `busbw` GB/s: a plateau."""
    return tuple(row(size, busbw=busbw, **fields) for size in sizes)  # type: ignore[arg-type]


def hosts_named(num_hosts: int) -> tuple[str, ...]:
    """host-a, host-b …"""
    return tuple(f"host-{chr(97 + index % 26)}{index // 26 or ''}" for index in range(num_hosts))


def places(num_ranks: int, num_hosts: int = 1, *, gpu_model: str | None = H100) -> tuple[Place, ...]:
    """Ranks filled host by host, one GPU each; without a model: CPU ranks."""
    per_host = num_ranks // num_hosts
    hosts = hosts_named(num_hosts)
    return tuple(
        Place(
            rank=rank,
            host=hosts[rank // per_host],
            local_rank=rank % per_host,
            gpu_index=rank % per_host if gpu_model else None,
            gpu_pci=f"0000:{rank % per_host + 16:02x}:00.0" if gpu_model else None,
            gpu_uuid=f"GPU-{rank:04d}" if gpu_model else None,
            gpu_model=gpu_model,
            device=f"cuda:{rank % per_host}" if gpu_model else "cpu",
        )
        for rank in range(num_ranks)
    )


def nics(count: int, rate_gbit: float | None, kind: str = "infiniband") -> tuple[Nic, ...]:
    name = "eth{}" if kind == "ethernet" else "rdmap{}" if kind == "efa" else "mlx5_{}/1"
    return tuple(Nic(name=name.format(index), kind=kind, rate_gbit=rate_gbit) for index in range(count))


def hardware(
    num_hosts: int = 1,
    *,
    gpu_model: str | None = H100,
    gpus: int = 8,
    nvlinks: int | None = 18,
    link_gbps: float | None = 25.0,
    nvswitch: bool | None = True,
    nvls: bool | None = True,
    pcie_gen: int | None = 5,
    fabric: tuple[Nic, ...] | None = None,
    **fields: object,
) -> tuple[HostHardware, ...]:
    """Equal hosts; by default 8 H100 with NVSwitch and no NIC facts."""
    one = HostHardware(
        host="",
        gpu_models=(gpu_model,) * gpus if gpu_model else (),
        nvlinks_per_gpu=nvlinks,
        nvlink_gbps=link_gbps,
        has_nvswitch=nvswitch,
        nvls_supported=nvls,
        pcie_gen=pcie_gen,
        pcie_width=16,
        nics=fabric,
    )
    return tuple(replace(one, host=host, **fields) for host in hosts_named(num_hosts))  # type: ignore[arg-type]


def live(rows: Sequence[Row], *, num_ranks: int = 8, num_hosts: int = 1, **fields: object) -> BenchFacts:
    """A run of NCCL that was measured now, 8 H100 on each host unless told otherwise."""
    values: dict[str, object] = {
        "places": places(num_ranks, num_hosts),
        "hardware": hardware(num_hosts),
        "backend": "nccl",
        **fields,
    }
    return BenchFacts(
        origin=Origin.MEASURED,
        label="this run",
        num_ranks=num_ranks,
        num_hosts=num_hosts,
        rows=tuple(rows),
        **values,  # type: ignore[arg-type]
    )


def table(rows: Sequence[Row], **fields: object) -> BenchFacts:
    """A table of nccl-tests that says nothing about hardware unless told."""
    in_table = tuple(replace(each, group=TABLE_GROUP) for each in rows)
    values: dict[str, object] = {"num_ranks": in_table[0].num_ranks if in_table else None, **fields}
    return BenchFacts(origin=Origin.TABLE, label="table.txt", rows=in_table, **values)  # type: ignore[arg-type]
