"""Connecting to the launch's store: rank 0 may not be up yet, and what answers on its port may be no store at all."""

from __future__ import annotations

import socket
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from distdoctor.errors import DistdoctorError
from distdoctor.ranks.meeting import Meeting

_POLL_S = 0.3

# One try: a firewall that drops packets must not take the whole time. Our own choice.
_TRY_S = 5.0

# A store that is there answers at once; one rank in thousands waits its turn. Our own choice.
_ANSWER_S = 15.0


def connect(meeting: Meeting, *, limit_s: float) -> dist.Store:
    """A client of the store there, or its server; raises DistdoctorError when that is not to be within `limit_s`.

    torch alone would try for twice its timeout, and wait for ever on a program that accepts and says nothing.
    """
    if not meeting.serves:
        _wait_for_listener(meeting, time.monotonic() + limit_s)
    found: list[dist.Store] = []
    failures: list[Exception] = []

    def build() -> None:
        try:
            found.append(
                dist.TCPStore(
                    meeting.address,
                    meeting.port,
                    is_master=meeting.serves,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=limit_s),
                )
            )
        except Exception as error:  # DistNetworkError and others; their text is all we need
            failures.append(error)

    building = threading.Thread(target=build, name="distdoctor-connect", daemon=True)
    building.start()
    building.join(_ANSWER_S)
    if found:
        return found[0]
    if failures:
        # torch appends a stack of C++ frames below the first line.
        raise _failed(meeting, next(iter(str(failures[0]).splitlines()), "")[:200])
    raise _failed(meeting, f"what listens there does not answer as the ranks' store within {_ANSWER_S:g} s")


def _wait_for_listener(meeting: Meeting, until: float) -> None:
    why = ""
    while time.monotonic() < until:
        try:
            socket.create_connection((meeting.address, meeting.port), timeout=_TRY_S).close()
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
        else:
            return
        time.sleep(_POLL_S)
    raise _failed(meeting, why or "no time left")


def _failed(meeting: Meeting, why: str) -> DistdoctorError:
    verb = "serve" if meeting.serves else "reach"
    return DistdoctorError(
        f"cannot {verb} the meeting point {meeting.address}:{meeting.port}: {why}",
        hint="is rank 0 on that host and running, the port free there for this job alone, and no firewall between?",
    )
