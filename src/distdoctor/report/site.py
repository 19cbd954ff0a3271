"""What a site has accepted or expects: ignored findings in the open, expected values, runbooks, owners."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from distdoctor.errors import UsageError
from distdoctor.evidence import read_bounded
from distdoctor.report.model import Action, Finding, Ignored, Team

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = Path("/etc/distdoctor.toml")
VARIABLE = "DISTDOCTOR_SITE"

_KNOWN_KEYS = {"ignore", "expect", "runbooks", "owners"}
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRule:
    """Findings of one id (or fingerprint, or a glob of either) that do not count, on some hosts, until a day."""

    id: str
    hosts: tuple[str, ...] = ()
    """Globs; empty is every host. A finding is ignored only if all its hosts match."""
    reason: str | None = None
    expires: date | None = None
    by: str = "--ignore"

    def matches(self, finding: Finding, today: date) -> bool:
        """True when the rule is in force today and covers this finding wholly."""
        if self.expires is not None and today > self.expires:
            return False
        if not (fnmatchcase(finding.id, self.id) or fnmatchcase(finding.fingerprint, self.id)):
            return False
        if not self.hosts:
            return True
        named = finding.scope.hosts
        return bool(named) and all(any(fnmatchcase(host, glob) for glob in self.hosts) for host in named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A site file's contents."""

    path: str | None = None
    ignores: tuple[IgnoreRule, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)
    runbooks: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)


def load_site(path: Path | None, environ: Mapping[str, str]) -> Site:
    """The site file: `path`, else $DISTDOCTOR_SITE, else /etc/distdoctor.toml when it is there.

    Raises UsageError when a named file is missing or any file is malformed: a silent typo in an ignore
    list would silence nothing, or too much.
    """
    named = path or (Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)
    source = named or DEFAULT_PATH
    try:
        data = read_bounded(source, _MAX_BYTES)
    except OSError as error:
        if named is None:
            return Site()
        raise UsageError(f"cannot read site file `{source}`: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise UsageError(f"site file `{source}` is larger than 1 MiB")
    try:
        content = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"site file `{source}` is not valid TOML: {error}") from error
    return parse_site(content, str(source))


def parse_site(content: Mapping[str, Any], path: str) -> Site:
    """A site file's contents, checked. Raises UsageError naming the key that is wrong."""
    unknown = sorted(set(content) - _KNOWN_KEYS)
    if unknown:
        raise UsageError(
            f"site file `{path}`: unknown key `{unknown[0]}`", hint=f"known: {sorted(_KNOWN_KEYS)}"
        )
    rules = content.get("ignore", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise UsageError(f"site file `{path}`: `ignore` must be a list of tables (`[[ignore]]`)")
    return Site(
        path=path,
        ignores=tuple(_rule(rule, path) for rule in rules),
        expect=_strings(content, "expect", path),
        runbooks=_strings(content, "runbooks", path),
        owners=_strings(content, "owners", path),
    )


def apply_site(
    findings: Iterable[Finding], site: Site, *, ignore: Sequence[str] = (), today: date | None = None
) -> tuple[Finding, ...]:
    """Findings with those that the site or `--ignore` accepts marked, and runbooks named as a next action."""
    day = today or date.today()
    rules = [*(IgnoreRule(id=name) for name in ignore), *site.ignores]
    result = []
    for finding in findings:
        rule = next((rule for rule in rules if rule.matches(finding, day)), None)
        if rule is not None:
            expires = rule.expires.isoformat() if rule.expires else None
            marked = replace(finding, ignored=Ignored(by=rule.by, reason=rule.reason, expires=expires))
        else:
            marked = finding
        runbook = site.runbooks.get(finding.id)
        if runbook:
            team = finding.actions[0].team if finding.actions else Team.PLATFORM
            marked = replace(marked, actions=(*marked.actions, Action(team=team, text=f"Runbook: {runbook}")))
        result.append(marked)
    return tuple(result)


def _rule(rule: Mapping[str, Any], path: str) -> IgnoreRule:
    name = rule.get("id")
    hosts = rule.get("hosts", [])
    expires = rule.get("expires")
    if not isinstance(name, str) or not name:
        raise UsageError(f"site file `{path}`: an [[ignore]] table has no `id`")
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise UsageError(f"site file `{path}`: `hosts` of `{name}` must be a list of strings")
    if isinstance(expires, str):
        try:
            expires = date.fromisoformat(expires)
        except ValueError as error:
            raise UsageError(f"site file `{path}`: `expires` of `{name}` is no date: {expires}") from error
    if expires is not None and not isinstance(expires, date):
        raise UsageError(f"site file `{path}`: `expires` of `{name}` must be a date")
    reason = rule.get("reason")
    return IgnoreRule(
        id=name,
        hosts=tuple(hosts),
        reason=str(reason) if reason is not None else None,
        expires=expires,
        by=path,
    )


def _strings(content: Mapping[str, Any], key: str, path: str) -> dict[str, str]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(f"site file `{path}`: `{key}` must be a table")
    return {str(name): str(value) for name, value in table.items()}
