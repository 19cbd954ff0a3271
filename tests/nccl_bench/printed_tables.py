"""What nccl-tests and rccl-tests print, version by version, made from a line model of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# n is the number of ranks. Written here once more, apart from the code under test.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "sendrecv": lambda n: 1.0,
}
SPLIT = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
REDUCING = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
UNCHECKED_IN_PLACE = ("alltoall", "sendrecv")

SIZES = tuple(1 << power for power in range(10, 33))


def number(value: float, width: int) -> str:
    """`getFloatStr` of nccl-tests 2.18: as many decimals as the width leaves."""
    digits = len(str(int(value)))
    if digits < width - 2:
        return f"{value:{width}.2f}"
    if digits < width - 1:
        return f"{value:{width}.1f}"
    if digits <= width:
        return f"{value:{width}.0f}"
    return f"{value:{width}.1e}"


def old_time(value: float) -> str:
    """Time as versions before 2.17 print it."""
    return f"{value:7.0f}" if value >= 10000 else f"{value:7.1f}" if value >= 100 else f"{value:7.2f}"


@dataclass(frozen=True, kw_only=True)
class Printer:
    """One run of one binary."""

    collective: str = "all_reduce"
    num_ranks: int = 16
    latency_us: float = 30.0
    peak_gbps: float = 390.0
    layout: str = "2022"
    """2019 (no root column, error), 2022 (#wrong), 2025 (banner, wider), iterations (-I), algo (rccl -M)."""
    sizes: Sequence[int] = SIZES
    per_host: int = 8
    checks: bool = True
    wrong: dict[tuple[int, bool], int] = field(default_factory=dict)
    slow: dict[tuple[int, bool], float] = field(default_factory=dict)
    max_bytes: int | None = None
    model: str = "NVIDIA H100 80GB HBM3"

    def time_us(self, size: int, in_place: bool) -> float:
        bytes_on_bus = size * FACTORS[self.collective](self.num_ranks)
        return (self.latency_us + bytes_on_bus / self.peak_gbps / 1e3) * self.slow.get((size, in_place), 1.0)

    def half(self, size: int, in_place: bool) -> str:
        time = self.time_us(size, in_place)
        algbw = size / time / 1e3
        busbw = algbw * FACTORS[self.collective](self.num_ranks)
        blind = not self.checks or (in_place and self.collective in UNCHECKED_IN_PLACE)
        if self.layout == "2019":
            check = "N/A" if blind else "5e-07"
            return f"  {old_time(time)}  {algbw:6.2f}  {busbw:6.2f}  {check:>5}"
        check = "N/A" if blind else f"{self.wrong.get((size, in_place), 0):g}"
        if self.layout == "2022":
            return f"  {old_time(time)}  {algbw:6.2f}  {busbw:6.2f}  {check:>5}"
        text = f"  {number(time, 7)}  {number(algbw, 6)}  {number(busbw, 6)}  {check:>6}"
        if self.layout == "iterations":
            text += "".join(f"  {number(each, 7)}" for each in (time * 0.9, time * 1.5, time * 1.4, 3.21))
        if self.layout == "algo":
            text += "    RING  SIMPLE  32"
        return text

    def row(self, size: int) -> str:
        count = size // 4 // (self.num_ranks if self.collective in SPLIT else 1)
        op = "sum" if self.collective in REDUCING else "none"
        root = 0 if self.collective in ROOTED else -1
        text = f"{size:12}  {count:12}"
        if self.layout == "2019":
            text = f"{size:12}  {count:12}  {'float':>6}"
            if self.collective in ("all_reduce", "reduce_scatter", "reduce"):
                text += "     sum"
            elif self.collective in UNCHECKED_IN_PLACE:
                text += "        "
            if self.collective in ROOTED:
                text += f"  {root:6}"
        else:
            text += f"  {'float':>8}  {op:>6}  {root:6}"
        return text + self.half(size, False) + self.half(size, True)

    def rows(self) -> list[str]:
        return [self.row(size) for size in self.sizes]

    def settings(self) -> str:
        low, high = self.sizes[0], self.max_bytes or self.sizes[-1]
        text = f"# nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: 2(factor) warmup iters: 5 iters: 20"
        if self.layout != "2019":
            text += " agg iters: 1"
        text += f" validation: {int(self.checks)}"
        return text + (" graph: 0 " if self.layout != "2019" else " ")

    def devices(self) -> list[str]:
        lines = []
        for rank in range(self.num_ranks):
            host, device = f"node-{rank // self.per_host:02}", rank % self.per_host
            if self.layout == "2019":
                lines.append(
                    f"#   Rank {rank:2} Pid {4000 + rank:6} on {host:>10} device {device:2} [0x{device:02x}] {self.model}"
                )
            else:
                bus = f"0000:{0x10 + device:02x}:00" if self.layout != "2022" else f"0x{0x10 + device:02x}"
                lines.append(
                    f"#  Rank {rank:2} Group  0 Pid {4000 + rank:6} on {host:>10} device {device:2} [{bus}] {self.model}"
                )
        return lines

    def columns(self) -> list[str]:
        check = "error" if self.layout == "2019" else "#wrong"
        half = f"     time   algbw   busbw  {check}"
        if self.layout == "iterations":
            half += "    i_min    i_max    i_p99    i_cv%"
        if self.layout == "algo":
            half += "    algo   proto  nchannels"
        head = "#       size         count      type"
        if self.layout == "2019":
            if self.collective in ("all_reduce", "reduce_scatter", "reduce", *UNCHECKED_IN_PLACE):
                head += "   redop"
            if self.collective in ROOTED:
                head += "    root"
        else:
            head += "   redop    root"
        return [
            "#                                                              out-of-place                       in-place          ",
            head + half + half,
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
        ]

    def footer(self) -> list[str]:
        bad = len(self.wrong)
        halves = [(size, in_place) for size in self.sizes for in_place in (False, True)]
        total = sum(
            size / self.time_us(size, in_place) / 1e3 * FACTORS[self.collective](self.num_ranks)
            for size, in_place in halves
        )
        lines = [
            f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}",
            f"# Avg bus bandwidth    : {total / len(halves):g} ",
            "#",
        ]
        if self.has_banner:
            lines += [f"# Collective test concluded: {self.collective}_perf", "#"]
        return lines

    @property
    def has_banner(self) -> bool:
        return self.layout in ("2025", "iterations")

    @property
    def nccl(self) -> str:
        return "2.29.7+cuda13.0" if self.has_banner else "2.21.5+cuda12.4"

    def head(self) -> list[str]:
        lines = []
        if self.has_banner:
            lines += [
                "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907",
                f"# Collective test starting: {self.collective}_perf",
            ]
        lines.append(self.settings())
        if self.layout == "iterations":
            lines.append("# Per-Iteration Report: CUDA event timing; i_* uses max over process rows ")
        if self.layout == "algo":
            lines.append("rccl-tests: Version develop:0c1f5a3")
        return [*lines, "#", "# Using devices", *self.devices(), f"NCCL version {self.nccl}", "#"]

    def lines(self) -> list[str]:
        return [*self.head(), *self.columns(), *self.rows(), *self.footer()]

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"
