"""How exact is `oom simulate`, how near does `oom estimate` come to it, and what does it cost?

    python benchmarks/oom_simulation.py [--part exact estimate reserved] [--only TEXT ...] [-o FILE.md]
    python benchmarks/oom_simulation.py --part random [--seed 1] [--jobs 50]

exact: every program twice on this machine's CPU over a fake process group, with fake tensors followed by the tracker,
and with real ones counted by torch's own allocator, nobody following. estimate: jobs of real size, simulated as `oom
simulate` does it and estimated. reserved: what the replay of a simulation reserves beside what TorchTitan published.
random: estimate for jobs drawn at random.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import oom_simulation_exact as exact
import oom_simulation_grid as grid
import oom_simulation_published as published
import oom_simulation_random as at_random
from oom_simulation_child import in_child, prepare

from distdoctor.oom.estimate import estimate
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.simulation.roles import Role, roles_of
from distdoctor.units import GIB

PARTS = ("exact", "estimate", "reserved")
# Asked for by name: a part that takes as long as one lets it.
RANDOM = "random"


@dataclass
class Table:
    """One table, and how many of its rows hold."""

    title: str
    words: str
    head: str
    rows: list[str] = field(default_factory=list)
    within: int = 0
    judged: int = 0
    largest: float = 0.0

    def add(self, cells: Sequence[object], *, off: float | None, limit: float) -> None:
        """One row; `off` as a part of what is right, None: not judged."""
        mark = ""
        if off is not None:
            self.judged += 1
            self.within += abs(off) <= limit
            self.largest = max(self.largest, abs(off))
            mark = "" if abs(off) <= limit else " (beyond)"
        self.rows.append("| " + " | ".join(str(cell) for cell in cells) + mark + " |")
        print(self.rows[-1], flush=True)

    def text(self) -> str:
        """As Markdown."""
        columns = "|---" * self.head.count("|", 1) + "|"
        sums = f"{self.within} of {self.judged} rows that are judged hold; the largest is {100 * self.largest:.3g} % off."
        return "\n".join(
            [f"## {self.title}", "", self.words, "", sums, "", self.head, columns, *self.rows, ""]
        )


def main() -> int:
    """Print the tables; 1 when a row does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=(*PARTS, RANDOM), default=list(PARTS))
    parser.add_argument("--seed", type=int, default=1, help="of --part random")
    parser.add_argument("--jobs", type=int, default=50, help="of --part random")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name contains one of these")
    parser.add_argument("-o", "--output", type=Path, help="write the tables as Markdown")
    options = parser.parse_args()
    prepare()
    make = {
        "exact": exact_table,
        "estimate": estimate_table,
        "reserved": reserved_table,
        RANDOM: partial(random_table, seed=options.seed, count=options.jobs),
    }
    tables = [make[part](options.only) for part in options.part]
    if options.output:
        options.output.write_text("\n".join(each.text() for each in tables), encoding="utf-8")
    return int(any(each.within < each.judged for each in tables))


