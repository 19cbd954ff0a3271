"""Advice in the words of the device that refused memory: its tool, its module of torch, its variables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.facts.events import Family
from distdoctor.report.model import Action, Finding, MissingEvidence, Skipped

_READS_SNAPSHOT = "distdoctor oom explain snapshot.pickle"
_NVIDIA_SMI = re.compile(r"nvidia-smi(?: -{1,2}[\w-]+(?:=[\w.,]+)?(?: \d+)?)*")
_MPS_BYTES = "torch.mps.driver_allocated_memory()"

# (what to look for, what stands there on this device); in order.
_Words = tuple[tuple[re.Pattern[str], str], ...]


def _words(*pairs: tuple[str, str]) -> _Words:
    return tuple((re.compile(pattern), told) for pattern, told in pairs)


_WORDS: dict[Family, _Words] = {
    Family.XPU: (
        (_NVIDIA_SMI, "xpu-smi ps"),
        *_words(
            (r"CUDA out of memory", "XPU out of memory"),
            (r"torch\.cuda\b", "torch.xpu"),
            (r"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
            (r"\bCUDA_VISIBLE_DEVICES\b", "ZE_AFFINITY_MASK"),
            (r"nvrm\|amdgpu\|kfd", "i915|xe"),
            (r"\bCUDA (context|graphs)", r"\1"),
            (r" \(CUDA\)", ""),
            (r"8xGPU_TYPE", "GPU_TYPE"),
        ),
    ),
    Family.MPS: (
        (_NVIDIA_SMI, "top -l 1 -o mem -n 10"),
        *_words(
            (
                r"torch\.cuda\.(?:get|set)_per_process_memory_fraction\([^)]*\)",
                "torch.mps.recommended_max_memory()",
            ),
            (r"torch\.cuda\.memory_(?:summary|reserved)\(\)", _MPS_BYTES),
            (r"torch\.cuda\.mem_get_info\(\)", "torch.mps.recommended_max_memory()"),
            (r"torch\.cuda\.memory_allocated\(\)", "torch.mps.current_allocated_memory()"),
            (r"torch\.cuda\b", "torch.mps"),
            (r"PYTORCH_CUDA_ALLOC_CONF\S*", "PYTORCH_MPS_HIGH_WATERMARK_RATIO=1.4"),
            (r"\bCUDA (context|graphs)", r"\1"),
            (r" --on 8xGPU_TYPE", ""),
            (r" \(CUDA\)", ""),
        ),
    ),
    Family.HIP: ((_NVIDIA_SMI, "rocm-smi --showpids --showmeminfo vram"),),
    Family.NPU: ((_NVIDIA_SMI, "npu-smi info"), *_words((r"torch\.cuda\b", "torch.npu"))),
}


def record_history(family: Family) -> str:
    """How to see which tensors hold the memory of this kind of device."""
    match family:
        case Family.MPS:
            return (
                f"python -c 'import torch; print(torch.mps.current_allocated_memory(), {_MPS_BYTES})'"
                "   # the same two calls after every step"
            )
        case Family.XPU:
            return "python -c 'import torch; print(torch.xpu.memory_summary())'   # the same call after every step"
        case Family.NPU:
            return "python -c 'import torch, torch_npu; print(torch.npu.memory_summary())'   # the same call after every step"
        case _:
            return (
                "python -c 'import torch; help(torch.cuda.memory._record_memory_history)'  # record, dump at the error, then: "
                + _READS_SNAPSHOT
            )


def words_for(text: str, family: Family | None) -> str:
    """The same text with the names that hold on this device."""
    for pattern, told in _WORDS.get(family, ()) if family is not None else ():
        text = pattern.sub(told, text)
    return text


def findings_for(findings: Sequence[Finding], family: Family | None) -> list[Finding]:
    """Findings whose advice names this device's tools."""
    if family not in _WORDS:
        return list(findings)
    return [
        replace(
            each,
            explanation=words_for(each.explanation, family),
            actions=tuple(_action(action, family) for action in each.actions),
        )
        for each in findings
    ]


def _action(action: Action, family: Family | None) -> Action:
    command = words_for(action.command, family) if action.command is not None else None
    return replace(action, text=words_for(action.text, family), command=command)


def skips_for(skips: Sequence[Skipped], family: Family | None) -> list[Skipped]:
    """What was not seen, with how to see it on this device."""
    return [
        replace(each, how=words_for(each.how, family)) if each.how is not None else each for each in skips
    ]


def missing_for(missing: Sequence[MissingEvidence], family: Family | None) -> tuple[MissingEvidence, ...]:
    """What is missing, with how to get it on this device."""
    return tuple(replace(each, how=words_for(each.how, family)) if each.how else each for each in missing)
