"""accelerate's parallelism_config: degrees that must multiply to the number of processes.

accelerate, parallelism_config.py: `total_size` must be num_processes; tp or cp with replicas alone is refused;
parameters are sharded over dp_shard x cp, and within tp.
"""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.facts.launch import Defect

_SIZES = {
    "dp_replicate_size": "dp_replicate",
    "dp_shard_size": "dp_shard",
    "tp_size": "tp",
    "cp_size": "cp",
    "sp_size": "cp",
}


def read_parallelism(reading: Reading, root: Section) -> None:
    """Fill in the degrees, and compare their product with num_processes."""
    section = root.section("parallelism_config")
    if not section:
        _old_tp(reading, root)
        return
    degrees: dict[str, int] = {}
    keys: list[Entry] = []
    for name, setting in _SIZES.items():
        entry = section.first(f"parallelism_config_{name}", name)
        if entry is None or entry.value is None:
            continue
        size = reading.integer(entry, settles=setting, minimum=1)
        if size is None:
            return
        degrees[name] = size
        keys.append(entry)
        if size > 1 or setting != "cp" or reading.get("cp") is None:
            reading.set(setting, size, entry)
    product = 1
    for size in degrees.values():
        product *= size
    shown = " x ".join(f"{name.removesuffix('_size')} {size}" for name, size in degrees.items())
    shard, tp = degrees.get("dp_shard_size", 1), degrees.get("tp_size", 1)
    cp = degrees.get("cp_size", 1) * degrees.get("sp_size", 1)
    replicas = degrees.get("dp_replicate_size", 1)
    reading.set("dp_shard", shard, implied=True)
    reading.set("dp_replicate", replicas, implied=True)
    reading.say("mesh", f"{shown} = {product} ranks; states are shared by {shard * cp * tp} of them", *keys)
    if replicas > 1 and shard == 1 and (tp > 1 or cp > 1):
        reading.defect(
            Defect.CONFLICT,
            "tensor or context parallelism needs dp_shard above 1 beside replicas",
            *keys,
            why="accelerate refuses tp or cp with pure data parallelism (dp_replicate above 1, dp_shard 1).",
            fix="set `parallelism_config_dp_shard_size` above 1, or `parallelism_config_dp_replicate_size: 1`",
            stops=True,
        )
    if degrees.get("cp_size", 1) > 1 and degrees.get("sp_size", 1) > 1:
        reading.defect(
            Defect.CONFLICT,
            "cp_size and sp_size are both above 1",
            *keys,
            why="accelerate's context and sequence parallelism exclude each other.",
            fix="set one of them to 1",
            stops=True,
        )
    world = reading.get("world_size")
    if world is not None and world != product:
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"{shown} = {product}, but num_processes is {world}",
            *keys,
            root.get("num_processes"),
            why="accelerate stops when the product of all degrees is not the number of processes.",
            fix=f"change the degrees so that they multiply to {world}, or set `num_processes: {product}`",
            stops=True,
        )
    elif world is None and product > 1:
        reading.set("world_size", product, implied=True)
        reading.say("ranks", f"{product} ranks, as the degrees multiply to", *keys)


def _old_tp(reading: Reading, root: Section) -> None:
    """`tp_config: {tp_size: 4}`, before parallelism_config."""
    entry = root.section("tp_config").get("tp_size")
    size = reading.fill("tp", entry)
    if size is not None and size > 1:
        reading.say("mesh", f"tensor parallel over {size} ranks", entry)
