"""Where a report goes: names, refusals before work begins, redaction, and `report show | merge | redact`."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace as with_changes
from pathlib import Path

import msgspec
import pytest

from distdoctor.cli.output import (
    Format,
    Names,
    OutputOptions,
    emit,
    failure_report,
    prepare_outputs,
    terminal_width,
    wants_color,
)
from distdoctor.errors import InputError, OutputError, UsageError
from distdoctor.report.codec import decode, encode
from distdoctor.report.model import Status
from distdoctor.report.redact import redacted_host
from report.builders import all_clear, hostile, slow_gpu

# A host of the reports; a pseudonym may begin like it (`host-c7d1da9a`), so whole words are compared.
NAMED = "host-c"
NAMES = Names(command="env", host="node-17", rank=3, job="4711")


def options(tmp_path: Path, *outputs: str, **more: object) -> OutputOptions:
    return OutputOptions(outputs=tuple(f"{tmp_path}/{each}" for each in outputs), **more)  # type: ignore[arg-type]


def written(tmp_path: Path, *outputs: str, names: Names = NAMES, **more: object) -> list[str]:
    emit(slow_gpu(), prepare_outputs(options(tmp_path, *outputs, **more), names))
    return sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[\w\-]+", text))


# --- names ---


def test_placeholders_are_expanded(tmp_path: Path) -> None:
    assert written(tmp_path, "%h-%r-%j-%%.json") == ["node-17-3-4711-%.json"]


def test_a_folder_gets_all_four_named_by_command_and_job(tmp_path: Path) -> None:
    names = written(tmp_path, "out/")
    assert [name.rpartition(".")[2] for name in names] == ["html", "json", "md", "txt"]
    assert all(name.startswith("out/env-job-4711-") for name in names)
    assert len({name.rpartition(".")[0] for name in names}) == 1


def test_a_name_from_a_report_cannot_leave_the_folder(tmp_path: Path) -> None:
    names = written(tmp_path, "out/", "%h.json", names=Names(command="../../x", host="../y/z", job="/etc"))
    assert all("/" not in name.removeprefix("out/") for name in names)
    assert not (tmp_path.parent / "x").exists()


def test_a_redacted_report_does_not_carry_the_host_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    names = written(tmp_path, "%h.json", redact=True, redact_key=tmp_path / "key")
    assert names == [f"{redacted_host('node-17', b'k' * 32)}.json", "key"]


# --- refusals, before any work ---


@pytest.mark.parametrize(
    ("outputs", "error", "words"),
    [
        (["there.json"], OutputError, "exists"),
        (["folder"], UsageError, "suffix"),
        (["folder.json"], OutputError, "is a folder"),
        (["no/where.json"], OutputError, "no folder"),
        (["a.pdf"], UsageError, "suffix"),
        (["a"], UsageError, "suffix"),
        (["a.json", "a.json"], OutputError, "same name"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, outputs: list[str], error: type[Exception], words: str
) -> None:
    (tmp_path / "there.json").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(error, match=words):
        prepare_outputs(options(tmp_path, *outputs), NAMES)
    assert (tmp_path / "there.json").read_text() == "mine"


def test_force_replaces(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    written(tmp_path, "there.json", force=True)
    assert json.loads((tmp_path / "there.json").read_text())["schema_version"] == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot write into"):
        prepare_outputs(options(tmp_path, "a.json"), NAMES)


def test_a_short_or_missing_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(UsageError, match="5 bytes"):
        prepare_outputs(OutputOptions(redact=True, redact_key=tmp_path / "key"), NAMES)
    with pytest.raises(UsageError, match="cannot read"):
        prepare_outputs(OutputOptions(redact=True, redact_key=tmp_path / "none"), NAMES)


# --- what is written ---


def test_the_map_is_for_its_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    chosen = options(tmp_path, "a.json", redact=True, redact_map=tmp_path / "map.json")
    emit(slow_gpu(), prepare_outputs(chosen, NAMES))
    assert stat.S_IMODE((tmp_path / "map.json").stat().st_mode) == 0o600
    assert "host-c" in json.loads((tmp_path / "map.json").read_text()).values()
    assert NAMED not in words_of((tmp_path / "a.json").read_text())
    with pytest.raises(OutputError, match="exists"):
        prepare_outputs(with_changes(chosen, outputs=()), NAMES)


def test_without_a_map_nothing_leads_back(tmp_path: Path) -> None:
    assert written(tmp_path, "a.json", redact=True) == ["a.json"]


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    assert written(tmp_path, "a.md", "a.html", "a.json", "a.txt") == ["a.html", "a.json", "a.md", "a.txt"]


def test_all_files_of_one_call_have_the_same_pseudonyms(tmp_path: Path) -> None:
    written(tmp_path, "a.md", "a.html", "a.json", "a.txt", redact=True)
    host = decode((tmp_path / "a.json").read_bytes(), "a").subject.hosts[2]
    for path in tmp_path.iterdir():
        assert host in path.read_text(), path


@pytest.mark.parametrize("form", Format)
def test_secrets_reach_no_output(form: Format, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    base = slow_gpu()
    finding = msgspec.structs.replace(
        base.findings[0], explanation="HF_TOKEN=hf_planted0123456789AB bob@mail.example /home/bobby/x"
    )
    report = msgspec.structs.replace(base, findings=(finding,))
    emit(
        report,
        prepare_outputs(
            options(tmp_path, "a.md", "a.html", "a.json", "a.txt", format=form, verbose=True), NAMES
        ),
    )
    told = capsys.readouterr().out + "".join(path.read_text() for path in tmp_path.iterdir())
    for secret in ("planted", "bob@mail", "bobby"):
        assert secret not in told


def test_a_locale_without_our_signs_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit(hostile(), prepare_outputs(OutputOptions(), NAMES))
    assert raw.getvalue().isascii()
    assert b"..." in raw.getvalue()


@pytest.mark.parametrize("form", [Format.JSON, Format.HTML, Format.MARKDOWN])
def test_what_is_parsed_is_utf8_in_any_locale(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit(hostile(), prepare_outputs(OutputOptions(format=form), NAMES))
    assert "⏎" in raw.getvalue().decode("utf-8")


def test_json_wins_over_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit(all_clear(), prepare_outputs(OutputOptions(format=Format.JSON, one_line=True), NAMES))
    assert json.loads(capsys.readouterr().out)["verdict"]["status"] == "ok"


def test_a_failure_is_a_report_too_and_sealed() -> None:
    report = failure_report("env", InputError("cannot read `/home/bob/x`", hint="HF_TOKEN=abc"))
    assert report.verdict.status is Status.UNKNOWN
    assert len(report.verdict.title) <= 80
    assert "bob" not in encode(report).decode()
    assert "abc" not in encode(report).decode()


@pytest.mark.parametrize(
    ("environ", "color"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_follows_the_environment_off_a_terminal(
    environ: dict[str, str], color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert wants_color(environ) is color


def test_the_width_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(os.environ) == 100
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_width(os.environ) == 72


# --- the commands ---


def distdoctor(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "distdoctor", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_report_is_shown_again_in_every_form(tmp_path: Path) -> None:
    data = encode(slow_gpu())
    (tmp_path / "r.json").write_bytes(data)
    done = distdoctor("report", "show", str(tmp_path / "r.json"), "--format", "html")
    assert done.stdout.startswith(b"<!doctype html>")
    assert done.returncode == 11
    again = distdoctor("report", "show", "-", "--format", "json", stdin=data)
    assert again.stdout == data


def test_what_is_no_report_is_one_line_and_json_when_asked(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"tool": ')
    done = distdoctor("report", "show", str(tmp_path / "r.json"))
    assert done.returncode == 3
    assert b"cut off" in done.stderr
    assert b"Traceback" not in done.stderr
    asked = distdoctor("report", "show", str(tmp_path / "r.json"), "--format", "json")
    assert json.loads(asked.stdout)["verdict"]["status"] == "unknown"


def test_redact_writes_json_without_names_and_succeeds(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(encode(slow_gpu()))
    done = distdoctor("report", "redact", str(tmp_path / "r.json"))
    assert done.returncode == 0
    assert NAMED not in words_of(done.stdout.decode())
    assert decode(done.stdout, "x").redaction.pseudonyms


def test_merge_makes_one_report(tmp_path: Path) -> None:
    for name, report in (("a", slow_gpu()), ("b", all_clear())):
        (tmp_path / f"{name}.json").write_bytes(encode(report))
    done = distdoctor(
        "report",
        "merge",
        f"{tmp_path}/a.json",
        f"{tmp_path}/b.json",
        "--format",
        "json",
        "--fail-on",
        "never",
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"]["status"] == "critical"
