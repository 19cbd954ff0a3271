"""Per-operation traces of pipelines in Parquet, as ByteDance published them beside StragglerAnalysis (OSDI 2025).

One row is one operation of one worker: forward or backward of a micro-batch, a send or receive, a collective of the
data-parallel group. `table` reads rows, `waits` separates waiting from moving data, `timings` makes steps of them.
"""

from __future__ import annotations

from distdoctor.straggler.readers.op_trace.reader import OP_TRACES

__all__ = ["OP_TRACES"]
