"""Files of monitoring → series of GPUs, one `Telemetry` for each file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.errors import InputError
from distdoctor.evidence import read_head
from distdoctor.evidence_bytes import decode, looks_binary
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.series import ToolClaim
from distdoctor.straggler.facts.telemetry import Telemetry
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_bytes import size_of
from distdoctor.straggler.readers.file_lines import FileLines
from distdoctor.straggler.readers.file_text import FileText, text_start
from distdoctor.straggler.readers.prometheus.api_json import MAX_JSON_BYTES, read_json
from distdoctor.straggler.readers.prometheus.csv_tables import (
    begins_with_time,
    is_exporter_list,
    looks_like_series,
    read_csv,
)
from distdoctor.straggler.readers.prometheus.exposition import read_exposition
from distdoctor.straggler.readers.prometheus.metrics import KNOWN
from distdoctor.straggler.readers.prometheus.samples import Samples

NAME = "Prometheus metrics"

_TYPE_LINE = re.compile(r"^# TYPE \S+ (?:gauge|counter|summary|histogram|untyped)", re.MULTILINE)
_SAMPLE_LINE = re.compile(r'^[a-zA-Z_:][\w:]*\{[a-zA-Z_]\w*="[^\n]*\}\s+[-+0-9NI]', re.MULTILINE)
_JSON_LINE = re.compile(rb'\s*\[?\s*\{\s*"metric"\s*:\s*\{')

_HEAD_BYTES = 64 * 1024


def sniff(path: str, head: bytes) -> float:  # noqa: ARG001 - every sniffer is asked the same
    """How sure that a file is something that Prometheus, Grafana or an exporter wrote."""
    if _is_json(head):
        if b'"resultType"' in head or (b'"status"' in head and b'"errorType"' in head):
            return 0.97
        if _JSON_LINE.match(head):
            return 0.95
        return 0.9 if b'"results"' in head and b'"frames"' in head and b'"schema"' in head else 0.0
    if not head.strip() or looks_binary(head):
        return 0.0
    text = decode(head)
    if is_exporter_list(text) or looks_like_series(text):
        return 0.9
    if _TYPE_LINE.search(text) or _SAMPLE_LINE.search(text):
        return 0.95 if KNOWN.search(text) else 0.6
    # Grafana quotes every name; with legends instead of metrics somebody has to say what is wrong.
    return 0.3 if text.startswith('"Time",') else 0.0


def _is_json(head: bytes) -> bool:
    return text_start(head)[:1] in (b"{", b"[")


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All series of all files. Bad files are named, never raised."""
    inputs: list[InputFile] = []
    telemetry: list[Telemetry] = []
    notes: list[Note] = []
    claims: list[ToolClaim] = []
    without_times: list[str] = []
    for number, path in enumerate(dict.fromkeys(paths)):
        samples = Samples(path)
        try:
            kind, file = _read_file(path, samples)
        except InputError as error:
            inputs.append(
                InputFile(path=path, kind=NAME, bytes=size_of(path), read=False, why_not=error.in_one_line)
            )
            continue
        series, more, said = samples.finish()
        if series:
            telemetry.append(Telemetry(source=kind, path=path, series=series))
        why_not = None
        if not series and not said and not samples.xpu_names and not samples.inspector_names:
            why_not = _why_nothing(samples)
        inputs.append(file.input_file(kind, why_not))
        notes += more
        if samples.has_no_times:
            without_times.append(path)
        claims += said
        if samples.names and series:
            notes.append(_note_on_names(samples))
        if file.note is not None:
            notes.append(Note(kind=NoteKind.CUT_SHORT, text=f"`{path}`: {file.note}"))
        if options.progress is not None and number % 64 == 63:
            options.progress(f"{number + 1} files of metrics")
    if without_times:
        notes.append(_note_on_times(without_times))
    return Reading(telemetry=tuple(telemetry), notes=tuple(notes), claims=tuple(claims), inputs=tuple(inputs))


def _read_file(path: str, samples: Samples) -> tuple[str, FileText]:
    head = read_head(path, max_bytes=_HEAD_BYTES)
    if _is_json(head):
        document = FileText(path, max_bytes=MAX_JSON_BYTES)
        read_json(document, samples)
        return "Prometheus API", document
    file = FileLines(path)
    text = decode(head)
    if is_exporter_list(text):
        raise InputError(f"`{path}` is dcgm-exporter's list of what to export, without values")
    if looks_like_series(text) or begins_with_time(text):
        read_csv(file, samples)
        return "CSV of metrics", file
    read_exposition(file, samples)
    return "exporter's metrics", file


def _why_nothing(samples: Samples) -> str:
    lost = [f"{count} {what}" for what, count in samples.left_out.items() if count]
    if samples.names:
        shown = ", ".join(name for name, _ in samples.names.most_common(3))
        lost.append(
            f"{sum(samples.names.values())} series of metrics that say nothing of GPUs here ({shown})"
        )
    return "no series of a GPU in it" + (f": {'; '.join(lost)}" if lost else "")


def _note_on_times(paths: Sequence[str]) -> Note:
    more = f" and {len(paths) - 1:,} more files are" if len(paths) > 1 else " is"
    return Note(
        kind=NoteKind.LIMITED,
        text=f"`{paths[0]}`{more} what an exporter served at one moment, without a time: nothing lasts in it, and GPUs "
        "are not compared by it",
        how="a query_range over some minutes of the job has times",
    )


def _note_on_names(samples: Samples) -> Note:
    shown = ", ".join(name for name, _ in samples.names.most_common(4))
    more = "…" if len(samples.names) > 4 else ""
    return Note(
        kind=NoteKind.DROPPED_VALUES,
        text=f"`{samples.path}`: series of {len(samples.names)} other metrics were not used ({shown}{more})",
    )


PROMETHEUS = Reader(name=NAME, sniff=sniff, read=read)
