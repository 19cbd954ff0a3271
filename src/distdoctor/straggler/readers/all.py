"""Every reader, in the order in which they are asked; the surest one gets a file, the first wins a tie."""

from __future__ import annotations

from distdoctor.straggler.readers.arrow_table import ARROW_TABLES
from distdoctor.straggler.readers.base import Reader
from distdoctor.straggler.readers.csv_table import CSV_TABLES
from distdoctor.straggler.readers.jsonl_table import JSON_ROWS
from distdoctor.straggler.readers.kineto import KINETO
from distdoctor.straggler.readers.logs.read import TRAINER_LOG
from distdoctor.straggler.readers.logs.trainer_state import TRAINER_STATE
from distdoctor.straggler.readers.nccl_inspector.reader import NCCL_INSPECTOR
from distdoctor.straggler.readers.op_trace.reader import OP_TRACES
from distdoctor.straggler.readers.packed import PACKED_FILES
from distdoctor.straggler.readers.prometheus.reader import PROMETHEUS
from distdoctor.straggler.readers.recording import RECORDINGS
from distdoctor.straggler.readers.refusals import REFUSALS
from distdoctor.straggler.readers.torchtitan import TORCHTITAN_LOGS

READERS: tuple[Reader, ...] = (
    RECORDINGS,
    PACKED_FILES,
    KINETO,
    NCCL_INSPECTOR,
    TORCHTITAN_LOGS,
    OP_TRACES,
    PROMETHEUS,
    TRAINER_STATE,
    TRAINER_LOG,
    ARROW_TABLES,
    JSON_ROWS,
    CSV_TABLES,
    *REFUSALS,
)
