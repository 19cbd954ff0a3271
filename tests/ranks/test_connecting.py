"""Connecting to the store ends, and tells why, whatever listens on its port."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from slowdown import scaled

pytest.importorskip("torch")

from distdoctor.errors import DistdoctorError
from distdoctor.ranks.group import connecting
from distdoctor.ranks.meeting import Meeting


def there(port: int, *, serves: bool = False) -> Meeting:
    return Meeting(address="127.0.0.1", port=port, serves=serves)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A program that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_server_and_its_client_meet() -> None:
    server = connecting.connect(there(0, serves=True), limit_s=scaled(10))
    client = connecting.connect(there(server.port), limit_s=scaled(10))
    client.set("key", "value")
    assert server.get("key") == b"value"


def test_a_program_that_says_nothing_is_not_waited_for_for_ever(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_ANSWER_S", 0.5)
    began = time.monotonic()
    with pytest.raises(DistdoctorError, match=f"reach .*:{silent_port}: what listens there does not answer"):
        connecting.connect(there(silent_port), limit_s=30)
    assert time.monotonic() - began < scaled(5)


def test_a_rank_0_that_never_comes_is_waited_for_no_longer_than_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(DistdoctorError, match="Connection refused"):
        connecting.connect(there(port), limit_s=1.0)
    assert time.monotonic() - began < scaled(4)


def test_a_port_in_use_is_told_as_such(silent_port: int) -> None:
    with pytest.raises(DistdoctorError, match=f"cannot serve .*:{silent_port}"):
        connecting.connect(there(silent_port, serves=True), limit_s=scaled(5))
