"""The messages of NCCL in a text, whatever a launcher, a pod or another process wrote around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# "NCCL INFO …" (NVIDIA/nccl src/debug.cc); RCCL writes NCCL too. Messages without it are found by `is_banner`.
_MARK = re.compile(r"NCCL (INFO|WARN|TRACE|VERSION|ABORT|CALL)(?![A-Za-z])[ :]?")

# "NCCL version 2.22.3+cuda12.6" is printed without any prefix; torch's errors say "NCCL version 2.21.5" and are not it.
_BANNER = re.compile(
    r"\b(R?CCL|NCCL) version ?:? ?(\d+\.\d+\.\d+)(?:\+(?:cuda|hip)| compiled with CUDA|-HEAD)"
)

# Up to 2.3 the library's name is not there: "host:123:130 [0] INFO …", "host:123:130 [0] include/socket.h:360 WARN …".
_OLD_MARK = re.compile(r"(?<=:\d)\d* \[\d{1,4}\] (?:\S{1,80}:\d+ )?(INFO|WARN) ")

# What a program prints of ncclGetLastError: the text of the library's last warning follows in a line of its own.
_NCCL_ERROR = re.compile(r"nccl[A-Z]\w*Error|ncclInvalid|NCCL error|ncclRemoteError")
_LINES_TO_LAST_ERROR = 3
_RANK_PREFIX = re.compile(r"^\s*(?:\[[^\]\s]{1,80}\]:?\s*)+")

_DEVICE = re.compile(r"\[(\d{1,4})\]$")
# The prefix of the message that follows in the same line; what it is glued to cannot be told from its host.
_NEXT_PREFIX = re.compile(r"(?<!\S)\S{0,200}:\d{1,10}:\d{1,10} \[\d{1,4}\] (?:[^\n\[]{1,200}:\d+ )?$")
_NO_HOST = re.compile(r"[^\w.\-]")

# A paste that lost its line ends, or processes that wrote at once, put several messages into a line. Our own choice.
_MAX_MESSAGES_A_LINE = 200

# Where a launcher's words, host, process, device and source file stand before a message.
_PREFIX_CHARACTERS = 400

# Words of a signature: "int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):208".
_SIGNATURE_WORDS = 8

# Longer messages hold nothing that is read here (a ring of 2000 ranks has 8000 characters).
_MAX_MESSAGE_CHARACTERS = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One message; what its prefix did not tell is None."""

    number: int
    """1-based line of the text."""
    level: str
    """"INFO", "WARN" …; "BANNER" for the version line."""
    text: str
    host: str | None = None
    process: str | None = None
    """ "host:pid"."""
    device: int | None = None
    unfinished: bool = False
    """The text ends within this line, so it may be cut."""


def nccl_lines(text: str) -> Iterator[LogLine]:
    """Every message of NCCL in `text`, in order; several in one line when processes wrote at once."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.rstrip().endswith("Last error:") and (told := _last_error(lines, index)) is not None:
            yield told
            continue
        if "CCL" not in line:
            if "] " in line and (old := _old_line(index + 1, line)) is not None:
                yield old
            continue
        unfinished = index == len(lines) - 1
        marks = list(_MARK.finditer(line))[:_MAX_MESSAGES_A_LINE]
        if not marks:
            if _BANNER.search(line):
                yield LogLine(number=index + 1, level="BANNER", text=line[-400:].strip())
            continue
        prefix = line[: marks[0].start()]
        for place, mark in enumerate(marks):
            end = marks[place + 1].start() if place + 1 < len(marks) else len(line)
            body = line[mark.end() : end]
            if place + 1 < len(marks):
                body = body[:-_PREFIX_CHARACTERS] + _NEXT_PREFIX.sub("", body[-_PREFIX_CHARACTERS:])
            yield _line(index + 1, prefix, mark, body, unfinished=unfinished)
            # Of a later message in the line the host may be glued to the text before it, so none is named.
            prefix = ""


def _old_line(number: int, line: str) -> LogLine | None:
    mark = _OLD_MARK.search(line)
    if mark is None:
        return None
    prefix = line[: mark.end(0) - len(mark[1]) - 1]
    return _line(number, prefix, mark, line[mark.end() :], unfinished=False)


def _last_error(lines: list[str], index: int) -> LogLine | None:
    """The warning that a program repeats as the last one of the library, when errors of NCCL stand before it."""
    before = lines[max(0, index - _LINES_TO_LAST_ERROR) : index + 1]
    if index + 1 >= len(lines) or not any(_NCCL_ERROR.search(each) for each in before):
        return None
    text = _RANK_PREFIX.sub("", lines[index + 1][:_MAX_MESSAGE_CHARACTERS]).strip()
    return LogLine(number=index + 2, level="WARN", text=text) if text else None


def banner_version(text: str) -> tuple[str, str] | None:
    """("NCCL" or "RCCL", "2.22.3") of a version line, or None."""
    found = _BANNER.search(text)
    return (("RCCL" if found[1] == "RCCL" else "NCCL"), found[2]) if found else None


def _line(number: int, prefix: str, mark: re.Match[str], text: str, *, unfinished: bool) -> LogLine:
    device, host, process = _origin(prefix)
    # A container runtime that writes JSON ends the text with an escaped line end.
    text = text[:_MAX_MESSAGE_CHARACTERS].split('\\n"', 1)[0].strip()
    return LogLine(
        number=number,
        level=mark[1],
        text=text,
        host=host,
        process=process,
        device=device,
        unfinished=unfinished,
    )


def _origin(prefix: str) -> tuple[int | None, str | None, str | None]:
    """Device, host and "host:pid" from "… host:pid:tid [device] source.cc:12 ".

    Before a warning stands its source file, or a whole function signature of a plugin.
    """
    words = prefix[-_PREFIX_CHARACTERS:].split()
    for place in range(len(words) - 1, max(len(words) - 1 - _SIGNATURE_WORDS, -1), -1):
        device = _DEVICE.search(words[place])
        if not device:
            continue
        glued = words[place][: device.start()]
        host, process = _process(glued or (words[place - 1] if place else ""))
        return int(device[1]), host, process
    return (None, *_process(words[-1] if words else ""))


def _process(word: str) -> tuple[str | None, str | None]:
    """Host and "host:pid" from "[1,0]<stdout>:host:pid:tid"."""
    parts = word.rsplit(":", 2)
    if len(parts) < 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None, None
    host = _NO_HOST.split(parts[0])[-1]
    return (host, f"{host}:{parts[1]}") if host else (None, None)
