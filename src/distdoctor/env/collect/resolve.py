"""A host name's addresses, with a deadline: a resolver without its server can take half a minute."""

from __future__ import annotations

import queue
import socket
import threading

from distdoctor.env.facts.base import UnreadError
from distdoctor.report.model import SkipCause

# What getaddrinfo() says when the name has no address, as opposed to a server that does not answer.
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def resolve_in_time(name: str, timeout_s: float) -> tuple[str, ...]:
    """Addresses in the resolver's order, each once; empty when the name has none.

    getaddrinfo() cannot be interrupted, so it runs in a daemon thread that is left behind at the deadline.
    Raises UnreadError when the resolver fails or does not answer in time.
    """
    answers: queue.SimpleQueue[tuple[str, ...] | OSError | UnicodeError] = queue.SimpleQueue()
    threading.Thread(target=_resolve, args=(name, answers), daemon=True, name="resolve").start()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise UnreadError(
            SkipCause.TIMED_OUT, f"the resolver did not answer for `{name}` in {timeout_s:g} s"
        ) from None
    if isinstance(answer, tuple):
        return answer
    raise UnreadError(SkipCause.FAILED, f"the resolver failed for `{name}`: {answer}")


def _resolve(name: str, answers: queue.SimpleQueue[tuple[str, ...] | OSError | UnicodeError]) -> None:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        answers.put(() if error.errno in _NO_SUCH_NAME else error)
    except (OSError, UnicodeError) as error:
        answers.put(error)
    else:
        answers.put(tuple(dict.fromkeys(str(entry[4][0]) for entry in found)))