def exact_table(only: Sequence[str]) -> Table:
    """Simulated and counted peaks."""
    table = Table(
        "Simulated, and counted by the allocator",
        "Bytes at the peak of two steps, initialisation included. *Counted* is the allocator's own peak; *outside "
        "kernels* is the same without what a single kernel took and gave back before it ended, which no dispatch mode can "
        "see and which CUDA's kernels for these ops do not take; it is compared. *Inside* names those ops.",
        "| job | stage | simulated | counted | outside kernels | off % | inside |",
    )
    for row in exact.exact_rows():
        if not any(text in row.name for text in only):
            continue
        job = resolve(row.settings)
        for stage in row.stages:
            found = in_child(partial(_exact, job, stage * (job.mesh.num_ranks // job.mesh.pp)))
            if "failure" in found:
                table.add((row.name, stage, found["failure"], "", "", "", ""), off=None, limit=exact.LIMIT)
                continue
            off = found["simulated"] / found["outside"] - 1
            cells = (row.name, stage, *(f"{found[key]:,}" for key in ("simulated", "counted", "outside")))
            inside = ", ".join(found["kernels"]) if found["counted"] - found["outside"] > _NOTHING else ""
            table.add((*cells, f"{100 * off:+.4f}", inside), off=off, limit=exact.LIMIT)
    return table


# Scalars inside a division and the like; not worth a name.
_NOTHING = 4096


def _exact(job: Job, rank: int) -> dict[str, Any]:
    from distdoctor.oom.simulation.child.self_check import measured_peaks, simulated_peak
    from distdoctor.torch_private.distributed import forget_device_meshes

    simulated = simulated_peak(job, rank)
    forget_device_meshes()
    measured = measured_peaks(job, rank)
    if simulated is None or measured is None:
        raise RuntimeError("this torch's profiler does not tell allocations")
    return {
        "simulated": simulated,
        "counted": measured.num_bytes,
        "outside": measured.outside_kernels_bytes,
        "kernels": measured.kernels,
    }


def estimate_table(only: Sequence[str]) -> Table:
    """Estimated and simulated peaks of each kind of rank."""
    table = Table(
        "Estimated, and simulated",
        "GiB allocated at the peak of each kind of rank. CPU seconds and resident MiB are of the simulation of one kind of "
        "rank; a child of `oom simulate` takes 2 to 3 s more to import torch.",
        _ESTIMATED,
    )
    return _estimated(table, grid.grid_rows(), only)


def random_table(only: Sequence[str], *, seed: int, count: int) -> Table:
    """The same for jobs at random."""
    table = Table(
        "Estimated, and simulated: jobs at random",
        f"{count} jobs, seed {seed}; otherwise as above. What cannot be simulated is not judged.",
        _ESTIMATED,
    )
    return _estimated(table, at_random.random_rows(seed, count), only)


_ESTIMATED = "| job | rank | simulated | estimated | reserved by replay | layers | CPU s | RSS MiB | off % |"


def _estimated(table: Table, rows: Sequence[grid.GridRow], only: Sequence[str]) -> Table:
    for row in rows:
        if not any(text in row.name for text in only):
            continue
        job = resolve(row.settings)
        told = estimate(job)
        for role, found in _simulated(job):
            if "failure" in found:
                table.add((row.name, role.words, found["failure"], *[""] * 6), off=None, limit=grid.LIMIT)
                continue
            mine = next(each for each in told.roles if each.stage == role.stage).peak.num_bytes
            off = mine / found["peak"] - 1
            cells = (
                row.name,
                role.words,
                f"{found['peak'] / GIB:.2f}",
                f"{mine / GIB:.2f}",
                f"{found['reserved'] / GIB:.2f}",
                found["how"].split(",")[0],
                f"{found['cpu_seconds']:.1f}",
                f"{found['max_rss_mib']:.0f}",
                f"{100 * off:+.1f}" + (", not covered" if told.not_covered else ""),
            )
            table.add(cells, off=None if told.not_covered else off, limit=grid.LIMIT)
    return table


def reserved_table(only: Sequence[str]) -> Table:
    """Reserved by replay, and published."""
    table = Table(
        "Reserved by replay, and published by TorchTitan",
        f"GiB; the worst kind of rank. Published in <{published.SOURCE}>. Only eager bf16 runs are like the simulation "
        "and are judged.",
        "| job | published | replayed | with expandable segments | allocated | why not alike | off % |",
    )
    for row in published.published_rows():
        if not any(text in row.name for text in only):
            continue
        found = [answer for _, answer in _simulated(resolve(row.settings))]
        failure = next((each["failure"] for each in found if "failure" in each), None)
        if failure is not None:
            table.add((row.name, row.reserved_gib, failure, *[""] * 4), off=None, limit=published.LIMIT)
            continue
        worst = max(found, key=lambda each: each["reserved"])
        off = worst["reserved"] / GIB / row.reserved_gib - 1
        sizes = (f"{worst[key] / GIB:.1f}" for key in ("reserved", "expandable", "peak"))
        table.add(
            (row.name, row.reserved_gib, *sizes, row.why_not_alike, f"{100 * off:+.1f}"),
            off=None if row.why_not_alike else off,
            limit=published.LIMIT,
        )
    return table


def _simulated(job: Job) -> Iterator[tuple[Role, dict[str, Any]]]:
    for role in roles_of(job):
        yield role, in_child(partial(_simulate, job, role))


def _simulate(job: Job, role: Role) -> dict[str, Any]:
    from distdoctor.oom.simulation.child.simulate import simulate_role

    found = simulate_role(job, role)
    reserved = {each.expandable_segments: each.peak_bytes for each in found.reserved}
    return {
        "peak": found.peak.num_bytes,
        "reserved": reserved[False],
        "expandable": reserved[True],
        "how": found.how,
    }


if __name__ == "__main__":
    sys.exit(main())
