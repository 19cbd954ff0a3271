"""What the loader's and Python's own words say about a failed import: which library or symbol, wanted by whom.

Grammar: glibc's dl-load.c, dl-lookup.c and dl-version.c, musl's dynlink.c, CPython's import errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATH = r"(?P<file>(?:/|\.{1,2}/)[^\s:]+|[\w.+-]+\.so[\w.]*)"
_MISSING = re.compile(r"(?P<missing>[^\s:'\"]+): cannot open shared object file: (?P<why>[^\n]+)")
_MISSING_MUSL = re.compile(
    r"Error loading shared library (?P<missing>\S+?): (?P<why>[^(\n]+)(?:\(needed by (?P<file>[^)]+)\))?"
)
_UNDEFINED = re.compile(rf"{_PATH}: undefined symbol: (?P<symbol>[\w@.$]+)(?:, version (?P<version>[\w.]+))?")
_UNDEFINED_MUSL = re.compile(r"Error relocating (?P<file>\S+): (?P<symbol>\S+): symbol not found")
_RELOCATION = re.compile(
    rf"relocation error: {_PATH}: symbol (?P<symbol>\S+?),?(?: version (?P<version>\S+))? not defined in file (?P<provider>\S+)"
)
_VERSION = re.compile(
    r"(?P<provider>[^\s:]+): version [`'\"](?P<version>[\w.]+)['\"`] not found(?: \(required by (?P<file>[^)]+)\))?"
)
_NOT_ON_PATH = re.compile(r"(?P<missing>lib[\w+-]+\.so)(?:\.\*\[0-9\]\*?|\S*) not found in the system path")
_FILE = re.compile(
    r"(?P<file>(?:/|\.{1,2}/)[^\s:]+|[\w.+-]+\.so[\w.]*): (?P<fault>invalid ELF header|file too short|wrong ELF class: \w+|"
    r"ELF load command [^\n]+|cannot allocate memory in static TLS block|failed to map segment from shared object[^\n]*|"
    r"cannot read file data[^\n]*|cannot enable executable stack[^\n]*|cannot map zero-fill pages[^\n]*|"
    r"cannot apply additional memory protection[^\n]*|Exec format error)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFault:
    """The parts of an import error. All None when it is not about libraries."""

    missing_library: str | None = None
    """"libcudart.so.13"; for a symbol version that is missing, its name: "GLIBCXX_3.4.30"."""
    why_missing: str | None = None
    """The loader's word, when it is not simply absent: "Permission denied"."""
    undefined_symbol: str | None = None
    symbol_version: str | None = None
    """"libnvJitLink.so.12": the library and version that should have had the symbol."""
    wanted_by: str | None = None
    """The file that needed it, where the text says so."""
    provider: str | None = None
    """The file that was taken and lacks it, where the text says so."""
    bad_file: str | None = None
    file_fault: str | None = None
    """What is wrong with `bad_file`: "file too short", "cannot allocate memory in static TLS block" …"""


def read_import_fault(text: str) -> ImportFault:
    """The parts of `text` (an exception's message, or the end of stderr). Pure; never raises."""
    text = text[-20_000:]
    for pattern in (_UNDEFINED, _UNDEFINED_MUSL, _RELOCATION):
        if match := pattern.search(text):
            parts = match.groupdict()
            return ImportFault(
                undefined_symbol=parts["symbol"],
                symbol_version=parts.get("version"),
                wanted_by=parts["file"],
                provider=parts.get("provider"),
            )
    if match := _VERSION.search(text):
        return ImportFault(
            missing_library=match["version"], wanted_by=match["file"], provider=match["provider"]
        )
    if match := _MISSING.search(text) or _MISSING_MUSL.search(text):
        why = match["why"].strip()
        absent = why.lower().startswith("no such file")
        return ImportFault(
            missing_library=match["missing"].rpartition("/")[2] if absent else match["missing"],
            why_missing=None if absent else why,
            wanted_by=match.groupdict().get("file"),
        )
    if match := _NOT_ON_PATH.search(text):
        return ImportFault(missing_library=match["missing"])
    if match := _FILE.search(text):
        return ImportFault(bad_file=match["file"], file_fault=match["fault"])
    return ImportFault()
