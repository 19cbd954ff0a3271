"""Pasted files become the same facts that a live machine gives, one EnvFacts a host or process.

A file may hold the output of several tools, and of several hosts. Each reader takes from a host's part what it
knows; what belongs to one host is put together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from msgspec.structs import replace as replace_struct

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.members import Member
from distdoctor.env.pci import same_device
from distdoctor.env.readers import (
    collect_env,
    fabric_manager,
    interfaces,
    kernel_lines,
    kernel_log,
    nvidia_smi,
    rdma,
    variables,
)
from distdoctor.env.readers.hosts import HostText, looks_like_host, split_hosts
from distdoctor.env.readers.merge import merge_facts
from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_evidence
from distdoctor.pasted import clean_pasted
from distdoctor.report.model import InputFile

# What a first line shows of a file that nobody knows.
_FIRST_LINE_CHARACTERS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReader:
    """One kind of text: is it in a host's part, and which facts does it give?"""

    kind: str
    sniff: Callable[[str], bool]
    read: Callable[[str, str], EnvFacts]


def _variables(text: str, origin: str) -> EnvFacts:
    facts = variables.read(text, origin)
    scheduler = variables.read_scheduler(facts, origin) if facts is not None else None
    return EnvFacts(origin=origin, variables=facts, scheduler=scheduler)


# One line a kind; earlier ones count where two say the same. A kernel log is read apart: it may name its hosts.
READERS: tuple[TextReader, ...] = (
    TextReader(kind="collect_env", sniff=collect_env.sniff, read=collect_env.read),
    TextReader(
        kind="nvidia-smi",
        sniff=nvidia_smi.sniff,
        read=lambda text, origin: EnvFacts(origin=origin, gpus=nvidia_smi.read(text, origin)),
    ),
    TextReader(
        kind="fabric manager",
        sniff=fabric_manager.sniff,
        read=lambda text, origin: EnvFacts(origin=origin, gpus=fabric_manager.read(text, origin)),
    ),
    TextReader(
        kind="RDMA ports",
        sniff=rdma.sniff,
        read=lambda text, origin: EnvFacts(origin=origin, network=rdma.read(text, origin)),
    ),
    TextReader(
        kind="interfaces",
        sniff=interfaces.sniff,
        read=lambda text, origin: EnvFacts(origin=origin, network=interfaces.read(text, origin)),
    ),
    TextReader(kind="environment variables", sniff=variables.sniff, read=_variables),
)
KERNEL_LOG = "kernel log"

