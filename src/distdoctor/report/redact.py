"""`--redact`: hosts, addresses, users, UUIDs and serials replaced by keyed pseudonyms, the same everywhere.

Names are known from the fields that hold names and from places in texts that always hold one (`HOSTNAME=`, the
prefix of NCCL's log lines); every other occurrence is then found by word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from distdoctor.report.addresses import is_ip, replace_addresses
from distdoctor.report.host_words import is_distinctive
from distdoctor.report.model import (
    CheckResult,
    Culprit,
    Fact,
    Finding,
    GpuRef,
    Redaction,
    Report,
    Series,
    Skipped,
    Subject,
    Table,
    Tool,
    Verdict,
)
from distdoctor.report.pseudonyms import Pseudonyms, host_identities, is_pseudonym, key_id, short_name
from distdoctor.report.seal import seal
from distdoctor.report.word_set import word_set

_HOST_FIELDS = frozenset(("host", "hosts", "missing_hosts"))
_HOST_NAMES = word_set("host hosts hostname hostnames node nodename nodes fqdn head master peer")
_USER_NAMES = word_set("user username owner login logname submitter")
_VERSION_NAMES = re.compile(
    r"version|driver|firmware|cudnn|cublas|nccl|cuda|torch|python|kernel|package|pip|release|vbios|bios"
)
# Ids and classes are words of ours: they name nobody, and a reader looks them up.
_OUR_WORDS = frozenset(
    (
        (Finding, "id"),
        (Finding, "fingerprint"),
        (Finding, "cause_class"),
        (CheckResult, "id"),
        (CheckResult, "title"),
        (Skipped, "id"),
        (Skipped, "what"),
        (Verdict, "cause_class"),
    )
)
_LOCAL = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "unknown", "-", ""))
_SYSTEM_USERS = word_set("root nobody daemon nvidia-persistenced munge slurm")

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.\-]*[A-Za-z0-9])?"
_HOST_CONTEXTS = (
    re.compile(
        r"(?i)\b(?:HOSTNAME|MASTER_ADDR|\w*NODE_?NAME|SLURM_\w*(?:HOST|NODE)|BatchHost)"
        rf"[\"']?\s*[:=]\s*[\"']?(?P<name>{_NAME})"
    ),
    # Plain words stand in prose as well ("host: too low"); there a digit or a hyphen makes a name of what follows.
    re.compile(rf"(?i)\b(?:host|node)[\"']?\s*[:=]\s*[\"']?(?P<name>(?=\S*\d)(?=\S*[a-z]){_NAME})"),
    re.compile(rf"(?:^|\s|⏎)(?:\[[^\]\s]*\]:?)?(?P<name>{_NAME}):\d+:\d+ \[\d+\] "),
    re.compile(rf"\b[A-Z][a-z]{{2}} +\d+ \d\d:\d\d:\d\d (?P<name>{_NAME}) [\w.\-/]+(?:\[\d+\])?:"),
    re.compile(rf"\d{{4}}-\d\d-\d\dT[\d:.,+\-Z]+ (?P<name>{_NAME}) [\w.\-/]+(?:\[\d+\])?:"),
    re.compile(
        rf"(?:\bsrun [^\n]*?-w |--nodelist[= ]|\bssh |\bkubectl (?:drain|cordon|uncordon) )(?P<name>(?=\S*[\d.\-]){_NAME})"
    ),
)
_USER_CONTEXTS = (
    re.compile(
        r"(?i)\b(?:(?:SLURM_JOB_|SUDO_)?USER|LOGNAME|USERNAME|UserId|submitted by)"
        r"[\"']?\s*[:=]\s*[\"']?(?P<name>[A-Za-z_][\w.\-]*[A-Za-z0-9])"
    ),
    re.compile(
        r"(?i)\b(?:owner|user(?:name)?)[\"']?\s*(?:=|:(?=[\"'\s]*[\"']))\s*[\"']?(?P<name>[a-z_][\w.\-]*[a-z0-9])"
    ),
    re.compile(r"\b(?:uid|gid)=\d+\((?P<name>[A-Za-z_][\w.\-]*)\)"),
    re.compile(r"(?<![\w.\-])(?P<name>[a-z_][a-z0-9_\-]*)@[A-Za-z][\w.\-]*:[~/]"),
)
# Around a host whose name is a common word: here it is the host.
_BEFORE_HOST = re.compile(
    r"(?i)(?:\bhosts? |\bhost(?:name)?\s*[:=]\s*|NodeName=|MASTER_ADDR=|-w |--nodelist[= ]|@|\bssh )$"
)
_AFTER_HOST = re.compile(r":\d+:\d+ \[\d+\] | kernel: ")

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.\-]*[A-Za-z0-9])?")
_PARTS = re.compile(r"[._\-]")
_BRACKETED = re.compile(
    r"(?P<head>[A-Za-z][\w.\-]*?)\[(?P<ranges>\d{1,9}(?:[,\-]\d{1,9})*)\](?P<tail>[\w.\-]*)"
)
_NODELIST_BEFORE = re.compile(r"(?i)(?:node_?list|nodes?|hosts?|-w)[\"']?[\s:=]*[\"']?$")
# A suffix that makes a short name a fully qualified one, and not a file name.
_DOMAIN = re.compile(
    r"(?i)(?:\.[a-z][a-z0-9\-]*)*\.(?:com|net|org|edu|gov|mil|int|io|ai|cloud|dev|local|internal|lan|corp|intra|svc|hpc|"
    r"cluster|localdomain|(?!py|sh|so|md|gz|js|ts|rs|cc|go|pl|pt|h5|rc|bz|xz|ps)[a-z]{2})(?![\w.])"
)
_MAX_EXPANDED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """A report without names, and what its pseudonyms stood for (to be kept at home)."""

    report: Report
    originals: dict[str, str]


def redact(report: Report, key: bytes) -> Redacted:
    """`report`, sealed, with names replaced by pseudonyms under `key`. Equal keys give equal pseudonyms.

    A report that was redacted before keeps the pseudonyms that it has.
    """
    sealed = seal(report)
    redactor = _Redactor(sealed, key)
    redacted = replace(
        redactor.walk(sealed, Report, ""),
        redaction=Redaction(
            secrets_masked=sealed.redaction.secrets_masked, pseudonyms=True, key_id=key_id(key)
        ),
    )
    return Redacted(report=redacted, originals=dict(sorted(redactor.pseudonyms.originals.items())))


def redacted_host(host: str, key: bytes) -> str:
    """The pseudonym of one host, for a file name that is chosen before there is a report."""
    identity = host.lower() if is_ip(host) else short_name(host).lower()
    return Pseudonyms(key).give("ip" if is_ip(host) else "host", identity, spelling=host)


class _Redactor:
    """Knows the names of one report and replaces them."""

    def __init__(self, report: Report, key: bytes) -> None:
        self.pseudonyms = Pseudonyms(key)
        texts = [each for each in _strings(report, Report, "") if each[1:] not in _OUR_WORDS]
        named = {text for text, owner, field in texts if field in _HOST_FIELDS and owner is not Fact}
        named |= {text for text, owner, field in texts if field == "hosts" and owner is Fact}
        named |= set(_named_cells(report, _HOST_NAMES))
        learnt = {
            match["name"]
            for text, _, _ in texts
            for context in _HOST_CONTEXTS
            for match in context.finditer(text)
            if is_distinctive(match["name"]) and any(char.isalpha() for char in match["name"])
        }
        known = {
            name
            for name in named | learnt
            if name.lower() not in _LOCAL and not is_ip(name) and not is_pseudonym(name)
        }
        self._hosts = host_identities(known)
        self._domains = {name.partition(".")[2] for name in self._hosts if "." in name}
        self._exact = {name.lower() for name in known}
        users = {
            match["name"]
            for text, _, _ in texts
            for context in _USER_CONTEXTS
            for match in context.finditer(text)
        }
        users |= set(_named_cells(report, _USER_NAMES))
        self._users = {
            name
            for name in users
            if name not in _SYSTEM_USERS and is_distinctive(name) and not is_pseudonym(name)
        }
        self._texts: dict[tuple[str, bool], str] = {}
        self._words: dict[str, str | None] = {}

    # --- structure ---

    def walk(self, value: Any, owner: type, field: str) -> Any:
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self._string(value, owner, field)
        if isinstance(value, tuple):
            return tuple(self.walk(each, owner, field) for each in value)
        if isinstance(value, Fact):
            return self._fact(value)
        if isinstance(value, Table):
            return self._table(value)
        if isinstance(value, Series):
            return self._series(value)
        if isinstance(value, Struct):
            cls = type(value)
            return replace(
                value,
                **{name: self.walk(getattr(value, name), cls, name) for name in value.__struct_fields__},
            )
        return value

    def _string(self, text: str, owner: type, field: str) -> str:
        if (owner, field) in _OUR_WORDS:
            return text
        if field in _HOST_FIELDS and owner is not Report:
            return self.host(text)
        if owner is Culprit and field == "pod":
            return self._give("pod", text.lower(), text)
        if owner is GpuRef and field == "uuid":
            replaced = self.text(text)
            return (
                replaced
                if replaced != text or is_pseudonym(text)
                else self._give("gpu-uuid", text.lower(), text)
            )
        is_version = owner is Tool or (owner is Subject and field in {"torch", "nccl", "cuda", "driver"})
        return self.text(text, is_version=is_version)

    def _fact(self, fact: Fact) -> Fact:
        value = fact.value
        if isinstance(value, str):
            value = self._named_value(fact.key.rpartition(".")[2].lower(), value, fact.key)
        return replace(
            fact,
            key=self.text(fact.key),
            value=value,
            source=self._optional(fact.source),
            why=self._optional(fact.why),
            hosts=tuple(self.host(host) for host in fact.hosts),
        )

    def _named_value(self, name: str, value: str, context: str) -> str:
        words = re.split(r"[^a-z0-9]+", name)
        if _HOST_NAMES.intersection(words) and _WORD.fullmatch(value):
            return self.host(value)
        if _USER_NAMES.intersection(words) and value not in _SYSTEM_USERS and _WORD.fullmatch(value):
            return self._give("user", value, value)
        if "serial" in words and value:
            return self._give("serial", value, value)
        return self.text(value, is_version=bool(_VERSION_NAMES.search(context.lower())))

    def _table(self, table: Table) -> Table:
        names = [column.name.lower() for column in table.columns]
        rows = tuple(
            tuple(
                self._named_value(name, cell, f"{row[0]} {name}") if isinstance(cell, str) else cell
                for name, cell in zip((*names, *[""] * len(row)), row, strict=False)
            )
            for row in table.rows
        )
        return replace(
            table,
            name=self.text(table.name),
            title=self.text(table.title),
            columns=tuple(replace(column, name=self.text(column.name)) for column in table.columns),
            rows=rows,
            note=self._optional(table.note),
        )

    def _series(self, series: Series) -> Series:
        def label(text: str) -> str:
            return self.host(text) if text.lower() in self._exact else self.text(text)

        return replace(
            series,
            name=self.text(series.name),
            title=self.text(series.title),
            x_label=self.text(series.x_label),
            y_label=self.text(series.y_label),
            x=tuple(label(each) if isinstance(each, str) else each for each in series.x),
            names=tuple(label(each) for each in series.names),
            limit_label=self.text(series.limit_label),
            marks=tuple((index, self.text(words)) for index, words in series.marks),
        )

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    # --- words ---

    def host(self, name: str) -> str:
        """The pseudonym of a whole field that holds a host name."""
        if name.lower() in _LOCAL or is_pseudonym(name):
            return name
        if is_ip(name):
            return replace_addresses(name, self._give)
        identity = self._hosts.get(name.lower().rstrip("."), short_name(name).lower())
        return self._give("host", identity, name)

    def text(self, text: str, *, is_version: bool = False) -> str:
        """`text` with every known name and every address replaced."""
        key = (text, is_version)
        done = self._texts.get(key)
        if done is None:
            done = _BRACKETED.sub(self._bracketed, text)
            done = replace_addresses(done, self._give, is_version=is_version)
            done = self._texts[key] = self._replace_words(done)
        return done

    def _give(self, kind: str, identity: str, spelling: str) -> str:
        if is_pseudonym(spelling):
            return spelling
        return self.pseudonyms.give(kind, identity, spelling=spelling)

    def _bracketed(self, match: re.Match[str]) -> str:
        numbers = _expand(match["ranges"])
        names = [f"{match['head']}{number}{match['tail']}" for number in numbers]
        is_nodelist = _NODELIST_BEFORE.search(match.string[max(0, match.start() - 24) : match.start()])
        if not names or not (
            is_nodelist or any(name.lower() in self._exact for name in (names[0], names[-1]))
        ):
            return match[0]
        given = [self.host(name) for name in names]
        return ",".join(given) if len(given) <= 4 else f"{given[0]},… ({len(given)} hosts)"

    def _replace_words(self, text: str) -> str:
        parts: list[str] = []
        done = 0
        for match in _WORD.finditer(text):
            start, end = match.span()
            if start < done:
                continue
            replaced = self._word(match[0])
            if replaced is None:
                replaced = self._common_word(match)
            if replaced is None:
                continue
            parts += (text[done:start], replaced)
            done = end
        return "".join((*parts, text[done:])) if parts else text

    def _word(self, word: str) -> str | None:
        if word not in self._words:
            self._words[word] = self._new_word(word)
        return self._words[word]

    def _new_word(self, word: str) -> str | None:
        """`word` with the host or user in it replaced, the longest name first; None when there is none."""
        if is_pseudonym(word):
            return None
        cuts = [0, *(match.end() for match in _PARTS.finditer(word)), len(word) + 1]
        spans = [(a, b - 1) for i, a in enumerate(cuts) for b in cuts[i + 1 :]]
        for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
            replaced = self._name(word[start:end])
            if replaced is None:
                continue
            domain = _DOMAIN.match(word, end)
            rest = word[domain.end() if domain else end :]
            before = word[:start]
            return (self._new_word(before) or before) + replaced + (self._new_word(rest) or rest)
        return None

    def _name(self, name: str) -> str | None:
        lower = name.lower()
        if (
            lower in self._hosts
            and is_distinctive(name)
            and (name == lower or not lower.isalpha() or name in self._exact)
        ):
            return self._give("host", self._hosts[lower], name)
        if name in self._users:
            return self._give("user", name, name)
        if lower in self._domains:
            return self._give("domain", lower, name)
        return None

    def _common_word(self, match: re.Match[str]) -> str | None:
        lower = match[0].lower()
        if lower not in self._hosts:
            return None
        before = match.string[max(0, match.start() - 24) : match.start()]
        is_host = _BEFORE_HOST.search(before) or _AFTER_HOST.match(match.string, match.end())
        return self._give("host", self._hosts[lower], match[0]) if is_host else None


def _expand(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not last:
            numbers.append(first)
        elif int(last) - int(first) + len(numbers) <= _MAX_EXPANDED:
            numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def _strings(value: Any, owner: type, field: str) -> Iterator[tuple[str, type, str]]:
    if isinstance(value, str):
        if not isinstance(value, Enum):
            yield value, owner, field
    elif isinstance(value, tuple):
        for each in value:
            yield from _strings(each, owner, field)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _strings(getattr(value, name), type(value), name)


def _named_cells(report: Report, names: frozenset[str]) -> Iterator[str]:
    """Values of facts and cells of tables whose name says that they hold such a name."""

    def is_named(name: str) -> bool:
        return bool(names.intersection(re.split(r"[^a-z0-9]+", name.lower())))

    for fact in report.facts:
        if (
            isinstance(fact.value, str)
            and is_named(fact.key.rpartition(".")[2])
            and _WORD.fullmatch(fact.value)
        ):
            yield fact.value
    for table in report.tables:
        indexes = [index for index, column in enumerate(table.columns) if is_named(column.name)]
        for row in table.rows:
            for index in indexes:
                cell = row[index] if index < len(row) else None
                if isinstance(cell, str) and _WORD.fullmatch(cell):
                    yield cell
