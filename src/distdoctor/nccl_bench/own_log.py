"""NCCL's own log of this process: asked for before NCCL starts, read when it has set up its communicators."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import MutableMapping
from pathlib import Path

# The lines of one process that set up a few communicators take some 100 KB.
MAX_LOG_BYTES = 4 << 20

_SUBSYSTEMS = "INIT,NET,GRAPH,ENV,TUNING"


class OwnLog:
    """The file that NCCL writes. Where the user has asked for a log of their own, theirs is left alone."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Set NCCL_DEBUG and NCCL_DEBUG_FILE; before torch makes a communicator."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if environ.get("NCCL_DEBUG_FILE") or environ.get("NCCL_DEBUG"):
            return
        self._folder = tempfile.TemporaryDirectory(prefix="distdoctor-nccl-log-", ignore_cleanup_errors=True)
        environ["NCCL_DEBUG"] = "INFO"
        environ["NCCL_DEBUG_SUBSYS"] = environ.get("NCCL_DEBUG_SUBSYS", _SUBSYSTEMS)
        environ["NCCL_DEBUG_FILE"] = os.path.join(self._folder.name, "log.%p")  # noqa: PTH118 - NCCL's pattern

    def packed(self) -> bytes:
        """What NCCL has written so far, compressed; empty when there is nothing."""
        if self._folder is None:
            return b""
        text = b""
        for path in sorted(Path(self._folder.name).glob("log.*")):
            with path.open("rb") as stream:
                text += stream.read(MAX_LOG_BYTES - len(text))
        return zlib.compress(text) if text else b""

    def remove(self) -> None:
        """Remove the file."""
        if self._folder is not None:
            self._folder.cleanup()


def unpack_log(packed: bytes) -> str:
    """The text of `packed`, cut at 4 MiB; empty when it is no such thing, for a peer is not trusted."""
    try:
        text = zlib.decompressobj().decompress(packed, MAX_LOG_BYTES)
    except zlib.error:
        return ""
    return text.decode("utf-8", "replace")
