"""What ranks tell one another: who they are, and their result as compressed JSON. Never pickle.

Text of another rank is untrusted: every size is bounded before anything is decoded.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib

import msgspec

from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.processes import (
    boot_id,
    launcher_process,
    pid_namespace,
    read_stat,
    start_time_s,
)

# JSON of one rank, uncompressed. The largest report we have made of one host has 2 MB. Our own bound.
MAX_PAYLOAD_BYTES = 32 << 20

# All payloads together, uncompressed, in the memory of the rank that reports. Our own bound.
MAX_TOTAL_BYTES = 1 << 30

MAX_ANNOUNCEMENT_BYTES = 64 << 10

_MAGIC = b"distdoctor-payload-1\n"

# JSON compresses at least this well or not at all; stored size may exceed the text's by zlib's frame.
MAX_PACKED_BYTES = MAX_PAYLOAD_BYTES + (64 << 10)

Info = dict[str, str | int | float | bool | None]


class Announcement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rank says that it is here, and by which process it can be found on its host."""

    job: str
    """Digest of the launch's key."""
    rank: int
    nonce: str
    host: str
    hostname: str = ""
    pod: str | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    pid: int
    start_ticks: int
    started_s: float
    """Start of the process, seconds since the epoch by its host's clock."""
    boot_id: str = ""
    pid_namespace: str = ""
    launcher_pid: int | None = None
    launcher_start_ticks: int | None = None
    info: Info = {}

    def is_neighbour_of(self, other: Announcement) -> bool:
        """Whether both can look at each other's process: same boot of the same machine, same pid namespace."""
        return (
            bool(self.boot_id and self.pid_namespace)
            and self.boot_id == other.boot_id
            and self.pid_namespace == other.pid_namespace
        )


class PayloadError(ValueError):
    """A payload of another rank that cannot be read; the text says why."""


def job_digest(job_key: str) -> str:
    """Short digest of a launch's key: fit for a folder's name."""
    return hashlib.sha256(job_key.encode("utf-8", "replace")).hexdigest()[:20]


def announcement_of(identity: RankIdentity) -> Announcement:
    """This process's announcement, with a nonce of its own."""
    stat = read_stat(os.getpid())
    start_ticks = stat.start_ticks if stat is not None else 0
    launcher = launcher_process(identity.marker_variable) if identity.marker_variable else None
    return Announcement(
        job=job_digest(identity.job_key),
        rank=identity.rank,
        nonce=secrets.token_hex(8),
        host=identity.host,
        hostname=identity.hostname,
        pod=identity.pod,
        local_rank=identity.local_rank,
        node_rank=identity.node_rank,
        pid=os.getpid(),
        start_ticks=start_ticks,
        started_s=start_time_s(start_ticks),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        launcher_pid=launcher.pid if launcher is not None else None,
        launcher_start_ticks=launcher.start_ticks if launcher is not None else None,
    )


def with_info(announcement: Announcement, info: Info) -> Announcement:
    """The announcement with a small dict for the peers. Raises ValueError above 64 KiB of JSON."""
    told = msgspec.structs.replace(announcement, info=dict(info))
    if len(msgspec.json.encode(told)) > MAX_ANNOUNCEMENT_BYTES:
        raise ValueError("an announcement takes more than 64 KiB")
    return told


def encode_announcement(announcement: Announcement) -> bytes:
    """JSON of an announcement."""
    return msgspec.json.encode(announcement)


def decode_announcement(data: bytes) -> Announcement | None:
    """The announcement in `data`, or None when it is none."""
    if len(data) > MAX_ANNOUNCEMENT_BYTES:
        return None
    try:
        return msgspec.json.decode(data, type=Announcement)
    except (msgspec.DecodeError, RecursionError):
        return None


def pack_payload(payload: bytes) -> bytes:
    """JSON text, compressed for the way. Raises ValueError above 32 MiB."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(
            f"a rank's result is {len(payload) >> 20} MiB, more than {MAX_PAYLOAD_BYTES >> 20} MiB"
        )
    return _MAGIC + zlib.compress(payload, 6)


def unpack_payload(data: bytes) -> bytes:
    """JSON text that `pack_payload` packed.

    Raises PayloadError when it is damaged, cut short, followed by something else, larger than 32 MiB
    unpacked, or no JSON.
    """
    if not data.startswith(_MAGIC):
        raise PayloadError("not a result of this version of distdoctor")
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(data[len(_MAGIC) :], MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise PayloadError(f"damaged: {error}") from error
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadError(f"larger than {MAX_PAYLOAD_BYTES >> 20} MiB when unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise PayloadError("cut short, or more than one result in one file")
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PayloadError(f"no JSON: {error}") from error
    return payload
