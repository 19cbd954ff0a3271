"""PyTorch's collect_env as text: every layout since 1.0, and vLLM's fork, as facts about one process.

Grammar: `env_info_fmt` of torch/utils/collect_env.py (read at 2.13.0; older ones print Yes/No, no ROCM line and
`[pip]`) and vllm/collect_env.py (sections between rules of `=`, a topology matrix and variables at the end).
"""

from __future__ import annotations

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.readers.collect_env_dump import crash_in, has_dump, take_apart
from distdoctor.env.readers.collect_env_host import gpus_of, host_of
from distdoctor.env.readers.collect_env_torch import nccl_of, probe_of, python_of, torch_of


def sniff(text: str) -> bool:
    """True when a dump begins in `text`, or a traceback of collect_env or of `import torch` is in it."""
    return has_dump(text) or crash_in(text.split("\n")) is not None


def read(text: str, origin: str) -> EnvFacts:
    """Facts of the first dump in `text`; never raises for any text. What a dump does not hold stays None."""
    dump = take_apart(text)
    python = python_of(dump, origin)
    nccl = nccl_of(dump, python, origin)
    return EnvFacts(
        origin=origin,
        python=python,
        torch=torch_of(dump, origin),
        torch_probe=probe_of(dump, python, nccl, origin),
        nccl=nccl,
        gpus=gpus_of(dump, origin),
        host=host_of(dump, origin),
    )
