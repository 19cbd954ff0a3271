"""Which host does each part of a pasted text speak of? Headings, prompts, and the prefixes of pdsh and srun.

A text without any such mark is one part without a name: a host's name is never guessed from prose.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass

# A part is begun by each heading; no real paste has more. Our own cap.
MAX_PARTS = 2000

# pdsh, clush, ansible and `srun -l` put "name: " before every line; this share of lines must have it.
MIN_PREFIX_SHARE = 0.9

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?"
_DECORATED = re.compile(
    r"^\s*(?:#{1,6}|={2,}|-{2,}|\*{2,}|>{2,}|<{2,}|%{2,}|/{2,}|\[)\s*(?P<text>[^#=*<>\[\]|]{1,80}?)"
    r"\s*[:#=*<>\]%/-]*\s*$"
)
_TAIL_HEADING = re.compile(r"^==> (?P<path>\S+) <==$")
_NAMED = re.compile(
    rf"^\s*(?:on\s+)?(?:host(?:name)?|node(?:name)?|server|machine|worker|rank|master|head|instance|pod)\s*"
    rf"(?:[:=#]|\b)[ \t]*(?P<name>{_HOST})?(?:\s*\([^()]*\))?\s*:?\s*$",
    re.IGNORECASE,
)
_LABELLED = re.compile(
    rf"^\s*(?:host|node|server|machine)(?:[ _]?name)?\s*[:=]\s*(?P<name>{_HOST})\s*$", re.IGNORECASE
)
_RULE = re.compile(r"^-{8,}$")
_PREFIXED = re.compile(rf"^(?P<name>{_HOST}):(?: (?P<rest>.*)|)$")
_PROMPT = re.compile(
    rf"^(?:\([\w.-]+\) ?)?\[?[a-z_][\w.-]*@(?P<name>{_HOST})[: ][^#$|]{{0,80}}[#$] ?(?P<command>.*)$"
)
_DUMP = re.compile(r"^[\s|*-]*(?:Collecting environment information\.\.\.|System Info$|PyTorch version\s*:)")
_WARNING = re.compile(r"Warning|warnings\.warn|CUDA capabilit", re.IGNORECASE)
_SMI_TABLE = re.compile(r"^\s*\|\s*NVIDIA-SMI\s+\S+\s+(?:Driver|KMD) Version:")
_TIME_LINE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
# Words with a digit or hyphen that head a paste and are no host.
_NO_HOST = re.compile(
    r"nvidia|cuda|torch|nccl|dmesg|journal|ibstat|topo|smi|driver|python|ubuntu|debian|rhel|centos|version|"
    r"environ|h100|h200|a100|b200|b300|gb200|gb300|v100|mi\d{3}|rtx|l40|^step|^test|^case|^run|^part|^option|^gpu$|"
    r"^rank$|^gpus$|\.log$|\.txt$|\.out$|\.err$|^before|^after|^pre-|^post-|^v?\d|^ib\b|^self|^re-|^non-|^multi",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostText:
    """A part of a text that speaks of one host (or of one process on it)."""

    name: str | None
    text: str
    first_line: int = 1
    """Number of its first line in the file."""


def split_hosts(text: str) -> list[HostText]:
    """`text` cut where it begins to speak of another host, in order; blank parts are dropped.

    A second collect_env dump, and a second nvidia-smi table that is no later look at the same GPUs, begin a new
    part even without a heading: two tables of twin hosts must not be merged into one.
    """
    prefixed = _by_prefix(text)
    if prefixed is not None:
        return prefixed
    lines = text.split("\n")
    parts: list[HostText] = []
    for start, end, name in _spans(lines):
        for first, last in _repeats(lines[start:end]):
            body = "\n".join(lines[start + first : start + last])
            # Whether its last line is whole matters to readers: only the file's own end may be torn.
            body += "\n" if start + last < len(lines) else ""
            if body.strip():
                parts.append(HostText(name=name, text=body, first_line=start + first + 1))
    return parts[:MAX_PARTS] or [HostText(name=None, text=text)]


def looks_like_host(text: str) -> bool:
    """True for one token that reads as a host name: letters with a digit, hyphen or dot, no tool or GPU name."""
    if not re.fullmatch(_HOST, text) or _NO_HOST.search(text):
        return False
    return bool(re.search(r"[A-Za-z]", text) and re.search(r"[\d.-]", text))


def prompt_host(line: str) -> str | None:
    """The host in a shell prompt: `root@node-a:~# nvidia-smi`."""
    match = _PROMPT.match(line)
    return match["name"] if match else None


def _spans(lines: list[str]) -> list[tuple[int, int, str | None]]:
    """(first line, end, host) for each stretch between host marks."""
    marks: list[tuple[int, str | None]] = [(0, None)]
    for index, line in enumerate(lines):
        name = _heading(lines, index)
        if name is None and "@" in line:
            name = prompt_host(line)
        if name is not None and name != marks[-1][1]:
            marks.append((index, name))
    ends = [start for start, _ in marks[1:]] + [len(lines)]
    spans = [(start, end, name) for (start, name), end in zip(marks, ends, strict=True)]
    # What stands before the only mark belongs to the same host when it is a prompt's or heading's preface.
    if len(spans) == 2 and not _speaks(lines[spans[0][0] : spans[0][1]]):
        return [(0, len(lines), spans[1][2])]
    return spans


def _speaks(lines: list[str]) -> bool:
    return any(_DUMP.match(line) or _SMI_TABLE.match(line) or "NVRM" in line for line in lines)


def _heading(lines: list[str], index: int) -> str | None:
    line = lines[index]
    if not line or len(line) > 120:
        return None
    tail = _TAIL_HEADING.match(line)
    if tail:
        pieces = re.split(r"[/\\]", tail["path"])
        names = [piece.removesuffix(".txt").removesuffix(".log").removesuffix(".out") for piece in pieces]
        return next((name for name in reversed(names) if looks_like_host(name)), tail["path"])
    # clush -b and dshbak put the name between two rules.
    if 0 < index < len(lines) - 1 and _RULE.match(lines[index - 1]) and _RULE.match(lines[index + 1]):
        return line.strip() if re.fullmatch(rf"{_HOST}(?:[,\[\]\w.-]*)", line.strip()) else None
    decorated = _DECORATED.match(line)
    if decorated:
        return _name_in(decorated["text"].strip(" *`_"))
    labelled = _LABELLED.match(line)
    if labelled and looks_like_host(labelled["name"]):
        return labelled["name"]
    named = _NAMED.match(line)
    if named and (line.rstrip().endswith(":") or line.lower().lstrip().startswith("hostname")):
        return _name_in(line.strip().rstrip(":"))
    return None


def _name_in(text: str) -> str | None:
    """The host that a heading's text names: `node-a`, `Node 1 (10.0.0.1)`, `host: dgx-03`."""
    if looks_like_host(text):
        return text
    named = _NAMED.match(text)
    if not named:
        return None
    name = named["name"]
    if name is None or len(name) == 1 or name.isdigit():
        return re.sub(r"[\s:=#]+", " ", text.split("(", maxsplit=1)[0]).strip().lower()
    return None if _NO_HOST.search(name) and not name[0].isdigit() else name


