"""Is the host's clock synchronised? The kernel's own word, and chrony's where the kernel's is not the last."""

from __future__ import annotations

import ctypes
import os
import struct
from datetime import datetime, timezone

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.report.model import SkipCause

# include/uapi/linux/timex.h: the status bit that says "not synchronised".
STA_UNSYNC = 0x40

# struct timex of 64-bit Linux begins: modes (padded), offset, freq, maxerror, esterror, status (padded).
TIMEX_HEAD = struct.Struct("=I4xqqqqi4x")
# The struct is 208 bytes; room for one that grew.
TIMEX_BYTES = 512

TOOL_TIMEOUT_S = 2.0


def read_clock(world: World, reading: Reading) -> None:
    """Put the clock fields of HostFacts into `reading`."""
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    reading.take("clock_source", source, lambda: world.read_line(source))
    if world.is_this_machine:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        reading.put("clock_utc", "clock_gettime", now)
    else:
        reading.miss("clock_utc", SkipCause.NOT_IN_EVIDENCE, "a copied tree has no clock")
    _read_synchronised(world, reading)


def _read_synchronised(world: World, reading: Reading) -> None:
    name = "clock_synchronised"
    by_kernel = reading.take(name, "adjtimex()", lambda: kernel_clock(world))
    if by_kernel is not None:
        synchronised, max_error_s = by_kernel
        reading.put(name, "adjtimex()", synchronised)
        if synchronised:
            reading.put("clock_max_error_s", "adjtimex()", max_error_s)
            return
    reading.miss(
        "clock_max_error_s", SkipCause.UNSUPPORTED, "told only of a clock that the kernel calls synchronised"
    )
    # chronyd clears the kernel's "not synchronised" only with `rtcsync`, so its own word counts more.
    try:
        leap = chrony_leap_status(world)
    except UnreadError:
        if by_kernel is None:
            reading.take(name, "timedatectl show", lambda: _timedatectl(world))
        return
    reading.put(name, "chronyc tracking", leap != "Not synchronised")


def kernel_clock(world: World) -> tuple[bool, float]:
    """(synchronised, largest error in seconds) by the system call adjtimex, which changes nothing here.

    Raises UnreadError under another root than this machine's, or where the call is refused.
    """
    if not world.is_this_machine:
        raise UnreadError(
            SkipCause.NOT_IN_EVIDENCE, "adjtimex is a system call; a copied tree cannot answer it"
        )
    if struct.calcsize("P") != 8:
        raise UnreadError(SkipCause.UNSUPPORTED, "struct timex is read on 64-bit machines only")
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError) as error:
        raise UnreadError(SkipCause.UNSUPPORTED, f"no adjtimex in the C library: {error}") from error
    buffer = ctypes.create_string_buffer(TIMEX_BYTES)
    if adjtimex(buffer) < 0:
        raise UnreadError(SkipCause.FAILED, f"adjtimex: {os.strerror(ctypes.get_errno())}")
    *_, max_error_us, _, status = TIMEX_HEAD.unpack_from(buffer)
    return not status & STA_UNSYNC, max_error_us / 1e6


def chrony_leap_status(world: World) -> str:
    """`Normal`, `Not synchronised`, … as chronyd says. Raises UnreadError when there is no chronyd to ask."""
    result = world.run_tool(("chronyc", "-n", "tracking"), timeout_s=TOOL_TIMEOUT_S)
    for line in result.stdout.splitlines():
        name, separator, value = line.partition(":")
        if separator and name.strip() == "Leap status":
            return value.strip()
    raise UnreadError(SkipCause.FAILED, f"chronyc: {(result.stderr or result.stdout).strip()[:200]}")


def _timedatectl(world: World) -> bool:
    result = world.run_tool(("timedatectl", "show", "--property=NTPSynchronized"), timeout_s=TOOL_TIMEOUT_S)
    value = result.stdout.strip().removeprefix("NTPSynchronized=")
    if value not in ("yes", "no"):
        raise UnreadError(SkipCause.FAILED, f"timedatectl: {(result.stderr or result.stdout).strip()[:200]}")
    return value == "yes"
