"""One device of one snapshot, looked at: the moment, its pools, who holds what, and what grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.snapshot import DeviceState, Snapshot
from distdoctor.oom.snapshots.at_oom import Moment, moment_of
from distdoctor.oom.snapshots.categories import Category, Known, category_of
from distdoctor.oom.snapshots.growth import Steps, steps_of
from distdoctor.oom.snapshots.holders import Holding, by_category, by_stack
from distdoctor.oom.snapshots.pools import PoolUse, pool_uses, store_of_request
from distdoctor.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotView:
    """What the checks of a snapshot look at."""

    snapshot: Snapshot
    state: DeviceState
    moment: Moment
    pools: tuple[PoolUse, ...]
    own_pool: PoolUse | None
    """The store that the failed request could have been served from; None without one, or when it held nothing."""
    categories: tuple[Holding, ...]
    stacks: tuple[Holding, ...]
    steps: Steps
    asked: Category | None
    """What the failed request was for; None without one."""
    capacity_bytes: int | None = None
    """The device's memory, when somebody told it: a snapshot does not."""

    @property
    def reach(self) -> int | None:
        """Bytes that torch held and the driver had left: the most that this process could have. None without OOM."""
        return None if self.moment.oom is None else self.moment.reserved + self.moment.oom.device_free

    def of(self, *categories: Category) -> int:
        """Live bytes of some categories."""
        return sum(each.num_bytes for each in self.categories if each.category in categories)


def view_of(snapshot: Snapshot, state: DeviceState, *, capacity_bytes: int | None = None) -> SnapshotView:
    """The device `state` of `snapshot` at its last out-of-memory error, or else when the snapshot was taken."""
    known = Known()
    moment = moment_of(state)
    pools = pool_uses(moment)
    return SnapshotView(
        snapshot=snapshot,
        state=state,
        moment=moment,
        pools=pools,
        own_pool=store_of_request(pools, moment.oom) if moment.oom is not None else None,
        categories=by_category(moment.live, known),
        stacks=by_stack(moment.live, known),
        steps=steps_of(state.events, moment, known),
        asked=category_of(moment.oom.stack, known=known) if moment.oom is not None else None,
        capacity_bytes=capacity_bytes,
    )


def views_of(snapshots: Sequence[Snapshot], *, capacity_bytes: int | None = None) -> tuple[SnapshotView, ...]:
    """A view for each device of each snapshot that holds memory or recorded a failure, in the order given."""
    return tuple(
        view_of(snapshot, state, capacity_bytes=capacity_bytes)
        for snapshot in snapshots
        for state in snapshot.devices
        if state.segments or state.events is not None
    )


def bytes_from_driver(request: int) -> int:
    """What torch asks the driver for to serve a request: 2 MiB, 20 MiB, or the request in steps of 2 MiB.

    kSmallBuffer, kLargeBuffer, kMinLargeAlloc and kRoundLarge of c10/core/AllocatorConfig.h.
    """
    if request <= MIB:
        return 2 * MIB
    return 20 * MIB if request < 10 * MIB else -(-request // (2 * MIB)) * 2 * MIB
