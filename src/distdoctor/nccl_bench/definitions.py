"""What "size", `algbw` and `busbw` mean for each collective: the definitions of nccl-tests, without torch.

With S the size in bytes, t the time and n the number of ranks: algbw = S / t, busbw = algbw · factor(n), both
in GB/s of 10^9 bytes. Source: the `GetBw` and `GetCollByteCount` functions of NVIDIA/nccl-tests, and its
doc/PERFORMANCE.md, which derives the factors: the bytes that the busiest link of a ring must carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Factor(str, Enum):
    """How busbw follows from algbw; n is the number of ranks."""

    TWICE = "2(n-1)/n"
    ONCE = "(n-1)/n"
    ONE = "1"

    def of(self, num_ranks: int) -> float:
        """The factor for `num_ranks` ranks; 0 for one rank where the formula gives 0."""
        match self:
            case Factor.TWICE:
                return 2 * (num_ranks - 1) / num_ranks
            case Factor.ONCE:
                return (num_ranks - 1) / num_ranks
            case Factor.ONE:
                return 1.0


class SizeMeaning(str, Enum):
    """Which bytes "size" counts; the larger of send and receive buffer, as nccl-tests prints."""

    PER_RANK = "each rank's buffer"
    TOTAL_OUTPUT = "each rank's output, all parts together"
    TOTAL_INPUT = "each rank's input, all parts together"
    TOTAL_AT_ROOT = "the root's buffer, all parts together"
    SENT = "what each rank sends to all peers together"
    SENT_MOST = "what the busiest rank sends to all peers"
    PER_DIRECTION = "what each rank sends to its neighbour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One collective."""

    name: str
    """Our name, which is torch's or the field's: all_reduce, all_to_all, sendrecv."""
    nccl_tests_name: str | None
    """As in nccl-tests' binaries and banners; None for what nccl-tests has not."""
    factor: Factor
    size_meaning: SizeMeaning
    reduces: bool = False
    """Takes a reduction op."""
    has_root: bool = False
    is_split: bool = False
    """The buffer of "size" is made of one equal part per rank."""


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        name="all_reduce",
        nccl_tests_name="all_reduce",
        factor=Factor.TWICE,
        size_meaning=SizeMeaning.PER_RANK,
        reduces=True,
    ),
    Definition(
        name="all_gather",
        nccl_tests_name="all_gather",
        factor=Factor.ONCE,
        size_meaning=SizeMeaning.TOTAL_OUTPUT,
        is_split=True,
    ),
    Definition(
        name="reduce_scatter",
        nccl_tests_name="reduce_scatter",
        factor=Factor.ONCE,
        size_meaning=SizeMeaning.TOTAL_INPUT,
        reduces=True,
        is_split=True,
    ),
    Definition(
        name="broadcast",
        nccl_tests_name="broadcast",
        factor=Factor.ONE,
        size_meaning=SizeMeaning.PER_RANK,
        has_root=True,
    ),
    Definition(
        name="reduce",
        nccl_tests_name="reduce",
        factor=Factor.ONE,
        size_meaning=SizeMeaning.PER_RANK,
        reduces=True,
        has_root=True,
    ),
    Definition(
        name="gather",
        nccl_tests_name="gather",
        factor=Factor.ONCE,
        size_meaning=SizeMeaning.TOTAL_AT_ROOT,
        has_root=True,
        is_split=True,
    ),
    Definition(
        name="scatter",
        nccl_tests_name="scatter",
        factor=Factor.ONCE,
        size_meaning=SizeMeaning.TOTAL_AT_ROOT,
        has_root=True,
        is_split=True,
    ),
    Definition(
        name="all_to_all",
        nccl_tests_name="alltoall",
        factor=Factor.ONCE,
        size_meaning=SizeMeaning.SENT,
        is_split=True,
    ),
    Definition(
        name="all_to_all_uneven",
        nccl_tests_name="alltoallv",
        factor=Factor.ONCE,
        size_meaning=SizeMeaning.SENT_MOST,
        is_split=True,
    ),
    Definition(
        name="sendrecv",
        nccl_tests_name="sendrecv",
        factor=Factor.ONE,
        size_meaning=SizeMeaning.PER_DIRECTION,
    ),
)
"""All collectives that move data, in the order of tables. `barrier` moves none and has a latency only."""

BARRIER = "barrier"

BY_NAME = {each.name: each for each in DEFINITIONS}
NAMES = tuple(BY_NAME)

_ALIASES = {
    **{each.nccl_tests_name: each.name for each in DEFINITIONS if each.nccl_tests_name},
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
    "alltoallv": "all_to_all_uneven",
    "all_to_allv": "all_to_all_uneven",
    "send_recv": "sendrecv",
    "bcast": "broadcast",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
}


def canonical_name(text: str) -> str | None:
    """Our name for a collective however it is written: `AllReduce`, `all_reduce_perf`, `alltoall`; None if unknown."""
    word = text.strip().lower().replace("-", "_")
    for suffix in ("_mpi", "_perf"):
        word = word.removesuffix(suffix)
    if word in BY_NAME or word == BARRIER:
        return word
    return _ALIASES.get(word)


def algbw_gbps(size_bytes: int, time_us: float) -> float | None:
    """Algorithm bandwidth in GB/s; None when nothing was moved or no time was measured."""
    if size_bytes <= 0 or time_us <= 0:
        return None
    return size_bytes / time_us / 1e3


def busbw_gbps(collective: str, size_bytes: int, time_us: float, num_ranks: int) -> float | None:
    """Bus bandwidth in GB/s; None for one rank (there is no bus), for no bytes and for a barrier."""
    algbw = algbw_gbps(size_bytes, time_us)
    definition = BY_NAME.get(collective)
    if algbw is None or definition is None or num_ranks < 2:
        return None
    return algbw * definition.factor.of(num_ranks)


def ranks_from_ratio(collective: str, ratio: float) -> int | None:
    """The number of ranks that a busbw/algbw ratio belongs to; None where the factor does not tell.

    all_reduce: n = 2/(2-f); the others with (n-1)/n: n = 1/(1-f). Rounded; a ratio at or beyond the factor's
    limit (2 or 1) gives None.
    """
    definition = BY_NAME.get(collective)
    if definition is None or definition.factor is Factor.ONE or ratio < 0:
        return None
    top = 2.0 if definition.factor is Factor.TWICE else 1.0
    if ratio >= top:
        return None
    return max(1, round(top / (top - ratio)))
