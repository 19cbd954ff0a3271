"""Environment variables in scripts and manifests that decide memory, ranks or speed.

Sources: PyTorch "CUDA semantics", optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF from
2.9); torch.distributed, environment variables; torchrun.
"""

from __future__ import annotations

from collections.abc import Mapping

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import Script
from distdoctor.oom.configs.text.near_names import near_name
from distdoctor.oom.configs.text.tree import Entry
from distdoctor.oom.configs.text.values import as_int, as_word, template_in
from distdoctor.oom.facts.launch import ConfigKey, Defect

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_ALLOCATOR_KEYS = (
    *(
        "backend",
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "roundup_power2_divisions",
        "expandable_segments",
    ),
    *("garbage_collection_threshold", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register"),
    *("pinned_num_register_threads", "pinned_use_background_threads", "release_lock_on_hipmalloc"),
    *("pinned_use_hip_host_register", "pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse"),
    *("per_process_memory_fraction", "use_cuda_host_register", "large_segment_size_mb"),
)
_DUMPS = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT")


def variables_of_command(script: Script, line: int) -> dict[str, Entry]:
    """The variables that a script sets for the command that begins in `line`."""
    return {
        name: Entry(name=name, value=each.value, line=each.line)
        for name, each in script.variables_at(line).items()
    }


def read_variables(reading: Reading, variables: Mapping[str, Entry], *, replicas: int | None = None) -> None:
    """Statements and defects of the variables that matter; `replicas` share one set of them (a manifest's pods)."""
    _allocator(reading, variables)
    _slow(reading, variables)
    traces = [variables[name] for name in _DUMPS if name in variables]
    if traces:
        where = variables.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") or variables.get("TORCH_FR_DUMP_TEMP_FILE")
        text = f" at {as_word(where.value)}*" if where is not None else ""
        reading.say(
            "launch",
            f"the flight recorder is on: after a timeout each rank leaves a dump{text}",
            *traces,
            where,
        )
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    _visible(reading, visible)
    if replicas is not None and replicas > 1:
        _same_everywhere(reading, variables, replicas)


def _allocator(reading: Reading, variables: Mapping[str, Entry]) -> None:
    for name in ALLOCATOR:
        entry = variables.get(name)
        text = as_word(entry.value) if entry is not None else None
        if entry is None or text is None or template_in(text):
            continue
        reading.say("allocator", f"{name}: {text}", entry)
        for part in text.split(","):
            key, _, value = part.strip().partition(":")
            meant = near_name(key, _ALLOCATOR_KEYS)
            if key and key not in _ALLOCATOR_KEYS:
                reading.defect(
                    Defect.UNKNOWN_KEY,
                    f"{name} has no option {key[:24]}" + (f"; {meant} is one" if meant else ""),
                    entry,
                    why="torch raises `Unrecognized CachingAllocator option` at the first allocation, or ignores it.",
                    fix=f"write `{meant}:…`" if meant else "remove it",
                    stops=True,
                    sure=bool(meant),
                )
            size = as_int(value)
            if key == "max_split_size_mb" and size is not None and size <= 20:
                reading.defect(
                    Defect.CONFLICT,
                    f"max_split_size_mb must be above 20; this is {size}",
                    entry,
                    why="torch refuses smaller values: segments of 20 MiB are the unit below it.",
                    fix=f"set `{name}=max_split_size_mb:128`, or expandable_segments:True",
                    stops=True,
                )


def _slow(reading: Reading, variables: Mapping[str, Entry]) -> None:
    blocking = variables.get("CUDA_LAUNCH_BLOCKING")
    if blocking is not None and as_word(blocking.value) == "1":
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            "CUDA_LAUNCH_BLOCKING=1 makes every kernel wait for the one before",
            blocking,
            why="The GPU idles between kernels. It is for finding the kernel of an error, sometimes kept on purpose "
            "against a hang.",
            fix="remove it once the error is found",
            sure=False,
        )
    detail = variables.get("TORCH_DISTRIBUTED_DEBUG")
    if detail is not None and (as_word(detail.value) or "").upper() == "DETAIL":
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            "TORCH_DISTRIBUTED_DEBUG=DETAIL checks every collective over a second group",
            detail,
            why="Before each collective all ranks compare shapes through Gloo; steps take longer, and memory of the "
            "host grows.",
            fix="set `TORCH_DISTRIBUTED_DEBUG=OFF` for normal runs",
            sure=False,
        )


def _visible(reading: Reading, entry: Entry | None) -> None:
    text = as_word(entry.value) if entry is not None else None
    if entry is None or not text or template_in(text):
        return
    devices = len([each for each in text.split(",") if each.strip()])
    reading.visible_gpus = ConfigKey(name=entry.name, value=text, line=entry.line)
    reading.say("launch", f"{devices} GPUs are visible by CUDA_VISIBLE_DEVICES", entry)
    ranks = reading.get("gpus_per_node")
    if ranks is not None and "gpus_per_node" not in reading.implied and ranks > devices:
        reading.defect(
            Defect.MORE_RANKS_THAN_DEVICES,
            f"{ranks} ranks on a node, but CUDA_VISIBLE_DEVICES names {devices} GPUs",
            entry,
            reading.keys.get("gpus_per_node"),
            why="Ranks beyond the last GPU fail with `invalid device ordinal`.",
            fix=f"start {devices} ranks, or name more GPUs",
            stops=True,
        )


_PER_NODE = ("NODE_RANK", "GROUP_RANK", "RANK", "MACHINE_RANK", "SLURM_NODEID", "LOCAL_RANK")


def _same_everywhere(reading: Reading, variables: Mapping[str, Entry], replicas: int) -> None:
    for name in _PER_NODE:
        entry = variables.get(name)
        if entry is not None and as_int(entry.value) is not None:
            reading.defect(
                Defect.SAME_ON_EVERY_NODE,
                f"{name}={as_int(entry.value)} is the same in all {replicas} pods",
                entry,
                why="Each pod claims the same rank, and the rendezvous hangs.",
                fix="remove it: the operator or an indexed Job sets ranks (`JOB_COMPLETION_INDEX`)",
                stops=True,
            )
