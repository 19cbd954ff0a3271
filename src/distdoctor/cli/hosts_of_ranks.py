"""What `env` knows of the hosts of a run: told by one rank of each, before any rank touches a GPU.

The rooms do not know one another; the command carries facts from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.live import LiveOptions, collect_here
from distdoctor.env.visible_gpus import visible_gpus
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.places import Place

# A process that holds this little on a GPU is a monitor or a display, no job. Our own threshold.
_IDLE_BYTES = 512 << 20
_IDLE_PCT = 5


def look_at_host(identity: RankIdentity, *, timeout_s: float) -> bytes:
    """This host's facts as JSON, without torch."""
    options = LiveOptions(torch=False, timeout_s=min(timeout_s, 10.0))
    collected = collect_here(identity, options, lambda facts: None)  # noqa: ARG005 - nobody waits for early facts
    return msgspec.json.encode(collected.members[0].facts)


def read_all(looks: Mapping[int, bytes]) -> tuple[EnvFacts, ...]:
    """What hosts told, in the order of ranks."""
    return tuple(facts for _, data in sorted(looks.items()) if (facts := _read(data)) is not None)


def read_looks(looks: Mapping[int, bytes], places: Sequence[Place]) -> dict[str, EnvFacts]:
    """Facts by host. What another host sent is read as typed JSON only; what is none is left out."""
    hosts = {place.rank: place.host for place in places}
    found: dict[str, EnvFacts] = {}
    for rank, data in sorted(looks.items()):
        facts = _read(data)
        if rank in hosts and facts is not None:
            found[hosts[rank]] = facts
    return found


def _read(data: bytes) -> EnvFacts | None:
    try:
        return msgspec.json.decode(data, type=EnvFacts)
    except (msgspec.DecodeError, RecursionError):
        return None


def gpus_in_use(hosts: Sequence[EnvFacts], *, ranks_here: int) -> str | None:
    """Who uses the GPUs that this run would take, as one sentence; None when nobody is seen to.

    Looked at before any of our ranks has touched a GPU: whoever is there is somebody else.
    """
    for facts in hosts:
        visible = visible_gpus(facts)
        for device in visible.devices[:ranks_here] if visible is not None else ():
            held = device.memory_used_bytes or 0
            others = [each for each in device.processes or () if (each.used_bytes or 0) > _IDLE_BYTES]
            busy = (device.utilisation_pct or 0) > _IDLE_PCT and held > _IDLE_BYTES
            if others or busy:
                who = (
                    f"process {others[0].pid}" if others and others[0].pid is not None else "another process"
                )
                where = f" of {facts.host_name}" if facts.host_name else ""
                return f"GPU {device.index}{where} is in use by {who}; {held >> 20} MiB are held"
    return None


def named_places(places: Sequence[Place], hosts: Mapping[str, EnvFacts]) -> tuple[Place, ...]:
    """Places with NVML's index of each GPU, found by its UUID or PCI address."""
    named = []
    for place in places:
        facts = hosts.get(place.host)
        devices = (facts.gpus.devices or ()) if facts is not None and facts.gpus is not None else ()
        mine = next((device for device in devices if _is_of(place, device)), None)
        if mine is None:
            named.append(place)
        else:
            named.append(replace(place, gpu_index=mine.index, gpu_pci=mine.pci or place.gpu_pci))
    return tuple(named)


def _is_of(place: Place, device: GpuDevice) -> bool:
    if place.gpu_uuid and device.uuid:
        return place.gpu_uuid == device.uuid
    return bool(place.gpu_pci and device.pci and place.gpu_pci.lower() == device.pci.lower())
