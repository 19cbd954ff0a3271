"""Keyed pseudonyms: equal names give equal pseudonyms under one key, and nothing can be turned back without it."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

# 32 bits: with 10,000 hosts two share a pseudonym in about one report of a hundred, and then the second gets
# more digits.
NUM_DIGITS = 8
_MORE_DIGITS = 16
MIN_KEY_BYTES = 16
NEW_KEY_BYTES = 32

KINDS = (
    "host",
    "pod",
    "domain",
    "ip",
    "mac",
    "guid",
    "gid",
    "user",
    "gpu-uuid",
    "mig-uuid",
    "uuid",
    "serial",
)
PSEUDONYM = re.compile(
    rf"(?:{'|'.join(sorted(KINDS, key=len, reverse=True))})-[0-9a-f]{{{NUM_DIGITS},{_MORE_DIGITS}}}"
)


def new_key() -> bytes:
    """A random key, for when nobody needs the same pseudonyms again."""
    return secrets.token_bytes(NEW_KEY_BYTES)


def key_id(key: bytes) -> str:
    """Eight hex digits that are equal for equal keys and say nothing about the key."""
    return hmac.new(key, b"distdoctor key id", hashlib.sha256).hexdigest()[:8]


class Pseudonyms:
    """Hands out pseudonyms under one key and remembers them, for the map and for uniqueness."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._given: dict[tuple[str, str], str] = {}
        self._taken: dict[str, tuple[str, str]] = {}
        self.originals: dict[str, str] = {}
        """Pseudonym to the first spelling that it replaced."""

    def give(self, kind: str, identity: str, *, spelling: str | None = None) -> str:
        """The pseudonym of `identity` (normalised by the caller), `host-3f2a91c0`; unique in this object."""
        who = (kind, identity)
        given = self._given.get(who)
        if given is None:
            digest = hmac.new(
                self._key, f"{kind}:{identity}".encode("utf-8", "replace"), hashlib.sha256
            ).hexdigest()
            given = f"{kind}-{digest[:NUM_DIGITS]}"
            if given in self._taken:
                given = f"{kind}-{digest[:_MORE_DIGITS]}"
            self._given[who], self._taken[given] = given, who
        self.originals.setdefault(given, spelling or identity)
        return given


def is_pseudonym(text: str) -> bool:
    """True for what `give` returns."""
    return PSEUDONYM.fullmatch(text) is not None


def short_name(host: str) -> str:
    """The first label of a host name."""
    return host.partition(".")[0]


def host_identities(hosts: Iterable[str]) -> dict[str, str]:
    """Each known spelling (lower case) to the machine that it means.

    A short name and its one fully qualified form are one machine; a short name under two domains is not.
    """
    names = sorted({host.lower().rstrip(".") for host in hosts if host.strip()})
    qualified: dict[str, set[str]] = {}
    for name in names:
        if "." in name:
            qualified.setdefault(short_name(name), set()).add(name)
    identities = {}
    for name in names:
        short = short_name(name)
        identities[name] = name if len(qualified.get(short, ())) > 1 else short
        identities.setdefault(short, short)
    return identities
