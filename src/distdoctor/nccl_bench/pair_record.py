"""How measured pairs lie in the store: one growing text, each pair appended by its sender."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from distdoctor.nccl_bench.facts.matrix import Matrix, PairTime

# Of one job: 1,000 ranks' pairings take some 2 MB.
MAX_TEXT_BYTES = 8 << 20


def encode_pair(
    source: int,
    target: int,
    times_us: Sequence[float],
    *,
    confirms: bool,
    concurrent_pairs: int,
) -> str:
    """One visit of a pair as text."""
    kind = "c" if confirms else "-"
    times = " ".join(f"{each:.1f}" for each in times_us)
    return f"{source} {target} {kind} {concurrent_pairs} {times};"


def decode_matrix(
    data: bytes, *, size_bytes: int, ranks: Sequence[int], planned: int, is_sampled: bool
) -> Matrix | None:
    """The matrix of all visits; None when nothing was measured. `planned`: ordered pairs of the plan."""
    visits: dict[tuple[int, int], list[tuple[list[float], bool, int]]] = {}
    known = frozenset(ranks)
    for entry in data[:MAX_TEXT_BYTES].decode("ascii", "replace").split(";"):
        words = entry.split()
        visit = _visit(words)
        if visit is None or not {visit[0], visit[1]} <= known:
            continue
        source, target, kind, concurrent_pairs, times_us = visit
        visits.setdefault((source, target), []).append((times_us, kind == "c", concurrent_pairs))
    pairs = _pair_times(visits)
    if not pairs:
        return None
    return Matrix(
        size_bytes=size_bytes,
        ranks=tuple(ranks),
        pairs=pairs,
        complete=len(pairs) >= planned,
        is_sampled=is_sampled,
    )


def _visit(words: Sequence[str]) -> tuple[int, int, str, int, list[float]] | None:
    if len(words) < 5 or len(words) > 64:
        return None
    try:
        source, target, concurrent_pairs = int(words[0]), int(words[1]), int(words[3])
        times_us = [float(word) for word in words[4:]]
    except ValueError:
        return None
    if words[2] not in ("-", "c") or not all(isfinite(each) and each > 0 for each in times_us):
        return None
    return source, target, words[2], concurrent_pairs, times_us


def _pair_times(visits: dict[tuple[int, int], list[tuple[list[float], bool, int]]]) -> tuple[PairTime, ...]:
    """Each direction once: the best of all visits, and the best of each visit as its repeats."""
    return tuple(
        PairTime(
            source=source,
            target=target,
            best_us=min(min(times_us) for times_us, _, _ in seen),
            repeats_us=tuple(min(times_us) for times_us, _, _ in seen),
            concurrent_pairs=max(number for _, _, number in seen),
            confirmed=any(confirms for _, confirms, _ in seen),
        )
        for (source, target), seen in sorted(visits.items())
    )
