"""The two answers to "how fast should it be?": a range with everything that stands behind it, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.nccl_bench.catalog.published import Published
from distdoctor.report.model import Confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A range of busbw in GB/s of 10^9 bytes, and everything that stands behind it."""

    scheme: str
    """"nvls", "nvlink", "xgmi", "bridge", "pcie", "mnnvl", "rdma", "published", "sockets"."""
    low_gbps: float
    high_gbps: float
    """Top of what was seen or can be; more is no fault."""
    from_bytes: int
    """Healthy curves have left their climb from this size on; below it a low number proves nothing."""
    rule: str
    """The formula with its inputs, as a sentence."""
    source: str
    confidence: Confidence = Confidence.HIGH
    """HIGH: the same hardware was published; MEDIUM: by analogy; LOW: theory only."""
    ceiling_gbps: float | None = None
    """What no software can exceed with this scheme; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoExpectation:
    """Why there is none, and what would help."""

    reason: str
    how: str | None = None
    orientation: tuple[Published, ...] = ()
    """Published figures on like GPUs, for people to look at; nothing is judged by them."""


Verdict = Expectation | NoExpectation
