"""Does our model of the caching allocator count what torch's own allocator counts, event by event?

    python benchmarks/oom_allocator_binary.py --wheel DIR --cuda-include DIR [--cuda-include DIR] [--events N] [--seeds N]

DIR of --wheel holds an unpacked torch wheel for CUDA (torch/lib/libc10*.so and torch/include are enough); --cuda-include
names the folders of cuda_runtime.h and crt/. No GPU is needed: torch's compiled allocator runs on a CUDA runtime that
only counts (benchmarks/allocator/). Random allocations and frees on up to three streams are given to both.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from distdoctor.oom.allocator.blocks import Block
from distdoctor.oom.allocator.caching import CachingAllocator
from distdoctor.oom.allocator.options import parse_allocator_conf
from distdoctor.units import GIB, MIB

SOURCES = Path(__file__).resolve().parent / "allocator"


@dataclass(frozen=True)
class Case:
    """One setting. Sizes are bytes; None: without end, no cap."""

    conf: str = ""
    capacity: int | None = None
    fraction: float | None = None


CASES = (
    Case(),
    Case("", 6 * GIB),
    Case("", 8 * GIB, 0.6),
    Case("expandable_segments:True"),
    Case("expandable_segments:True", 6 * GIB),
    Case("expandable_segments:True", 8 * GIB, 0.7),
    Case("max_split_size_mb:64"),
    Case("max_split_size_mb:64", 6 * GIB),
    Case("max_split_size_mb:64,max_non_split_rounding_mb:128", 6 * GIB),
    Case("max_split_size_mb:64,expandable_segments:True", 6 * GIB),
    Case("garbage_collection_threshold:0.6", 8 * GIB, 0.7),
    Case("garbage_collection_threshold:0.6,max_split_size_mb:100", 8 * GIB, 0.7),
    Case("garbage_collection_threshold:0.5,expandable_segments:True", 8 * GIB, 0.7),
    Case("roundup_power2_divisions:8"),
    Case("roundup_power2_divisions:[1:4,8:16,>:2],expandable_segments:True", 5 * GIB),
    Case("large_segment_size_mb:40", 6 * GIB),
    Case("large_segment_size_mb:64,expandable_segments:True", 6 * GIB),
)


def main() -> int:
    """Print a row for each setting; 1 when any number differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--cuda-include", type=Path, action="append", required=True)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lowest-address-first", action="store_true", help="as torch up to 2.11 chooses")
    options = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as name:
        program = build(options.wheel, options.cuda_include, Path(name))
        print("| settings | capacity GiB | fraction | events | out of memory | retries | result |")
        print("|---|---|---|---|---|---|---|")
        for case in CASES:
            differing += compare(program, case, options)
    return 1 if differing else 0


def compare(program: Path, case: Case, options: argparse.Namespace) -> int:
    """Print one row; how many seeds differ."""
    num_events = ooms = retries = differing = 0
    result = "same"
    for seed in range(options.seeds):
        lines = workload(seed, options.events)
        real = run(program, case, lines)
        if real is None:
            print(f"| `{case.conf}` | | | | | | this torch refuses the setting |")
            return 0
        ours = modelled(case, lines, not options.lowest_address_first)
        if "expandable" in case.conf:
            # The reserved address space starts elsewhere; its blocks are compared by what is counted.
            real, ours = ([line.split(" ", 1)[1] for line in each] for each in (real, ours))
        first = next((at for at, pair in enumerate(zip(real, ours, strict=True)) if pair[0] != pair[1]), None)
        if first is not None:
            differing += 1
            result = f"seed {seed} differs at event {first}: torch `{real[first]}`, ours `{ours[first]}`"
        num_events += len(real)
        ooms += sum(line.endswith("oom") for line in real)
        retries += int(real[-1].removesuffix(" oom").split()[-1])
    capacity = "" if case.capacity is None else f"{case.capacity / GIB:g}"
    print(
        f"| {case.conf or 'default'} | {capacity} | {case.fraction or ''} | {num_events} | {ooms} | {retries} | {result} |"
    )
    return differing


