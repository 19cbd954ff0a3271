"""Lines of a kernel log in any of its dresses: dmesg, journalctl, syslog, /dev/kmsg."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

_KMSG = re.compile(r"^\d{1,4},\d+,(?P<usec>\d{1,18}),[^;]{0,40};(?P<message>.*)$")
_LEVEL = re.compile(r"^(?:<\d{1,3}>|(?:kern|user|daemon|syslog)\s*:\s*[a-z]+\s*:\s*)")
_UPTIME = re.compile(r"^\[\s*(?P<uptime>\d{1,9}\.\d{3,6})\]\s?(?:\[\s*[TC]\d+\]\s?)?(?P<message>.*)$")
_DATED = re.compile(
    r"^\[(?P<stamp>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]\s?(?P<message>.*)$"
)
_SHORT_DELTA = re.compile(
    r"^\[(?P<stamp>[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d|\s*[+<]\s*\d+\.\d+>?)\]\s?(?P<message>.*)$"
)
_ISO = re.compile(
    r"^\[?(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?)\]?\s+(?P<rest>.*)$"
)
_SYSLOG = re.compile(r"^(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)\s+(?P<rest>.*)$")
_UNIX = re.compile(r"^(?P<stamp>1\d{9}\.\d{1,6})\s+(?P<rest>.*)$")
_TAGGED = re.compile(
    r"^(?P<host>[A-Za-z0-9][\w.-]{0,63})\s+(?P<tag>[\w./@()-]{1,48})(?:\[\d+\])?:\s?(?P<message>.*)$"
)
_BARE_TAG = re.compile(
    r"^(?P<tag>kernel|nv-fabricmanager|systemd|systemd-oomd|nvidia-persistenced)(?:\[\d+\])?:\s(?P<message>.*)$"
)

# journalctl -o json gives one object a line; a message of bytes comes as a list of numbers.
_MAX_JSON_LINE = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One line, taken apart as far as its dress allows."""

    number: int
    message: str
    stamp: str | None = None
    utc: str | None = None
    uptime_s: float | None = None
    host: str | None = None
    tag: str | None = None
    """Who wrote it: "kernel", "systemd"; None when the line does not say."""

    @property
    def is_of_kernel(self) -> bool:
        """True when the dress says that the kernel wrote it."""
        return self.tag == "kernel" or (self.tag is None and self.uptime_s is not None)


def parse_lines(text: str, *, first_line: int = 1) -> Iterator[KernelLine]:
    """Every line that is not blank, in order. A line without a stamp keeps its whole text as the message."""
    previous: KernelLine | None = None
    for number, raw in enumerate(text.split("\n"), start=first_line):
        if not raw.strip():
            continue
        line = parse_line(raw, number)
        # Further lines of one journal message are indented and have no stamp of their own.
        if line.stamp is None and raw[0].isspace() and previous is not None:
            line = replace(line, stamp=previous.stamp, utc=previous.utc, host=previous.host, tag=previous.tag)
        else:
            previous = line
        yield line


def parse_line(raw: str, number: int) -> KernelLine:
    """One line of any of the formats. Never raises."""
    raw = raw.strip()
    if raw.startswith("{") and '"MESSAGE"' in raw:
        parsed = _of_journal(raw, number)
        if parsed is not None:
            return parsed
    if kmsg := _KMSG.match(raw):
        uptime = int(kmsg["usec"]) / 1e6
        return KernelLine(
            number=number, message=kmsg["message"], stamp=f"[{uptime:.6f}]", uptime_s=uptime, tag="kernel"
        )
    raw = _LEVEL.sub("", raw)
    if iso := _ISO.match(raw):
        return _of_rest(number, iso["rest"], iso["stamp"], utc=_utc(iso["stamp"]) if iso["zone"] else None)
    if syslog := _SYSLOG.match(raw):
        return _of_rest(number, syslog["rest"], syslog["stamp"])
    if unix := _UNIX.match(raw):
        return _of_rest(number, unix["rest"], unix["stamp"], utc=_of_seconds(float(unix["stamp"])))
    if dated := _DATED.match(raw) or _SHORT_DELTA.match(raw):
        return KernelLine(number=number, message=dated["message"], stamp=f"[{dated['stamp']}]", tag="kernel")
    return _of_rest(number, raw, None)


def _of_rest(number: int, rest: str, stamp: str | None, *, utc: str | None = None) -> KernelLine:
    """What follows the stamp: host and tag, then perhaps the kernel's own stamp."""
    host = tag = None
    tagged = _TAGGED.match(rest) if stamp is not None else None
    bare = None if tagged else _BARE_TAG.match(rest)
    if tagged:
        host, tag, rest = tagged["host"], tagged["tag"], tagged["message"]
    elif bare:
        tag, rest = bare["tag"], bare["message"]
    uptime = _UPTIME.match(rest)
    if uptime:
        rest = uptime["message"]
        stamp = stamp or f"[{uptime['uptime']}]"
    return KernelLine(
        number=number,
        message=rest,
        stamp=stamp,
        utc=utc,
        uptime_s=float(uptime["uptime"]) if uptime else None,
        host=host,
        tag=tag,
    )


def _of_journal(raw: str, number: int) -> KernelLine | None:
    if len(raw) > _MAX_JSON_LINE:
        return None
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    message = entry.get("MESSAGE") if isinstance(entry, dict) else None
    if isinstance(message, list):
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    if not isinstance(message, str):
        return None
    micros = str(entry.get("__REALTIME_TIMESTAMP") or entry.get("_SOURCE_REALTIME_TIMESTAMP") or "")
    utc = _of_seconds(int(micros) / 1e6) if micros.isdigit() and len(micros) < 18 else None
    host, tag = entry.get("_HOSTNAME"), entry.get("SYSLOG_IDENTIFIER")
    return KernelLine(
        number=number,
        message=message.replace("\n", " "),
        stamp=utc,
        utc=utc,
        host=host if isinstance(host, str) else None,
        tag=tag if isinstance(tag, str) else "kernel",
    )


def _utc(stamp: str) -> str | None:
    text = re.sub(r"[.,](\d{1,6})\d*", lambda match: "." + match[1].ljust(6, "0"), stamp.replace(" ", "T"))
    text = text.replace("Z", "+00:00")
    text = re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", text)
    try:
        return _iso(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _of_seconds(seconds: float) -> str | None:
    try:
        return _iso(datetime.fromtimestamp(seconds, tz=timezone.utc))
    except (ValueError, OverflowError, OSError):
        return None


def _iso(moment: datetime) -> str | None:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
