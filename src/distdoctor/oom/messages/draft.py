"""What a reader of one family of messages finds in a line, before rank, traceback and phase are known."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdoctor.oom.facts.events import Bogus, Family, OtherProcess


@dataclass(slots=True, kw_only=True)
class Draft:
    """A message as it is being read. Numbers in bytes."""

    family: Family
    sentence: str
    num_lines: int = 1
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    requested_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    process_bytes: int | None = None
    others: tuple[OtherProcess, ...] = ()
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None
    private_pool_bytes: int | None = None
    allowed_bytes: int | None = None
    other_allocations_bytes: int | None = None
    is_absurd_size: bool = False
    is_block_limit: bool = False
    is_spoken_of: bool = False
    """Stands in a comment, in advice or in a question: a failure only if the job did not go on."""
    exit_code: int | None = None
    is_certain_kill: bool = False
    bogus: list[Bogus] = field(default_factory=list)
