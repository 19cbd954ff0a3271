"""Words for events: ranks, GPUs, phases, and who it is."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family, OomEvent, Phase
from distdoctor.report.model import Fault, GpuRef, Scope
from distdoctor.units import GIB, KIB, MIB, fold_ints, format_bytes

MAX_TITLE = 80

# GPUs and hosts that a finding lists. Our own bound.
_MAX_LISTED = 64

FAULT_OF: dict[Cause, Fault] = {
    Cause.CAPACITY: Fault.CONFIG,
    Cause.LOGITS: Fault.CONFIG,
    Cause.ACTIVATIONS: Fault.CONFIG,
    Cause.PARAMETERS: Fault.CONFIG,
    Cause.STATES: Fault.CONFIG,
    Cause.LEAK: Fault.USER_CODE,
    Cause.KV_CACHE: Fault.CONFIG,
    Cause.WORKSPACE: Fault.CONFIG,
    Cause.FRAGMENTATION: Fault.CONFIG,
    Cause.OTHER_PROCESS: Fault.HOST,
    Cause.PEER_RANKS: Fault.USER_CODE,
    Cause.PROCESS_CAP: Fault.CONFIG,
    Cause.REQUEST_TOO_LARGE: Fault.CONFIG,
    Cause.WRONG_CAPACITY: Fault.HOST,
    Cause.SHARDING_INEFFECTIVE: Fault.CONFIG,
    Cause.NOT_SHARDED: Fault.CONFIG,
    Cause.OPTIMIZER: Fault.CONFIG,
    Cause.OPTIMIZER_FOREACH: Fault.CONFIG,
    Cause.NCCL: Fault.CONFIG,
    Cause.NON_TORCH: Fault.SOFTWARE,
    Cause.OTHER_ALLOCATIONS: Fault.SOFTWARE,
    Cause.HOST_RAM: Fault.HOST,
    Cause.HOST_PINNED: Fault.HOST,
    Cause.HOST_SHM: Fault.HOST,
    Cause.DRIVER_LIMIT: Fault.SOFTWARE,
    Cause.CORRUPT_SIZE: Fault.UNKNOWN,
    Cause.UNKNOWN: Fault.UNKNOWN,
}

CAUSE_WORDS: dict[Cause, str] = {
    Cause.CAPACITY: "too much of everything",
    Cause.LOGITS: "logits",
    Cause.ACTIVATIONS: "activations",
    Cause.PARAMETERS: "parameters",
    Cause.STATES: "states of the optimizer",
    Cause.LEAK: "memory that grows from step to step",
    Cause.KV_CACHE: "the key-value cache",
    Cause.WORKSPACE: "a workspace of cuBLAS",
    Cause.FRAGMENTATION: "fragmentation",
    Cause.OTHER_PROCESS: "another process on the GPU",
    Cause.PEER_RANKS: "other ranks on this GPU",
    Cause.PROCESS_CAP: "a limit on the process",
    Cause.REQUEST_TOO_LARGE: "one request larger than the GPU",
    Cause.WRONG_CAPACITY: "a card that shows less than it has",
    Cause.SHARDING_INEFFECTIVE: "parameters gathered and kept",
    Cause.NOT_SHARDED: "parameters that are not sharded",
    Cause.OPTIMIZER: "the optimizer step",
    Cause.OPTIMIZER_FOREACH: "temporaries of the optimizer step",
    Cause.NCCL: "NCCL's buffers",
    Cause.NON_TORCH: "memory outside PyTorch's pool",
    Cause.OTHER_ALLOCATIONS: "allocations beside PyTorch's",
    Cause.HOST_RAM: "host memory",
    Cause.HOST_PINNED: "pinned host memory",
    Cause.HOST_SHM: "shared memory of the host",
    Cause.DRIVER_LIMIT: "a limit of the driver",
    Cause.CORRUPT_SIZE: "a consequence of another error",
    Cause.UNKNOWN: "a cause that the message does not show",
}

_PHASE_WORDS = {
    Phase.INITIALISATION: "while the job starts",
    Phase.FIRST_FORWARD: "in the first forward pass",
    Phase.FIRST_BACKWARD: "in the first backward pass",
    Phase.FIRST_OPTIMIZER_STEP: "in the first optimizer step",
    Phase.FORWARD: "in a forward pass",
    Phase.BACKWARD: "in a backward pass",
    Phase.OPTIMIZER_STEP: "in an optimizer step",
    Phase.SECOND_STEP: "in the second step",
    Phase.LATER_GROWTH: "in a later step",
    Phase.EVALUATION: "in evaluation",
    Phase.GENERATION: "in generation",
    Phase.SAVING: "while a checkpoint is saved",
    Phase.UNKNOWN: "",
}


_PHASE_IN_TITLE = {Phase.INITIALISATION: "at start", Phase.SAVING: "saving", Phase.UNKNOWN: ""}


def size_words(num_bytes: int) -> str:
    """`1.96 GiB`, `210.06 MiB`: with the two decimals that messages print, so that a reader finds the number again."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.2f} {unit}"
    return f"{num_bytes} B"


