"""How surely a file holds out-of-memory messages that this room reads."""

from __future__ import annotations

import re

from distdoctor.evidence_bytes import decode
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family
from distdoctor.oom.messages.read import TRIGGER, read_messages
from distdoctor.pasted import clean_pasted

# A sentence of PyTorch's allocator is nobody else's; a kernel log belongs to the `env` room, a bare exit code to none.
_OF_PYTORCH = 0.9
_OF_DRIVER = 0.7
_OF_HOST = 0.6
_KILLED = 0.45
_KERNEL = 0.4

_KERNEL_LINE = re.compile(r"oom-kill:constraint|Killed process \d+|invoked oom-killer|oom_reaper|kernel: ")
# What `explain` hands over: the beginning of a file, and the end of a long one.
_SNIFFED = 512 * 1024


def sniff_oom(path: str, head: bytes) -> float:
    """From 0 to 1 by the ends of a file (unpacked): 0 when no message is in them."""
    text = decode(head[:_SNIFFED])
    if not TRIGGER.search(text):
        return 0.0
    families = {event.family for event in read_messages(path, text)}
    if not families:
        return 0.0
    if families & (CACHING_ALLOCATORS | {Family.CUDA_ASYNC, Family.MPS}):
        return _OF_PYTORCH
    if families & {Family.DRIVER, Family.BLAS, Family.DNN, Family.NCCL, Family.XLA, Family.SERVER}:
        return _OF_DRIVER if families != {Family.NCCL} else 0.86
    if Family.HOST_ALLOCATOR in families:
        return _OF_HOST
    if families == {Family.SHARED_MEMORY}:
        # NCCL's own words about /dev/shm belong to whoever reads its log.
        return 0.0 if "NCCL" in text else _KILLED
    return _KERNEL if _KERNEL_LINE.search(clean_pasted(text)) else _KILLED