def _by_prefix(text: str) -> list[HostText] | None:
    """Lines of `name: text`, as pdsh, clush and `srun -l` print, regrouped by name; None when it is not so."""
    grouped: dict[str, list[str]] = {}
    seen = 0
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 4:
        return None
    for line in lines:
        match = _PREFIXED.match(line)
        if match and (match["name"].isdigit() or looks_like_host(match["name"])):
            grouped.setdefault(match["name"], []).append(match["rest"] or "")
            seen += 1
    if seen < MIN_PREFIX_SHARE * len(lines) or seen < 4 * len(grouped):
        return None
    return [
        HostText(name=f"task {name}" if name.isdigit() else name, text="\n".join(body))
        for name, body in list(grouped.items())[:MAX_PARTS]
    ]


def _repeats(lines: list[str]) -> list[tuple[int, int]]:
    """Stretches of one host's lines with at most one collect_env dump and one state of its GPUs each."""
    dumps = _dump_starts(lines)
    if len(dumps) > 1:
        cuts = [0, *dumps[1:], len(lines)]
        return list(itertools.pairwise(cuts))
    tables = [index for index, line in enumerate(lines) if _SMI_TABLE.match(line)]
    if len(tables) < 2:
        return [(0, len(lines))]
    starts = [_table_start(lines, index) for index in tables]
    if _is_watch_loop(lines, starts):
        return [(0, len(lines))]
    cuts = [0, *starts[1:], len(lines)]
    return list(itertools.pairwise(cuts))


def _dump_starts(lines: list[str]) -> list[int]:
    """First line of each dump; its own "Collecting …" and "PyTorch version" count once."""
    starts: list[int] = []
    open_header = False
    for number, line in enumerate(lines):
        index = number
        if not _DUMP.match(line):
            continue
        if "PyTorch version" in line and open_header:
            open_header = False
            continue
        if "System Info" in line and open_header:
            continue
        open_header = "PyTorch version" not in line
        while not open_header and index > 0 and _WARNING.search(lines[index - 1]):
            index -= 1
        starts.append(index)
    return starts


def _table_start(lines: list[str], index: int) -> int:
    """The line above the header's rule when it holds the time, else the rule itself."""
    start = index
    if start > 0 and lines[start - 1].lstrip().startswith("+-"):
        start -= 1
    if start > 0 and _TIME_LINE.match(lines[start - 1].lstrip()):
        start -= 1
    return start


def _is_watch_loop(lines: list[str], starts: list[int]) -> bool:
    """True for the output of `nvidia-smi -l`: each table has its own time, later than the one before it."""
    times = [lines[start].strip() for start in starts]
    if not all(_TIME_LINE.match(time) for time in times) or len(set(times)) < len(times):
        return False
    same_day = Counter(time[:10] for time in times)
    return len(same_day) <= 2 and [time[11:19] for time in times] == sorted(time[11:19] for time in times)
