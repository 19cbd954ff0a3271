"""Jobs on a mesh of ranks, simulated: a collective ends when its last rank has come and the transfer is done; what a
rank does next begins when its own previous collective ended. Nothing here knows how the analysis works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place

GPUS_PER_HOST = 8


@dataclass
class Mesh:
    """`dp` × `tp` ranks, tp innermost; in each step `layers` all-reduces over tp and one over dp."""

    dp: int = 8
    tp: int = 4
    steps: int = 40
    layers: int = 10
    own_us: float = 1000.0
    """Own work before each collective."""
    noise: float = 0.01
    tp_transfer_us: float = 100.0
    dp_transfer_us: float = 2000.0
    slow: Mapping[int, float] = field(default_factory=dict)
    """By rank: own work takes so many times as long."""
    slow_tp_links: Mapping[int, float] = field(default_factory=dict)
    """By number of the tp group: transfers take so many times as long."""
    slow_dp_links: Mapping[int, float] = field(default_factory=dict)
    record_tp: bool = True
    tell_steps: bool = True
    tell_ends: bool = False
    gpus_per_host: int = GPUS_PER_HOST
    seed: int = 1

    @property
    def num_ranks(self) -> int:
        return self.dp * self.tp

    def run(self) -> CollectiveTimings:
        rng = np.random.default_rng(self.seed)
        clock = np.zeros(self.num_ranks)
        slow = np.asarray([self.slow.get(rank, 1.0) for rank in range(self.num_ranks)])
        grid = np.arange(self.num_ranks).reshape(self.dp, self.tp)
        recorded = Recorded(gpus_per_host=self.gpus_per_host, num_ranks=self.num_ranks)
        tp = [recorded.group(f"tp{i}", members) for i, members in enumerate(grid)] if self.record_tp else None
        dp = [recorded.group(f"dp{i}", members) for i, members in enumerate(grid.T)]
        tp_slow = np.asarray([self.slow_tp_links.get(i, 1.0) for i in range(self.dp)])
        dp_slow = np.asarray([self.slow_dp_links.get(i, 1.0) for i in range(self.tp)])

        def work() -> NDArray[np.float64]:
            return self.own_us * slow * (1 + self.noise * rng.standard_normal(self.num_ranks))

        for step in range(self.steps):
            told = step if self.tell_steps else -1
            for layer in range(self.layers):
                arrive = (clock + work()).reshape(self.dp, self.tp)
                end = arrive.max(axis=1) + self.tp_transfer_us * tp_slow * rng.uniform(1, 1.05, self.dp)
                seq = step * self.layers + layer
                if tp is not None:
                    recorded.add(tp, grid, seq, arrive, end, step=told, op="all_reduce", num_bytes=1 << 20)
                clock = np.repeat(end, self.tp)
            arrive = (clock + work()).reshape(self.dp, self.tp).T
            end = arrive.max(axis=1) + self.dp_transfer_us * dp_slow * rng.uniform(1, 1.05, self.tp)
            recorded.add(dp, grid.T, step, arrive, end, step=told, op="reduce_scatter", num_bytes=1 << 28)
            clock = np.tile(end, self.dp)
        return recorded.timings(ends=self.tell_ends, rng=rng)


class Recorded:
    """Rows as ranks record them."""

    def __init__(self, *, num_ranks: int, gpus_per_host: int = GPUS_PER_HOST) -> None:
        self.places = tuple(
            Place(rank=rank, host=f"node-{rank // gpus_per_host}", local_rank=rank % gpus_per_host)
            for rank in range(num_ranks)
        )
        self.groups: list[Group] = []
        self.ops: list[str] = []
        self.rows: list[tuple[NDArray[np.float64], ...]] = []

    def group(self, name: str, members: NDArray[np.int64], what: str | None = None) -> int:
        self.groups.append(Group(name=name, ranks=tuple(int(rank) for rank in members), what=what))
        return len(self.groups) - 1

    def add(
        self,
        groups: list[int],
        ranks: NDArray[np.int64],
        seq: int,
        arrive_us: NDArray[np.float64],
        end_us: NDArray[np.float64],
        *,
        step: int = -1,
        op: str = "all_reduce",
        num_bytes: int = 1 << 20,
    ) -> None:
        """One collective in each group; `ranks` and `arrive_us` have shape (groups, members)."""
        if op not in self.ops:
            self.ops.append(op)
        ends = np.broadcast_to(np.reshape(end_us, (-1, 1)), arrive_us.shape)
        shape = arrive_us.shape
        self.rows.append(
            (
                ranks.reshape(-1).astype(np.float64),
                np.repeat(groups, shape[1]).astype(np.float64),
                np.full(arrive_us.size, self.ops.index(op), dtype=np.float64),
                np.full(arrive_us.size, seq, dtype=np.float64),
                (ends - arrive_us).reshape(-1),
                np.full(arrive_us.size, step, dtype=np.float64),
                np.full(arrive_us.size, num_bytes, dtype=np.float64),
                ends.reshape(-1).astype(np.float64),
            )
        )

    def timings(self, *, ends: bool = False, rng: np.random.Generator | None = None) -> CollectiveTimings:
        """In no order, with ends that differ by up to 1 us between ranks."""
        rng = rng or np.random.default_rng(0)
        columns = [np.concatenate(column) for column in zip(*self.rows, strict=True)]
        order = rng.permutation(len(columns[0]))
        rank, group, op, seq, duration, step, num_bytes, end = (column[order] for column in columns)
        skew = rng.uniform(0, 1, len(order))
        return CollectiveTimings(
            source="simulated",
            places=self.places,
            groups=tuple(self.groups),
            ops=tuple(self.ops),
            rank=rank.astype(np.int32),
            group=group.astype(np.int32),
            op=op.astype(np.int32),
            seq=seq.astype(np.int64),
            duration_us=(duration + skew).astype(np.float32),
            step=step.astype(np.int64),
            num_bytes=num_bytes.astype(np.int64),
            end_s=1.7e9 + (end + skew) / 1e6 if ends else None,
            world_size=len(self.places),
        )
