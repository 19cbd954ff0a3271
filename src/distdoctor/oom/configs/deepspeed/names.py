"""Keys of a DeepSpeed file that nobody reads: slips, and keys in the wrong section."""

from __future__ import annotations

from itertools import islice

from distdoctor.oom.configs.deepspeed.keys import OFFLOAD, ROOT, SIXTEEN_BIT, ZERO
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.near_names import MAX_KEYS, near_name
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.facts.launch import Defect


def check_names(reading: Reading, root: Section) -> None:
    """Tell slips and misplaced keys, at the outermost level and in the sections that forbid others."""
    for key, entry in islice(root.entries.items(), MAX_KEYS):
        meant = near_name(key, ROOT)
        if key in ("stage", "offload_optimizer", "offload_param", "overlap_comm"):
            _misplaced(reading, entry, key, "zero_optimization")
        elif meant:
            _slip(reading, entry, meant, stops=False)
    zero = root.section("zero_optimization")
    for section, known in (
        (zero, ZERO),
        (zero.section("offload_param"), OFFLOAD),
        (zero.section("offload_optimizer"), OFFLOAD),
        (root.section("fp16"), SIXTEEN_BIT),
        (root.section("bf16"), SIXTEEN_BIT),
    ):
        for key, entry in islice(section.entries.items(), MAX_KEYS):
            if key in known:
                continue
            meant = near_name(key, known)
            if meant:
                _slip(reading, entry, meant, stops=known is not SIXTEEN_BIT)
            elif section is zero and key in ROOT:
                _misplaced(reading, entry, key, "the outermost section")


def _slip(reading: Reading, entry: Entry, meant: str, *, stops: bool) -> None:
    key = entry.name.rsplit(".", 1)[-1]
    reading.defect(
        Defect.UNKNOWN_KEY,
        f"{key[:30]} is no key of DeepSpeed; {meant[:30]} is",
        entry,
        why="DeepSpeed refuses unknown keys in this section."
        if stops
        else "DeepSpeed ignores it without a word.",
        fix=f'write `"{meant}"`',
        stops=stops,
        sure=not stops,
    )


def _misplaced(reading: Reading, entry: Entry, key: str, where: str) -> None:
    reading.defect(
        Defect.UNKNOWN_KEY,
        f"{key[:40]} stands in the wrong section",
        entry,
        why=f"DeepSpeed reads `{key}` in {where} only.",
        fix=f"move it into {where}",
    )
