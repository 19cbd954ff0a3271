"""Everything that nvidia-smi prints, in one place: which of its formats are in a text, and their facts together."""

from __future__ import annotations

from collections.abc import Callable

from distdoctor.env.facts.gpu import GpuFacts
from distdoctor.env.readers.merge import merge_gpus
from distdoctor.env.readers.smi_csv import has_csv, read_csv
from distdoctor.env.readers.smi_errors import has_error, read_errors
from distdoctor.env.readers.smi_list import has_list, read_list
from distdoctor.env.readers.smi_query import has_query, read_query
from distdoctor.env.readers.smi_table import has_table, read_table
from distdoctor.env.readers.smi_topo import has_matrix, read_topology

# One line a format: is it in the text, and what does it say.
FORMATS: tuple[tuple[str, Callable[[str], bool], Callable[[str, str], GpuFacts]], ...] = (
    ("nvidia-smi", has_table, read_table),
    ("nvidia-smi -q", has_query, read_query),
    ("nvidia-smi --query-gpu", has_csv, read_csv),
    ("nvidia-smi -L / nvlink -s", has_list, read_list),
    ("nvidia-smi topo -m", has_matrix, read_topology),
    ("nvidia-smi error", has_error, read_errors),
)


def sniff(text: str) -> bool:
    """True when any of nvidia-smi's formats is in the text."""
    return any(has(text) for _, has, _ in FORMATS)


def formats_in(text: str) -> tuple[str, ...]:
    """Names of the formats in the text."""
    return tuple(name for name, has, _ in FORMATS if has(text))


def read(text: str, origin: str) -> GpuFacts:
    """GPU facts of every format in the text, joined by UUID, PCI address or index. Never raises for any text."""
    facts = GpuFacts()
    for _, has, read_format in FORMATS:
        if has(text):
            facts = merge_gpus(facts, read_format(text, origin))
    return facts
