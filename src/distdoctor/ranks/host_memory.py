"""How much memory is left on this host, or in this container, for its ranks?"""

from __future__ import annotations

from pathlib import Path

# A file of /proc or /sys that is longer is none of those that we ask for.
_MAX_FILE_BYTES = 1 << 20


def host_available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that this process may still take: the least of the kernel's estimate and every cgroup's headroom.

    None where neither can be read. `root` is where /proc and /sys are looked for.
    """
    bounds = [each for each in (_kernel_estimate(root), *_cgroup_headroom(root)) if each is not None]
    return min(bounds, default=None)


def _kernel_estimate(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        words = line.split()
        if len(words) >= 2 and words[0] == "MemAvailable:" and words[1].isdigit():
            return int(words[1]) * 1024
    return None


def _cgroup_headroom(root: Path) -> list[int | None]:
    """Of the process' own cgroup and each of its parents; version 2, and version 1's memory controller."""
    found: list[int | None] = []
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found += _up_from(
                root / "sys/fs/cgroup",
                path,
                limit="memory.max",
                usage="memory.current",
                cache="inactive_file",
            )
        elif "memory" in controllers.split(","):
            found += _up_from(
                root / "sys/fs/cgroup/memory",
                path,
                limit="memory.limit_in_bytes",
                usage="memory.usage_in_bytes",
                cache="total_inactive_file",
            )
    return found


def _up_from(top: Path, path: str, *, limit: str, usage: str, cache: str) -> list[int | None]:
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return [
        _headroom(top.joinpath(*parts[:depth]), limit=limit, usage=usage, cache=cache)
        for depth in range(len(parts), -1, -1)
    ]


def _headroom(folder: Path, *, limit: str, usage: str, cache: str) -> int | None:
    bound, used = _number(folder / limit), _number(folder / usage)
    if bound is None or used is None:
        return None
    # Pages of files that were not used lately are given up before anything is killed; Kubernetes' "working set"
    # leaves them out as well.
    for line in _lines(folder / "memory.stat"):
        words = line.split()
        if len(words) == 2 and words[0] == cache and words[1].isdigit():
            used -= int(words[1])
    return max(0, bound - max(0, used))


def _number(path: Path) -> int | None:
    """None for a file that is absent and for "max"."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        with path.open(errors="replace") as stream:
            return stream.read(_MAX_FILE_BYTES).splitlines()
    except OSError:
        return []
