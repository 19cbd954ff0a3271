"""Which job is a user's own module trained in? The usual options, without those that cut a known model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.errors import UsageError
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.settings import DataParallel, Offload, Precision, Settings
from distdoctor.oom.shape import Model
from distdoctor.oom.simulation.inputs import parse_inputs, parse_module
from distdoctor.oom.simulation.messages import OwnModule

STRATEGIES = (DataParallel.NONE, DataParallel.DDP, DataParallel.ZERO_REDUNDANCY, DataParallel.FSDP)


def own_module_of(
    text: str, inputs: Sequence[str] = (), *, settings: Settings | None = None, folder: str = "."
) -> OwnModule:
    """What `--module`, `--inputs` and the options of a job say. Raises UsageError."""
    name, folder = parse_module(text, folder=folder)
    parse_inputs(inputs)
    module = OwnModule(
        module=name.module,
        function=name.function,
        inputs=tuple(inputs),
        folder=folder,
        settings=settings or Settings(),
    )
    job_of_module(module)
    return module


def job_of_module(module: OwnModule) -> Job:
    """The resolved job, without a shape. What is unsaid stays as the module has it: its types, and its own batch. Raises
    UsageError for what only a known model can be cut by."""
    said = module.settings
    if said.model is not None:
        raise UsageError("--module and --model exclude one another", hint="give one or the other")
    for name, value in (("tp", said.tp), ("pp", said.pp), ("cp", said.cp), ("ep", said.ep)):
        if (value or 1) > 1:
            raise UsageError(
                f"{name}={value}: your own module is only replicated or sharded; nobody else knows how to cut it",
                hint="leave it out, and let the function return the part of one rank",
            )
    for option, asked in (
        ("--lora-rank", said.adapter is not None),
        ("--fused-loss", bool(said.fused_loss)),
        ("--offload", {said.offload_optimizer, said.offload_params} - {None, Offload.NONE} != set()),
    ):
        if asked:
            raise UsageError(f"{option} is for a known model; your own module brings its own")
    job = resolve(
        replace(
            said,
            model=Model(name=f"{module.module}:{module.function}", source="--module"),
            # Types are the module's own unless others are asked for; with its inputs comes its batch.
            precision=said.precision or Precision.FP32,
            micro_batch=said.micro_batch or 1,
            seq_len=said.seq_len or 1,
        )
    )
    if job.strategy not in STRATEGIES:
        raise UsageError(
            f"--strategy {job.strategy.value} is simulated for known models only",
            hint=f"known for your own module: {', '.join(each.value for each in STRATEGIES)}",
        )
    return job
