"""Gathering through a real TCPStore: who came, who did not, and what a peer cannot do to us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distdoctor.ranks.bundle import Bundle, pack_bundle, unpack_bundle
from distdoctor.ranks.messages import PayloadError, pack_payload, unpack_payload
from forkpool import ForkPool
from slowdown import scaled

pytestmark = pytest.mark.ranks

SCENARIOS = Path(__file__).with_name("store_scenarios.py")
DEADLINE_S = scaled(1.5)


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    pytest.importorskip("torch")
    with ForkPool(torch=True, scenarios=SCENARIOS) as warm:
        yield warm


def gather(pool: ForkPool, folder: Path, *, world_size: int, **options: Any) -> dict[str, Any]:
    """What rank 0 got; nothing may be left in the hosts' temporary folders when all came."""
    stop_store_after_s = options.pop("stop_store_after_s", None)
    options.setdefault("deadline_s", 30)
    outcomes = pool.run(
        "gather",
        world_size=world_size,
        args={"folder": str(folder), **options},
        limit_s=scaled(40),
        store=True,
        stop_store_after_s=stop_store_after_s,
    )
    assert [outcome.ending for outcome in outcomes] == ["returned"] * world_size, outcomes
    found: dict[str, Any] = outcomes[0].value
    return found


def test_one_bundle_per_host_brings_all_ranks(pool: ForkPool, tmp_path: Path) -> None:
    found = gather(pool, tmp_path, world_size=8, num_hosts=2)
    assert found["complete"]
    assert found["ranks"] == list(range(8))
    assert found["hosts"] == ["host-a", "host-b"]
    assert [list(host.iterdir()) for host in tmp_path.iterdir()] == [[], []]


def test_a_bundle_larger_than_one_value_travels_in_parts(pool: ForkPool, tmp_path: Path) -> None:
    """Random digits halve under compression: 3 x 6 MB on the other host make more than 8 MiB."""
    found = gather(pool, tmp_path, world_size=6, num_hosts=2, filler=6_000_000)
    assert found["complete"]
    assert found["num_bytes"] > 36_000_000


def test_a_rank_without_a_result_is_named(pool: ForkPool, tmp_path: Path) -> None:
    found = gather(pool, tmp_path, world_size=4, num_hosts=2, faults={"3": "never"}, deadline_s=DEADLINE_S)
    assert found["ranks"] == [0, 1, 2]
    assert found["missing"] == {"3": "NEVER_SEEN"}


def test_an_absent_host_is_named_from_the_node_list(pool: ForkPool, tmp_path: Path) -> None:
    found = gather(
        pool,
        tmp_path,
        world_size=4,
        num_hosts=2,
        faults={"2": "never", "3": "never"},
        node_list=["host-a", "host-b"],
        deadline_s=DEADLINE_S,
    )
    assert found["missing"] == {"2": "NEVER_SEEN", "3": "NEVER_SEEN"}
    assert found["hosts_absent"] == ["host-b"]


def test_garbage_in_the_store_harms_nobody(pool: ForkPool, tmp_path: Path) -> None:
    found = gather(
        pool,
        tmp_path,
        world_size=4,
        num_hosts=4,
        faults={"1": "send garbage", "2": "promise what is not there"},
        deadline_s=DEADLINE_S,
    )
    assert found["ranks"] == [0, 3]
    assert found["missing"] == {"1": "UNREADABLE", "2": "UNREADABLE"}
    assert found["store_lost"] is None


def test_a_store_that_freezes_leaves_what_had_come(pool: ForkPool, tmp_path: Path) -> None:
    found = gather(
        pool,
        tmp_path,
        world_size=2,
        num_hosts=2,
        faults={"1": "never"},
        deadline_s=scaled(20),
        stop_store_after_s=scaled(1.0),
    )
    assert found["ranks"] == [0]
    assert "no answer" in found["store_lost"]
    assert found["waited_s"] < scaled(19)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-3],
        lambda data: data + b"more",
        lambda data: b"",
        lambda data: b"\x80\x04" + data,
        lambda data: data[:30] + b"\xff\xff" + data[32:],
    ],
)
def test_damaged_messages_are_refused(damage: Any) -> None:
    payload = pack_payload(b'{"a": [1, 2, 3], "text": "' + b"abc" * 40 + b'"}')
    with pytest.raises(PayloadError):
        unpack_payload(damage(payload))
    bundle = pack_bundle(Bundle(leader=0, host="a", results={}))
    with pytest.raises(PayloadError):
        unpack_bundle(damage(bundle))


def test_what_unpacks_to_too_much_or_to_no_json_is_refused() -> None:
    """A megabyte of zeros compresses a thousandfold; nesting exhausts a recursive parser."""
    with pytest.raises(PayloadError, match="larger than 32 MiB"):
        unpack_payload(_packed(b" " * (40 << 20)))
    with pytest.raises(PayloadError, match="no JSON"):
        unpack_payload(_packed(b"not json"))
    with pytest.raises(PayloadError, match="no JSON"):
        unpack_payload(_packed(b"[" * 200_000 + b"]" * 200_000))
    with pytest.raises(ValueError, match="more than 32 MiB"):
        pack_payload(b" " * (33 << 20))


def _packed(text: bytes) -> bytes:
    import zlib

    magic = pack_payload(b"{}")[: -len(zlib.compress(b"{}", 6))]
    return magic + zlib.compress(text, 6)
