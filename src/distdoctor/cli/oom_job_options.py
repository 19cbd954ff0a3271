"""Options of a job that several verbs of `oom` share, so that they are spelled and explained once."""

from __future__ import annotations

from typing import Annotated

import typer

Gpus = Annotated[int | None, typer.Option("--gpus", metavar="N", help="GPUs of the job")]
GpusPerNode = Annotated[int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs of a host [8]")]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="GPUS", help="judge it on these: 16xh100-80gb, a100-40gb, 8x24GiB"),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME|FILE", help="llama3-8b, mixtral-8x7b …, or a config.json"),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy", help="none, ddp, zero1, zero2, zero3, fsdp2, megatron, megatron-distopt [fsdp2]"
    ),
]
PrecisionName = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="bytes of parameter + gradient + states: fp32 or mixed 4+4+8, master 2+2+12, pure16 2+2+4 [by strategy]",
    ),
]
MicroBatch = Annotated[
    int | None,
    typer.Option("--micro-batch", "--batch-size", help="sequences in one forward pass of a rank [1]"),
]
MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", help="micro-batches between two optimizer steps")
]
GlobalBatch = Annotated[
    int | None, typer.Option("--global-batch", help="sequences of all ranks in one optimizer step")
]
SeqLen = Annotated[
    str | None, typer.Option("--seq-len", metavar="N", help="tokens of a sequence: 8192, 8k [4096]")
]
