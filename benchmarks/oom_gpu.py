"""How near does `oom simulate` come to what CUDA's allocator counts for the same job with real tensors?

    python benchmarks/oom_gpu.py [-o FILE.md] [--json FILE.json] [--only WORDS] [--time-limit 110]

Each job trains two steps in a process of its own: one rank alone, FSDP2 on one rank, and FSDP2 as one of eight ranks
whose peers are not there (a fake process group, real tensors). Without a GPU the same runs are made on the CPU with a
debug model, beside a simulation of the CPU's own kernels: a rehearsal that says nothing of GPUs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from oom_gpu_messages import Measured, Question, Simulated
from oom_gpu_rows import Row, cpu_rows, gpu_rows
from oom_gpu_table import NOT_ON_GPU, Compared, markdown

from distdoctor.bounded_child import run_bounded
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.children import simulate

CHILD = Path(__file__).with_name("oom_gpu_child.py")
# One run takes some 8 s on a GPU, most of it imports; a busy host with two cores may need ten times as long.
ROW_TIMEOUT_S = 60.0
# After the time limit what was begun has so long.
GRACE_S = 18.0
# The largest of the jobs reserves some 30 GiB. Allocators of two processes do not know of one another.
GIB_OF_A_ROW = 34
MOST_AT_ONCE = 4
# Each simulation keeps one core busy.
SIMULATIONS_AT_ONCE = 4


def main() -> int:
    """Print the tables; 1 where a row was not measured or not simulated."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, help="the tables as Markdown")
    parser.add_argument("--json", type=Path, help="everything that was counted")
    parser.add_argument("--only", default="", help="rows whose name holds these words")
    parser.add_argument(
        "--time-limit", type=float, default=110.0, help="no row is begun after so many seconds"
    )
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(f"{NOT_ON_GPU}: this Python has no torch", file=sys.stderr)
        return 3
    device = "cuda" if has_gpu() else "cpu"
    rows = [row for row in (gpu_rows() if device == "cuda" else cpu_rows()) if options.only in row.name]
    before = smi() if device == "cuda" else ""
    found = compare(rows, device, until=time.monotonic() + options.time_limit, at_once=at_once(before))
    text = markdown(found, device=device, driver_says=before)
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return 0 if found and all(each.is_complete for each in found) else 1


def has_gpu() -> bool:
    """Asked of a child: this process is to stay without a CUDA context."""
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"
    try:
        return (
            subprocess.run(
                [sys.executable, "-c", code], timeout=ROW_TIMEOUT_S, capture_output=True
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def smi() -> str:
    """What the driver says that the GPU holds before anything was run."""
    query = "--query-gpu=name,memory.total,memory.reserved,memory.used,driver_version"
    try:
        end = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], timeout=20, capture_output=True, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return end.stdout.strip() or end.stderr.strip()


def at_once(driver_says: str) -> int:
    """How many rows a GPU has room for: its memory is the first number of MiB that its driver tells."""
    told = re.search(r"(\d+) MiB", driver_says)
    return max(1, min(MOST_AT_ONCE, int(told[1]) // 1024 // GIB_OF_A_ROW)) if told else 1


def compare(rows: Sequence[Row], device: str, *, until: float, at_once: int = 1) -> list[Compared]:
    """Every row that can be begun before `until` (of the monotonic clock), those that run alone first."""
    with ThreadPoolExecutor(SIMULATIONS_AT_ONCE if device == "cuda" else 1) as simulations:
        # Rows of one job share a simulation: it is begun once.
        jobs = dict.fromkeys(row.settings for row in rows)
        futures = {settings: simulations.submit(simulated_in_time, settings, until) for settings in jobs}
        measured = {row.name: measured_in_time(row, device, until) for row in rows if row.is_alone}
        together = [row for row in rows if not row.is_alone]
        with ThreadPoolExecutor(at_once) as runs:
            answers = runs.map(lambda row: measured_in_time(row, device, until), together)
            measured |= {row.name: answer for row, answer in zip(together, answers, strict=True)}
        return [
            Compared(
                name=row.name,
                expandable_segments=row.expandable_segments,
                group=row.group.value,
                is_alone=row.is_alone,
                measured=measured[row.name],
                simulated=futures[row.settings].result(),
            )
            for row in rows
        ]


def measured_in_time(row: Row, device: str, until: float) -> Measured:
    """The run of a row, or why there was none."""
    if time.monotonic() > until:
        return Measured(error="not begun: out of time")
    return measure(row, device, seconds_left(until))


def simulated_in_time(settings: Settings, until: float) -> Simulated:
    """The simulation of a job, or why there was none."""
    if time.monotonic() > until:
        return Simulated(error="not begun: out of time")
    return simulation_of(settings, seconds_left(until))


def seconds_left(until: float) -> float:
    """For a row that is begun now."""
    return max(1.0, min(ROW_TIMEOUT_S, until + GRACE_S - time.monotonic()))


def measure(row: Row, device: str, timeout_s: float = ROW_TIMEOUT_S) -> Measured:
    """One run, in a process of its own that is ended when it takes too long."""
    question = Question(
        settings=row.settings, group=row.group, expandable_segments=row.expandable_segments, device=device
    )
    argv = [sys.executable, str(CHILD), msgspec.json.encode(question).decode()]
    end = run_bounded(argv, environ(row), timeout_s)
    lines = end.stdout.strip().splitlines()
    try:
        return msgspec.json.decode(lines[-1] if lines else "", type=Measured)
    except msgspec.DecodeError:
        pass
    if end.timed_out:
        return Measured(error=f"not done after {timeout_s:.0f} s")
    last = next(iter(reversed(end.stderr.strip().splitlines())), "it said nothing")
    return Measured(error=f"the child ended with status {end.returncode}: {last}"[:400])


def environ(row: Row) -> dict[str, str]:
    """The allocator's settings are the row's own; a launcher's variables concern no child."""
    dropped = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "RANK", "WORLD_SIZE", "LOCAL_RANK")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    if row.expandable_segments:
        # torch 2.9 renamed it and reads both.
        kept["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return kept


def simulation_of(settings: Settings, timeout_s: float = ROW_TIMEOUT_S) -> Simulated:
    """As `oom simulate` does it, in a child without a GPU."""
    found = simulate(resolve(settings), settings, timeout_s=timeout_s, checks_itself=False)
    worst = found.worst
    if worst is None:
        return Simulated(error=found.failures[0].reason if found.failures else "nothing was simulated")
    return Simulated(
        allocated=worst.peak.num_bytes,
        reserved_fixed=next(each.peak_bytes for each in worst.reserved if not each.expandable_segments),
        reserved_expandable=next(each.peak_bytes for each in worst.reserved if each.expandable_segments),
        phases=tuple((peak.step, peak.phase, peak.num_bytes) for peak in worst.peaks),
        by_category={category.value: num_bytes for category, num_bytes in worst.peak.by_category.items()},
        at=f"step {worst.peak.step}, {worst.peak.phase.value}, {worst.peak.place.module} ({worst.peak.place.op})",
        how=worst.how,
        seconds=round(worst.cpu_seconds, 1),
    )


if __name__ == "__main__":
    sys.exit(main())
