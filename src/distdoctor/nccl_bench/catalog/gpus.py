"""How are the GPUs of this model joined: NVLink, how many links, through switches? Data and sources: gpus.json."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

from distdoctor.nccl_bench.catalog.tables import read_table

Form = Literal["sxm", "oam", "nvl", "pcie", "superchip"]

# One direction of 16 lanes, GB/s, after 128b/130b coding (PCI-SIG base specifications 3.0 to 5.0); for 6.0 the
# raw 121 GB/s of its flit mode.
PCIE_X16_GBPS = {3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """One row of the catalogue: the product, not what a host has made of it."""

    family: str
    """"H100": form factors of one chip share it."""
    generation: str
    form: Form
    nvlinks: int | None
    """Links of one GPU; 0: none; None: depends on the system."""
    link_gbps: float | None
    """One link in one direction, GB/s."""
    nvls: bool
    """NVLink SHARP is possible on a baseboard with NVSwitch."""
    pcie_gen: int

    @property
    def is_baseboard(self) -> bool:
        """Every pair of GPUs of the board is joined."""
        return self.form in ("sxm", "oam")

    @property
    def nvlink_total_gbps(self) -> float | None:
        """All links of one GPU in one direction, GB/s; None when not known, 0 for a GPU without links."""
        if self.nvlinks is None:
            return None
        return self.nvlinks * (self.link_gbps or 0.0)


@functools.cache
def _rows() -> tuple[tuple[re.Pattern[str], GpuKind], ...]:
    return tuple(
        (
            re.compile(rf"(?<![A-Za-z0-9])(?:{row['name']})(?![A-Za-z0-9])", re.IGNORECASE),
            GpuKind(
                family=row["family"],
                generation=row["generation"],
                form=row["form"],
                nvlinks=row["nvlinks"],
                link_gbps=row["link_gbps"],
                nvls=row["nvls"],
                pcie_gen=row["pcie_gen"],
            ),
        )
        for row in read_table("gpus")["models"]
    )


def gpu_kind(model: str) -> GpuKind | None:
    """The kind that a model name stands for ("NVIDIA H100 80GB HBM3"); None for a name that is not known."""
    return next((kind for pattern, kind in _rows() if pattern.search(model[:200])), None)
