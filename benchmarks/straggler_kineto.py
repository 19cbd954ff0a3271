"""How fast are traces of PyTorch's profiler read, beside Holistic Trace Analysis?

    python benchmarks/straggler_kineto.py [--hta-python PATH] [--rounds 3] [--ranks 8] [--steps 150] [--many 1000]

1. The same traces, written here as torch writes them (indented JSON, names of real kernels, times that wander from step
   to step): reading and the whole analysis here, `TraceAnalysis(...).get_temporal_breakdown()` there, in turns, CPU time of the whole process and
   its children, Python's start included. Ratios are of pairs; the A/A row compares our own runs with one another.
   HTA 0.5.0 knows kernels of NCCL only as `ncclKernel*`, so the traces have that older name.
   Not the same work: HTA keeps every event in a table and can be asked for more afterwards; ours keeps sums of steps
   and times of collectives, which is all that it judges by.
2. Many traces in one reading: CPU time and peak memory (RSS).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy

OURS = """
import sys
from pathlib import Path
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.from_files import read_evidence_files
from distdoctor.straggler.readers.base import ReadOptions
facts = analyse(read_evidence_files([sys.argv[1]], ReadOptions()))
rows = sum(len(each.rank) for each in facts.reading.collectives)
# ru_maxrss would count what the parent held when it forked.
peak = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(facts.judged[0].timings.num_ranks, rows, *peak)
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
table = TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
print(len(table), 0, 0)
"""

OPS = (
    "aten::linear",
    "aten::addmm",
    "aten::gelu",
    "aten::native_layer_norm",
    "aten::_scaled_dot_product_flash_attention",
)
KERNELS = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, "
    "at::detail::Array<char*, 2> >(int, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType))",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, "
    "c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t>, false, true, false, false, true, false, false>(pytorch_flash::Flash_fwd_params)",
)


class Writer:
    """One rank's trace: DDP with 32 layers, an all-reduce for every fourth, one step after another."""

    def __init__(self, path: Path, rank: int, world_size: int) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._rank, self._world = rank, world_size
        self._random = random.Random(rank)
        self._id = 0
        self._num = 0
        ranks = list(range(world_size))
        devices = [
            {"id": each, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936} for each in range(8)
        ]
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": world_size, "ranks": ranks}]
        info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1, "pg_config": groups}
        self._ranks = json.dumps(json.dumps(ranks[:16]))
        self._file.write(
            f'{{\n  "schemaVersion": 1,\n  "deviceProperties": {json.dumps(devices, indent=4)},\n'
            f'  "distributedInfo": {json.dumps(info)},\n  "record_shapes": 1,\n  "traceEvents": ['
        )

    def event(  # noqa: PLR0917 - in the order of the file
        self, cat: str, name: str, where: str, ts: float, dur: float, args: str
    ) -> None:
        comma = "," if self._num else ""
        self._num += 1
        self._file.write(
            f'{comma}\n  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", {where},\n'
            f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
        )

    def launched(
        self, host_us: float, device_us: float, name: str, dur: float, *, stream: int, more: str = ""
    ) -> None:
        """A call of the runtime, its arrow, and the kernel."""
        self._id += 1
        number, pid = self._id, 4000 + self._rank
        device = self._rank % 8
        cpu = f'"pid": {pid}, "tid": {pid}'
        self.event(
            *("cuda_runtime", "cudaLaunchKernel", cpu, host_us, 4.0 + self._random.random()),
            f'"External id": {number}, "cbid": 211, "correlation": {number}',
        )
        for ph, where, at in (("s", cpu, host_us), ("f", f'"pid": {device}, "tid": {stream}', device_us)):
            self._file.write(
                f',\n  {{\n    "ph": "{ph}", "id": {number}, {where}, "ts": {at:.3f},\n'
                f'    "cat": "ac2g", "name": "ac2g"{", " + chr(34) + "bp" + chr(34) + ": " + chr(34) + "e" + chr(34) if ph == "f" else ""}\n  }}'
            )
        self.event(
            *("kernel", name, f'"pid": {device}, "tid": {stream}', device_us, dur),
            f'"External id": {number}, "queued": 0, "device": {device}, "context": 1,\n      "stream": {stream}, '
            f'"correlation": {number},\n      "registers per thread": 168, "shared memory": 213120,\n'
            f'      "blocks per SM": 1.0, "warps per SM": 12.0,\n      "grid": [132, 1, 1], "block": [384, 1, 1],\n'
            f'      "est. achieved occupancy %": 19{more}',
        )

    def step(self, number: int, began_us: float, arrived_us: list[float], drift: float) -> float:
        """One training step; returns when it ended. `arrived_us` are ends of collectives that all ranks share."""
        pid = 4000 + self._rank
        cpu = f'"pid": {pid}, "tid": {pid}'
        host, device = began_us + 300, began_us + 350
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self.event(
            "user_annotation",
            loader,
            cpu,
            began_us + 20,
            250 + 40 * self._random.random(),
            '"External id": 1',
        )
        for layer in range(32):
            for part in range(14):
                self.event(
                    *("cpu_op", OPS[part % 5], cpu, host, 30.0),
                    f'"External id": {self._id + 1},"Record function id": 0, "Sequence number": {layer}, '
                    f'"Fwd thread id": 0, "Input Dims": [[4, 2048, 4096], [4096, 4096]], "Ev Idx": {self._num}',
                )
                host += 9
                if part % 2:
                    dur = (60 + 10 * (part % 4)) * drift * self._random.gauss(1, 0.02)
                    device = max(device, host + 5)
                    self.launched(host, device, KERNELS[(part // 2) % 4], dur, stream=7)
                    device += dur
            if layer % 4 == 3:
                end = arrived_us[layer // 4]
                start = min(device, end - 200)
                more = (
                    f',\n      "Collective name": "allreduce", "In msg nelems": 67108864, "Out msg nelems": 67108864, '
                    f'"Group size": {self._world}, "dtype": "BFloat16", "Process Group Name": "0", '
                    f'"Process Group Description": "default_pg", "Process Group Ranks": {self._ranks}, '
                    f'"Global rank start": 0, "Global rank stride": 1, "Seq": {number * 8 + layer // 4}'
                )
                kernel = "ncclKernel_AllReduce_RING_LL_Sum_bfloat16(ncclDevComm*, unsigned long, ncclWork*)"
                self.launched(host, start, kernel, end - start, stream=20, more=more)
        ended = max(host, device, arrived_us[-1]) + 50
        self.event(
            "user_annotation", f"ProfilerStep#{number}", cpu, began_us, ended - began_us, '"External id": 2'
        )
        return ended

    def close(self) -> None:
        self._file.write(
            '\n  ],\n  "traceName": "rank.json",\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1751410836000000000\n}\n'
        )
        self._file.close()


def write_traces(
    folder: Path, num_ranks: int, num_steps: int, steps_of: Callable[[int], int] | None = None
) -> int:
    """Traces of one job; returns their bytes. Collectives end together, since all ranks share their ends.

    steps_of: how many of the steps a rank recorded; all of them by default.
    """
    shared = random.Random(7)
    drifts, ends, began = [1.0], [], 1e9
    for _ in range(num_steps):
        drifts.append(1 + 0.8 * (drifts[-1] - 1) + shared.gauss(0, 0.01))
        length = 22_000 * drifts[-1]
        ends.append([began + 400 + length * (each + 1) / 8 for each in range(8)])
        began = ends[-1][-1] + 60
    for rank in range(num_ranks):
        writer = Writer(folder / f"rank-{rank}.pt.trace.json", rank, num_ranks)
        began = 1e9
        for number in range(num_steps if steps_of is None else steps_of(rank)):
            began = writer.step(100 + number, began, ends[number], drifts[number + 1])
        writer.close()
    return sum(path.stat().st_size for path in folder.iterdir())


def cpu_seconds(argv: list[str]) -> tuple[float, float, str]:
    """CPU seconds and wall seconds of a program with all its children, and the last line that it printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"`{argv[0]}` ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, time.monotonic() - began, done.stdout.strip().splitlines()[-1]


def hta_version(python: str | None) -> str | None:
    """Its version in that Python; None where it cannot be imported."""
    if python is None:
        return None
    code = "import hta, importlib.metadata as m; print(m.version('HolisticTraceAnalysis'))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def side_by_side(folder: Path, size: int, hta_python: str | None, version: str | None, rounds: int) -> None:
    """Part 1."""
    num = len(list(folder.iterdir()))
    print(
        f"1. {num} traces of {size / num / 1e6:.0f} MB, kernels named ncclKernel_*: CPU seconds, {rounds} rounds"
    )
    ours, theirs = [], []
    for _ in range(rounds):
        seconds, wall, line = cpu_seconds([sys.executable, "-c", OURS, str(folder)])
        ours.append(seconds)
        ranks, rows, rss = line.split()
        print(
            f"   distdoctor  {seconds:7.2f}  ({wall:.1f} s wall, {ranks} ranks, {rows} rows, {int(rss) / 1024:.0f} MiB)"
        )
        if version is not None and hta_python is not None:
            seconds, wall, line = cpu_seconds([hta_python, "-c", HTA, str(folder)])
            theirs.append(seconds)
            print(f"   HTA {version:7s} {seconds:7.2f}  ({wall:.1f} s wall, {line.split()[0]} ranks)")
    print(f"   {'':32s} {'median':>8s} {'lowest':>8s} {'highest':>8s}")
    pairs = [their / our for their, our in zip(theirs, ours, strict=False)]
    again = [one / two for one in ours for two in ours if one is not two] or [1.0]
    for title, values in ((f"HTA {version} / distdoctor", pairs), ("A/A: distdoctor / distdoctor", again)):
        if values:
            print(f"   {title:32s} {statistics.median(values):8.2f} {min(values):8.2f} {max(values):8.2f}")
    print(f"   distdoctor: {size / 1e6 / statistics.median(ours):.0f} MB of trace a CPU second")


def many(num: int) -> None:
    """Part 2: `num` traces of some MB, and three of 60 MB among them."""
    with tempfile.TemporaryDirectory() as name:
        long = {0, num // 2, num - 1}
        size = write_traces(Path(name), num, 150, lambda rank: 150 if rank in long else 4)
        seconds, wall, line = cpu_seconds([sys.executable, "-c", OURS, name])
    ranks, rows, rss = line.split()
    print(
        f"2. {num} traces, {size / 1e9:.2f} GB, three of them of 60 MB: {seconds:.1f} CPU seconds, {wall:.1f} s wall, "
        f"{ranks} ranks, {rows} rows, peak {int(rss) / 1024:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hta-python", help="a Python in which `hta` can be imported")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--many", type=int, default=1000, help="traces of part 2; 0 leaves it out")
    options = parser.parse_args()
    compare(
        hta_python=options.hta_python,
        rounds=options.rounds,
        ranks=options.ranks,
        steps=options.steps,
        num_many=options.many,
    )


def compare(*, hta_python: str | None, rounds: int, ranks: int, steps: int, num_many: int) -> None:
    """Both parts, with what they were measured on."""
    version = hta_version(hta_python)
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    print(f"msgspec {msgspec.__version__}, numpy {numpy.__version__}")
    if version is None:
        print("Holistic Trace Analysis: not importable; give `--hta-python PATH` of a Python that has it")
    with tempfile.TemporaryDirectory() as name:
        size = write_traces(Path(name), ranks, steps)
        side_by_side(Path(name), size, hta_python, version, rounds)
    if num_many:
        many(num_many)


if __name__ == "__main__":
    main()
