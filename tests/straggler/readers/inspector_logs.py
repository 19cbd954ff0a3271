"""Builds logs as NCCL Inspector writes them, formats v4.0 to v4.3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DUMP_US = 1_748_030_377_748_202


def header(comm: str, rank: int, num_ranks: int, name: str | None = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": comm, "rank": rank, "n_ranks": num_ranks, "nnodes": 1}
    return entry if name is None else {**entry, "comm_name": name}


def metadata(host: str, pid: int, *, version: str = "v4.0", dumped_us: int = DUMP_US) -> dict[str, Any]:
    return {
        "inspector_output_format_version": version,
        "git_rev": "9019a1912-dirty",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": dumped_us,
        "hostname": host,
        "pid": pid,
    }


def coll(
    seq: int, duration_us: int, *, op: str = "AllReduce", size: int = 1 << 20, **more: Any
) -> dict[str, Any]:
    return {
        "coll": op,
        "coll_sn": seq,
        "coll_msg_size_bytes": size,
        "coll_exec_time_us": duration_us,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 277.210914,
        "coll_busbw_gbs": 485.119099,
        **more,
    }


def line(head: dict[str, Any], meta: dict[str, Any], perf: dict[str, Any]) -> str:
    return json.dumps({"header": head, "metadata": meta, "coll_perf": perf}, separators=(",", ":"))


def write_job(
    folder: Path, times_us: list[list[int]], *, hosts: list[str] | None = None, comm: str = "0x7f8c496ae9f661"
) -> list[str]:
    """One file a rank, `times_us[rank][seq]`."""
    paths = []
    for rank, times in enumerate(times_us):
        host = hosts[rank] if hosts else "node-1"
        path = folder / f"{host}-pid{1000 + rank}.log"
        head = header(comm, rank, len(times_us))
        meta = metadata(host, 1000 + rank)
        lines = [line(head, meta, coll(seq, time)) for seq, time in enumerate(times)]
        path.write_text("\n".join(lines) + "\n")
        paths.append(str(path))
    return paths
