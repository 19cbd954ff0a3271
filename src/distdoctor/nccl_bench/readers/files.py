"""Files that somebody gives as evidence become facts: tables, results in JSON or CSV, NCCL's logs, or several in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_evidence
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.nccl_log import NcclLog
from distdoctor.nccl_bench.readers.nccl_tests import read_nccl_tests
from distdoctor.nccl_bench.readers.nccl_tests_json import read_nccl_tests_json
from distdoctor.nccl_bench.readers.rccl_results import read_rccl_results
from distdoctor.nccl_bench.readers.sniff import sniff_table_json
from distdoctor.pasted import clean_pasted
from distdoctor.report.model import InputFile

TABLE = "nccl-tests table"
RESULTS = "nccl-tests results"
LOG = "NCCL log"

HINT = "give the output of nccl-tests or rccl-tests (also -J or -Z files), or a log made with NCCL_DEBUG=INFO"

_FIRST_LINE_CHARACTERS = 80
_SNIFFED_CHARACTERS = 256 * 1024


def facts_from_files(paths: Sequence[str]) -> tuple[tuple[BenchFacts, ...], tuple[InputFile, ...]]:
    """The facts of every table and log that the files hold, and what became of each file.

    `paths`: files, folders, or `-`. Files that hold neither, or that cannot be read, are named with the reason and
    leave the others alone. Raises InputError when no file can be read at all or a path is not there.
    """
    found: list[BenchFacts] = []
    inputs: list[InputFile] = []
    for path in find_files(paths):
        facts, file = _read_file(path)
        found += facts
        inputs.append(file)
    if not any(file.read for file in inputs):
        raise _nothing_read(inputs)
    return tuple(found), tuple(inputs)


def facts_from_text(text: str, label: str) -> tuple[tuple[BenchFacts, ...], tuple[str, ...]]:
    """The facts in one text, and of which kinds it is; both empty when it holds neither a table nor a log."""
    if sniff_table_json(label, text[:_SNIFFED_CHARACTERS].encode("utf-8", "replace")) > 0:
        results = read_nccl_tests_json(text, label) or read_rccl_results(text, label)
        if results:
            return results, (RESULTS,)
    cleaned = clean_pasted(text)
    tables = read_nccl_tests(cleaned, label)
    log = _read_log(cleaned, label)
    kinds = ((TABLE,) if tables else ()) + ((LOG,) if log is not None else ())
    if not tables:
        return ((_facts_of_log(log, label),) if log is not None else ()), kinds
    if log is not None:
        tables = tuple(_with_log(facts, log) for facts in tables)
    return tables, kinds


def _read_log(text: str, label: str) -> NcclLog | None:
    from distdoctor.nccl_bench.readers.nccl_log import read_nccl_log

    return read_nccl_log(text, label)


def _facts_of_log(log: NcclLog, label: str) -> BenchFacts:
    """A log alone: ranks and hosts of its largest communicator."""
    largest = max(log.comms, key=lambda comm: comm.num_ranks, default=None)
    # Hosts that a log names are not counted: an excerpt is often of one host out of many.
    return BenchFacts(
        origin=Origin.LOG,
        label=label,
        backend="nccl",
        num_ranks=largest.num_ranks if largest is not None else None,
        num_hosts=largest.num_hosts if largest is not None else None,
        nccl_log=log,
    )


def _with_log(facts: BenchFacts, log: NcclLog) -> BenchFacts:
    """A table with the log of the same file; versions that only the log tells are taken from it."""
    versions = facts.versions
    if versions.nccl is None and log.version is not None:
        versions = replace(versions, nccl=log.version)
    return replace(facts, nccl_log=log, versions=versions)


def _read_file(path: str) -> tuple[tuple[BenchFacts, ...], InputFile]:
    try:
        evidence = read_evidence(path)
    except InputError as error:
        why = error.in_one_line
        return (), InputFile(path=path, kind="unknown", read=False, why_not=why)
    facts, kinds = facts_from_text(evidence.text, "standard input" if path == STDIN else path)
    file = evidence.input_file(", ".join(kinds) or "unknown")
    if not kinds:
        why = f"it holds no table of nccl-tests and no log of NCCL; it begins `{_first_line(evidence.text)}`"
        file = replace_struct(file, read=False, why_not=why)
    elif file.why_not is None and any(map(_lacks_numbers, facts)):
        file = replace_struct(file, why_not="a table has no row with numbers that can be used")
    return facts, file


def _lacks_numbers(facts: BenchFacts) -> bool:
    """A table that ended well and says nothing: its times are zero, negative, `nan` or damaged."""
    table = facts.table
    return table is not None and table.ended and not table.errors and not facts.rows


def _first_line(text: str) -> str:
    head = clean_pasted(text[:_SNIFFED_CHARACTERS])
    line = next((line.strip() for line in head.split("\n") if line.strip()), "")
    return line if len(line) <= _FIRST_LINE_CHARACTERS else line[: _FIRST_LINE_CHARACTERS - 1] + "…"


def _nothing_read(inputs: Sequence[InputFile]) -> InputError:
    file = inputs[0]
    name = "standard input" if file.path == STDIN else f"`{file.path}`"
    why = file.why_not or "cannot be read"
    more = f" (and {len(inputs) - 1} more)" if len(inputs) > 1 else ""
    message = why if name in why or file.path in why else f"{name}: {why}"
    return InputError(f"{message}{more}", hint=HINT)
