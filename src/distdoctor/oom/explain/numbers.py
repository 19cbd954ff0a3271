"""The arithmetic of one message: what is missing, who holds the rest of the GPU, and what a limit would explain."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.facts.events import Bogus, Family, OomEvent, OtherProcess
from distdoctor.units import GIB, MIB

# Messages print two decimals of GiB: sums of four such numbers are off by up to 0.02 GiB.
ROUNDING_BYTES = GIB // 50

# Where no message tells a process's own share, its CUDA context, cuBLAS and NCCL buffers explain this much beside
# PyTorch's pool; on large cards communicators take more. Observed contexts are 0.3 to 1.2 GiB (PyTorch issue 49481,
# returnn issue 1469), about 1 GiB a process group (PyTorch issue 153302). The share is our own threshold.
OWN_OVERHEAD_BYTES = 3 * GIB // 2
OWN_OVERHEAD_SHARE = 0.08


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One GPU at the moment of refusal. Bytes; None: the message does not tell."""

    pool: int | None
    """PyTorch's pool: allocated and reserved."""
    process: int | None
    """This process: pool, context, NCCL, other libraries."""
    non_torch: int | None
    """This process beside its pool."""
    others: tuple[OtherProcess, ...]
    others_bytes: int | None
    """Other processes, as listed; else what the card's own numbers leave when this process is known."""
    outside: int | None
    """Everything on the card beside this pool: total - free - pool."""
    shortfall: int | None
    """What the request is above what was free for it: on the card, or below the limit when that is less."""
    over_limit: int | None
    """By how much the pool with this request would exceed the limit that is set; None without a limit."""
    own_pid: int | None
    """A listed process that must be this one: its pid is the host's, seen from inside a container."""
    bogus: tuple[Bogus, ...]


def account_of(event: OomEvent) -> Account:
    """The numbers of an event put together."""
    pool = _pool(event)
    process, others, own_pid = _whose(event, pool)
    total, free, request = event.total_bytes, event.free_bytes, event.requested_bytes
    outside = max(0, total - free - pool) if None not in (total, free, pool) else None  # type: ignore[operator]
    non_torch = max(0, process - pool) if process is not None and pool is not None else None
    others_bytes: int | None = sum(each.num_bytes for each in others) if others else None
    if others_bytes is None and process is not None and total is not None and free is not None:
        others_bytes = max(0, total - free - process)
        if others_bytes <= max(ROUNDING_BYTES, total // 100):
            others_bytes = 0
    over_limit = None
    if event.allowed_bytes is not None and pool is not None and request is not None:
        over_limit = pool + request - event.allowed_bytes
        if event.family is Family.MPS:
            over_limit += event.other_allocations_bytes or 0
    return Account(
        pool=pool,
        process=process,
        non_torch=non_torch,
        others=others,
        others_bytes=others_bytes,
        outside=outside,
        shortfall=_shortfall(event, over_limit),
        over_limit=over_limit,
        own_pid=own_pid,
        bogus=event.bogus,
    )


def overhead_allowance(total: int | None) -> int:
    """Bytes beside the pool that a process's own context and communicators explain, on a card of `total` bytes."""
    return max(OWN_OVERHEAD_BYTES, round(OWN_OVERHEAD_SHARE * (total or 0)))


def _pool(event: OomEvent) -> int | None:
    if event.allocated_bytes is None:
        return None
    return event.allocated_bytes + (event.unallocated_bytes or 0)


def _whose(event: OomEvent, pool: int | None) -> tuple[int | None, tuple[OtherProcess, ...], int | None]:
    """This process's bytes, the processes that are others, and the listed pid that is this process itself.

    In a container the driver lists the host's pids, PyTorch does not find its own among them, and this process stands in
    the list as if it were another: the one that holds at least the pool, and little more.
    """
    if event.process_bytes is not None or not event.others or pool is None or pool == 0:
        return event.process_bytes, event.others, None
    fitting = [
        each
        for each in event.others
        if pool - ROUNDING_BYTES <= each.num_bytes <= pool + 2 * overhead_allowance(event.total_bytes)
    ]
    if not fitting:
        return None, event.others, None
    own = min(fitting, key=lambda each: each.num_bytes)
    rest = list(event.others)
    rest.remove(own)
    return own.num_bytes, tuple(rest), own.pid


def _shortfall(event: OomEvent, over_limit: int | None) -> int | None:
    if event.requested_bytes is None:
        return None
    if event.family is Family.MPS:
        return over_limit
    on_card = event.requested_bytes - event.free_bytes if event.free_bytes is not None else None
    candidates = [each for each in (on_card, over_limit) if each is not None and each > 0]
    return max(candidates, default=on_card if on_card is not None else None)


# A limit is set as a share of the card: these grids are tried, coarse first. Chance that a grid point falls into the
# possible range must stay below this for the match to mean anything. Our own threshold.
MAX_CHANCE = 0.25
_GRIDS = (0.05, 0.01)


def hidden_limit(event: OomEvent, pool: int) -> tuple[float, float] | None:
    """(share of the card, chance of coincidence) of a round limit that explains a refusal while memory was free.

    The allocator refuses when pool + request exceeds the limit, and so far the pool did not: the limit lies between the
    two. A round share in a narrow range speaks for `set_per_process_memory_fraction`; None when no round share lies in
    it, or the range is too wide to say.
    """
    if event.total_bytes is None or event.requested_bytes is None:
        return None
    low = (pool - ROUNDING_BYTES) / event.total_bytes
    high = (pool + event.requested_bytes + ROUNDING_BYTES) / event.total_bytes
    for grid in _GRIDS:
        chance = (high - low) / grid
        first = -(-low // grid) * grid
        if chance <= MAX_CHANCE and first <= high and 0 < first < 1:
            return round(first, 4), chance
    return None


def is_odd_refusal(event: OomEvent) -> bool:
    """More was free than was asked for, beyond rounding: neither capacity nor fragmentation refuses that."""
    if event.free_bytes is None or event.requested_bytes is None:
        return False
    margin = max(64 * MIB, (event.total_bytes or 0) // 100)
    return event.free_bytes >= event.requested_bytes + margin
