"""Words of a command line that mean the same to every reader: options, and modules that are launchers."""

from __future__ import annotations

import re

# `python -m MODULE`: by the launcher that it is.
MODULE_LAUNCHERS = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.elastic": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
}


def is_option(text: str) -> bool:
    """Whether a word begins an option: `-n`, `--name`, `--name=value`, and not `-1.5`."""
    return re.match(r"--?[A-Za-z]", text) is not None
