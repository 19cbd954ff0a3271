"""Bytes of evidence, bounded: gzip unpacked piece by piece, the two ends of a stream, and what counts as text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import chain

from distdoctor.errors import InputError
from distdoctor.units import MIB, format_bytes

# A gzip file may unpack to a thousand times its size; beyond this we stop and say so. Our own choice.
MAX_UNPACKED_BYTES = 1024 * MIB

# More NUL bytes, or other control characters, than this share of the sample is no text. Logs that a power cut
# tore hold runs of NUL, so NUL alone does not decide until it dominates.
MAX_NUL_SHARE = 0.5
MAX_CONTROL_SHARE = 0.1
SAMPLE_BYTES = 64 * 1024

CHUNK_BYTES = MIB

_GZIP = b"\x1f\x8b"


def decode(data: bytes) -> str:
    """Bytes as text: byte order marks obeyed, UTF-16 without one recognised, UTF-8 otherwise; never raises."""
    if data[:3] == b"\xef\xbb\xbf":
        return data[3:].decode("utf-8", "replace")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    wide = utf16_without_mark(data[:SAMPLE_BYTES])
    if wide is not None:
        return data.decode(wide, "replace")
    return data.decode("utf-8", "replace")


def looks_binary(data: bytes) -> bool:
    """True when a sample of `data` holds more control bytes than any text would; UTF-16 is text."""
    sample = data[:SAMPLE_BYTES]
    if not sample or sample[:2] in (b"\xff\xfe", b"\xfe\xff") or utf16_without_mark(sample):
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


def utf16_without_mark(sample: bytes) -> str | None:
    """ "utf-16-le" or "utf-16-be" for UTF-16 that says not so itself: mostly ASCII text has NUL in every second byte."""
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd > 0.7 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.7 * half and odd < 0.1 * half:
        return "utf-16-be"
    return None


def _no_one(_note: str) -> None:
    pass


def plain(
    chunks: Iterator[bytes], path: str, *, max_ratio: int = 0, tell: Callable[[str], None] = _no_one
) -> Iterator[bytes]:
    """A stream as it is, or unpacked, as `unpacked` says, when it begins as gzip does."""
    first = next(chunks, b"")
    whole = chain((first,), chunks)
    return unpacked(whole, path, max_ratio=max_ratio, tell=tell) if first.startswith(_GZIP) else whole


def unpacked(
    chunks: Iterator[bytes], path: str, *, max_ratio: int = 0, tell: Callable[[str], None] = _no_one
) -> Iterator[bytes]:
    """gzip unpacked piece by piece, one member after another; a torn or broken end gives what came before it.

    It stops beyond `MAX_UNPACKED_BYTES`, or beyond `max_ratio` times the packed size where that is more. `tell` is
    told in words what was not read. Raises InputError when nothing can be unpacked.
    """
    machine = zlib.decompressobj(wbits=31)
    total = packed = 0
    is_between = False  # a member has ended: another one, padding or nothing follows
    rest = b""
    for chunk in chunks:
        packed += len(chunk)
        todo, rest = rest + chunk, b""
        while todo:
            if is_between:
                if len(todo) < len(_GZIP):
                    rest = todo
                    break
                if not todo.startswith(_GZIP):
                    return
                machine, is_between = zlib.decompressobj(wbits=31), False
            try:
                piece = machine.decompress(todo, CHUNK_BYTES)
            except zlib.error as error:
                if not total:
                    raise InputError(f"`{path}` looks like gzip but does not unpack: {error}") from None
                tell("the compressed data is broken; what came before was read")
                return
            total += len(piece)
            if piece:
                yield piece
            if total > max(MAX_UNPACKED_BYTES, max_ratio * packed):
                tell(f"only the first {format_bytes(total)} of what it unpacks to were read")
                return
            is_between = machine.eof
            todo = machine.unused_data if is_between else machine.unconsumed_tail
    if is_between:
        return
    if last := machine.flush():
        total += len(last)
        yield last
    if not total:
        raise InputError(f"`{path}` looks like gzip but does not unpack: it ends too early")
    tell("the compressed data ends too early; what came before was read")


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
