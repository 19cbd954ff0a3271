"""Which rank and host a snapshot is of, as its file's name tells."""

from __future__ import annotations

import re
from pathlib import PurePath

# torchtitan `rank3_memory_snapshot.pickle`, Megatron and others `snapshot_rank_3.pickle`, `memory-rank-0003.pickle`,
# or a folder `rank_3/`.
_RANK = re.compile(r"(?:^|[^a-z])rank[ _.=-]{0,2}(\d{1,6})(?!\d)", re.IGNORECASE)
_BARE_RANK = re.compile(r"(?:^|[_.-])r(\d{1,6})(?:[_.-]|$)")

# PyTorch's own recipe names files `{host}_{%b_%d_%H_%M_%S}.pickle`.
_HOST = re.compile(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,62})_[A-Z][a-z]{2}_\d{2}_\d{2}_\d{2}_\d{2}\b")


def rank_of(path: str) -> int | None:
    """The rank in a file's or its folder's name; None where neither names one, or the file names several."""
    pure = PurePath(path)
    for name, pattern in ((pure.name, _RANK), (pure.name, _BARE_RANK), (pure.parent.name, _RANK)):
        found = {int(each) for each in pattern.findall(name)}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def host_of(path: str) -> str | None:
    """The host in a file's name as PyTorch's recipe writes it; None otherwise."""
    match = _HOST.match(PurePath(path).name)
    return match.group(1) if match else None
