"""Whose the memory of the card is: a limit, a size that is wrong, other processes, memory beside the pool."""

from __future__ import annotations

import re

from distdoctor.oom.explain.causes.kinds import Cause, Verdict
from distdoctor.oom.explain.numbers import (
    ROUNDING_BYTES,
    Account,
    hidden_limit,
    is_odd_refusal,
    overhead_allowance,
)
from distdoctor.oom.facts.events import Family, Hints, OomEvent
from distdoctor.report.model import Confidence
from distdoctor.units import GIB

# What other processes hold counts from this share of the card on; a desktop or a monitor stays below. Our own threshold.
OTHERS_SHARE = 0.1

# Memory of this process beside PyTorch's pool that is more than contexts and communicators take. Our own thresholds.
NON_TORCH_SHARE = 0.1
CLEARLY_NON_TORCH_SHARE = 0.15

NON_TORCH_BYTES = 3 * GIB

# Peers that opened a context on this GPU hold equal amounts, and little each (0.3 to 1.2 GiB were seen).
PEER_BYTES = 2 * GIB

PEER_SPREAD = 0.05

# Sizes of discrete cards in GiB as drivers tell them lie this close below a round number; an APU's share does not.
_ROUND_CARDS = (
    4,
    6,
    8,
    10,
    11,
    12,
    16,
    20,
    24,
    32,
    40,
    44,
    48,
    64,
    80,
    94,
    96,
    120,
    128,
    141,
    144,
    180,
    184,
    186,
    192,
    256,
    268,
    288,
)

_CARD_SPREAD = 0.025

# A slice shows somewhat less than its name says: 9.5 GiB of `1g.10gb`, 32.5 GiB of `1g.35gb`.
_SLICE_SHARE = 0.85

_MIG_WORDS = "this GPU is, or may be, a MIG slice"


