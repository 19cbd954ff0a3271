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


PLANS: dict[str, dict[str, Any]] = {
    "all": {"world_size": 8, "num_hosts": 2},
    # Random digits halve under compression: 3 x 6 MB on the other host make more than 8 MiB.
    "large": {"world_size": 6, "num_hosts": 2, "filler": 6_000_000},
    "one missing": {"world_size": 4, "num_hosts": 2, "faults": {"3": "never"}, "deadline_s": DEADLINE_S},
    "host missing": {
        "world_size": 4,
        "num_hosts": 2,
        "faults": {"2": "never", "3": "never"},
        "node_list": ["host-a", "host-b"],
        "deadline_s": DEADLINE_S,
    },
    "garbage": {
        "world_size": 4,
        "num_hosts": 4,
        "faults": {"1": "send garbage", "2": "promise what is not there"},
        "deadline_s": DEADLINE_S,
    },
    "store frozen": {
        "world_size": 2,
        "num_hosts": 2,
        "faults": {"1": "never"},
        "deadline_s": scaled(20),
        "stop_store_after_s": scaled(1.0),
    },
}


class GatherRun:
    """One launch, under way."""

    def __init__(self, pool: ForkPool, folder: Path, plan: dict[str, Any]) -> None:
        folder.mkdir()
        self.folder = folder
        self._world_size: int = plan["world_size"]
        args = {
            name: value for name, value in plan.items() if name not in ("world_size", "stop_store_after_s")
        }
        self._run = pool.start(
            "gather",
            world_size=self._world_size,
            args={"folder": str(folder), "deadline_s": 30, **args},
            limit_s=scaled(40),
            store=True,
            stop_store_after_s=plan.get("stop_store_after_s"),
        )

    def result(self) -> dict[str, Any]:
        """What rank 0 got."""
        outcomes = self._run.outcomes()
        assert [outcome.ending for outcome in outcomes] == ["returned"] * self._world_size, outcomes
        found: dict[str, Any] = outcomes[0].value
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GatherRun]]:
    """All launches, started together: most of what they do is wait."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("store")
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        yield {name: GatherRun(pool, folder / name.replace(" ", "-"), plan) for name, plan in PLANS.items()}


def test_one_bundle_per_host_brings_all_ranks(runs: dict[str, GatherRun]) -> None:
    found = runs["all"].result()
    assert found["complete"]
    assert found["ranks"] == list(range(8))
    assert found["hosts"] == ["host-a", "host-b"]
    assert [list(host.iterdir()) for host in runs["all"].folder.iterdir()] == [[], []]


def test_a_bundle_larger_than_one_value_travels_in_parts(runs: dict[str, GatherRun]) -> None:
    found = runs["large"].result()
    assert found["complete"]
    assert found["num_bytes"] > 36_000_000


def test_a_rank_without_a_result_is_named(runs: dict[str, GatherRun]) -> None:
    found = runs["one missing"].result()
    assert found["ranks"] == [0, 1, 2]
    assert found["missing"] == {"3": "NEVER_SEEN"}


def test_an_absent_host_is_named_from_the_node_list(runs: dict[str, GatherRun]) -> None:
    found = runs["host missing"].result()
    assert found["missing"] == {"2": "NEVER_SEEN", "3": "NEVER_SEEN"}
    assert found["hosts_absent"] == ["host-b"]


def test_garbage_in_the_store_harms_nobody(runs: dict[str, GatherRun]) -> None:
    found = runs["garbage"].result()
    assert found["ranks"] == [0, 3]
    assert found["missing"] == {"1": "UNREADABLE", "2": "UNREADABLE"}
    assert found["store_lost"] is None


def test_a_store_that_freezes_leaves_what_had_come(runs: dict[str, GatherRun]) -> None:
    found = runs["store frozen"].result()
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
