"""Which network ports has a host of this cloud machine type? Data and source: platforms.json."""

from __future__ import annotations

import re

from distdoctor.nccl_bench.catalog.tables import read_table
from distdoctor.nccl_bench.facts.places import Nic


def platform_nics(platform: str) -> tuple[Nic, ...] | None:
    """The ports of a machine type ("p5.48xlarge"); None for one that is not known."""
    for row in read_table("platforms")["platforms"]:
        if re.fullmatch(row["name"], platform.strip()[:100], re.IGNORECASE):
            return tuple(
                Nic(name=f"{row['kind']}{index}", kind=row["kind"], rate_gbit=row["rate_gbit"])
                for index in range(row["nics"])
            )
    return None
