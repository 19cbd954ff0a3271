"""Steps, times of day and progress, as the verbs of `straggler` take and tell them."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta
from time import monotonic

from distdoctor.errors import UsageError

_STEPS = re.compile(r"(\d{0,12}):(\d{0,12})")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(Z|UTC|[+-]\d{2}:?\d{2})?", re.IGNORECASE)


def parse_steps(text: str | None) -> tuple[int | None, int | None]:
    """ "1000:3000" → both ends, "500:" → the first one. Raises UsageError."""
    if text is None:
        return None, None
    match = _STEPS.fullmatch(text.strip())
    if match is None or not (match[1] or match[2]):
        raise UsageError(f"--steps `{text}` is no range", hint="write 1000:3000, 500: or :2000")
    first, last = (int(part) if part else None for part in (match[1], match[2]))
    if first is not None and last is not None and first > last:
        raise UsageError(f"--steps `{text}`: the first step is behind the last one")
    return first, last


def parse_unit(text: str | None) -> str | None:
    """A unit of time. Raises UsageError."""
    if text is not None and text not in ("ns", "us", "ms", "s"):
        raise UsageError(f"--unit `{text}`: write ns, us, ms or s")
    return text


def parse_around(text: str | None, now: datetime) -> float | None:
    """Seconds since 1970 UTC of "14:20+02:00" (the last time that it was so) or of an ISO time. Raises UsageError.

    A zone is required: a log's clock and the reader's are rarely in the same one.
    """
    if text is None:
        return None
    cleaned = text.strip()
    match = _TIME_OF_DAY.fullmatch(cleaned)
    hint = "write 14:20+02:00, 12:20Z or 2026-11-30T12:20:00Z"
    try:
        if match is None:
            moment = datetime.fromisoformat(re.sub(r"(?i)\s*(z|utc)$", "+00:00", cleaned))
        else:
            zone = (match[4] or "").upper()
            offset = "+00:00" if zone in ("Z", "UTC") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
            clock = f"{int(match[1]):02d}:{match[2]}:{match[3] or '00'}"
            if not zone:
                raise UsageError(f"--around `{text}` tells no zone", hint=hint)
            moment = datetime.fromisoformat(f"2000-01-01T{clock}{offset}")
            # Today in that zone: it may be another day there.
            today = now.astimezone(moment.tzinfo)
            moment = moment.replace(year=today.year, month=today.month, day=today.day)
            if moment > now:
                moment -= timedelta(days=1)
    except ValueError:
        raise UsageError(f"--around `{text}` is no time", hint=hint) from None
    if moment.tzinfo is None:
        raise UsageError(f"--around `{text}` tells no zone", hint=hint)
    return moment.timestamp()


_BEGAN = monotonic()

# What is read in less time needs no progress.
_QUIET_S = 2.0


def progress_to_stderr(line: str) -> None:
    """One line now and then while large evidence is read."""
    from distdoctor.report.escape import visible

    if monotonic() - _BEGAN > _QUIET_S:
        print(f"distdoctor: {visible(line)}", file=sys.stderr)
