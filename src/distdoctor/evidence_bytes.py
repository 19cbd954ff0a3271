"""Bytes of evidence, bounded: gzip unpacked piece by piece, the two ends of a stream, and what counts as text."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain

from distdoctor.errors import InputError
from distdoctor.units import MIB

# A gzip file may unpack to a thousand times its size; beyond this we stop and say so. Our own choice.
MAX_UNPACKED_BYTES = 1024 * MIB

# More NUL bytes, or other control characters, than this share of the sample is no text. Logs that a power cut
# tore hold runs of NUL, so NUL alone does not decide until it dominates.
MAX_NUL_SHARE = 0.5
MAX_CONTROL_SHARE = 0.1
SAMPLE_BYTES = 64 * 1024

CHUNK_BYTES = MIB


def decode(data: bytes) -> str:
    """Bytes as text: byte order marks obeyed, UTF-16 without one recognised, UTF-8 otherwise; never raises."""
    if data[:3] == b"\xef\xbb\xbf":
        return data[3:].decode("utf-8", "replace")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    wide = _utf16_without_mark(data[:SAMPLE_BYTES])
    if wide is not None:
        return data.decode(wide, "replace")
    return data.decode("utf-8", "replace")


def looks_binary(data: bytes) -> bool:
    """True when a sample of `data` holds more control bytes than any text would; UTF-16 is text."""
    sample = data[:SAMPLE_BYTES]
    if not sample or sample[:2] in (b"\xff\xfe", b"\xfe\xff") or _utf16_without_mark(sample):
        return False
    nul = sample.count(0)
    control = sum(byte < 32 and byte not in b"\t\n\r\x0b\x0c\x1b\x08\x00" for byte in sample)
    text = decode(sample)
    undecodable = text.count("\ufffd")
    return (
        nul > MAX_NUL_SHARE * len(sample)
        or control > MAX_CONTROL_SHARE * len(sample)
        or undecodable > 2 * MAX_CONTROL_SHARE * len(text)
    )


def _utf16_without_mark(sample: bytes) -> str | None:
    """UTF-16 of mostly ASCII text has NUL in every second byte."""
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.7 * half and odd < 0.1 * half:
        return "utf-16-be"
    return None


def plain(chunks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """A stream as it is, or unpacked when it begins as gzip does."""
    first = next(chunks, b"")
    whole = chain((first,), chunks)
    return unpacked(whole, path) if first[:2] == b"\x1f\x8b" else whole


def unpacked(chunks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """gzip unpacked piece by piece, up to `MAX_UNPACKED_BYTES`; a torn end gives what came before it."""
    machine = zlib.decompressobj(wbits=31)
    total = 0
    for chunk in chunks:
        todo = chunk
        while todo:
            try:
                piece = machine.decompress(todo, CHUNK_BYTES)
            except zlib.error as error:
                if not total:
                    raise InputError(f"`{path}` looks like gzip but does not unpack: {error}") from None
                return
            total += len(piece)
            if piece:
                yield piece
            if total > MAX_UNPACKED_BYTES:
                return
            todo = machine.unconsumed_tail
            if machine.eof:
                todo = machine.unused_data
                if todo[:2] != b"\x1f\x8b":
                    return
                machine = zlib.decompressobj(wbits=31)
    if not total:
        raise InputError(f"`{path}` looks like gzip but does not unpack: it ends too early")


def unpack_head(data: bytes, max_bytes: int) -> bytes:
    """The first bytes of gzip data; the data itself when it is broken."""
    try:
        return zlib.decompressobj(wbits=31).decompress(data, max_bytes)
    except zlib.error:
        return data


def head_and_tail(chunks: Iterator[bytes], keep_bytes: int) -> tuple[bytes, bytes, int]:
    """The first and the last `keep_bytes` of a stream, and how many bytes between them were dropped."""
    head, tail, dropped = bytearray(), bytearray(), 0
    for chunk in chunks:
        room = keep_bytes - len(head)
        head += chunk[:room]
        tail += chunk[room:] if room < len(chunk) else b""
        if len(tail) > 2 * keep_bytes:
            dropped += len(tail) - keep_bytes
            del tail[:-keep_bytes]
    if len(tail) > keep_bytes:
        dropped += len(tail) - keep_bytes
        del tail[:-keep_bytes]
    return bytes(head), bytes(tail), dropped
