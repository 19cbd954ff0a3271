"""Every check of a benchmark, in the order of reports: data first, then who is gone, then speed."""

from __future__ import annotations

from distdoctor.nccl_bench.checks.base import BenchCheck

BENCH_CHECKS: tuple[BenchCheck, ...] = ()
