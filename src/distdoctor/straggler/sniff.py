"""Is a file timing of ranks? For whoever sorts files of all kinds."""

from __future__ import annotations

from distdoctor.straggler.readers.all import READERS
from distdoctor.straggler.readers.refusals import REFUSALS

# A log of step times may be given for its last lines: whoever reads failures is asked first where both know a file.
_LOG_SHARE = 0.5

_LOGS = "training logs"

# A reader that would only try is not sure enough beside readers of other rooms.
_MIN_SURE = 0.3


def sniff_timing(path: str, head: bytes) -> float:
    """How sure, from 0 to 1, that `straggler analyze` can read the file. What it only refuses in words counts as no."""
    refused = {reader.name for reader in REFUSALS}
    best = 0.0
    for reader in READERS:
        if reader.name in refused:
            continue
        sure = reader.sniff(path, head)
        if sure < _MIN_SURE:
            continue
        best = max(best, sure * _LOG_SHARE if reader.name == _LOGS else sure)
    return best
