"""Megatron-LM's own look for stragglers: the detector's extremes with ranks, and outliers of its GPU sniff test.

    | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | … | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8
      GEMM throughput (8192x8192x8192, bf16) [TFLOP/s/GPU]: median=701.20, mean=698.10, min=611.00, max=705.00
        OUTLIER rank 3 (host-a): 611.00 (-12.9%)

The detector times forward alone and has no threshold. Its power is labelled W and is in mW, and utilisation is a
single sample: both are left out.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

import numpy as np

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import Extremes
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import MAX_VALUES
from distdoctor.straggler.readers.logs.formats import Claims, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number
from distdoctor.straggler.readers.logs.megatron_args import MAX_RANKS

_EXTREME = re.compile(
    r"(Mn|Mx)(Rtt|DRtt|Etpt|Tmp|Clk)/Rnk: ([-+.\deE]{1,32}|nan|inf)(ms|us|TF|C|MHz)/(\d{1,9})(?!\d)"
)
_METRIC = re.compile(r"([A-Z][\w -]{1,40}\(.{1,160}\) \[(?:TFLOP/s/GPU|GB/s)\]): median=([-+.\deE]{1,32})")
_OUTLIER = re.compile(
    r"OUTLIER rank (\d{1,9})(?: \(([\w.:-]{1,253})\))?: ([-+.\deE]{1,32}) \(([-+.\d]{1,12})%\)"
)

SNIFF_RULE = (
    "flags a rank whose micro-benchmark differs from the median by more than 10 % and more than the median absolute "
    "deviation, once, without a repeat; smaller differences are not seen"
)


@dataclass(frozen=True, slots=True)
class _Quantity:
    name: str
    unit: str
    more_is_worse: bool
    most: float
    """Beyond it a value is broken."""


# Estimated throughput ran away to 147,000 TF in one version; no GPU does a seventh of it, in any precision (dense FP4
# of 2025's fastest is 15,000). The other bounds are our own, far beyond anything real.
_QUANTITIES = {
    "Rtt": _Quantity("round trip", "ms", True, 1e8),
    "DRtt": _Quantity("get_batch", "ms", True, 1e8),
    "Etpt": _Quantity("estimated throughput", "TFLOP/s", False, 20_000.0),
    "Tmp": _Quantity("GPU temperature", "C", True, 150.0),
    "Clk": _Quantity("SM clock", "MHz", False, 6_000.0),
}


@dataclass(slots=True)
class _Pairs:
    steps: array[int] = field(default_factory=lambda: array("q"))
    low: array[float] = field(default_factory=lambda: array("d"))
    high: array[float] = field(default_factory=lambda: array("d"))
    low_rank: array[int] = field(default_factory=lambda: array("i"))
    high_rank: array[int] = field(default_factory=lambda: array("i"))


class MegatronStragglers(LogFormat):
    """Detector lines and sniff tests."""

    name = "Megatron-LM straggler detector"
    triggers = (b"/Rnk: ", b"OUTLIER rank ", b": median=")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pairs: dict[str, _Pairs] = {}
        self._claims = Claims("Megatron-LM GPU sniff test")
        self._metric = ""
        self._implausible: dict[str, float] = {}
        self._num_implausible = 0

    def feed(self, line: Line) -> None:
        """A report, or a line of a sniff test."""
        if "/Rnk: " in line.text:
            self._report(line)
            return
        match = _METRIC.search(line.text)
        if match is not None:
            self._metric = match[1]
            return
        match = _OUTLIER.search(line.text)
        if match is None or int(match[1]) >= MAX_RANKS:
            return
        off = number(match[4]) / 100
        if not off < 0:  # every metric is a speed: above the median is not slow
            return
        rank, host = int(match[1]), match[2]
        self._claims.say(
            f"{self._metric or 'a micro-benchmark'}: rank {rank} is {-off:.1%} below the median",
            ranks=(rank,),
            hosts=(host,) if host else (),
            line=line.number,
            rule=SNIFF_RULE,
            scores={rank: off},
        )

    def _report(self, line: Line) -> None:
        ends: dict[str, dict[str, tuple[float, int]]] = {}
        for end, key, text, unit, rank in _EXTREME.findall(line.text):
            if int(rank) < MAX_RANKS:
                value = number(text) / (1000.0 if unit == "us" else 1.0)
                ends.setdefault(key, {})[end] = (value, int(rank))
        for key, both in ends.items():
            if len(both) < 2:
                continue
            quantity = _QUANTITIES[key]
            (low, low_rank), (high, high_rank) = both["Mn"], both["Mx"]
            if not 0 <= low <= high <= quantity.most:
                self._num_implausible += 1
                self._implausible.setdefault(quantity.name, high)
                continue
            pairs = self._pairs.setdefault(key, _Pairs())
            if len(pairs.steps) < MAX_VALUES:
                pairs.steps.append(-1 if self.context.iteration is None else self.context.iteration)
                pairs.low.append(low)
                pairs.high.append(high)
                pairs.low_rank.append(low_rank)
                pairs.high_rank.append(high_rank)

    def finish(self, options: ReadOptions) -> FileFacts:
        """Extremes by quantity, claims, and what was implausible."""
        numbered = any(max(pairs.steps) >= 0 for pairs in self._pairs.values())
        extremes = []
        for key, pairs in self._pairs.items():
            steps = np.array(pairs.steps, dtype=np.int64)
            if not numbered:
                steps = np.arange(1, len(steps) + 1, dtype=np.int64)
            kept = (steps >= 0) & options.wants_each(steps)
            if not kept.any():
                continue
            quantity = _QUANTITIES[key]
            extremes.append(
                Extremes(
                    name=quantity.name,
                    source=self.name,
                    path=self.context.path,
                    unit=quantity.unit,
                    steps=steps[kept],
                    low=np.array(pairs.low)[kept],
                    high=np.array(pairs.high)[kept],
                    low_rank=np.array(pairs.low_rank, dtype=np.int32)[kept],
                    high_rank=np.array(pairs.high_rank, dtype=np.int32)[kept],
                    more_is_worse=quantity.more_is_worse,
                )
            )
        notes: tuple[Note, ...] = ()
        if self._num_implausible:
            shown = ", ".join(f"{name} up to {value:,.0f}" for name, value in self._implausible.items())
            notes = (
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"Megatron-LM log `{self.context.path}`: {self._num_implausible} values of the straggler "
                    f"detector are implausible and were left out ({shown})",
                ),
            )
        return FileFacts(extremes=tuple(extremes), claims=self._claims.build(self.context.path), notes=notes)
