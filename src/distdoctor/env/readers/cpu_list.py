"""Lists of CPUs as the kernel and its tools print them: `0-31,64-95`."""

from __future__ import annotations

import re

# The kernel's own limit is 8192 CPUs (NR_CPUS on x86-64); a longer range is a mistake or an attack.
MAX_CPUS = 16_384


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers of `0-3,8`, in order; parts that are no numbers are left out."""
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first < MAX_CPUS and len(cpus) < MAX_CPUS:
            cpus += range(first, last + 1)
    return tuple(cpus)
