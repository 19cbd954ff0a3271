"""The kernel log of this machine: /dev/kmsg, dmesg, journalctl or the log file, whichever may be read first.

A log that cannot be read is never an empty one: every way that failed is told, with how to get it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Unread, UnreadError
from distdoctor.env.facts.kernel_log import KernelEvent, KernelLogFacts
from distdoctor.env.readers.kernel_lines import KernelLine, parse_line, parse_lines
from distdoctor.env.readers.kernel_log import read_lines
from distdoctor.report.model import SkipCause

KMSG = "/dev/kmsg"
LOG_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")

# The kernel's ring buffer is at most a few MiB; of log files we read the end. Our own caps.
MAX_KMSG_BYTES = 32 << 20
MAX_LOG_BYTES = 8 << 20
# One record of /dev/kmsg is at most this long (PRINTK_MESSAGE_MAX with its prefix).
_RECORD_BYTES = 8192

HOW = "on the host, as root: `dmesg -T | grep -Ei 'xid|nvrm|mlx5|oom'`, or give the log as a file"


def collect_kernel_log(world: World, *, timeout_s: float) -> KernelLogFacts:
    """Events of the log of this boot (of the log file's end, when only that may be read). Never raises.

    `timeout_s` bounds each tool, and the reading of /dev/kmsg.
    """
    failures: list[Unread] = []
    deadline = time.monotonic() + timeout_s
    ways: tuple[tuple[str, Callable[[], list[KernelLine]]], ...] = (
        (KMSG, lambda: _kmsg(world, deadline)),
        ("dmesg", lambda: _tool(world, ["dmesg"], timeout_s)),
        (
            "journalctl -k",
            lambda: _tool(
                world, ["journalctl", "-k", "-b", "--no-pager", "-o", "short-iso", "-n", "20000"], timeout_s
            ),
        ),
        *((path, lambda path=path: _file(world, path)) for path in LOG_FILES),
    )
    for source, read in ways:
        try:
            lines = read()
        except UnreadError as error:
            failures.append(error.unread)
        except PermissionError as error:
            failures.append(Unread(cause=SkipCause.NEEDS_ROOT, reason=f"{source}: {error.strerror}"))
        except FileNotFoundError:
            failures.append(Unread(cause=SkipCause.ABSENT, reason=f"{source} is not there"))
        except OSError as error:
            failures.append(Unread(cause=SkipCause.FAILED, reason=f"{source}: {error.strerror or error}"))
        else:
            if lines:
                return _facts(world, lines, source)
            failures.append(Unread(cause=SkipCause.FAILED, reason=f"{source} is empty"))
    return KernelLogFacts(unread={"events": _why(world, failures)})


def _why(world: World, failures: list[Unread]) -> Unread:
    reason = "; ".join(failure.reason for failure in failures)
    causes = [failure.cause for failure in failures]
    if _in_container(world):
        return Unread(cause=SkipCause.IN_CONTAINER, reason=f"the container hides it: {reason}", how=HOW)
    cause = SkipCause.NEEDS_ROOT if SkipCause.NEEDS_ROOT in causes else SkipCause.ABSENT
    if SkipCause.TIMED_OUT in causes and cause is not SkipCause.NEEDS_ROOT:
        cause = SkipCause.TIMED_OUT
    return Unread(cause=cause, reason=reason, how=HOW)


def _in_container(world: World) -> bool:
    marks = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
    return "KUBERNETES_SERVICE_HOST" in world.environ or any(world.exists(mark) for mark in marks)


def _kmsg(world: World, deadline: float) -> list[KernelLine]:
    """Records of /dev/kmsg up to now. The device blocks at its end unless it is told not to."""
    lines: list[KernelLine] = []
    for number, record in enumerate(_records(world, deadline), start=1):
        if record[:1].isdigit():
            lines.append(parse_line(record, number))
    return lines


def _records(world: World, deadline: float) -> Iterator[str]:
    descriptor = os.open(world.path(KMSG), os.O_RDONLY | os.O_NONBLOCK)
    total = 0
    rest = b""
    try:
        while total < MAX_KMSG_BYTES and time.monotonic() < deadline:
            try:
                data = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the record that we stood at was overwritten; the next read gives the oldest one
            if not data:
                break
            total += len(data)
            # One read gives one record; a plain file in its place gives pieces of many.
            *whole, rest = (rest + data).split(b"\n")
            for record in whole:
                if record and not record.startswith(b" "):
                    yield record.decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _tool(world: World, argv: list[str], timeout_s: float) -> list[KernelLine]:
    result = world.run_tool(argv, timeout_s=timeout_s)
    if result.returncode != 0:
        text = (result.stderr or result.stdout).strip().split("\n")[0][:200]
        denied = "not permitted" in text or "ermission" in text
        raise UnreadError(SkipCause.NEEDS_ROOT if denied else SkipCause.FAILED, f"`{argv[0]}`: {text}")
    lines = [line for line in parse_lines(result.stdout) if not line.message.startswith("-- ")]
    # Without the right group journalctl ends well, shows nothing, and says so on stderr.
    if not lines and ("No journal files" in result.stderr or "not seeing messages" in result.stderr):
        raise UnreadError(SkipCause.NEEDS_ROOT, f"`{argv[0]}` may not read the system's journal")
    return lines


def _file(world: World, path: str) -> list[KernelLine]:
    """Kernel lines at the end of a log file. /var/log/messages holds everybody's."""
    with world.path(path).open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        stream.seek(max(0, size - MAX_LOG_BYTES))
        data = stream.read(MAX_LOG_BYTES)
    if size > MAX_LOG_BYTES:
        data = data[data.find(b"\n") + 1 :]
    text = data.decode("utf-8", "replace")
    return [line for line in parse_lines(text) if line.tag in ("kernel", "nv-fabricmanager")]


def _facts(world: World, lines: list[KernelLine], source: str) -> KernelLogFacts:
    """Events with their age, as far as this machine's clocks tell it."""
    facts = read_lines(lines, source)
    uptime_s = _uptime(world)
    now = datetime.now(tz=timezone.utc)
    by_number = {line.number: line for line in lines}
    events = tuple(
        _dated(event, by_number.get(event.line or 0), uptime_s, now) for event in facts.events or ()
    )
    oldest = _age(lines[0], uptime_s, now)
    since = _ago(now, oldest) if oldest is not None else facts.covers_since_utc
    return replace(facts, events=events, oldest_s=oldest, covers_since_utc=since)


def _dated(event: KernelEvent, line: KernelLine | None, uptime_s: float | None, now: datetime) -> KernelEvent:
    age = _age(line, uptime_s, now) if line is not None else None
    if age is None:
        return event
    return replace(event, seconds_ago=age, utc=event.utc or _ago(now, age))


def _age(line: KernelLine, uptime_s: float | None, now: datetime) -> float | None:
    if line.utc is not None:
        moment = datetime.strptime(line.utc, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        return max(0.0, (now - moment).total_seconds())
    if line.uptime_s is not None and uptime_s is not None and line.uptime_s <= uptime_s + 1:
        return max(0.0, uptime_s - line.uptime_s)
    return None


def _ago(now: datetime, seconds: float) -> str:
    return (now - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _uptime(world: World) -> float | None:
    try:
        return float(world.read_text("/proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return None
