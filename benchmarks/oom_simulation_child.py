"""Each row of a table in a process of its own: torch keeps caches, and they would carry over."""

from __future__ import annotations

import json
import os
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any


def prepare() -> None:
    """Import once what every child needs, before any of them is forked."""
    import logging

    import torch
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel
    import torch.profiler

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `work` gives, as JSON carries it, with `cpu_seconds` and `max_rss_mib`; or `failure`, in one line."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        began = time.process_time()
        try:
            found = work()
        except Exception as error:
            found = {"failure": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        found["cpu_seconds"] = time.process_time() - began
        found["max_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        with os.fdopen(write, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    answer: dict[str, Any] = json.loads(text) if text else {"failure": "the child died"}
    return answer
