"""Allocators with a message of their own: cudaMallocAsync, Apple's MPS, XLA, and servers that check before they start."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.oom.facts.events import Bogus, Family
from distdoctor.oom.messages.draft import Draft
from distdoctor.oom.messages.lines import LogLine
from distdoctor.oom.messages.sizes import ABSURD_BYTES, SIZE, parse_size, size_in

_ASYNC = re.compile(r"(?:Allocation on device\s{0,9}(?P<device>\d{0,4})\s{0,9})?would exceed allowed memory")
_ASYNC_DEVICE = re.compile(r"Allocation on device\s{0,9}(\d{0,4})\s*$")
_ASYNC_LINES = 10
_ASYNC_FIELDS = (
    ("allocated_bytes", re.compile(r"Currently allocated\s*:?\s*" + SIZE)),
    ("requested_bytes", re.compile(r"Requested\s*:?\s*" + SIZE)),
    ("total_bytes", re.compile(r"Device limit\s*:?\s*" + SIZE)),
    ("free_bytes", re.compile(r"Free \(according to CUDA\)\s*:?\s*" + SIZE)),
    ("allowed_bytes", re.compile(r"PyTorch limit \(set by user-supplied memory fraction\)\s*:?\s*" + SIZE)),
)

_MPS = re.compile(
    r"MPS backend out of memory \(MPS allocated: "
    + SIZE
    + r", other allocations: "
    + SIZE
    + r", max allowed: "
    + SIZE
    + r"\)"
)
_MPS_REQUEST = re.compile(r"Tried to allocate " + SIZE)
_MPS_BUFFER = re.compile(r"Invalid buffer size: " + SIZE)

_XLA = re.compile(r"RESOURCE_EXHAUSTED: .{0,120}?(?:[Oo]ut of memory|allocat)")
_XLA_BYTES = re.compile(
    r"allocat\w{0,8}\s{1,9}(?:a \S{1,40} )?(\d{1,20})\s{0,9}(bytes)|allocat\w{0,8}\s{1,9}" + SIZE
)

# vLLM looks at free memory before it takes its share.
_VLLM_FREE = re.compile(
    r"Free memory on device (?P<device>\S{0,40}?)\s?\((?P<free>[\d.]{1,20})\s?/\s?(?P<total>[\d.]{1,20}) GiB\) on startup is less than desired "
    r"GPU memory utilization \((?P<share>[\d.]{1,20}), (?P<wanted>[\d.]{1,20}) GiB\)"
)
_NO_BLOCKS = re.compile(r"No available memory for the cache blocks|Available KV cache memory: -[\d.]+ GiB")

_BLOCK_LIMIT = re.compile(
    r"can NOT allocate memory block with size larger than \d+ ?GB.{0,4}Tried to allocate "
    + SIZE
    + r"(?: \(GPU\s+(?P<gpu>\d+); "
    + SIZE
    + r" total capacity; "
    + SIZE
    + r" already allocated)?"
)

_UNSET_BYTES = 1 << 62


def read_block_limit(lines: Sequence[LogLine], at: int) -> Draft | None:
    """Intel's GPUs: a block above the size that one allocation may have, whatever is free."""
    match = _BLOCK_LIMIT.search(lines[at].text)
    if match is None:
        return None
    draft = Draft(family=Family.XPU, sentence=lines[at].text[match.start() :], is_block_limit=True)
    draft.requested_bytes = parse_size(match[1], match[2])
    if match["gpu"]:
        draft.gpu = int(match["gpu"])
        draft.total_bytes, draft.allocated_bytes = (
            parse_size(match[4], match[5]),
            parse_size(match[6], match[7]),
        )
    return draft


def read_async(lines: Sequence[LogLine], at: int) -> Draft | None:
    """cudaMallocAsync: a sentence and five lines `key : value`."""
    match = _ASYNC.search(lines[at].text)
    if match is None:
        return None
    origin = lines[at].origin
    block = [lines[at].text[match.start() :]]
    for line in lines[at + 1 : at + _ASYNC_LINES]:
        if line.origin != origin or not line.text.strip() or "Traceback" in line.text:
            break
        block.append(line.text.strip())
        if "PyTorch limit" in block[-2] and ":" in block[-1]:
            break
    text = " ".join(block)
    draft = Draft(family=Family.CUDA_ASYNC, sentence=text, num_lines=len(block))
    device = match["device"]
    if device is None and at > 0 and (above := _ASYNC_DEVICE.search(lines[at - 1].text)):
        device = above[1]
    draft.gpu = int(device) if device else None
    for name, pattern in _ASYNC_FIELDS:
        setattr(draft, name, size_in(pattern, text))
    if draft.allowed_bytes is not None and draft.allowed_bytes >= _UNSET_BYTES:
        why = "no limit is set; this is the largest number"
        draft.bogus.append(Bogus(field="allowed_bytes", text=str(draft.allowed_bytes), why=why))
        draft.allowed_bytes = None
    draft.is_absurd_size = (draft.requested_bytes or 0) >= ABSURD_BYTES
    return draft


def read_mps(lines: Sequence[LogLine], at: int) -> Draft | None:
    """Apple's MPS: what its heaps hold, what Metal holds beside, and the watermark."""
    text = lines[at].text
    if (
        at + 1 < len(lines)
        and "MPS backend out of memory" in text
        and lines[at + 1].origin == lines[at].origin
    ):
        text = f"{text} {lines[at + 1].text.strip()}"
    if buffer := _MPS_BUFFER.search(text):
        draft = Draft(family=Family.MPS, sentence=text[buffer.start() :])
        draft.requested_bytes = parse_size(buffer[1], buffer[2])
        return draft
    match = _MPS.search(text)
    if match is None:
        return None
    draft = Draft(family=Family.MPS, sentence=text[match.start() :])
    draft.allocated_bytes = parse_size(match[1], match[2])
    draft.other_allocations_bytes = parse_size(match[3], match[4])
    draft.allowed_bytes = parse_size(match[5], match[6])
    draft.requested_bytes = size_in(_MPS_REQUEST, text)
    return draft


def read_xla(lines: Sequence[LogLine], at: int) -> Draft | None:
    """XLA's RESOURCE_EXHAUSTED (TPU, torch_xla)."""
    match = _XLA.search(lines[at].text)
    if match is None:
        return None
    text = lines[at].text[match.start() :]
    return Draft(family=Family.XLA, sentence=text, requested_bytes=size_in(_XLA_BYTES, text))


def read_server(lines: Sequence[LogLine], at: int) -> Draft | None:
    """vLLM at its start: too little is free, or nothing is left for the key-value cache."""
    text = lines[at].text
    if match := _VLLM_FREE.search(text):
        draft = Draft(family=Family.SERVER, sentence=text[match.start() :])
        digits = re.sub(r"\D", "", match["device"])
        draft.gpu = int(digits) if 0 < len(digits) <= 4 else None
        draft.free_bytes = parse_size(match["free"], "GiB")
        draft.total_bytes = parse_size(match["total"], "GiB")
        draft.requested_bytes = parse_size(match["wanted"], "GiB")
        draft.allocated_bytes, draft.unallocated_bytes = 0, 0
        return draft
    if match := _NO_BLOCKS.search(text):
        return Draft(family=Family.SERVER, sentence=text[match.start() :])
    return None