def workload(seed: int, num_events: int) -> list[str]:
    """Allocations, of sizes that mostly repeat, and frees, of which four in ten are of the newest."""
    choose = random.Random(seed)
    bounds = ((1, 4096), (1, MIB), (MIB, 10 * MIB), (10 * MIB, 200 * MIB))
    sizes = [choose.randint(*choose.choice(bounds)) for _ in range(40)]
    live: list[int] = []
    lines = []
    for number in range(num_events):
        if choose.random() < 0.002:
            lines.append("e")
        elif live and (choose.random() < 0.48 or len(live) > 400):
            at = choose.randrange(len(live)) if choose.random() < 0.6 else -1
            lines.append(f"f {live.pop(at)}")
        else:
            size = choose.choice(sizes) if choose.random() < 0.7 else int(2 ** choose.uniform(0, 28.5))
            lines.append(f"m {number} {size} {choose.randrange(1 + seed % 3)}")
            live.append(number)
    return lines


def run(program: Path, case: Case, lines: list[str]) -> list[str] | None:
    """What torch counts after each line; None: it refuses the setting."""
    environment = {"PATH": os.environ.get("PATH", ""), "LD_LIBRARY_PATH": str(program.parent)}
    # torch from 2.9 on reads either name; older ones only this.
    environment["PYTORCH_CUDA_ALLOC_CONF"] = case.conf
    if case.capacity is not None:
        environment |= {"FAKE_CAPACITY": str(case.capacity), "FAKE_DEVICE": str(case.capacity)}
    if case.fraction is not None:
        environment["FAKE_FRACTION"] = str(case.fraction)
    done = subprocess.run(
        [program], input="\n".join(lines) + "\n", text=True, capture_output=True, env=environment, timeout=600
    )
    if "Unrecognized" in done.stderr:
        return None
    done.check_returncode()
    return done.stdout.splitlines()


def modelled(case: Case, lines: list[str], is_oldest_first: bool) -> list[str]:
    """What our model counts after each line."""
    allocator = CachingAllocator(
        replace(parse_allocator_conf(case.conf), is_oldest_first=is_oldest_first),
        capacity_bytes=case.capacity,
        allowed_bytes=int(case.fraction * case.capacity) if case.fraction and case.capacity else None,
    )
    live: dict[str, Block] = {}
    counted = []
    for line in lines:
        words = line.split()
        address, note = 0, ""
        if words[0] == "m":
            block = allocator.allocate(int(words[2]), int(words[3]))
            if block is None:
                note = " oom"
            else:
                live[words[1]] = block
                address = block.address
        elif words[0] == "e":
            allocator.empty_cache()
        elif words[1] in live:
            allocator.free(live.pop(words[1]))
        counted.append(
            f"{address:x} {allocator.allocated} {allocator.reserved} {allocator.requested} "
            f"{allocator.inactive_split} {allocator.num_retries}{note}"
        )
    return counted


def build(wheel: Path, includes: list[Path], folder: Path) -> Path:
    """Compile the runtime that only counts, and the program that feeds torch's allocator."""
    lib = (wheel / "torch" / "lib").resolve()
    needed = re.search(rb"libcudart\.so\.\d+", (lib / "libc10_cuda.so").read_bytes())
    if needed is None:
        sys.exit(f"error: {lib} is no torch for CUDA")
    runtime = needed[0].decode()
    versions = folder / "versions.map"
    versions.write_text(f"{runtime} {{ global: *; }};\n", encoding="ascii")
    source = SOURCES / "fake_cuda.c"
    shared: list[str | Path] = ["gcc", "-w", "-O1", "-shared", "-fPIC"]
    for part, name, more in (
        ("AS_RUNTIME", runtime, [f"-Wl,--version-script={versions}"]),
        ("AS_DRIVER", "libcuda.so.1", [f"-L{folder}", f"-l:{runtime}"]),
        ("AS_NVML", "libnvidia-ml.so.1", []),
    ):
        subprocess.run(
            [*shared, f"-D{part}", source, f"-Wl,-soname,{name}", "-o", folder / name, *more], check=True
        )
    program = folder / "drive"
    command: list[str | Path] = ["g++", "-std=c++20", "-O1", "-w", SOURCES / "drive.cpp", "-o", program]
    command += [f"-I{each}" for each in (wheel / "torch" / "include", *includes)]
    command += [f"-L{lib}", f"-L{folder}", "-l:libc10_cuda.so", "-l:libc10.so", f"-l:{runtime}"]
    command += ["-Wl,--no-as-needed", "-l:libcuda.so.1", f"-Wl,-rpath,{lib}:{folder}"]
    subprocess.run(command, check=True)
    return program


if __name__ == "__main__":
    sys.exit(main())
