"""A report as JSON bytes, back, and the JSON Schema that the package ships."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
from msgspec.structs import replace

from distdoctor.errors import InputError
from distdoctor.report.model import (
    SCHEMA_VERSION,
    Confidence,
    MissingEvidence,
    Report,
    Status,
    Tool,
    Verdict,
)
from distdoctor.report.seal import seal

# Far above any report of ours (a 10,000-host report is some 10 MiB); keeps a mistaken path from filling memory.
MAX_REPORT_BYTES = 64 << 20

SCHEMA_ID = f"urn:distdoctor:schema:report:{SCHEMA_VERSION}"
_HINT = "give a report that distdoctor wrote with `-o FILE.json` or `--format json`"


def encode(report: Report) -> bytes:
    """`report` as UTF-8 JSON, indented by two spaces, ending with a newline. Equal reports give equal bytes.

    `schema_version` comes first and is always present; other fields at their default are left out. The caller
    seals the report; text that JSON cannot hold (lone surrogates) is sealed here.
    """
    try:
        return _encode(report)
    except (UnicodeEncodeError, OverflowError):
        return _encode(seal(report))


def _encode(report: Report) -> bytes:
    fields: dict[str, Any] = msgspec.to_builtins(report, order="deterministic")
    ordered = {"schema_version": report.schema_version, **{k: fields[k] for k in _FIELD_ORDER if k in fields}}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"


_FIELD_ORDER = tuple(name for name in Report.__struct_fields__ if name != "schema_version")


def decode(data: bytes, origin: str) -> Report:
    """The report in `data`, sealed; `origin` names it in errors.

    A report of a newer schema is read as far as this version understands it, and says so in `missing_evidence`.
    Raises InputError when `data` is too large, no JSON, cut off, or not a report.
    """
    if len(data) > MAX_REPORT_BYTES:
        raise InputError(
            f"`{origin}` has {len(data):,} bytes; a report has at most {MAX_REPORT_BYTES:,}", hint=_HINT
        )
    fields = _object(data.removeprefix(b"\xef\xbb\xbf"), origin)
    version = fields.get("schema_version", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InputError(f"`{origin}` has no usable schema_version", hint=_HINT)
    if version > SCHEMA_VERSION:
        return seal(_read_newer(fields, version))
    try:
        report = msgspec.convert(fields, Report)
    except msgspec.ValidationError as error:
        raise InputError(f"`{origin}` is not a distdoctor report: {error}", hint=_HINT) from error
    return seal(replace(report, schema_version=SCHEMA_VERSION))


def _object(data: bytes, origin: str) -> dict[str, Any]:
    if not data.strip():
        raise InputError(f"`{origin}` is empty", hint=_HINT)
    try:
        fields = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            raise InputError(f"`{origin}` is cut off: {error}", hint="copy the whole file again") from error
        raise InputError(f"`{origin}` is not JSON: {error}", hint=_HINT) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise InputError(
            f"`{origin}` is not JSON that can be read: {type(error).__name__}", hint=_HINT
        ) from error
    is_report = isinstance(fields, dict) and {"tool", "verdict"} <= fields.keys()
    if not is_report:
        raise InputError(f"`{origin}` is JSON, but not a distdoctor report", hint=_HINT)
    return typing.cast(dict[str, Any], fields)  # JSON objects have string keys


def _read_newer(fields: dict[str, Any], version: int) -> Report:
    """As much of a newer report as fits this model; what does not fit is counted and left out."""
    hints = typing.get_type_hints(Report)
    known: dict[str, Any] = {}
    num_dropped = len(fields.keys() - hints.keys())
    for name, hint in hints.items():
        if name == "schema_version" or name not in fields:
            continue
        value, dropped = _fitting(fields[name], hint)
        num_dropped += dropped
        if value is not None:
            known[name] = value
    known.setdefault("tool", Tool(name="distdoctor", version="unknown", command="unknown"))
    known.setdefault("verdict", _verdict_in_new_words(fields["verdict"]))
    note = MissingEvidence(
        what="parts of this report that a newer distdoctor wrote",
        why=f"it has schema version {version}, this distdoctor reads {SCHEMA_VERSION}; {num_dropped} parts left out",
        how="upgrade distdoctor, then run the same command again",
    )
    report = Report(**known)
    return replace(report, missing_evidence=(*report.missing_evidence, note))


def _fitting(value: Any, hint: Any) -> tuple[Any, int]:
    is_list = typing.get_origin(hint) is tuple and isinstance(value, list)
    if not is_list:
        try:
            return msgspec.convert(value, hint), 0
        except msgspec.ValidationError:
            return None, 1
    item_hint = typing.get_args(hint)[0]
    items = []
    for each in value:
        try:
            items.append(msgspec.convert(each, item_hint))
        except msgspec.ValidationError:
            continue
    return tuple(items), len(value) - len(items)


def _verdict_in_new_words(fields: Any) -> Verdict:
    fields = fields if isinstance(fields, dict) else {}
    title, summary = fields.get("title"), fields.get("summary")
    return Verdict(
        status=Status.UNKNOWN,
        title=title if isinstance(title, str) else "the verdict is in words that this version does not know",
        summary=summary if isinstance(summary, str) else "",
        confidence=Confidence.LOW,
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `encode` writes; shipped as report.schema.json."""
    schema = msgspec.json.schema(Report)
    definition = schema["$defs"]["Report"]
    definition["required"] = ["schema_version", *definition["required"]]
    definition["properties"]["schema_version"] = {"type": "integer", "minimum": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "distdoctor report",
        "description": "What every distdoctor command returns. Fields may be added; read what you know.",
        "x-schema-version": SCHEMA_VERSION,
        **schema,
    }


def schema_bytes() -> bytes:
    """The text of report.schema.json."""
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2) + b"\n"
