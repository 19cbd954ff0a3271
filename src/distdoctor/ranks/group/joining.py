"""From a process with a rank to a member of a process group: stores, watchdog, greeting, backend.

The store comes first and carries everything but the collectives of the work itself, so that a fabric that does not work
still ends in a report. Every rank has three clients of it: a client serialises its calls, and one that waits
must not hold up the heart or the report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from distdoctor.errors import DistdoctorError
from distdoctor.ranks.greeting import Hello, Layout, decode, encode
from distdoctor.ranks.group.connecting import connect
from distdoctor.ranks.group.control import Control
from distdoctor.ranks.group.target import Target
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.meeting import JOIN_TIMEOUT_S, Meeting, meeting_of
from distdoctor.ranks.store import StoreLostError, TimedStore, launch_prefix
from distdoctor.ranks.watchdog import Stall, Watchdog

# A greeting of each of 16,384 ranks.
_MAX_LAYOUT_BYTES = 16 << 20


class Store:
    """The launch's store: as many clients as somebody needs."""

    def __init__(self, identity: RankIdentity, *, timeout_s: float) -> None:
        """Raises DistdoctorError when there is no meeting point or it cannot be reached."""
        self._meeting = meeting_of(identity, os.environ)
        self._limit_s = timeout_s
        first = connect(self._meeting, limit_s=timeout_s)
        if self._meeting.port == 0:
            self._meeting = Meeting(address=self._meeting.address, port=first.port, serves=True)
        # Kept alive: with it goes the server, where this rank is the one that serves.
        self._first = first

    @property
    def serves(self) -> bool:
        """Whether this process serves the store."""
        return self._meeting.serves

    def client(self) -> dist.Store:
        """A client of its own."""
        at = self._meeting
        return connect(Meeting(address=at.address, port=at.port, serves=False), limit_s=self._limit_s)


