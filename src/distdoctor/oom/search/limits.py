"""The largest micro-batch, or the longest sequence, that still fits: by estimate, which grows with both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from distdoctor.errors import UsageError
from distdoctor.oom.estimate import estimate
from distdoctor.oom.fit import Fit, Fits
from distdoctor.oom.job import MAX_TOKENS, Job, resolve
from distdoctor.oom.search.change import spelled_out
from distdoctor.oom.search.confirm import MAX_TRIES, Confirm, Confirmation
from distdoctor.oom.search.room import Room
from distdoctor.oom.settings import Settings

# Lengths are multiples of this; kernels and meshes rarely take others. Our own choice.
STEP_TOKENS = 128
# Nobody trains on more at once; beyond it the search ends. Our own bounds.
MOST_SEQUENCES = 1 << 16
MOST_TOKENS = 1 << 26


class Limited(str, Enum):
    """What is made as large as it can be."""

    MICRO_BATCH = "micro-batch"
    SEQ_LEN = "seq-len"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The largest value that fits, and the first one tried that does not."""

    what: Limited
    now: int
    largest: int | None
    """None: even the smallest does not fit."""
    fit: Fit
    """That of the largest; of the smallest where nothing fits."""
    beyond: int | None
    """The next larger value, which is not sure to fit; None: the end of what is looked at still fits."""
    beyond_fit: Fit | None = None
    confirmation: Confirmation = Confirmation.NOT_ASKED
    """What a simulation says of `largest`."""
    simulated_need: tuple[float, float] | None = None
    """(least, most) bytes of the card by that simulation."""


def limited_of(word: str) -> Limited:
    """What `--find-limit` names. Raises UsageError."""
    key = word.strip().lower().replace("_", "-")
    if key in {each.value for each in Limited}:
        return Limited(key)
    known = " or ".join(each.value for each in Limited)
    raise UsageError(f"--find-limit: `{word[:40]}` is not known", hint=f"give {known}")


def find_limit(job: Job, room: Room, what: Limited) -> Limit | None:
    """By bisection over the estimate; the other settings stay. None for a job whose activations are not known."""
    if job.shape is None:
        return None
    origin = spelled_out(job)
    step = 1 if what is Limited.MICRO_BATCH else STEP_TOKENS * job.mesh.cp
    most = _most(origin, what) // step

    def fit(units: int) -> Fit | None:
        try:
            made = estimate(resolve(_with(origin.said, what, units * step)))
        except UsageError:
            return None
        return room.fit(made)

    now = origin.micro_batch if what is Limited.MICRO_BATCH else origin.seq_len
    smallest = fit(1)
    if smallest is None:
        return None
    if smallest.answer is not Fits.YES:
        return Limit(what=what, now=now, largest=None, fit=smallest, beyond=step, beyond_fit=smallest)
    low, high = 1, 2
    while high <= most and _fits(fit(high)):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(fit(middle)):
            low = middle
        else:
            high = middle
    largest_fit = fit(low) or smallest
    is_end = high > most
    return Limit(
        what=what,
        now=now,
        largest=low * step,
        fit=largest_fit,
        beyond=None if is_end else high * step,
        beyond_fit=None if is_end else fit(high),
    )


def confirmed_limit(job: Job, room: Room, limit: Limit, confirm: Confirm) -> Limit:
    """`limit`, lowered until a simulation confirms it; where none of the tries does, as it was, and refuted."""
    if limit.largest is None:
        return limit
    origin = spelled_out(job)
    step = 1 if limit.what is Limited.MICRO_BATCH else STEP_TOKENS * job.mesh.cp
    value, beyond, beyond_fit = limit.largest, limit.beyond, limit.beyond_fit
    needs: tuple[float, float] | None = None
    for _ in range(MAX_TRIES):
        said = _with(origin.said, limit.what, value)
        found = confirm(said)
        if isinstance(found, str):
            return replace(limit, confirmation=Confirmation.NOT_POSSIBLE)
        made = estimate(resolve(said))
        needs = room.need_of_held(found.held_bytes, made)
        if needs[1] <= room.usable:
            return replace(
                limit,
                largest=value,
                fit=room.fit(made),
                beyond=beyond,
                beyond_fit=beyond_fit,
                confirmation=Confirmation.FITS,
                simulated_need=needs,
            )
        beyond, beyond_fit = value, room.fit(made)
        lower = int(value * room.usable / needs[1]) // step * step
        value = min(value - step, lower)
        if value < step:
            break
    return replace(limit, confirmation=Confirmation.TOO_LARGE, simulated_need=needs)


def _with(said: Settings, what: Limited, value: int) -> Settings:
    if what is Limited.MICRO_BATCH:
        return replace(said, micro_batch=value)
    return replace(said, seq_len=value)


def _fits(fit: Fit | None) -> bool:
    return fit is not None and fit.answer is Fits.YES


def _most(job: Job, what: Limited) -> int:
    if what is Limited.MICRO_BATCH:
        return min(MOST_SEQUENCES, MAX_TOKENS // job.seq_len)
    return min(MOST_TOKENS, MAX_TOKENS // job.micro_batch)
