"""What does one rank hold under ZeRO: DeepSpeed's engine, our own partitioning, and the estimate?

    python benchmarks/oom_zero.py [--ranks 2 4] [-o FILE.md]

A tiny model trains 3 steps on Gloo ranks on this machine's CPU, under DeepSpeed's engine and under our own
partitioning, from the same seeds. Peaks are of storages that torch allocated, as `oom reproduce` follows them. Needs
deepspeed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Moment
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import DataParallel, Settings
from distdoctor.oom.shape import Model, ModelShape

TINY = ModelShape(
    num_layers=4, hidden_size=256, num_heads=4, num_kv_heads=4, head_size=64, ffn_size=768, vocab_size=2048
)
STEPS = 3
BUCKET = 400_000
# Which moments of the estimate lie in which phase of a program.
MOMENTS = {
    Phase.LOSS: (Moment.LOSS,),
    Phase.BACKWARD: (Moment.BACKWARD, Moment.GRADIENTS_DONE),
    Phase.OPTIMIZER_STEP: (Moment.OPTIMIZER_STEP,),
}


@dataclass(frozen=True)
class Case:
    """One run of the table."""

    stage: int
    title: str
    said: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(1, "small bucket"),
    Case(1, "small bucket, overlap_comm", {"overlap_comm": True}),
    Case(1, "small bucket, 2 micro-batches", {"accumulation_steps": 2}),
    Case(1, "bucket beyond the model", {"reduce_bucket_elements": 8_000_000}),
    Case(2, "small bucket"),
    Case(2, "small bucket, overlap_comm", {"overlap_comm": True}),
    Case(2, "small bucket, 2 micro-batches", {"accumulation_steps": 2}),
    Case(2, "bucket beyond the model", {"reduce_bucket_elements": 8_000_000}),
    Case(3, "defaults, small bucket"),
    Case(3, "2 micro-batches", {"accumulation_steps": 2}),
    Case(3, "no prefetch", {"prefetch_bucket_elements": 0}),
    Case(3, "persistence threshold 0", {"persistence_threshold_elements": 0}),
    Case(3, "few live parameters", {"max_live_elements": 300_000}),
    Case(3, "short reuse", {"max_reuse_elements": 300_000, "max_live_elements": 600_000}),
)


def job_of(case: Case, ranks: int) -> Job:
    """The job of a case."""
    said: dict[str, Any] = {
        "reduce_bucket_elements": BUCKET,
        "seq_len": 128,
        "micro_batch": 1,
        "meta_init": False,
        **case.said,
    }
    model = Model(name="tiny", source="benchmark", shape=TINY)
    strategy = DataParallel(f"zero{case.stage}")
    return resolve(Settings(model=model, world_size=ranks, strategy=strategy, **said))


def main() -> int:
    """Print the tables."""
    if len(sys.argv) > 1 and sys.argv[1] == "rank":
        return one_rank(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("-o", "--output", type=Path, help="write the table as Markdown")
    options = parser.parse_args()
    lines = []
    for ranks in options.ranks:
        lines += [f"## {ranks} ranks", "", HEAD]
        theirs, ours = launch(ranks, "deepspeed"), launch(ranks, "own")
        lines += [row(*each) for each in zip(CASES, (ranks,) * len(CASES), theirs, ours, strict=True)]
        lines.append("")
    text = "\n".join(lines)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    print(text)
    return 0


HEAD = (
    "| Stage | Case | Loss: DeepSpeed | own | est. | Backward: DeepSpeed | own | est. | Step: DeepSpeed | own | est. "
    "| Peak: DeepSpeed | own | off | est. off | Losses off |\n" + "|---" * 16 + "|"
)


def row(case: Case, ranks: int, theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """One line, in MiB."""
    role = estimate(job_of(case, ranks)).worst
    cells = [str(case.stage), case.title]
    for phase, moments in MOMENTS.items():
        bytes_ = max(each.num_bytes for each in role.moments if each.moment in moments and each.step == 2)
        cells += [mib(theirs["peaks"][phase.value]), mib(ours["peaks"][phase.value]), mib(bytes_)]
    peak = role.peak.num_bytes
    cells += [
        mib(theirs["peak"]),
        mib(ours["peak"]),
        off(ours["peak"], theirs["peak"]),
        off(peak, theirs["peak"]),
    ]
    cells.append(f"{max(abs(a - b) for a, b in zip(theirs['losses'], ours['losses'], strict=True)):.1e}")
    return "| " + " | ".join(cells) + " |"


def mib(num_bytes: float) -> str:
    """MiB with two decimals."""
    return f"{num_bytes / (1 << 20):.2f}"


def off(value: float, real: float) -> str:
    """Percent beyond."""
    return f"{100 * (value / real - 1):+.1f} %"


def launch(ranks: int, who: str) -> list[dict[str, Any]]:
    """Rank 0's numbers of all cases."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "rank", who, folder]
        running = [
            subprocess.Popen(
                command,
                env=os.environ
                | {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                },
            )
            for rank in range(ranks)
        ]
        if any(each.wait() for each in running):
            raise SystemExit(f"{who} failed")
        return json.loads((Path(folder) / "0.json").read_text())  # type: ignore[no-any-return]


def one_rank(who: str, folder: str) -> int:
    """Train all cases, and write down what rank 0 held."""
    import torch
    import torch.distributed as dist

    from distdoctor.oom.training import deepspeed_engine

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if who == "own":
        deepspeed_engine.why_not_deepspeed = lambda _: "not asked for"
    results = [one_case(case) for case in CASES]
    if dist.get_rank() == 0:
        (Path(folder) / "0.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def one_case(case: Case) -> dict[str, Any]:
    """Losses, and peaks of the last step."""
    import torch
    import torch.distributed as dist

    from distdoctor.oom.memory.categories import categories_of
    from distdoctor.oom.memory.peaks import peaks_of
    from distdoctor.oom.tracking.tracker import Tracker
    from distdoctor.oom.training.base import World
    from distdoctor.oom.training.build import build_program
    from distdoctor.oom.training.device_mesh import build_device_mesh

    rank = dist.get_rank()
    job = job_of(case, dist.get_world_size())
    world = World(job=job, rank=rank, device=torch.device("cpu"), mesh=build_device_mesh(job, "cpu"))
    torch.manual_seed(1)
    with Tracker() as tracker:
        program = build_program(world, tracker)
        torch.manual_seed(100 + rank)
        losses = [program.step(number, tracker) for number in range(1, STEPS + 1)]
    program.close()
    peaks = peaks_of(tracker.log, categories_of(tracker.log))
    assert peaks is not None
    last = {phase.value: peak.num_bytes for (step, phase), peak in peaks.by_phase.items() if step == STEPS}
    return {
        "losses": losses,
        "peak": max(peak.num_bytes for (step, _), peak in peaks.by_phase.items() if step),
        "peaks": last,
    }


if __name__ == "__main__":
    sys.exit(main())
