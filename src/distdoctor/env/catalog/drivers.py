"""Which NVIDIA driver and which CUDA toolkit are needed for what: NVIDIA's tables, as functions."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table
from distdoctor.env.versions import Version, parse_version

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A lowest version and the table that says so."""

    version: str
    source: str


def toolkit_driver(cuda: str) -> Need | None:
    """The Linux driver that a CUDA toolkit ("12.8") was released with; None when the table lacks it.

    Not the lowest that works: see `driver_floor`.
    """
    wanted = parse_version(cuda)
    if wanted is None:
        return None
    for row in read_table("drivers")["toolkits"]:
        if parse_version(row["cuda"]) == (*wanted, 0)[:2]:
            return Need(version=row["driver"], source=row["source"])
    return None


def driver_floor(cuda: str) -> Need | None:
    """The oldest Linux driver that runs programs of a CUDA toolkit ("12.8" → 525.60.13); None when unknown.

    Since CUDA 11 the floor is that of the major (minor-version compatibility); before, each toolkit needs
    its own. A toolkit older than the floor's note (11.0) also runs on the driver it came with.
    """
    wanted = parse_version(cuda)
    own = toolkit_driver(cuda)
    if wanted is None:
        return None
    for row in read_table("drivers")["majors"]:
        if row["major"] == wanted[0]:
            floor = Need(version=row["driver"], source=row["source"])
            return own if own is not None and _number(own) < _number(floor) else floor
    return own


def generation_driver(capability: Capability) -> tuple[str, Need] | None:
    """(name, oldest driver) for a GPU generation that older drivers do not know; None when not recorded."""
    for row in read_table("drivers")["gpu_drivers"]:
        if capability >= tuple(row["capability"]):
            return row["name"], Need(version=row["driver"], source=row["source"])
    return None


def generation_toolkit(capability: Capability) -> Need | None:
    """The first CUDA toolkit that can compile for a GPU of this compute capability, or for its major."""
    for row in read_table("drivers")["gpu_toolkits"]:
        first: Capability = tuple(row["capability"])
        if first[0] == capability[0] and first <= capability:
            return Need(version=row["cuda"], source=row["source"])
    return None


def _number(need: Need) -> Version:
    return parse_version(need.version) or ()
