"""CPU lists as the kernel prints them: `0-3,8` in cpulist files and in Cpus_allowed_list."""

from __future__ import annotations

# Linux is built for at most 8192 CPUs (NR_CPUS); anything far above is no CPU list.
MAX_CPU = 1 << 16


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers in ascending order; an empty list (a memory-only NUMA node) gives ().

    Raises ValueError for text that is no list of numbers and ranges.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first_text, _, last_text = part.partition("-")
        first = int(first_text)
        last = int(last_text) if last_text else first
        if not 0 <= first <= last <= MAX_CPU:
            raise ValueError(f"not a CPU range: {part[:40]!r}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))
