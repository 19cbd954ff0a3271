"""Options of a job that several verbs of `oom` share, so that they are spelled and explained once."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args

import typer

from distdoctor.cli.job_words import Words

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="FILE", help="a launch configuration; repeatable; options here win"),
]

# Any: each option has its own type.
_OPTIONS: dict[str, Any] = {
    "model": Annotated[
        str | None,
        typer.Option("--model", metavar="NAME|FILE", help="llama3-8b, mixtral-8x7b …, or a config.json"),
    ],
    "params": Annotated[
        str | None, typer.Option("--params", metavar="N", help="only the number of parameters: 7.5e9, 70B")
    ],
    "layers": Annotated[int | None, typer.Option("--layers", help="layers of a model given by sizes")],
    "hidden": Annotated[int | None, typer.Option("--hidden", help="hidden size")],
    "heads": Annotated[int | None, typer.Option("--heads", help="attention heads")],
    "kv_heads": Annotated[
        int | None, typer.Option("--kv-heads", help="heads of keys and values [as --heads]")
    ],
    "head_size": Annotated[
        int | None, typer.Option("--head-size", help="width of one head [hidden / heads]")
    ],
    "ffn": Annotated[int | None, typer.Option("--ffn", help="width of the MLP [8/3 hidden gated, 4 plain]")],
    "vocab": Annotated[int | None, typer.Option("--vocab", help="size of the vocabulary")],
    "experts": Annotated[int | None, typer.Option("--experts", help="experts of each layer")],
    "experts_per_token": Annotated[
        int | None, typer.Option("--experts-per-token", help="experts that one token visits")
    ],
    "expert_ffn": Annotated[int | None, typer.Option("--expert-ffn", help="width of one expert [--ffn]")],
    "gated": Annotated[
        bool | None, typer.Option("--gated/--plain-mlp", help="three matrices in an MLP, or two [gated]")
    ],
    "tied": Annotated[
        bool | None, typer.Option("--tied/--untied", help="embedding and output are one matrix [untied]")
    ],
    "on": Annotated[
        str | None,
        typer.Option("--on", metavar="GPUS", help="judge it on these: 16xh100-80gb, a100-40gb, 8x24GiB"),
    ],
    "gpus": Annotated[int | None, typer.Option("--gpus", metavar="N", help="GPUs of the job")],
    "gpus_per_node": Annotated[
        int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs of a host [8]")
    ],
    "mesh": Annotated[
        str | None,
        typer.Option(
            "--mesh",
            metavar="DIMS",
            help="tp=8, or pp=2,dp_replicate=1,dp_shard=4,cp=1,tp=2,ep=1,etp=1; dp_shard takes what is left",
        ),
    ],
    "strategy": Annotated[
        str | None,
        typer.Option(
            "--strategy", help="none, ddp, zero1, zero2, zero3, fsdp2, megatron, megatron-distopt [fsdp2]"
        ),
    ],
    "precision": Annotated[
        str | None,
        typer.Option(
            "--precision",
            help="bytes of parameter + gradient + states: fp32 or mixed 4+4+8, master 2+2+12, pure16 2+2+4 [by strategy]",
        ),
    ],
    "optimizer": Annotated[
        str | None,
        typer.Option("--optimizer", help="adamw, adamw-8bit, adafactor, lion, sgd, muon … [adamw]"),
    ],
    "optimizer_loop": Annotated[
        str | None, typer.Option("--optimizer-loop", help="foreach, fused or for-loop [foreach]")
    ],
    "micro_batch": Annotated[
        int | None,
        typer.Option("--micro-batch", "--batch-size", help="sequences in one forward pass of a rank [1]"),
    ],
    "micro_batches": Annotated[
        int | None, typer.Option("--micro-batches", help="micro-batches between two optimizer steps")
    ],
    "global_batch": Annotated[
        int | None, typer.Option("--global-batch", help="sequences of all ranks in one optimizer step")
    ],
    "seq_len": Annotated[
        str | None, typer.Option("--seq-len", metavar="N", help="tokens of a sequence: 8192, 8k [4096]")
    ],
    "checkpointing": Annotated[
        str | None,
        typer.Option(
            "--checkpointing", help="activation (gradient) checkpointing: none, selective, full [none]"
        ),
    ],
    "attention": Annotated[
        str | None, typer.Option("--attention", help="flash (SDPA), or unfused (eager) [flash]")
    ],
    "sequence_parallel": Annotated[
        bool | None,
        typer.Option("--sequence-parallel/--no-sequence-parallel", help="cut tokens over tp too [yes]"),
    ],
    "loss_parallel": Annotated[
        bool | None,
        typer.Option("--loss-parallel/--no-loss-parallel", help="cut the logits over tp too [yes]"),
    ],
    "fused_loss": Annotated[bool, typer.Option("--fused-loss", help="a chunked or fused cross entropy")],
    "schedule": Annotated[
        str | None,
        typer.Option("--schedule", help="gpipe, 1f1b, interleaved, zero-bubble, zbv [1f1b]"),
    ],
    "virtual_stages": Annotated[
        int | None, typer.Option("--virtual-stages", help="chunks of the model on each pipeline rank")
    ],
    "keep_gathered": Annotated[
        bool, typer.Option("--keep-gathered", help="FSDP2 with reshard_after_forward=False")
    ],
    "bucket_view": Annotated[
        bool, typer.Option("--bucket-view", help="DDP with gradient_as_bucket_view=True")
    ],
    "offload": Annotated[
        str | None, typer.Option("--offload", help="to host memory: none, optimizer or all [none]")
    ],
    "init": Annotated[
        str | None,
        typer.Option("--init", help="meta: sharded before it is whole; whole: built on each GPU first"),
    ],
    "expert_imbalance": Annotated[
        float | None, typer.Option("--expert-imbalance", help="tokens of the busiest rank over the mean [1]")
    ],
    "lora_rank": Annotated[
        int | None, typer.Option("--lora-rank", help="adapters of this rank on a frozen model")
    ],
    "base_bits": Annotated[
        int | None, typer.Option("--base-bits", help="bits of a frozen weight: 16, 8, or 4 as in QLoRA [16]")
    ],
}
"""Field of `Words` → option, in the order of `--help`."""


def job_options(
    *names: str, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command the options called `names`, or all but `without`, handed over as one `words: Words`.

    Any: commands have parameters of their own; typer reads them from the signature made here.
    """
    mine = {name: _OPTIONS[name] for name in names or _OPTIONS if name not in without}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def with_words(**values: Any) -> Any:
            said = {name: values.pop(name) for name in mine}
            # A flag that is not given says nothing.
            words = Words(
                **{
                    name: None if value is False and _is_flag(mine[name]) else value
                    for name, value in said.items()
                }
            )
            return command(**values, words=words)

        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each.name != "words"]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if _is_flag(option) else None,
                annotation=option,
            )
            for name, option in mine.items()
        ]
        with_words.__name__ = command.__name__
        with_words.__doc__ = command.__doc__
        with_words.__annotations__ = {}
        with_words.__signature__ = inspect.Signature([*added, *kept])  # type: ignore[attr-defined]
        return with_words

    return decorate


def spelled(words: Words, configs: Sequence[str] = ()) -> str:
    """The options as they are typed in a shell, for a command that is told to be run next."""
    argv: list[str] = []
    for name, option in _OPTIONS.items():
        value = getattr(words, name)
        if value is None:
            continue
        # typer's Option takes the first spelling in the place of a default.
        yes, _, no = get_args(option)[1].default.partition("/")
        if _is_flag(option) or isinstance(value, bool):
            argv.append(yes if value else no)
        else:
            argv += [yes, f"{value:g}" if isinstance(value, float) else str(value)]
    for config in configs:
        argv += ["--config", config]
    return shlex.join(argv)


def _is_flag(option: Any) -> bool:
    return get_args(option)[0] is bool
