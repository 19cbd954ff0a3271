"""A user's code may ask for any amount of memory; this host must survive it."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import psutil

# Of what is available now; the rest is for everybody else here. Our own choice.
_SHARE = 0.5
# torch itself needs as much.
_LEAST_BYTES = 2 << 30


def limit_host_memory() -> None:
    """Private memory of this process is limited, so that too large a request raises; and of all processes here the
    kernel ends this one first. A limit below ours stays."""
    room = max(_LEAST_BYTES, int(psutil.virtual_memory().available * _SHARE))
    used = psutil.Process().memory_info().rss
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [room + used, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