def phase_words(phase: Phase) -> str:
    """ "in the first forward pass"; empty where the phase is not known."""
    return _PHASE_WORDS[phase]


def rank_words(events: Sequence[OomEvent]) -> str:
    """ "ranks 0-7", "local rank 2", "pid 4711 on host-a"; empty where nobody is named."""
    ranks = [event.rank for event in events if event.rank is not None]
    if ranks:
        return _counted("rank", ranks)
    local = [event.local_rank for event in events if event.local_rank is not None]
    if local:
        return _counted("local rank", local)
    pids = list(dict.fromkeys(event.pid for event in events if event.pid is not None))
    if len(pids) == 1:
        return f"pid {pids[0]}"
    return f"{len(pids)} processes" if pids else ""


def _counted(word: str, numbers: Sequence[int]) -> str:
    folded = fold_ints(list(numbers))
    if len(folded) > 24:
        return f"{len(set(numbers))} {word}s"
    return f"{word}{'s' if len(set(numbers)) > 1 else ''} {folded}"


def scope_of(events: Sequence[OomEvent]) -> Scope:
    """Whom a finding over these events is about."""
    gpus = dict.fromkeys(
        GpuRef(host=event.host, index=event.gpu) for event in events if event.gpu is not None
    )
    return Scope(
        ranks=tuple(sorted({event.rank for event in events if event.rank is not None})),
        hosts=tuple(dict.fromkeys(event.host for event in events if event.host))[:_MAX_LISTED],
        gpus=tuple(gpus)[:_MAX_LISTED],
    )


def who(judged: Judged) -> str:
    """Whose memory, or limit, it is: the beginning of a title."""
    event, account = judged.event, judged.account
    held = format_bytes(account.others_bytes) if account.others_bytes else None
    match judged.cause:
        case Cause.OTHER_PROCESS:
            if event.family is Family.SERVER and event.total_bytes and event.free_bytes is not None:
                return f"others hold {format_bytes(event.total_bytes - event.free_bytes)} of the GPU"
            if held:
                return f"another process holds {held} of the GPU"
            if account.outside:
                return f"{format_bytes(account.outside)} of the GPU are outside PyTorch"
            return "the GPU is full before this process begins"
        case Cause.PEER_RANKS:
            if not held:
                return "several ranks are on one GPU and fill it"
            return f"other ranks hold {held} of this GPU"
        case Cause.PROCESS_CAP:
            limit = format_bytes(event.allowed_bytes) if event.allowed_bytes else None
            return f"the job's own limit of {limit} is reached" if limit else "a limit on the job is reached"
        case Cause.REQUEST_TOO_LARGE:
            asked = format_bytes(event.requested_bytes or 0)
            whole = event.total_bytes or event.allowed_bytes
            if whole:
                return f"one request of {asked} exceeds the GPU's {format_bytes(whole)}"
            return f"one request of {asked} exceeds what a buffer may be"
        case Cause.WRONG_CAPACITY:
            return f"the GPU shows only {format_bytes(event.total_bytes or 0)}"
        case Cause.FRAGMENTATION:
            idle = format_bytes(event.unallocated_bytes or 0)
            return f"{idle} reserved lie idle in pieces too small (fragmentation)"
        case Cause.NON_TORCH:
            beside = account.non_torch if account.non_torch is not None else account.outside
            return f"{format_bytes(beside or 0)} are held beside PyTorch's pool"
        case Cause.OTHER_ALLOCATIONS:
            return f"{format_bytes(event.other_allocations_bytes or 0)} are held beside PyTorch"
        case _:
            return _PLAIN_WHO[judged.cause]


