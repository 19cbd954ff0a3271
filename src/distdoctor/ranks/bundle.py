"""What one host sends: the results of its ranks, and what it knows of those without one. Untrusted when read."""

from __future__ import annotations

import zlib

import msgspec

from distdoctor.ranks.messages import MAX_PAYLOAD_BYTES, PayloadError

# Eight ranks with a result of the largest size. Our own bound.
MAX_BUNDLE_BYTES = 8 * MAX_PAYLOAD_BYTES


class AbsentRank(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rank of the sender's host without a result there."""

    rank: int
    pid: int | None = None
    life: str | None = None
    """State of its process, in the words of `Life`."""
    unreadable: str | None = None
    """Why its result could not be read."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value (or several parts of one) in the store."""

    leader: int
    host: str
    results: dict[int, msgspec.Raw]
    absent: list[AbsentRank] = []


def pack_bundle(bundle: Bundle) -> bytes:
    """Compressed JSON."""
    return zlib.compress(msgspec.json.encode(bundle), 6)


def unpack_bundle(data: bytes) -> Bundle:
    """Raises PayloadError when it is damaged, larger than 256 MiB unpacked, or no bundle."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_BUNDLE_BYTES + 1)
    except zlib.error as error:
        raise PayloadError(f"damaged: {error}") from error
    if len(text) > MAX_BUNDLE_BYTES:
        raise PayloadError(f"larger than {MAX_BUNDLE_BYTES >> 20} MiB when unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise PayloadError("cut short, or followed by something else")
    try:
        return msgspec.json.decode(text, type=Bundle)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PayloadError(f"no bundle: {error}") from error
