"""What forked ranks do in the tests of the measuring modules: collectives over Gloo, some of them spoilt."""

from __future__ import annotations

import datetime
import itertools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from distdoctor.nccl_bench.analysis.samples import RankSamples
from distdoctor.nccl_bench.measure.collectives import COLLECTIVES, prepare
from distdoctor.nccl_bench.measure.prepared import Prepared
from distdoctor.nccl_bench.measure.support import try_support
from distdoctor.nccl_bench.measure.timing import HostClock, make_barrier, timed_loop, warm_up
from distdoctor.nccl_bench.shapes import natural_places

LONG = datetime.timedelta(seconds=60)
CPU = torch.device("cpu")


def join(rank: int, world_size: int) -> None:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=LONG)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=LONG)


def prepared(name: str, rank: int, world_size: int, **options: Any) -> Prepared:
    settings: dict[str, Any] = {
        "group": None,
        "group_ranks": range(world_size),
        "rank": rank,
        "size_bytes": 4096 * world_size + 4,
        "dtype": "float32",
        "op": "sum",
        "in_place": natural_places(name)[0],
        "device": CPU,
        **options,
    }
    return prepare(name, **settings)


def validated(cell: Prepared) -> dict[str, Any]:
    """Wrong elements before any call, after a plain call, and after one that was issued and waited for."""
    cell.fill()
    before = cell.check()
    cell.run_sync()
    plain = cell.check()
    cell.fill()
    work = cell.issue()
    if work is not None:
        work.wait()
    issued = cell.check()
    return {
        "size": cell.actual_size_bytes,
        "before": before.count if before else 0,
        "plain": plain.example if plain else "",
        "issued": issued.example if issued else "",
    }


def validate(rank: int, world_size: int, dtypes: list[str]) -> dict[str, dict[str, Any]]:
    """Every collective in every type and place, with a root that is not the first."""
    join(rank, world_size)
    return {
        f"{each.name} {dtype} {'in' if in_place else 'out'}": validated(
            prepared(each.name, rank, world_size, dtype=dtype, in_place=in_place, root=1)
        )
        for each in COLLECTIVES
        for dtype in dtypes
        for in_place in natural_places(each.name)
    }


def validate_ops(rank: int, world_size: int, ops: list[str], dtypes: list[str]) -> dict[str, dict[str, Any]]:
    join(rank, world_size)
    # Gloo's reduce_scatter adds whatever it is asked for in torch 2.4, and does as it is told in 2.13.
    names = ("all_reduce", "reduce", *(["reduce_scatter"] if hasattr(dist, "reduce_scatter_single") else []))
    found = {}
    for name, op, dtype in itertools.product(names, ops, dtypes):
        cell = prepared(name, rank, world_size, dtype=dtype, op=op)
        if try_support(lambda cell=cell: cell) is None:
            found[f"{name} {op} {dtype}"] = validated(cell)
    return found


def validate_in_groups(rank: int, world_size: int, groups: list[list[int]]) -> dict[str, dict[str, Any]]:
    """Every collective in all groups at once; ranks without a group make them and go."""
    join(rank, world_size)
    made = [dist.new_group(ranks) for ranks in groups]
    found = {}
    for ranks, group in zip(groups, made, strict=True):
        if rank not in ranks:
            continue
        for each in COLLECTIVES:
            root = len(ranks) - 1
            cell = prepared(each.name, rank, len(ranks), group=group, group_ranks=ranks, root=root)
            found[each.name] = validated(cell)
    dist.barrier()
    return found


def validate_old_names(rank: int, world_size: int) -> dict[str, dict[str, Any]]:
    """As on a torch that has only the names up to 2.12."""
    for name in ("all_gather_single", "reduce_scatter_single"):
        if hasattr(dist, name):
            delattr(dist, name)
    warnings.simplefilter("ignore", FutureWarning)
    join(rank, world_size)
    return {name: validated(prepared(name, rank, world_size)) for name in ("all_gather", "reduce_scatter")}


def nothing_done(rank: int, world_size: int) -> dict[str, int]:
    """Wrong elements on this rank where no collective does anything; -1: it holds no result."""
    join(rank, world_size)
    found = {}
    for each in COLLECTIVES:
        cell = prepared(each.name, rank, world_size)
        cell.fill()
        wrong = cell.check()
        found[each.name] = (wrong.count if wrong else 0) if cell.outputs else -1
    return found


def spoilt(rank: int, world_size: int, name: str, wrapped: str, victim: int, index: int) -> dict[str, Any]:
    """After the collective one element is changed on one rank, by a wrapper round torch's function."""
    join(rank, world_size)
    real: Callable[..., Any] = getattr(dist, wrapped)

    def spoiling(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        if rank == victim:
            args[0][index] += 1
        return result

    setattr(dist, wrapped, spoiling)
    cell = prepared(name, rank, world_size)
    cell.fill()
    cell.run_sync()
    wrong = cell.check()
    return {"count": wrong.count, "index": wrong.index, "example": wrong.example} if wrong else {}


def late(rank: int, world_size: int, sleeper: int, sleep_s: float, iters: int, isolated: bool) -> str:
    """One rank sleeps before every all_reduce; its samples, encoded, in hexadecimal."""
    join(rank, world_size)
    real = dist.all_reduce

    def sleepy(*args: Any, **options: Any) -> Any:
        if rank == sleeper:
            time.sleep(sleep_s)
        return real(*args, **options)

    dist.all_reduce = sleepy
    cell = prepared("all_reduce", rank, world_size, size_bytes=1024)
    cell.fill()
    warm_up(cell.issue, 2)
    barrier = make_barrier(None, CPU) if isolated else None
    loop = timed_loop(cell.issue, barrier=barrier, iters=iters, clock=HostClock())
    return RankSamples.of(loop).encode().hex()


def late_before(rank: int, world_size: int, sleeper: int, sleep_s: float, iters: int) -> str:
    """One rank is late between the iterations: it comes late to the barrier."""
    join(rank, world_size)
    cell = prepared("all_reduce", rank, world_size, size_bytes=1024)
    cell.fill()
    enter = make_barrier(None, CPU)

    def late_barrier() -> Any:
        if rank == sleeper:
            time.sleep(sleep_s)
        return enter()

    loop = timed_loop(cell.issue, barrier=late_barrier, iters=iters, clock=HostClock())
    return RankSamples.of(loop).encode().hex()


def refusals(rank: int, world_size: int, asked: list[list[str]]) -> list[str | None]:
    join(rank, world_size)
    return [
        try_support(
            lambda name=name, dtype=dtype, op=op: prepared(name, rank, world_size, dtype=dtype, op=op)
        )
        for name, dtype, op in asked
    ]


def peer_dies(rank: int, world_size: int) -> str:
    """What asking gives when a peer is gone: no refusal."""
    join(rank, world_size)
    dist.barrier()
    if rank == world_size - 1:
        os._exit(0)
    return str(try_support(lambda: prepared("all_reduce", rank, world_size, size_bytes=1 << 20)))
