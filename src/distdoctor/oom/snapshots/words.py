"""Pools and devices in words."""

from __future__ import annotations

from distdoctor.oom.snapshots.pools import PoolKey


def pool_text(key: PoolKey) -> str:
    """`default pool`, `private pool 1.0, stream 0x7f…`, `default pool, small blocks`."""
    if not key.is_private:
        name = "default pool"
    else:
        name = f"private pool {key.pool[0]}.{key.pool[1]}"
    stream = f", stream {key.stream:#x}" if key.stream else ", default stream"
    return f"{name}{stream}{', small blocks' if key.is_small else ''}"
