"""Reports as JSON and back; the schema that is shipped."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from distdoctor.errors import InputError
from distdoctor.report import codec
from distdoctor.report.codec import decode, encode, json_schema
from distdoctor.report.model import Report, Status, Tool, Verdict
from distdoctor.report.seal import seal
from report.builders import REPORTS, all_clear, sealed, slow_gpu
from report.generated import reports

slow = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.once
@slow
@given(reports)
def test_a_sealed_report_comes_back_as_it_was(report: Report) -> None:
    sealed = seal(report)
    assert decode(encode(sealed), "test") == sealed


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.once
@slow
@given(reports)
def test_what_is_written_fits_the_schema(report: Report) -> None:
    validator().validate(json.loads(encode(report)))


@pytest.mark.parametrize("name", REPORTS)
def test_equal_reports_give_equal_indented_bytes(name: str) -> None:
    first, second = encode(sealed(REPORTS[name])), encode(seal(REPORTS[name]()))
    assert first == second
    assert first.startswith(b'{\n  "schema_version": 1,\n  "tool"')
    assert first.endswith(b"}\n")


def shape(schema: dict[str, Any]) -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Structures by name, with their fields, required fields and words: what msgspec versions word alike."""
    return {
        name: (
            sorted(each.get("properties", {})),
            sorted(each.get("required", [])),
            sorted(map(str, each.get("enum", []))),
        )
        for name, each in schema["$defs"].items()
    }


def test_the_shipped_schema_is_current() -> None:
    shipped = json.loads(Path(codec.__file__).with_name("report.schema.json").read_text())
    assert shape(shipped) == shape(codec.json_schema()), "run scripts/update_report_schema.py"


def test_the_schema_is_a_schema_and_names_its_version() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["x-schema-version"] == 1
    assert "schema_version" in schema["$defs"]["Report"]["required"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"not json", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[1, 2]", "not a distdoctor report"),
        (b'{"a": 1}', "not a distdoctor report"),
        (b'{"tool": 1, "verdict": 2}', "not a distdoctor report"),
        (b"[" * 100_000, "not JSON"),
        (b'{"tool": {}, "verdict": {}, "schema_version": true}', "schema_version"),
        (encode(slow_gpu())[:-40], "cut off"),
        (encode(all_clear()).replace(b'"ok"', b'"fine"'), "not a distdoctor report"),
    ],
)  # fmt: skip
def test_what_is_no_report_is_an_input_error_that_names_the_file(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        decode(data, "ticket.json")
    assert "ticket.json" in caught.value.message


def test_a_file_that_is_too_large_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_REPORT_BYTES", 100)
    with pytest.raises(InputError, match="at most 100"):
        decode(encode(slow_gpu()), "big.json")


def newer(**changes: Any) -> bytes:
    fields = json.loads(encode(slow_gpu()))
    return json.dumps({**fields, "schema_version": 7, **changes}).encode()


def test_a_newer_report_is_read_as_far_as_possible_and_says_so() -> None:
    findings = json.loads(encode(slow_gpu()))["findings"]
    findings[0]["severity"] = "catastrophic"
    report = decode(newer(findings=findings, weather="rain"), "new.json")
    assert report.schema_version == 1
    assert [finding.id for finding in report.findings] == ["driver-differs", "thp-always"]
    assert report.verdict.status is Status.CRITICAL
    note = report.missing_evidence[-1]
    assert "schema version 7" in note.why
    assert "2 parts left out" in note.why


def test_a_newer_verdict_in_unknown_words_is_unknown() -> None:
    report = decode(newer(verdict={"status": "purple", "title": "it is purple", "summary": "so"}), "new.json")
    assert report.verdict.status is Status.UNKNOWN
    assert report.verdict.title == "it is purple"


def test_unknown_fields_of_the_same_version_are_left_out() -> None:
    fields = {**json.loads(encode(all_clear())), "extra": 1}
    assert decode(json.dumps(fields).encode(), "x") == decode(encode(all_clear()), "x")


def test_foreign_json_is_sealed_when_read() -> None:
    verdict = Verdict(status=Status.OK, title="t", summary="HF_TOKEN=hf_abcDEF1234567890 \x1b[2J")
    report = decode(encode(Report(tool=Tool(name="d", version="1", command="env"), verdict=verdict)), "x")
    assert report.verdict.summary == "HF_TOKEN=[secret] \\x1b[2J"
    assert report.redaction.secrets_masked == 1
