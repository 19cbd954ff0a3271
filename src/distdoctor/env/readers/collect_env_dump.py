"""A collect_env dump taken apart: values by label, the lines that follow a label, the traceback that ended it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Label as printed → our key. Older and newer layouts differ in which lines there are, not in their words.
_LABELS = {
    "PyTorch version": "torch",
    "Is debug build": "debug",
    "CUDA used to build PyTorch": "cuda_build",
    "ROCM used to build PyTorch": "hip_build",
    "XPU used to build PyTorch": "xpu_build",
    "OS": "os",
    "GCC version": "gcc",
    "Clang version": "clang",
    "CMake version": "cmake",
    "Libc version": "libc",
    "Python version": "python",
    "Python platform": "platform",
    "Is CUDA available": "cuda_available",
    "Is XPU available": "xpu_available",
    "CUDA runtime version": "toolkit",
    "CUDA_MODULE_LOADING set to": "module_loading",
    "GPU models and configuration": "gpus",
    "Nvidia driver version": "driver",
    "cuDNN version": "cudnn",
    "HIP runtime version": "hip_runtime",
    "MIOpen runtime version": "miopen",
    "Is XNNPACK available": "xnnpack",
    "Caching allocator config": "allocator",
    "Versions of relevant libraries": "libraries",
    "ROCM Version": "vllm_rocm",
    "vLLM Version": "vllm",
    "vLLM Build Flags": "vllm_flags",
    "GPU Topology": "topology",
}
_FIELD = re.compile(
    rf"^[\s|*-]*(?P<label>{'|'.join(map(re.escape, _LABELS))})\s*:\*{{0,2}}[ \t]*(?P<value>.*)$"
)
_START = re.compile(r"^[ \t|*-]*(?:Collecting environment information|PyTorch version\s*:)", re.MULTILINE)
_GPU_LINE = re.compile(r"^\s*(?:GPU \d+:|MIG )")
# vLLM prints the system before PyTorch.
_VLLM_START = re.compile(r"^[ \t]*System Info[ \t]*$", re.MULTILINE)
_TRACEBACK_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_EXCEPTION = re.compile(
    r"^(?P<type>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)?)(?:: (?P<text>.*))?$"
)

# What collect_env prints where it has no value. "No CUDA": nvidia-smi, nvcc and the driver gave nothing, and torch
# saw no GPU.
_NO_VALUE = frozenset({"", "could not collect", "n/a", "none", "no cuda", "unknown", "[n/a]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One dump taken apart: single values by key, and the lines that follow a key."""

    values: Mapping[str, str]
    blocks: Mapping[str, tuple[str, ...]]
    text: str

    def value(self, key: str) -> str | None:
        """The value as printed, or None when it is not there or says that there is none."""
        raw = self.values.get(key)
        return None if raw is None or raw.strip().lower() in _NO_VALUE else raw.strip()


def has_dump(text: str) -> bool:
    """True when a dump begins in `text`."""
    return bool(_START.search(text))


def take_apart(text: str) -> Dump:
    """The fields from where the dump begins: issue templates ask for the same labels above it."""
    starts = [match.start() for match in (_START.search(text), _VLLM_START.search(text)) if match]
    values: dict[str, str] = {}
    blocks: dict[str, list[str]] = {}
    key = ""
    lines = text[min(starts, default=0) :].split("\n")
    # No dump ends with a field or a GPU: one that does was torn there, and "570.1" may have been "570.133.20".
    if _FIELD.match(lines[-1]) or _GPU_LINE.match(lines[-1]):
        lines.pop()
    for line in lines:
        field = _FIELD.match(line)
        if field:
            key = _LABELS[field["label"]]
            # The first one counts: text below a dump may quote another.
            values.setdefault(key, field["value"].strip(" `"))
            blocks.setdefault(key, [])
        elif re.match(r"^\s*CPU(?::| Info)\s*$", line):
            key = "cpu"
            blocks.setdefault(key, [])
        elif key:
            blocks[key].append(line)
    return Dump(values=values, blocks={name: tuple(lines) for name, lines in blocks.items()}, text=text)


def crash_in(lines: list[str]) -> tuple[str, str, str, bool] | None:
    """(innermost frame, exception, its text, whether collect_env itself raised) of a relevant traceback."""
    frames: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("Traceback (most recent call"):
            frames, inside = [], True
        elif inside and (frame := _TRACEBACK_FRAME.match(line)):
            frames.append(f"{frame['file']}:{frame['line']}")
        elif inside and line and not line[0].isspace():
            inside = False
            exception = _EXCEPTION.match(line)
            of_dump = any("collect_env" in frame for frame in frames)
            of_import = any(re.search(r"[/\\]torch[/\\]__init__\.py:", frame) for frame in frames)
            is_absent = bool(exception and "No module named 'torch'" in (exception["text"] or ""))
            if exception and frames and (of_dump or of_import or is_absent):
                return frames[-1], exception["type"], exception["text"] or "", "collect_env" in frames[-1]
    return None
