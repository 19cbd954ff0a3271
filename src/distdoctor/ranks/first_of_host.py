"""Of several processes of one host that would say the same, one says it: claims that leave nothing behind."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import time

_POLL_S = 0.1


def claim_on_host(name: str) -> socket.socket | None:
    """A claim that this process holds while the socket is open, or None when another process of the host holds it.

    The name of a Unix socket in Linux' abstract space: no file, and the kernel gives it back when the process ends,
    however it ends. Containers with a network of their own count as hosts of their own. Where there are no such
    names everybody gets a claim: said twice is better than not at all.
    """
    digest = hashlib.sha256(f"{os.geteuid()}|{name}".encode()).hexdigest()[:32]
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0distdoctor-{digest}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            claim.close()
            return None
    return claim


def wait_until_free(name: str, limit_s: float) -> None:
    """Wait until whoever holds the claim has ended, `limit_s` seconds at most."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        claim = claim_on_host(name)
        if claim is not None:
            claim.close()
            return
        time.sleep(_POLL_S)
