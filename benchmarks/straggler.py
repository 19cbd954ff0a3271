"""How fast `straggler analyze` is: 16,384 ranks from packed files, and Kineto traces beside HolisticTraceAnalysis.

    python benchmarks/straggler.py --hta-python /path/to/python     all of it; HTA must be importable there
    python benchmarks/straggler.py --hosts 64                       a smaller first part

The first part packs a synthetic job (8 ranks a host, 5,000 steps, 4 sections; slow ranks, a slow host and a heavier last
stage are hidden in it) and runs the command on the packed files in a process of its own. The second part is
`straggler_kineto.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import straggler_kineto

from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.pack import write_timings

A_HOST = 8
NUM_STAGES = 16
STEP_S = 0.3


def truth(num_hosts: int, num_steps: int) -> dict[str, dict[int, tuple[float, int]]]:
    """Which ranks are slow in what: rank → (factor, first step)."""
    num_ranks = num_hosts * A_HOST
    host = num_hosts * 5 // 8
    slow = {37: (1.20, 0), num_ranks // 3: (1.10, 0), num_ranks // 2 + 5: (1.25, num_steps * 3 // 5)}
    slow |= {host * A_HOST + local: (1.08, 0) for local in range(A_HOST)}
    return {"compute": slow, "data": {num_ranks - 384 if num_ranks > 1000 else num_ranks - 3: (20.0, 0)}}


def pack_job(folder: Path, num_hosts: int, num_steps: int) -> None:
    """Packed files of a job in which all wait for the slowest, host by host; two passes with the same seeds."""
    slow = truth(num_hosts, num_steps)
    latest = np.zeros(num_steps, dtype=np.float32)
    for host in range(num_hosts):
        data, compute, _ = _own(host, num_hosts, num_steps, slow)
        np.maximum(latest, (data + compute).max(axis=0), out=latest)
    stage_size = max(1, num_hosts // NUM_STAGES)
    spent = 0.0
    for host in range(num_hosts):
        data, compute, optimizer = _own(host, num_hosts, num_steps, slow)
        timings = StepTimings(
            source="synthetic job",
            places=tuple(
                Place(
                    rank=host * A_HOST + local,
                    host=f"host-{host:05d}",
                    local_rank=local,
                    coords={"pp": host // stage_size, "dp": host % stage_size * A_HOST + local},
                )
                for local in range(A_HOST)
            ),
            steps=np.arange(num_steps),
            sections={
                Section.DATA: data,
                Section.COMPUTE: compute,
                Section.OPTIMIZER: optimizer,
                Section.WAIT: latest - data - compute + np.float32(40.0),
            },
            started_s=1.76e9 + np.arange(num_steps) * STEP_S,
            world_size=num_hosts * A_HOST,
        )
        before = time.process_time()
        write_timings(timings, (), folder)
        spent += time.process_time() - before
    size = sum(file.stat().st_size for file in folder.iterdir())
    rows = num_hosts * A_HOST * num_steps
    print(f"packed: {rows:,} rows of 4 sections, {size / rows:.1f} bytes a row, {spent:.1f} s CPU to write")


def _own(
    host: int, num_hosts: int, num_steps: int, slow: dict[str, dict[int, tuple[float, int]]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(host)
    shape = (A_HOST, num_steps)
    last_stage = host >= num_hosts - num_hosts // NUM_STAGES
    spread = 1 + 0.005 * rng.standard_normal((A_HOST, 1))
    compute = 200 * spread * (1.15 if last_stage else 1.0) * (1 + 0.02 * rng.standard_normal(shape))
    data = 2 * np.exp(0.25 * rng.standard_normal(shape))
    optimizer = 15 * (1 + 0.01 * rng.standard_normal(shape))
    for times, name in ((compute, "compute"), (data, "data")):
        for rank, (factor, first) in slow[name].items():
            if rank // A_HOST == host:
                times[rank % A_HOST, first:] *= factor
    return data.astype(np.float32), compute.astype(np.float32), optimizer.astype(np.float32)


def analyse_packed(folder: Path, num_hosts: int, num_steps: int) -> None:
    """The command in a process of its own: CPU, memory, and whom it names."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    argv = [sys.executable, "-m", "distdoctor", "straggler", "analyze", str(folder), "--format", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report = json.loads(done.stdout)
    print(
        f"distdoctor straggler analyze: {cpu:.1f} s CPU, {wall:.1f} s by the clock, of it analysis "
        f"{report['timings']['analyse']:.1f} s by the clock with the reading of sections, peak {after.ru_maxrss / 2**20:.2f} GiB"
    )
    print(f"verdict: {report['verdict']['title']}")
    culprits = [each for each in report["culprits"] if each.get("role", "culprit") == "culprit"]
    ranks = sorted(each["rank"] for each in culprits if "rank" in each)
    hosts = sorted(each["host"] for each in culprits if "rank" not in each)
    print(f"named: ranks {ranks}, hosts {hosts}")
    slow = truth(num_hosts, num_steps)
    hidden = {rank: each for of in slow.values() for rank, each in of.items()}
    print(
        f"hidden: {', '.join(f'{rank} x{factor} from step {first}' for rank, (factor, first) in hidden.items())}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--hta-python", help="a Python in which `hta` can be imported")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pack_job(Path(folder), options.hosts, options.steps)
        analyse_packed(Path(folder), options.hosts, options.steps)
    print()
    straggler_kineto.compare(
        hta_python=options.hta_python, rounds=options.rounds, ranks=8, steps=150, num_many=options.many
    )


if __name__ == "__main__":
    main()