KNOWN_KINDS = (*(reader.kind for reader in READERS), KERNEL_LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one part of one file says about one host."""

    path: str
    host: str | None
    kinds: tuple[str, ...]
    facts: EnvFacts


def facts_from_files(paths: Sequence[str]) -> tuple[list[EnvFacts], list[InputFile]]:
    """Facts of every host or process that the files speak of, and what became of each file.

    `paths`: files, folders, or `-`. Files that nobody knows, or that cannot be read, are named with the reason
    and leave the others alone. Raises InputError when no file can be read at all.
    """
    parts: list[_Part] = []
    inputs: list[InputFile] = []
    for path in find_files(paths):
        found, file = _read_file(path)
        parts += found
        inputs.append(file)
    if not any(file.read for file in inputs):
        file = inputs[0]
        name = _label(file.path) if file.path == STDIN else f"`{file.path}`"
        why = file.why_not or "cannot be read"
        message = f"{name} is {why}" if why.startswith("of no kind") else why
        raise InputError(message, hint=f"known kinds: {', '.join(KNOWN_KINDS)}")
    return _by_host(_named_by_files(parts)), inputs


def facts_from_text(text: str, origin: str) -> list[EnvFacts]:
    """As `facts_from_files`, for one text that was read elsewhere. Empty when nothing in it is known."""
    return _by_host(_parts(clean_pasted(text), origin))


def members_of(facts: Sequence[EnvFacts]) -> list[Member]:
    """The hosts of the evidence as members of one job, to be compared; unnamed ones go by their file."""
    members: list[Member] = []
    for each in facts:
        rank = each.scheduler.rank if each.scheduler is not None else None
        members.append(Member(rank=rank, host=each.host_name or each.origin, facts=each))
    return members


def _read_file(path: str) -> tuple[list[_Part], InputFile]:
    try:
        evidence = read_evidence(path)
    except InputError as error:
        why = error.in_one_line
        return [], InputFile(path=path, kind="unknown", read=False, why_not=why)
    text = clean_pasted(evidence.text)
    parts = _parts(text, path)
    kinds = tuple(dict.fromkeys(kind for part in parts for kind in part.kinds))
    file = evidence.input_file(", ".join(kinds) or "unknown")
    if not kinds:
        why = f"of no kind that is known here; it begins `{_first_line(text)}`"
        file = replace_struct(file, read=False, why_not=why)
    return parts, file


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return line if len(line) <= _FIRST_LINE_CHARACTERS else line[: _FIRST_LINE_CHARACTERS - 1] + "…"


def _label(path: str) -> str:
    return "standard input" if path == STDIN else path


def _parts(text: str, path: str) -> list[_Part]:
    texts = split_hosts(text)
    parts: list[_Part] = []
    for number, host_text in enumerate(texts, start=1):
        label = _label(path)
        origin = label if len(texts) == 1 else f"{label} ({host_text.name or f'part {number}'})"
        part = _read_part(host_text, path, origin)
        if part is not None:
            parts.append(part)
        parts += _read_kernel_log(host_text, path, origin, has_others=part is not None)
    return _with_logs(parts)


def _read_part(host_text: HostText, path: str, origin: str) -> _Part | None:
    facts = EnvFacts(origin=origin, host_name=host_text.name)
    kinds: list[str] = []
    for reader in READERS:
        if reader.sniff(host_text.text):
            facts = merge_facts(facts, reader.read(host_text.text, origin))
            kinds.append(reader.kind)
    if not kinds:
        return None
    return _Part(path=path, host=host_text.name, kinds=tuple(kinds), facts=facts)


def _read_kernel_log(host_text: HostText, path: str, origin: str, *, has_others: bool) -> list[_Part]:
    """The kernel log of each host that it names; beside other tools' output only when it holds an event."""
    text = host_text.text
    if not kernel_log.sniff(text):
        return []
    lines = list(kernel_lines.parse_lines(text, first_line=host_text.first_line))
    hosts = list(dict.fromkeys(line.host for line in lines if line.host and line.tag))
    if len(hosts) <= 1:
        log = kernel_log.read_lines(lines, origin)
        name = host_text.name or (hosts[0] if hosts else None)
        if has_others and not log.events:
            return []
        facts = EnvFacts(origin=origin, host_name=name, kernel_log=log)
        return [_Part(path=path, host=name, kinds=(KERNEL_LOG,), facts=facts)]
    parts = []
    for host in hosts:
        log = kernel_log.read_lines([line for line in lines if line.host == host], origin)
        facts = EnvFacts(origin=f"{_label(path)} ({host})", host_name=host, kernel_log=log)
        parts.append(_Part(path=path, host=host, kinds=(KERNEL_LOG,), facts=facts))
    return parts


def _with_logs(parts: list[_Part]) -> list[_Part]:
    """In a file of one host, the name that its log shows is the name of all of it."""
    names = {part.host for part in parts if part.host}
    dumps = sum("collect_env" in part.kinds for part in parts)
    if len(names) != 1 or dumps > 1:
        return parts
    (name,) = names
    return [replace(part, host=name, facts=replace(part.facts, host_name=name)) for part in parts]


def _named_by_files(parts: list[_Part]) -> list[_Part]:
    """Names for parts that have none, from files or folders that are named alike but for a number or letter."""
    unnamed = [part for part in parts if part.host is None]
    paths = list(dict.fromkeys(part.path for part in parts))
    if not unnamed or len(paths) < 2:
        return parts
    names = _host_names([PurePath(path).name.split(".")[0] for path in paths])
    if not names:
        names = _host_names([PurePath(path).parent.name for path in paths])
    if not names:
        return parts
    by_path = dict(zip(paths, names, strict=True))
    once = {path for path in paths if sum(part.path == path and part.host is None for part in parts) == 1}
    return [
        replace(part, host=by_path[part.path], facts=replace(part.facts, host_name=by_path[part.path]))
        if part.host is None and part.path in once
        else part
        for part in parts
    ]


def _host_names(names: list[str]) -> list[str]:
    """`names` when all read as hosts of one naming scheme ("node-a", "node-b"; "gpu01", "gpu02"); else empty."""
    if not all(looks_like_host(name) for name in names) or len(set(names)) < 2:
        return []
    schemes = {re.sub(r"\d+|(?<=[-.])[a-z]$", "#", name.lower()) for name in names}
    return names if len(schemes) == 1 else []


def _by_host(parts: list[_Part]) -> list[EnvFacts]:
    """Parts of one host put together: by its name, within a file, or because the files complement each other."""
    groups: dict[tuple[str, str], list[_Part]] = {}
    for number, part in enumerate(parts):
        if part.host is not None and "collect_env" not in part.kinds:
            key = ("host", part.host)
        elif part.host is not None:
            # Two dumps of one host are two processes.
            taken = any("collect_env" in other.kinds for other in groups.get(("host", part.host), ()))
            key = ("process", str(number)) if taken else ("host", part.host)
        else:
            key = ("part", part.facts.origin)
        groups.setdefault(key, []).append(part)
    gathered = list(groups.values())
    if len(gathered) > 1 and _complement_each_other(gathered):
        gathered = [[part for group in gathered for part in group]]
    return [_join(group) for group in gathered]


def _complement_each_other(groups: list[list[_Part]]) -> bool:
    """True for files of one host that do not say so: each kind once, at most one host's name, nothing that differs.

    Two dumps, two tables or two logs may be of two hosts and are never joined.
    """
    names = {part.host for group in groups for part in group if part.host}
    paths = [{part.path for part in group} for group in groups]
    if len(names) > 1 or any(len(path) > 1 for path in paths) or len(set().union(*paths)) < len(groups):
        return False
    kinds = [
        kind for group in groups for kind in dict.fromkeys(kind for part in group for kind in part.kinds)
    ]
    if len(set(kinds)) < len(kinds):
        return False
    return all(
        _compatible(first.facts, second.facts)
        for number, group in enumerate(groups)
        for first in group
        for other in groups[number + 1 :]
        for second in other
    )


def _compatible(first: EnvFacts, second: EnvFacts) -> bool:
    """False when drivers differ, or when both name GPUs by address and share none."""
    ours, theirs = first.gpus, second.gpus
    if ours is None or theirs is None:
        return True
    if ours.driver_version and theirs.driver_version and ours.driver_version != theirs.driver_version:
        return False
    mine = [device.pci for device in ours.devices or () if device.pci]
    yours = [device.pci for device in theirs.devices or () if device.pci]
    return not (mine and yours) or any(same_device(a, b) for a in mine for b in yours)


def _join(parts: list[_Part]) -> EnvFacts:
    facts = parts[0].facts
    for part in parts[1:]:
        facts = merge_facts(facts, part.facts)
    origins = list(dict.fromkeys(part.facts.origin for part in parts))
    name = next((part.host for part in parts if part.host), None)
    return replace(facts, origin=", ".join(origins[:4]), host_name=name)
