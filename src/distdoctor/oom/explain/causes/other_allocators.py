"""Refusals by allocators with numbers of their own: MPS, XLA, a server's check at its start."""

from __future__ import annotations

from distdoctor.oom.explain.causes.kinds import Cause, Verdict
from distdoctor.oom.explain.numbers import Account
from distdoctor.oom.facts.events import Family, Hints, OomEvent
from distdoctor.report.model import Confidence

# MPS: what Metal holds beside the heaps, as a share of the limit, before it is named. Our own threshold.
OTHER_ALLOCATIONS_SHARE = 0.2


def of_mps(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """Apple's MPS: its heaps, what Metal holds beside, and the watermark."""
    del account, hints
    if event.family is not Family.MPS:
        return None
    if event.allowed_bytes is None:
        return Cause.REQUEST_TOO_LARGE, Confidence.HIGH, "Metal cannot make one buffer of this size"
    other, own, request = (
        event.other_allocations_bytes or 0,
        event.allocated_bytes or 0,
        event.requested_bytes or 0,
    )
    if request > event.allowed_bytes:
        return Cause.REQUEST_TOO_LARGE, Confidence.HIGH, "the request alone exceeds the limit"
    if other >= OTHER_ALLOCATIONS_SHARE * event.allowed_bytes and own + request <= event.allowed_bytes:
        return (
            Cause.OTHER_ALLOCATIONS,
            Confidence.HIGH,
            "without what is held beside PyTorch's heaps the request would fit",
        )
    return Cause.CAPACITY, Confidence.HIGH, "PyTorch's heaps with this request exceed the limit"


def of_a_server(event: OomEvent, account: Account, hints: Hints) -> Verdict | None:
    """A server that found too little at its start, or XLA."""
    del account, hints
    if event.family is Family.SERVER:
        if event.total_bytes is None or event.free_bytes is None:
            return (
                Cause.KV_CACHE,
                Confidence.MEDIUM,
                "nothing is left for the key-value cache after weights and activations",
            )
        return Cause.OTHER_PROCESS, Confidence.HIGH, "memory was taken before this process began"
    if event.family is Family.XLA:
        return Cause.CAPACITY, Confidence.MEDIUM, "XLA could not place its buffers"
    return None