_PLAIN_WHO: dict[Cause, str] = {
    Cause.CAPACITY: "the job's own tensors fill the GPU",
    Cause.LOGITS: "the job's logits do not fit on the GPU",
    Cause.ACTIVATIONS: "the job's activations do not fit on the GPU",
    Cause.PARAMETERS: "the model does not fit on the GPU as it is placed",
    Cause.STATES: "the optimizer's states do not fit on the GPU",
    Cause.LEAK: "the job's memory grew from step to step until the GPU was full",
    Cause.KV_CACHE: "the key-value cache does not fit on the GPU",
    Cause.WORKSPACE: "the GPU is full when cuBLAS needs its workspace",
    Cause.SHARDING_INEFFECTIVE: "the GPU is full while parameters are gathered",
    Cause.NOT_SHARDED: "the whole model is moved to each GPU before sharding",
    Cause.OPTIMIZER: "the optimizer step does not fit on the GPU",
    Cause.OPTIMIZER_FOREACH: "temporaries of the optimizer step do not fit",
    Cause.NCCL: "no GPU memory is left for NCCL's buffers",
    Cause.HOST_RAM: "host memory ran out, not the GPU's",
    Cause.HOST_PINNED: "page-locked host memory ran out, not the GPU's",
    Cause.HOST_SHM: "the host's shared memory (/dev/shm) ran full",
    Cause.DRIVER_LIMIT: "refused though memory was free: not a lack of memory",
    Cause.CORRUPT_SIZE: "a size that cannot be: a consequence of an earlier error",
    Cause.UNKNOWN: "out of memory; the message does not say of what",
}


def cause_title(group: Sequence[Judged]) -> str:
    """Who, short by how much, in which phase, on which ranks: as much of it as fits into 80 characters."""
    worst = group[0]
    begin = who(worst)
    if (
        worst.cause is Cause.HOST_RAM
        and not worst.event.is_certain_kill
        and worst.event.family is Family.HOST_KILL
    ):
        begin = "killed by SIGKILL, probably for host memory"
    if worst.cause is Cause.OTHER_PROCESS and worst.confidence.value == "low":
        known = worst.account.outside or worst.event.others
        begin = begin if known else "the driver refused GPU memory and does not say who holds it"
    if worst.cause is Cause.UNKNOWN and worst.event.family is Family.HOST_KILL:
        was_ordered = worst.event.ended_by is not None and worst.event.is_end_sure
        begin = "killed after the job was told to end: no sign of memory"
        if not was_ordered or worst.why.startswith("the scheduler"):
            begin = "killed after the scheduler ended the job: no sign of memory"
    if worst.cause is Cause.UNKNOWN and worst.event.family is Family.BLAS:
        begin = "cuBLAS fails after an error on the GPU: no sign of memory"
    if worst.cause is Cause.CAPACITY:
        begin = _capacity_without_sizes(worst.event) or begin
    short = _short(worst)
    phase = _PHASE_IN_TITLE.get(worst.event.phase, worst.event.phase.value)
    whose = rank_words([each.event for each in group])
    for parts in ((short, phase, whose), (short, whose), (phase, whose), (whose,), (short,), ()):
        told = ", ".join(part for part in parts if part)
        title = f"{begin}: {told}" if told else begin
        if len(title) <= MAX_TITLE:
            return title
    return begin[:MAX_TITLE]


def _capacity_without_sizes(event: OomEvent) -> str | None:
    """What is known where a message holds no sizes; None where it does."""
    if event.family is Family.DNN:
        return "the GPU is full when cuDNN needs its workspace"
    if event.family is Family.DRIVER:
        return "the driver refused GPU memory and does not say who holds it"
    if event.family in CACHING_ALLOCATORS and event.total_bytes is None:
        return "GPU memory ran out; the message was cut before its sizes"
    return None


def _short(judged: Judged) -> str:
    missing = judged.account.shortfall
    if judged.cause in (Cause.FRAGMENTATION, Cause.REQUEST_TOO_LARGE, Cause.DRIVER_LIMIT, Cause.CORRUPT_SIZE):
        return ""
    if missing is None or missing <= 0:
        return ""
    return f"{format_bytes(missing)} short"