def whose_memory(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Limits, other processes, a card that is smaller than it should be, and a refusal that sizes do not explain."""
    total, request = event.total_bytes, event.requested_bytes
    if request is None:
        return None
    if event.is_block_limit:
        return (
            Cause.DRIVER_LIMIT,
            Confidence.HIGH,
            "the device admits no single block of this size, whatever is free",
        )
    for rule in (_limit, _too_large, _odd, _others):
        found = rule(event, account, hints)
        if found is not None:
            return found
    if total is not None and (named := _named_larger(total, hints)) is not None:
        where = f" ({_MIG_WORDS})" if hints.is_mig else ""
        return (
            Cause.WRONG_CAPACITY,
            Confidence.MEDIUM,
            f"the log names {named}, and the runtime shows less{where}",
        )
    return None


def _limit(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del hints
    if account.over_limit is None or event.allowed_bytes is None:
        return None
    fits_card = event.free_bytes is None or event.free_bytes >= (event.requested_bytes or 0)
    if account.over_limit > -ROUNDING_BYTES and (
        fits_card or event.allowed_bytes < (event.total_bytes or 0) * 0.98
    ):
        return (
            Cause.PROCESS_CAP,
            Confidence.HIGH,
            "the pool with this request exceeds the limit that the job set for itself",
        )
    return None


def _too_large(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del account
    total, request = event.total_bytes, event.requested_bytes or 0
    if total is None or request <= total:
        return None
    is_first = not event.allocated_bytes and not event.unallocated_bytes
    named = _named_larger(total, hints)
    if named is not None:
        return Cause.WRONG_CAPACITY, Confidence.MEDIUM, f"the log names {named}, and the runtime shows less"
    if event.family is Family.HIP and is_first and not _is_card(total):
        why = "the runtime shows a size that no discrete card has: an APU's share, or a carve-out that is not seen"
        return Cause.WRONG_CAPACITY, Confidence.MEDIUM, why, Cause.REQUEST_TOO_LARGE
    return Cause.REQUEST_TOO_LARGE, Confidence.HIGH, "one tensor is larger than the whole card"


def _odd(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Refused although more was free: a limit that the message does not show, or the driver's own limits."""
    if not is_odd_refusal(event) or account.pool is None:
        return None
    free, request = event.free_bytes or 0, event.requested_bytes or 0
    if hints.memory_fraction is not None and event.total_bytes is not None and hints.memory_fraction < 0.99:
        allowed = hints.memory_fraction * event.total_bytes
        if account.pool + request > allowed - ROUNDING_BYTES:
            return (
                Cause.PROCESS_CAP,
                Confidence.HIGH,
                "the log shows a memory fraction, and the pool with this request exceeds it",
            )
    found = hidden_limit(event, account.pool)
    if found is not None:
        share, chance = found
        why = f"a limit of {share:.0%} of the card explains it (a round share falls there by chance in {chance:.0%} of cases)"
        return Cause.PROCESS_CAP, Confidence.MEDIUM, why, Cause.DRIVER_LIMIT
    wide = event.total_bytes is not None and request > 0.0125 * event.total_bytes
    sure = Confidence.LOW if wide or free < 2 * request else Confidence.MEDIUM
    why = "more was free than was asked for, and no round limit lies where a limit would have to be"
    if wide:
        why = "more was free than was asked for; a limit set by the job would explain it as well as one of the driver"
    return Cause.DRIVER_LIMIT, sure, why, Cause.PROCESS_CAP


def _others(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    del hints
    total, shortfall = event.total_bytes, account.shortfall
    if total is None or shortfall is None:
        return None
    if account.others_bytes is not None and account.others_bytes >= shortfall:
        if are_peers(account):
            return (
                Cause.PEER_RANKS,
                Confidence.HIGH,
                "processes with equal amounts hold more than what is missing: peers opened this GPU too",
            )
        if account.others_bytes >= OTHERS_SHARE * total:
            sure = Confidence.HIGH if account.others else Confidence.MEDIUM
            return Cause.OTHER_PROCESS, sure, "without the other processes the request would fit"
    if account.non_torch is not None and account.process is not None:
        too_much = max(NON_TORCH_BYTES, round(NON_TORCH_SHARE * total))
        if account.non_torch >= too_much and account.non_torch >= shortfall:
            why = "this process holds more beside PyTorch's pool than what is missing"
            if account.non_torch >= CLEARLY_NON_TORCH_SHARE * total:
                return Cause.NON_TORCH, Confidence.HIGH, why
            return Cause.NON_TORCH, Confidence.MEDIUM, why, Cause.CAPACITY
        return None
    if account.outside is None or account.others_bytes is not None:
        return None
    allowance = overhead_allowance(total)
    beyond = account.outside - allowance
    if event.family is Family.CUDA_ASYNC:
        if beyond >= 0 and account.outside >= max(CLEARLY_NON_TORCH_SHARE * total, shortfall):
            return (
                Cause.NON_TORCH,
                Confidence.HIGH,
                "most of what is missing is outside the memory that PyTorch counts",
            )
        return None
    if beyond >= shortfall:
        sure = (
            Confidence.HIGH
            if account.outside >= 2 * allowance and account.outside >= 0.2 * total
            else Confidence.LOW
        )
        why = "more of the card is outside PyTorch's pool than a process's own context and communicators take"
        return Cause.OTHER_PROCESS, sure, why, Cause.NON_TORCH
    return None


def are_peers(account: Account) -> bool:
    """Several small, equal amounts: contexts of the other ranks on this GPU."""
    sizes = [each.num_bytes for each in account.others]
    if len(sizes) < 2:
        return False
    small = [each for each in sizes if each <= PEER_BYTES]
    if len(small) < 2 or sum(small) < sum(sizes) / 2:
        return False
    return max(small) - min(small) <= PEER_SPREAD * max(small)


def _named_larger(total: int, hints: Hints) -> str | None:
    """A card that the log names and that holds much more than the runtime shows, without a MIG slice of that size."""
    if any(_SLICE_SHARE * size * GIB <= total <= 1.01 * size * GIB for size in hints.mig_gigabytes):
        return None
    for name in hints.gpu_names:
        match = re.search(r"(\d{2,3}) ?G", name)
        if match and int(match[1]) * 10**9 > 1.3 * total and len(hints.gpu_names) == 1:
            return name
    return None


def _is_card(total: int) -> bool:
    size = total / GIB
    return any(-_CARD_SPREAD <= (size - each) / each <= 0.005 for each in _ROUND_CARDS)
