"""What forked ranks do in the tests of gathering through the store. A host is a temporary folder of its own."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from distdoctor.ranks.identity import detect_identity
from distdoctor.ranks.store import TimedStore, launch_prefix
from distdoctor.ranks.store_gather import gather_through_store


def gather(
    rank: int,
    world_size: int,
    folder: str,
    deadline_s: float,
    num_hosts: int = 1,
    faults: dict[str, str] | None = None,
    filler: int = 0,
    node_list: list[str] | None = None,
) -> dict[str, Any] | None:
    """Two hosts or more hold equal shares of the ranks. `faults` maps a rank to what it does."""
    fault = (faults or {}).get(str(rank), "")
    if fault == "never":
        return None
    per_host = world_size // num_hosts
    host = f"host-{'abcdefgh'[rank // per_host]}"
    os.environ.update(
        LOCAL_RANK=str(rank % per_host),
        LOCAL_WORLD_SIZE=str(per_host),
        GROUP_RANK=str(rank // per_host),
        GROUP_WORLD_SIZE=str(num_hosts),
    )
    tempfile.tempdir = str(Path(folder, host))
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    identity = detect_identity(os.environ, host)
    if node_list:
        identity = dataclasses.replace(identity, node_list=tuple(node_list))
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=datetime.timedelta(seconds=60),
    )
    prefix = launch_prefix(store, "0")
    if fault == "send garbage":
        mine = TimedStore(store, prefix=f"{prefix}gather/")
        mine.set(f"bundle/{rank}/0", b"\x80\x04not a bundle")
        mine.append("arrived", f"{rank}:1,99999:1,{rank}:99999,junk,")
        return None
    if fault == "promise what is not there":
        TimedStore(store, prefix=f"{prefix}gather/").append("arrived", f"{rank}:3,")
        return None
    payload = json.dumps({"rank": rank, "filler": os.urandom(filler // 2).hex()}).encode()
    began = time.monotonic()
    gathered = gather_through_store(store, identity, payload, prefix=prefix, deadline_s=deadline_s)
    if gathered is None:
        return {"took_s": time.monotonic() - began}
    return {
        "ranks": sorted(json.loads(text)["rank"] for text in gathered.payloads.values()),
        "num_bytes": sum(map(len, gathered.payloads.values())),
        "hosts": sorted(set(gathered.hosts.values())),
        "missing": {each.rank: each.absence.name for each in gathered.missing},
        "hosts_absent": list(gathered.hosts_absent),
        "store_lost": gathered.store_lost,
        "complete": gathered.complete,
        "waited_s": gathered.waited_s,
    }