def _enter(client: dist.Store, identity: RankIdentity) -> str:
    """Take this rank's place in the launch; the prefix of its keys. Raises DistdoctorError when it is taken."""
    try:
        prefix = launch_prefix(client, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        places = TimedStore(client, prefix=f"{prefix}place/")
        try:
            world_size = places.agree_on("world_size", str(identity.world_size))
            number = places.add(f"rank/{identity.rank}", 1)
        finally:
            places.close()
    except StoreLostError as error:
        raise DistdoctorError(
            f"the ranks' meeting point does not answer: {error}", hint="is rank 0 still running?"
        ) from error
    if world_size != str(identity.world_size):
        raise DistdoctorError(
            f"rank {identity.rank} on {identity.host} was told of {identity.world_size} ranks, "
            f"others at the same meeting point of {world_size[:12]}",
            hint="give all ranks one WORLD_SIZE, and each job a MASTER_PORT of its own",
        )
    if number != 1:
        raise DistdoctorError(
            f"another process has come as rank {identity.rank} before this one on {identity.host}",
            hint="give each rank its own RANK, and each job a MASTER_PORT of its own",
        )
    return prefix


class Joined:
    """A rank that has met all others.

    The watchdog calls `report` when the run cannot go on, and `before_end` before it ends the process.
    """

    def __init__(
        self,
        identity: RankIdentity,
        *,
        room: str,
        timeout_s: float,
        import_torch_s: float,
        report: Callable[[Stall], int],
        before_end: Callable[[], None],
        join_limit_s: float | None = None,
    ) -> None:
        """Connect to the store and make the watchdog; raises DistdoctorError.

        room: under which keys this command's ranks tell one another things.
        timeout_s: longest time of one step.
        join_limit_s: how long ranks wait for one another at first, where that is less than JOIN_TIMEOUT_S.
        """
        self.identity = identity
        self._timeout_s = timeout_s
        self._import_torch_s = import_torch_s
        self._process_group_s = 0.0
        self._num_groups = 0
        self._join_limit_s = min(JOIN_TIMEOUT_S, join_limit_s or JOIN_TIMEOUT_S)
        self._store = Store(identity, timeout_s=self._join_limit_s)
        client = self._store.client()
        self.prefix = _enter(client, identity)
        self.room_prefix = f"{self.prefix}{room}/"
        """Keys of `control`, for whoever reads what was told."""
        self.records = client
        """A client that only the report uses."""
        self.control = Control(
            self._store.client(),
            prefix=self.room_prefix,
            rank=identity.rank,
            world_size=identity.world_size,
        )
        self.watchdog = Watchdog(
            self._store.client(),
            prefix=self.prefix,
            rank=identity.rank,
            world_size=identity.world_size,
            host=identity.host,
            deadline_s=timeout_s,
            report=report,
            hosts_store=self._store.serves,
            before_end=before_end,
            rank_variable=identity.rank_variable,
            job_variables=dict(identity.job_variables),
        )

    def meet(self) -> None:
        """Wait until all ranks are here. Call from the main thread; the watchdog runs from here on."""
        self.watchdog.start()
        self.watchdog.arrive("joining", deadline_s=self._join_limit_s)
        self.control.in_step()
        self.watchdog.leave()

    def form_group(self, target: Target) -> None:
        """The process group over all ranks; a second call makes a new one, where the one before was destroyed."""
        self.watchdog.arrive("forming the process group", deadline_s=JOIN_TIMEOUT_S)
        began = time.monotonic()
        group_store = dist.PrefixStore(f"{self.prefix}group/{self._num_groups}", self._store.client())
        self._num_groups += 1
        # The watchdog ends a run long before the group's own timeout aborts the process.
        patience = timedelta(seconds=max(600.0, 10 * self._timeout_s))
        device = {"device_id": target.device} if target.device.type == "cuda" else {}
        dist.init_process_group(
            target.backend,
            store=group_store,
            rank=self.identity.rank,
            world_size=self.identity.world_size,
            timeout=patience,
            **device,
        )
        self._process_group_s = time.monotonic() - began
        self.watchdog.leave()

    def greet(self, target: Target, *, memory_bytes: int | None) -> Layout:
        """Everybody's greeting, once all have given theirs; `memory_bytes`: what this rank may take."""
        self.watchdog.arrive("greeting", deadline_s=JOIN_TIMEOUT_S)
        control, rank, world_size = self.control, self.identity.rank, self.identity.world_size
        control.put(f"hello/{rank}", encode(self._hello(target, memory_bytes)))
        if rank == 0:
            hellos = (decode(control.wait_for(f"hello/{each}"), Hello) for each in range(world_size))
            control.put("layout", encode(Layout(ranks=tuple(each for each in hellos if each is not None))))
        layout = decode(control.wait_for("layout"), Layout, max_bytes=_MAX_LAYOUT_BYTES)
        if layout is None or [each.rank for each in layout.ranks] != list(range(world_size)):
            raise DistdoctorError(
                "the ranks' greetings cannot be read", hint="is another program on this port?"
            )
        self.watchdog.leave()
        return layout

    def _hello(self, target: Target, memory_bytes: int | None) -> Hello:
        identity = self.identity
        return Hello(
            rank=identity.rank,
            host=identity.host,
            local_rank=identity.local_rank if identity.local_rank is not None else identity.rank,
            node_rank=identity.node_rank,
            pod=identity.pod,
            device=str(target.device),
            gpu_pci=target.gpu_pci,
            gpu_uuid=target.gpu_uuid,
            gpu_model=target.gpu_model,
            memory_bytes=memory_bytes,
            import_torch_s=round(self._import_torch_s, 3),
            process_group_s=round(self._process_group_s, 3),
            torch=str(torch.__version__),
            cuda=torch.version.cuda,
            nccl=_nccl_version(),
        )

    def finish(self) -> None:
        """Leave: no more watching, the group is destroyed."""
        self.watchdog.finish()
        if dist.is_initialized():
            dist.destroy_process_group()


def _nccl_version() -> str | None:
    """The NCCL that torch has loaded, or None on a build without it."""
    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
