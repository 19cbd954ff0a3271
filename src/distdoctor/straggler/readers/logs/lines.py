"""One line of a log without what launchers and terminals put around it, and who printed it when."""

from __future__ import annotations

import re
from calendar import timegm
from dataclasses import dataclass
from functools import lru_cache

NAN = float("nan")

# No line that we read is longer; a regular expression must not meet more.
MAX_LINE_BYTES = 16_384

# A launcher inside a launcher inside a container runtime.
_MAX_PREFIXES = 4

# A time stamp stands at the start of a line, behind at most some names and a level.
_STAMP_WITHIN = 160

_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

_PREFIX = re.compile(
    r"""\s*(?:
      \[(?P<role>[A-Za-z_]{2,16})(?P<local>\d{1,6})\]:\s?                 # torchrun --tee: [default0]: [rank0]:
    | \[pod/(?P<pod>[^/\]]{1,253})(?:/[^\]]{1,253})?\]\s?                # kubectl logs --prefix
    | \[\d{1,4},(?P<mpi>\d{1,6})\]<std(?:out|err)>:?\s?                  # mpirun --tag-output
    | \((?:\w{1,64}\s)?pid=\d{1,10}(?:,\sip=(?P<ray>[\w.:-]{1,64}))?\)\s # Ray
    | (?P<task>\d{1,6}):\s(?=\s*\S)                                      # srun --label
    | (?P<ip>\d{1,3}(?:\.\d{1,3}){3}):\s                                 # pdsh
    | (?P<host>[A-Za-z][\w.-]{0,252}):\s                                 # pdsh, deepspeed
    | (?P<service>[A-Za-z][\w.-]{0,252}-\d{1,6})\s{1,8}\|\s              # docker compose
    | \d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d)\s(?:std(?:out|err)\s[FP]\s)?  # container runtime
    | >\s?                                                               # quoted in a ticket
    )""",
    re.VERBOSE,
)

# Words before ": " that are no hosts although they hold a digit or a dash.
_NO_HOST = re.compile(r"(?i)(?:epoch|step|iter|iteration|rank|loss|nccl|time|date|v\d|e-?\d)[\w.-]*$")

_STAMP = re.compile(
    r"(?<![\d.])(?P<year>[12]\d{3})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?\s?(?P<zone>Z\b|UTC\b|[+-]\d\d:?\d\d\b)?"
)


@dataclass(slots=True)
class Line:
    """A line of a log. `text` has no prefix of a launcher, no colours and no control characters."""

    number: int
    text: str
    host: str | None = None
    """The machine as pdsh, deepspeed or Ray name it."""
    pod: str | None = None
    who: str | None = None
    """The rank as the launcher names it: "rank 3", "local rank 3", "task 3"."""
    whole: str = ""
    """With prefixes, for its time stamp."""

    @property
    def source(self) -> tuple[str | None, str | None, str | None]:
        """Who printed it: lines of different sources belong to different processes."""
        return self.host, self.pod, self.who

    def stamp(self) -> tuple[float, bool]:
        """Seconds since 1970 UTC (NaN: no time stamp) and whether the line says its zone."""
        return time_of(self.whole)


def line_of(number: int, raw: bytes) -> Line:
    """The line, decoded and taken apart; never raises."""
    text = raw[:MAX_LINE_BYTES].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = _CONTROL.sub("", text)
    line = Line(number=number, text=text, whole=text)
    _take_prefixes(line)
    return line


def _take_prefixes(line: Line) -> None:
    text = line.text
    for _ in range(_MAX_PREFIXES):
        match = _PREFIX.match(text)
        if match is None:
            break
        kind = match.lastgroup
        if kind == "local":
            name = "rank" if match["role"].lower() == "rank" else "local rank"
            line.who = f"{name} {int(match['local'])}"
        elif kind == "mpi":
            line.who = f"rank {int(match['mpi'])}"
        elif kind == "task":
            line.who = f"task {int(match['task'])}"
        elif kind == "host":
            if not _is_host(match["host"]):
                break
            line.host = match["host"]
        elif kind in ("ip", "ray"):
            line.host = match[kind]
        elif kind in ("pod", "service"):
            line.pod = match[kind]
        text = text[match.end() :]
    line.text = text


def _is_host(word: str) -> bool:
    if word == "localhost":
        return True
    return (any(character.isdigit() for character in word) or "-" in word) and not _NO_HOST.match(word)


def rank_in(who: str | None) -> int | None:
    """3 for "rank 3", "local rank 3" or "task 3"."""
    return int(who.rsplit(" ", 1)[1]) if who else None


def time_of(text: str) -> tuple[float, bool]:
    """Seconds since 1970 UTC of the first time stamp in a line, NaN when there is none, and whether it says its zone."""
    match = _STAMP.search(text, 0, _STAMP_WITHIN)
    if match is None:
        return NAN, False
    days = _day(int(match["year"]), int(match["month"]), int(match["day"]))
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if days is None or hour > 23 or minute > 59 or second > 60:
        return NAN, False
    seconds = float(days + hour * 3600 + minute * 60 + second)
    if match["fraction"]:
        seconds += float("0." + match["fraction"])
    zone = match["zone"]
    if zone and zone[0] in "+-":
        away = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= away if zone[0] == "+" else -away
    return seconds, zone is not None


@lru_cache(maxsize=64)
def _day(year: int, month: int, day: int) -> int | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return timegm((year, month, day, 0, 0, 0))


def number(text: str) -> float:
    """A number as tools print it ("1,234.5", "1.2e+03", "nan"); NaN when it is none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return NAN


def clock_seconds(text: str) -> float:
    """Seconds of "35", "01:35", "1:01:35" or "1 day, 1:01:35"; NaN when it is none of them."""
    match = re.fullmatch(
        r"(?:(\d{1,5}) days?, )?(?:(\d{1,6}):)?(?:(\d{1,2}):)?(\d{1,7})(?:\.\d+)?", text.strip()
    )
    if match is None:
        return NAN
    days, first, second, last = (int(part) if part else 0 for part in match.groups())
    # "01:35" has one colon: the first number counts minutes.
    hours, minutes = (first, second) if match[3] is not None else (0, first)
    return float(days * 86_400 + hours * 3600 + minutes * 60 + last)
