"""NCCL Inspector, the profiler plug-in of NCCL: one record for each collective of each process.

Written by NVIDIA/nccl plugins/profiler/inspector (before NCCL 2.29: ext-profiler/inspector), formats v4.0 to v4.3,
into `HOST-pidPID.log`. `records` parses, `ranks` finds out which process is which rank, `timings` makes arrays.
"""

from __future__ import annotations

from distdoctor.straggler.readers.nccl_inspector.reader import NCCL_INSPECTOR

__all__ = ["NCCL_INSPECTOR"]
