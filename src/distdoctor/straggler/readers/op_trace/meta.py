"""What stands beside an operation trace: the job's description, and results of StragglerAnalysis."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

import yaml

from distdoctor.errors import InputError
from distdoctor.straggler.readers.file_text import text_start

MAX_META_BYTES = 64 * 1024

_SIZES = ("dp_size", "pp_size", "tp_size", "dsp_size", "world_size")

# Keys of result-*.json, ms-*.json and mw-*.json.
_RESULTS = (
    (b'"job_meta"', b'"step_t_base"'),
    (b'"blocking_slowdown"', b'"step_t_nodelay"'),
    (b'"tideal"', b'"trem"'),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeta:
    """Sizes of a job. `dsp_size` splits sequences among GPUs as tensor parallelism does."""

    name: str
    dp_size: int
    pp_size: int
    tp_size: int
    world_size: int
    """GPUs."""

    @property
    def num_workers(self) -> int:
        """Rows that a trace of the whole job has: one for each tensor-parallel group."""
        return self.world_size // self.tp_size if self.tp_size else 0


def looks_like_meta(head: bytes) -> bool:
    """Whether text begins a job description: `dp_size: 4` and so on, one a line."""
    return b"pp_size:" in head and b"dp_size:" in head and b"world_size:" in head and b"{" not in head[:64]


def looks_like_results(head: bytes) -> bool:
    """Whether text begins a result of StragglerAnalysis."""
    return text_start(head)[:1] == b"{" and any(all(key in head for key in keys) for keys in _RESULTS)


def parse_meta(data: bytes, path: str) -> JobMeta:
    """The sizes in a job description. Raises InputError."""
    try:
        entries = yaml.safe_load(data[:MAX_META_BYTES].decode("utf-8", "replace"))
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(f"`{path}` is no YAML") from None
    sizes = {}
    for key in _SIZES:
        value = entries.get(key, 1) if isinstance(entries, dict) else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1_000_000:
            raise InputError(f"`{path}` has no usable {key}")
        sizes[key] = value
    name = entries.get("trial_name") if isinstance(entries, dict) else None
    return JobMeta(
        name=str(name)[:100] if name is not None else PurePath(path).stem.removeprefix("meta-"),
        dp_size=sizes["dp_size"],
        pp_size=sizes["pp_size"],
        tp_size=sizes["tp_size"],
        world_size=sizes["world_size"],
    )


def meta_of(trace_path: str, metas: dict[str, JobMeta], num_jobs: int) -> JobMeta | None:
    """The description of a trace: `meta-AR.yaml` for `trace-AR.parquet` in its folder, or the only one there is."""
    trace = PurePath(trace_path)
    for path, meta in metas.items():
        beside = PurePath(path)
        if beside.parent == trace.parent and beside.stem.removeprefix("meta-") == trace.name.split(".")[
            0
        ].removeprefix("trace-"):
            return meta
    return next(iter(metas.values())) if len(metas) == 1 and num_jobs == 1 else None
