"""PyTorch's caching allocators: CUDA, HIP, XPU, NPU and devices alike, from 1.0 to today.

Until 2.0 the numbers stand in parentheses (`reserved in total`, before 1.4 `cached`); from 2.1 on in sentences, with the
processes that NVML knows; "capacty" was misspelt in 2.1. c10/cuda/CUDACachingAllocator.cpp, "Tried to allocate".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.oom.facts.events import Bogus, Family, OtherProcess
from distdoctor.oom.messages.draft import Draft
from distdoctor.oom.messages.lines import LogLine
from distdoctor.oom.messages.mentions import is_advice, is_comment
from distdoctor.oom.messages.sizes import ABSURD_BYTES, NUMBER, parse_size, size_in
from distdoctor.units import GIB

# A message of today is one line of 600 characters; wrapped at 40 columns these are 20 lines.
_MAX_LINES = 24
_MAX_CHARACTERS = 4000

# As many as a GPU is shared by ranks of a host, and more. Our own bound.
_MAX_OTHERS = 256

_FAMILIES = {"CUDA": Family.CUDA, "HIP": Family.HIP, "XPU": Family.XPU, "NPU": Family.NPU}

START = re.compile(
    r"\b(?P<device>CUDA|HIP|XPU|NPU|MUSA|MLU|GCU|MACA|SDAA|HPU|PrivateUse\w*) out of memory\b(?P<more>\.?\s*Tried to allocate)?"
)
# Python prints the class alone where a logger cut the message off.
_BARE_CLASS = re.compile(r"^(?:torch\.)?(?:cuda\.)?OutOfMemoryError:?\s*$")
_BEGINS = re.compile(r"\b(?:CUDA|HIP|XPU|NPU) o[a-z ]{0,11}$")
_RAISED = re.compile(r"(?:Error|Exception|error)\W{0,4}(?:\(?['\"])?$|^\W*$")
_END = re.compile(
    r"reserved(?:intotal)?byPyTorch(?:butunallocated)?|reservedintotal|\dBcached\)|Bcached\)|1EBmemory|unoccupiedcached"
)
_BOUNDARY = re.compile(
    r'Traceback \(most recent|^\s*File "|^\s*frame #|out of memory\b.*Tried|^\s*$|^(?:Exception raised|During handling)'
)

# Fields are looked for in the message without any white space: wherever it was wrapped, it reads the same.
_SQUEEZED_SIZE = NUMBER + r"(bytes?|[KMGTPE]i?B|B)"


def _field(words: str) -> re.Pattern[str]:
    """A pattern over squeezed text; `SIZE` stands for a size, white space for nothing."""
    return re.compile(words.replace(" ", "").replace("SIZE", _SQUEEZED_SIZE))


_REQUEST = _field(r"Tried to allocate SIZE")
_MORE_THAN_EB = _field(r"Tried to allocate more than 1 EB")
_GPU = _field(r"(?:GPU|NPU|XPU|MUSA|MLU|GCU|HPU|device|Device):? (\d{1,4})(?:;| has a total)")
_TOTAL = _field(r"SIZE total capacity | total capac?i?ty of SIZE")
_FREE = _field(r"SIZE free | of which SIZE is free")
_ALLOCATED = _field(r"SIZE already allocated | allocated memory SIZE is allocated by")
_RESERVED_TOTAL = _field(r"SIZE reserved in total")
_CACHED = _field(r"SIZE cached")
_UNALLOCATED = _field(r"SIZE is reserved by PyTorch")
_THIS_PROCESS = _field(r"this process has SIZE")
_PROCESS = _field(r"Process (\d{1,10}) has SIZE")
_ALLOWED = _field(r"SIZE allowed;")
_PRIVATE = _field(r"with SIZE allocated in private pools")

# (2^64 - 1) bytes and its neighbours: "not set" printed as a number.
_UNSET_BYTES = 1 << 62


def read(lines: Sequence[LogLine], at: int) -> Draft | None:
    """The message that begins in line `at`, joined with what follows of the same rank; None when there is none."""
    text = lines[at].text
    match = START.search(text)
    if match is None:
        if _BARE_CLASS.match(text):
            return Draft(family=Family.CUDA, sentence=text.strip())
        return _cut_at_its_start(lines, at)
    after = text[match.end() : match.end() + 60]
    # Words of advice ("to avoid CUDA out of memory, …") are no event.
    is_raised = bool(_RAISED.search(text[: match.start()])) and not re.match(
        r"\s+(?:error|issue|when you)", after
    )
    if match["more"] is None and not is_raised and not _next_tells(lines, at, after):
        return None
    joined, num_lines = _joined(lines, at, match.start())
    draft = Draft(
        family=_FAMILIES.get(match["device"], Family.OTHER_DEVICE), sentence=joined, num_lines=num_lines
    )
    _fill(draft, joined)
    _doubt(draft)
    before = text[: match.start()]
    draft.is_spoken_of = is_comment(before) or is_advice(before)
    if draft.is_spoken_of and draft.total_bytes is None:
        return None
    return draft


def requested_bytes(message: str) -> int | None:
    """What was asked for when memory ran out, of a message that is at hand as a whole."""
    return size_in(_REQUEST, message)


def _cut_at_its_start(lines: Sequence[LogLine], at: int) -> Draft | None:
    """A message whose first words stand on two lines ("CUDA out of m", "emory. Tried to allocate")."""
    if at + 1 >= len(lines) or not _BEGINS.search(lines[at].text) or lines[at + 1].origin != lines[at].origin:
        return None
    first, second = lines[at], lines[at + 1]
    for glue in ("", " "):
        whole = LogLine(first.number, first.origin, f"{first.text}{glue}{second.text.lstrip()}")
        match = START.search(whole.text)
        if match is not None and match.start() < len(first.text):
            draft = read([whole, *lines[at + 2 :]], 0)
            if draft is not None:
                draft.num_lines += 1
            return draft
    return None


def _next_tells(lines: Sequence[LogLine], at: int, after: str) -> bool:
    """A line that was cut right before, or within, "Tried to allocate"."""
    if after.strip(" .") not in ("", "Tried", "Tried to", "Tri", "Tr", "T"):
        return False
    return any("to allocate" in line.text or "allocate" in line.text[:12] for line in lines[at + 1 : at + 3])


def _joined(lines: Sequence[LogLine], at: int, start: int) -> tuple[str, int]:
    """The message on one line, and how many lines it took."""
    first = lines[at].text[start:]
    parts, taken = [first], 1
    for index in range(at + 1, min(len(lines), at + _MAX_LINES)):
        if _END.search("".join("".join(parts).split())) or sum(map(len, parts)) > _MAX_CHARACTERS:
            break
        line = lines[index]
        if line.origin != lines[at].origin or _BOUNDARY.search(line.text):
            break
        parts.append(line.text.strip())
        taken += 1
    return " ".join(parts)[:_MAX_CHARACTERS], taken


def _fill(draft: Draft, message: str) -> None:
    text = "".join(message.split())
    draft.requested_bytes = size_in(_REQUEST, text)
    if match := _GPU.search(text):
        draft.gpu = int(match[1])
    draft.total_bytes = size_in(_TOTAL, text)
    draft.free_bytes = size_in(_FREE, text)
    draft.allocated_bytes = size_in(_ALLOCATED, text)
    draft.unallocated_bytes = size_in(_UNALLOCATED, text)
    reserved = size_in(_RESERVED_TOTAL, text)
    if reserved is not None and draft.allocated_bytes is not None:
        draft.unallocated_bytes = max(0, reserved - draft.allocated_bytes)
    elif draft.unallocated_bytes is None:
        # Before 1.4 "cached" is what is reserved beyond the allocated.
        draft.unallocated_bytes = size_in(_CACHED, text)
    draft.process_bytes = size_in(_THIS_PROCESS, text)
    draft.private_pool_bytes = size_in(_PRIVATE, text)
    draft.allowed_bytes = size_in(_ALLOWED, text)
    others = []
    for match in list(_PROCESS.finditer(text))[:_MAX_OTHERS]:
        num_bytes = parse_size(match[2], match[3])
        if num_bytes is not None:
            others.append(OtherProcess(pid=int(match[1]), num_bytes=num_bytes))
    draft.others = tuple(others)
    if _MORE_THAN_EB.search(text) or (draft.requested_bytes or 0) >= ABSURD_BYTES:
        draft.is_absurd_size = True


def _doubt(draft: Draft) -> None:
    """Numbers that NVML or an unset limit made up become None, with the reason."""
    pool = (draft.allocated_bytes or 0) + (draft.unallocated_bytes or 0)
    if draft.process_bytes is not None and draft.process_bytes < pool - GIB // 100:
        why = "PyTorch alone holds more: the driver does not tell this process's memory here (container, WSL)"
        _drop(draft, "process_bytes", why)
    if draft.process_bytes is not None and draft.process_bytes >= _UNSET_BYTES:
        _drop(draft, "process_bytes", "the driver answered `not available`, printed as a number")
    if draft.allowed_bytes is not None and draft.allowed_bytes >= _UNSET_BYTES:
        _drop(draft, "allowed_bytes", "no limit is set; this is the largest number")
    if draft.others and draft.total_bytes is not None:
        kept = tuple(each for each in draft.others if each.num_bytes <= 2 * draft.total_bytes)
        if len(kept) < len(draft.others):
            why = "a process cannot hold more than the GPU: the driver answered `not available`"
            draft.bogus.append(Bogus(field="others", text="Process … memory in use", why=why))
            draft.others = kept
    if draft.total_bytes == 0:
        _drop(draft, "total_bytes", "a GPU has some memory")


def _drop(draft: Draft, name: str, why: str) -> None:
    draft.bogus.append(Bogus(field=name, text=str(getattr(draft, name)), why=why))
    setattr(draft, name, None)
