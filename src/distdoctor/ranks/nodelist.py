"""Which hosts did the scheduler give the job? Node lists of Slurm, LSF and PBS, expanded. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# Larger than any cluster we know of; a list beyond it is a mistake or an attack. Our own bound.
MAX_NODES = 65_536

# A node list of 65,536 plain names of 63 characters. Our own bound.
MAX_TEXT_CHARS = 4 << 20

# Names with more than two or three brackets are not seen in practice. Our own bound.
MAX_BRACKETS = 10

_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,253}")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand_node_list(text: str) -> tuple[str, ...]:
    """Host names of a Slurm host list, in its order, each once: `gpu[1-2]x[01-02]-ib,login` gives five.

    Several brackets in one name multiply, the last one turning fastest; the width of a range's first number
    is kept (`[008-010]` gives 008, 009, 010), as `scontrol show hostnames` does.

    Raises ValueError when the text is malformed or names more than 65,536 hosts.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise ValueError("the node list is longer than 4 MiB")
    hosts: dict[str, None] = {}
    num_names = 0  # counted with repetitions: `[1,1,1]x[1,1,1]` must end, too
    for entry in _split_outside_brackets(text.strip()):
        if entry.count("[") > MAX_BRACKETS:
            raise ValueError(f"a name in the node list has more than {MAX_BRACKETS} brackets")
        for host in _expand_entry(entry):
            num_names += 1
            if num_names > MAX_NODES:
                raise ValueError(f"the node list names more than {MAX_NODES} hosts")
            hosts[_checked(host)] = None
    return tuple(hosts)


def hosts_of_lsf(hosts: str | None = None, mcpu_hosts: str | None = None) -> tuple[str, ...]:
    """Host names of LSF's variables, each once: `LSB_HOSTS` ("a a b") or `LSB_MCPU_HOSTS` ("a 2 b 1").

    LSF leaves `LSB_HOSTS` out when it grows too long; `LSB_MCPU_HOSTS` is preferred when both are given.
    The first host may be the one that only runs the job script.

    Raises ValueError when a slot count is no number or there are more than 65,536 hosts.
    """
    if mcpu_hosts is not None:
        words = mcpu_hosts.split()
        if len(words) % 2 or not all(count.isdecimal() for count in words[1::2]):
            raise ValueError("LSB_MCPU_HOSTS is not a list of host and slot count")
        return _unique(words[0::2])
    return _unique((hosts or "").split())


def hosts_of_node_file(text: str) -> tuple[str, ...]:
    """Host names of a PBS node file (`PBS_NODEFILE`) or LSF host file: one a line, once per slot.

    Raises ValueError when a line is no host name or there are more than 65,536 hosts.
    """
    return _unique(line.split()[0] for line in text.splitlines() if line.strip())


def same_host(name: str, other: str) -> bool:
    """Whether two names mean the same machine: the short name decides, letter case does not."""
    return short_name(name) == short_name(other)


def short_name(host: str) -> str:
    """Host name without its domain, in lower case; an IPv4 address stays whole."""
    if re.fullmatch(r"[0-9.]+", host):
        return host
    return host.split(".", 1)[0].lower()


def _split_outside_brackets(text: str) -> Iterator[str]:
    """Entries between commas that stand in no bracket. Raises ValueError for brackets that do not pair."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            if position > start:
                yield text[start:position]
            start = position + 1
        if depth not in (0, 1):
            raise ValueError("the node list has brackets that do not pair")
    if depth:
        raise ValueError("the node list has brackets that do not pair")
    if len(text) > start:
        yield text[start:]


def _expand_entry(entry: str) -> Iterator[str]:
    """Names of one entry, lazily, so that a huge product costs no memory before the bound stops it."""
    before, opened, rest = entry.partition("[")
    if not opened:
        yield before
        return
    inside, _, after = rest.partition("]")
    for number in _expand_ranges(inside):
        for tail in _expand_entry(after) if after else ("",):
            yield before + number + tail


def _expand_ranges(inside: str) -> Iterator[str]:
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"`[{inside[:40]}]` is not a list of numbers and ranges")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise ValueError(f"the range `{first}-{last}` runs backwards")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    hosts: dict[str, None] = {}
    for name in names:
        hosts[_checked(name)] = None
        if len(hosts) > MAX_NODES:
            raise ValueError(f"the node list names more than {MAX_NODES} hosts")
    return tuple(hosts)


def _checked(host: str) -> str:
    if _HOST_NAME.fullmatch(host) is None:
        raise ValueError(f"`{host[:40]}` is not a host name")
    return host
