"""Does this backend take the collective, type and reduction? It is asked with a tiny call, not looked up."""

from __future__ import annotations

from collections.abc import Callable

from distdoctor.nccl_bench.measure.prepared import Prepared

# torch's C++ traces run over many lines; the first says what it is. Our own bound.
MAX_WORDS = 200

# Size of the probe: enough for every rank's aligned part at any number of ranks that fits memory.
PROBE_BYTES_PER_RANK = 64

# A peer that is gone or late says nothing about what the backend can do. Words of gloo's and NCCL's errors.
_FAULT_WORDS = (
    "closed by peer",
    "reset by peer",
    "broken pipe",
    "timed out",
    "timeout",
    "connection refused",
    "remote process exited",
    "ncclremoteerror",
    "ncclsystemerror",
    "out of memory",
)


def try_support(make: Callable[[], Prepared], finish: Callable[[], object] | None = None) -> str | None:
    """None when a call works; where it is refused, the backend's own words: first line, at most 200 characters.

    All ranks of the group must ask, and all are answered the same: types and reductions are looked at before
    anything is sent. `finish` waits for the device. Raises what is no refusal: lost connections, timeouts, memory.
    """
    try:
        prepared = make()
        prepared.run_sync()
        if finish is not None:
            finish()
    except Exception as error:
        words = refusal_words(error)
        if words is None:
            raise
        return words
    return None


def refusal_words(error: Exception) -> str | None:
    """The first line of what the backend said, bounded; None for an error that is no refusal."""
    text = str(error).strip()
    if any(word in text.lower() for word in _FAULT_WORDS):
        return None
    first = text.splitlines()[0].strip() if text else type(error).__name__
    return first if len(first) <= MAX_WORDS else f"{first[: MAX_WORDS - 1]}…"
