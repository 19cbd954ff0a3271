"""How sure are we that a file holds results of nccl-tests or rccl-tests? For `explain`, from its first bytes."""

from __future__ import annotations

import re
from collections import Counter

from distdoctor.evidence_bytes import decode
from distdoctor.nccl_bench.readers.columns import parse_row
from distdoctor.nccl_bench.readers.lines import Kind, TableLine, table_lines
from distdoctor.pasted import clean_pasted

# A row, a header or a footer of this benchmark is printed by nothing else; NCCL's log around it changes nothing.
SURE = 0.96
# One line alone may be quoted in somebody's log.
LIKELY = 0.9
A_LEAD = 0.4

_NCCL_KEYS = re.compile(
    r'"(?:nccl_version|out_of_place|average_bus_bandwidth|aggregated_iterations|out_of_bounds)"\s*:'
)
_RCCL_RECORD = re.compile(r'"algBw"\s*:.{0,80}"busBw"\s*:|"busBw"\s*:.{0,80}"wrong"\s*:', re.DOTALL)
_RCCL_CSV = re.compile(
    r"\bcollective,[^\n]{0,120}\binplace,\s*time,\s*algbw,\s*busbw,\s*#?wrong", re.IGNORECASE
)

_STRONG = frozenset({Kind.COLUMNS, Kind.SETTINGS, Kind.STARTING, Kind.BOUNDS, Kind.AVERAGE, Kind.CONCLUDED})
_WEAK = frozenset({Kind.FAILURE, Kind.VERSION})


def sniff_table(_path: str, head: bytes) -> float:
    """0 to 1: the text holds a table, or part of one. 0.9 and more is sure."""
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        return 0.0
    kinds = Counter(
        line.kind
        for line in table_lines(clean_pasted(decode(head)))
        if line.kind is not Kind.ROW or _is_row(line)
    )
    strong = sum(kinds[kind] for kind in _STRONG)
    if kinds[Kind.ROW] and (strong or kinds[Kind.ROW] > 1):
        return SURE
    if kinds[Kind.ROW] or strong > 1 or kinds[Kind.DEVICE] > 1:
        return LIKELY
    if strong or any(kinds[kind] for kind in _WEAK):
        return LIKELY if strong and kinds[Kind.DEVICE] else A_LEAD
    return 0.0


def _is_row(line: TableLine) -> bool:
    row = parse_row(line.text, line.number, None)
    return row is not None and bool(row.halves)


def sniff_table_json(_path: str, head: bytes) -> float:
    """0 to 1: nccl-tests' `-J` file, or rccl-tests' `-Z csv|json` file."""
    text = decode(head).lstrip("\ufeff \t\r\n")
    if _RCCL_CSV.search(text[:4000]):
        return SURE
    if text[:1] not in ("{", "["):
        return 0.0
    if text[:1] == "{" and len({match.group() for match in _NCCL_KEYS.finditer(text)}) > 1:
        return SURE
    return SURE if _RCCL_RECORD.search(text[:8000]) else 0.0
