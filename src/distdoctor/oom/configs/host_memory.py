"""What a configuration puts into the host's memory, in words and as a defect."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry
from distdoctor.oom.facts.launch import ConfigKey, Defect
from distdoctor.oom.settings import Offload


def say_offload(
    reading: Reading,
    *,
    params: Offload | None,
    optimizer: Offload | None,
    keys: tuple[Entry | ConfigKey | None, ...],
    bytes_per_param: str,
) -> None:
    """A statement of what leaves the GPU, and the defect HOST_MEMORY when everything does.

    `bytes_per_param` in words, e.g. "16": what the hosts of the job hold together for each parameter.
    """
    moved = []
    if params not in (None, Offload.NONE):
        moved.append(("parameters", params))
    if optimizer not in (None, Offload.NONE):
        moved.append(("optimizer states", optimizer))
    if not moved:
        return
    where = {Offload.CPU: "host memory", Offload.NVME: "NVMe"}
    text = " and ".join(f"{what} in {where[place]}" for what, place in moved if place)
    reading.say("offload", text, *keys)
    on_host = [what for what, place in moved if place is Offload.CPU]
    if "optimizer states" not in on_host:
        return
    whole = len(on_host) == 2
    reading.defect(
        Defect.HOST_MEMORY,
        "host memory holds all states and decides what fits, not only the GPU"
        if whole
        else "host memory holds the optimizer states and decides what fits",
        *keys,
        why=f"The hosts of the job together hold about {bytes_per_param} bytes a parameter; each host its share. "
        "Beyond its memory, or its cgroup's limit, the kernel kills a rank with signal 9, without a CUDA error.",
        fix="compare with the memory of each host: `free -g`, and the limit of its container (`memory.max`)",
        sure=False,
    )
