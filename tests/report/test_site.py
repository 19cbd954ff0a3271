"""What a site has accepted: marked in the open, for some hosts, until a day; a typo is an error."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from distdoctor.errors import UsageError
from distdoctor.report.model import Confidence, Finding, Scope, Severity
from distdoctor.report.site import apply_site, load_site

TODAY = date(2026, 11, 30)


def finding(identity: str, *hosts: str, fingerprint: str | None = None) -> Finding:
    return Finding(
        id=identity,
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        title=identity,
        fingerprint=fingerprint or identity,
        scope=Scope(hosts=hosts),
    )


def site(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return path


def test_an_ignored_finding_is_kept_and_marked_with_its_reason(tmp_path: Path) -> None:
    path = site(tmp_path, '[[ignore]]\nid = "shm-too-small"\nreason = "ticket 12"\n')
    (kept,) = apply_site([finding("shm-too-small", "a")], load_site(path, {}), today=TODAY)
    assert kept.ignored is not None
    assert kept.ignored.reason == "ticket 12"
    assert kept.ignored.by == str(path)


def test_a_rule_for_some_hosts_does_not_silence_the_others(tmp_path: Path) -> None:
    rules = load_site(site(tmp_path, '[[ignore]]\nid = "gpu-*"\nhosts = ["login*"]\n'), {})
    silenced, partly, other = apply_site(
        [finding("gpu-ecc", "login1"), finding("gpu-ecc", "login1", "node7"), finding("gpu-ecc")],
        rules,
        today=TODAY,
    )
    assert silenced.ignored is not None
    assert partly.ignored is None
    assert other.ignored is None


@pytest.mark.parametrize(("expires", "silenced"), [("2026-11-30", True), ("2026-11-29", False)])
def test_a_rule_ends_after_its_day(tmp_path: Path, expires: str, silenced: bool) -> None:
    rules = load_site(site(tmp_path, f'[[ignore]]\nid = "x"\nexpires = {expires}\n'), {})
    (result,) = apply_site([finding("x")], rules, today=TODAY)
    assert (result.ignored is not None) is silenced


def test_the_command_line_ignores_by_id_or_fingerprint() -> None:
    first, second = apply_site(
        [finding("a", fingerprint="a:NCCL_X"), finding("a", fingerprint="a:NCCL_Y")],
        load_site(None, {}),
        ignore=["a:NCCL_X"],
        today=TODAY,
    )
    assert first.ignored is not None
    assert second.ignored is None


def test_a_runbook_becomes_a_next_action(tmp_path: Path) -> None:
    rules = load_site(site(tmp_path, '[runbooks]\n"gpu-ecc" = "wiki/ecc"\n'), {})
    (result,) = apply_site([finding("gpu-ecc")], rules, today=TODAY)
    assert result.actions[-1].text == "Runbook: wiki/ecc"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[[ignor]]\nid = 'x'", "ignor"),
        ("[[ignore]]\nreason = 'x'", "id"),
        ("[[ignore]]\nid = 'x'\nexpires = 'soon'", "soon"),
        ("[[ignore]]\nid = 'x'\nhosts = 'a'", "hosts"),
        ("ignore = 3", "ignore"),
        ("not toml at all [", "TOML"),
    ],
)
def test_a_malformed_site_file_is_a_usage_error_that_names_the_place(
    tmp_path: Path, text: str, names: str
) -> None:
    with pytest.raises(UsageError, match=names):
        load_site(site(tmp_path, text), {})


def test_a_named_site_file_must_exist() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        load_site(None, {"DISTDOCTOR_SITE": "/nowhere.toml"})
