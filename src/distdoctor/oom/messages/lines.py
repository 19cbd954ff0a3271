"""Lines of a log without what launchers put before them, and whose they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.evidence import MAX_LINE_CHARACTERS

# Deeper stacks of prefixes were not seen: Kubernetes, time, rank, level, module.
_MAX_PREFIXES = 7

# A share of lines that must begin "N: " before that is taken for `srun --label`. Our own threshold.
_LABELLED_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose a line is, as far as its prefix tells."""

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None


NOBODY = Origin()


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: its number (from 1), whose it is, and its text without prefixes."""

    number: int
    origin: Origin
    text: str


# Lines that one text may become by opening escaped ones; the rest stays escaped. Our own bound, as that of lines that
# are read of one file.
_MAX_OPENED = 400_000

# Shorter lines with a backslash and an n are paths of Windows rather than escaped logs. Our own bound.
_MIN_ESCAPED = 120

_RANK = re.compile(r" ?\[(?:[Gg]lobal[ _-]?)?[Rr]ank[ _:=]?(?P<rank>\d{1,6})(?:/\d+)?\]:? ?")
_WORD_RANK = re.compile(r" ?\(?[Rr]ank[ _:=]?(?P<rank>\d{1,6})\)?:[ \t]")
# torchrun: the role's name and the local rank.
_ROLE = re.compile(r" ?\[(?:default|trainer|worker|role_?)[ _]?(?P<local>\d{1,4})\]: ?")
_MPI = re.compile(r" ?\[\d+,(?P<rank>\d{1,6})\](?:<std(?:err|out|diag)>:?)? ?")
_RAY = re.compile(
    r" ?\((?P<name>[\w.:<>()\[\]/-]{1,80}?)(?:[ ,]+rank=(?P<rank>\d{1,6}))?[ ,]+pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\w.:-]+))?\)"
    r"(?: *\[repeated \d+x[^\]]*\])? ?"
)
_VLLM_WORKER = re.compile(r"(?:TP|Worker_|rank)(\d{1,4})$")
_POD = re.compile(r" ?\[?pod/(?P<pod>[\w.-]+)(?:/[\w.-]+)?\]? ")
_TIME = re.compile(
    r" ?\[?\d{4}[-/]\d{2}[-/]\d{2}[T _]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z| ?[+-]\d{2}:?\d{2}| UTC)?\]?:? ?"
)
_LEVEL = re.compile(
    r" ?(?:[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d+ +\d+ [\w./-]+:\d+\] ?"
    r"|\[?(?:ERROR|INFO|WARNING|WARN|CRITICAL|DEBUG|error|stderr|stdout)\]?(?: \d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d+)?)?:? "
    r"|\[[\w./-]+\.(?:py|cpp|cc):\d+(?::[\w<>]+)?\] "
    r"|(?:stderr|stdout) [FP] )"
)
_HOST = re.compile(r" ?(?P<host>[a-z](?=[\w.-]*\d)[\w.-]{1,60}): (?=\S|  )")
_LABEL = re.compile(r"\s{0,5}(\d{1,5}): ?")
_BRACKETED = (_RANK, _TIME, _ROLE, _LEVEL, _MPI, _POD)
_LEVEL_STARTS = "IWEFCDsep"
# A line that is a JSON object names its rank in a field.
_JSON_RANK = re.compile(r"\"(?:global_?)?rank\"\s*:\s*\"?(\d{1,6})\b")
_JSON_LOCAL_RANK = re.compile(r"\"local_?rank\"\s*:\s*\"?(\d{1,4})\b")


def split_lines(text: str, *, trigger: re.Pattern[str]) -> list[LogLine]:
    """The lines of `text`; a line that holds escaped line ends (JSON) and matches `trigger` becomes several."""
    raw = text.split("\n")
    labelled = _is_labelled(raw)
    lines: list[LogLine] = []
    num_opened = 0
    for number, line in enumerate(raw, start=1):
        if "\\n" in line and len(line) > _MIN_ESCAPED and num_opened < _MAX_OPENED and trigger.search(line):
            base = _strip(line, labelled=labelled)[0]
            for part in _unescape(line).split("\n"):
                num_opened += 1
                origin, rest = _strip(part, labelled=False)
                lines.append(LogLine(number, base if origin == NOBODY else origin, rest))
            continue
        origin, rest = _strip(line, labelled=labelled)
        lines.append(LogLine(number, origin, rest))
    return lines


def open_long_lines(text: str) -> str:
    """`text` with lines that no tool prints cut into several: at escaped line ends (a whole log as one JSON string),
    else anywhere. What stands far back in them would be lost otherwise.
    """
    if len(text) <= MAX_LINE_CHARACTERS:
        return text
    lines = text.split("\n")
    if all(len(line) <= MAX_LINE_CHARACTERS for line in lines):
        return text
    opened: list[str] = []
    for line in lines:
        opened += _cut(line) if len(line) > MAX_LINE_CHARACTERS and len(opened) < _MAX_OPENED else (line,)
    return "\n".join(opened)


def _cut(line: str) -> list[str]:
    """Pieces of a long line. A text of nothing but line ends is left alone."""
    parts = [line]
    if 0 < line.count("\\n") <= _MAX_OPENED:
        parts = _unescape(line).split("\n")
    return [
        part[start : start + MAX_LINE_CHARACTERS]
        for part in parts
        for start in range(0, max(1, len(part)), MAX_LINE_CHARACTERS)
    ]


def _unescape(line: str) -> str:
    """Line ends and quotes of JSON strings, of one or two levels."""
    for escaped, plain in (
        ("\\\\n", "\n"),
        ("\\n", "\n"),
        ("\\t", "\t"),
        ('\\\\"', '"'),
        ('\\"', '"'),
        ("\\/", "/"),
    ):
        line = line.replace(escaped, plain)
    return line.replace("\\u0027", "'").replace("\\u003e", ">").replace("\\u003c", "<").replace("\\u001b", "")


def _is_labelled(raw: list[str]) -> bool:
    written = labelled = 0
    for line in raw[:2000]:
        if line.strip():
            written += 1
            labelled += _LABEL.match(line) is not None and not line.lstrip()[:4].isdigit()
    return written > 0 and labelled >= _LABELLED_SHARE * written


def _strip(line: str, *, labelled: bool) -> tuple[Origin, str]:
    rank = local_rank = pid = None
    host: str | None = None
    rest = line
    if labelled and (match := _LABEL.match(rest)):
        rank, rest = int(match[1]), rest[match.end() :]
    for _ in range(_MAX_PREFIXES):
        match = _prefix(rest)
        if match is None:
            break
        for name, value in match.groupdict().items():
            if value is None:
                continue
            if name.startswith("rank"):
                rank = int(value)
            elif name == "local":
                local_rank = int(value)
            elif name == "pid":
                pid = int(value)
            elif name == "name":
                worker = _VLLM_WORKER.search(value)
                local_rank = int(worker[1]) if worker else local_rank
            else:
                host = value
        rest = rest[match.end() :]
    if rank is local_rank is None and rest.startswith("{") and '"' in rest[:3]:
        rank, local_rank = _json_number(_JSON_RANK, rest), _json_number(_JSON_LOCAL_RANK, rest)
    if rank is local_rank is pid is None and host is None:
        return NOBODY, rest
    return Origin(rank, local_rank, host, pid), rest


def _json_number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def _prefix(rest: str) -> re.Match[str] | None:
    """The next thing that a launcher or logger put before a line; chosen by its first character, for speed."""
    # Two spaces are the indentation of a traceback, not of a prefix.
    if rest[:2] == "  ":
        return None
    first = rest[1:2] if rest[:1] == " " else rest[:1]
    match: re.Match[str] | None = None
    if first == "[":
        for pattern in _BRACKETED:
            if match := pattern.match(rest):
                return match
    elif first == "(":
        match = _RAY.match(rest) or _WORD_RANK.match(rest)
    elif first.isdigit():
        match = _TIME.match(rest)
    elif first in _LEVEL_STARTS:
        match = _LEVEL.match(rest) or _POD.match(rest)
        if match is None and first.islower() and ": " in rest[:64]:
            match = _HOST.match(rest)
    elif first in "rR":
        match = _WORD_RANK.match(rest)
        if match is None and ": " in rest[:64]:
            match = _HOST.match(rest)
    elif first.islower() and ": " in rest[:64]:
        match = _HOST.match(rest)
    return match
