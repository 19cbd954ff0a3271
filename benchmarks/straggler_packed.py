"""How fast packed recordings are written and read, and how large they are: `python benchmarks/straggler_packed.py`.

Times are noise of 2 %, which hardly compresses. Prints CPU seconds and the peak of memory of reading one section at
a time; the default is 2,048 hosts of 8 ranks and 5,000 steps, 0.9 GB on disk.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.pack import write_timings
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.packed import PACKED_FILES

SECTIONS = (Section.DATA, Section.FORWARD, Section.BACKWARD, Section.WAIT)


def make(folder: Path, hosts: int, a_host: int, steps: int) -> None:
    rng = np.random.default_rng(0)
    spent = 0.0
    for host in range(hosts):
        timings = StepTimings(
            source="benchmark",
            places=tuple(
                Place(rank=host * a_host + local, host=f"host-{host:05d}", local_rank=local)
                for local in range(a_host)
            ),
            steps=np.arange(steps),
            sections={
                section: (100 + 2 * rng.standard_normal((a_host, steps))).astype(np.float32)
                for section in SECTIONS
            },
            started_s=1.7e9 + np.arange(steps) * 0.5,
            world_size=hosts * a_host,
        )
        before = time.process_time()
        write_timings(timings, (), folder)
        spent += time.process_time() - before
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"written: {spent:.1f} s CPU, {size / (hosts * a_host * steps):.1f} bytes a row")


def look(folder: Path) -> None:
    paths = [str(path) for path in sorted(folder.iterdir())]
    before, began = time.process_time(), time.perf_counter()
    (timings,) = PACKED_FILES.read(paths, ReadOptions()).steps
    opened = time.process_time()
    total = 0.0
    for section in timings.sections:
        total += float(timings.sections[section][0, 0])
    wall = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{timings.num_ranks:,} ranks x {timings.num_steps:,} steps x {len(timings.sections)} sections in {len(paths):,} "
        f"files: opened in {opened - before:.1f} s CPU, read in {time.process_time() - opened:.1f} s CPU, {wall:.1f} s by "
        f"the clock, peak {peak:.0f} MiB, of which one section {timings.num_ranks * timings.num_steps * 4 / 2**20:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2048)
    parser.add_argument("--ranks-a-host", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--folder", help="packed files that are there already")
    options = parser.parse_args()
    if options.folder:
        look(Path(options.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.hosts, options.ranks_a_host, options.steps)
        for _ in range(2):
            # In a process of its own, whose peak of memory is that of reading.
            subprocess.run([sys.executable, __file__, "--folder", folder], check=True)


if __name__ == "__main__":
    main()
