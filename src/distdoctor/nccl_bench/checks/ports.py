"""Which NIC port belongs to a slow host or rank, and what the network team types to look at it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.noise import busy_hosts
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.places import Nic
from distdoctor.report.model import Action, GpuRef, Team

# Ports that one action lists. Our own bound.
MAX_PORTS = 4

_ERRORS = "'err|drop|discard|pause|crc|symbol'"


def nics_of(facts: BenchFacts, host: str) -> tuple[Nic, ...]:
    """Ports of a host, as far as known."""
    return next((each.nics or () for each in facts.hardware if each.host == host), ())


def ports_of(facts: BenchFacts, host: str, ranks: Sequence[int] | None = None) -> tuple[Nic, ...]:
    """The ports that a host's transfers, or those of some of its ranks, can have gone through.

    For ranks it is the port at their local rank where the host has as many ports as ranks, else all ports: the
    order of ports need not be that of GPUs.
    """
    nics = nics_of(facts, host)
    on_host = [place for place in facts.places if place.host == host]
    if ranks is None or len(nics) != len(on_host):
        return nics
    chosen = [place.local_rank for place in on_host if place.rank in ranks]
    return tuple(nics[index] for index in chosen if index < len(nics)) or nics


def link_names(facts: BenchFacts, host: str, ranks: Sequence[int] | None = None) -> tuple[str, ...]:
    """`host-b mlx5_3/1` for the ports at the end of a slow link."""
    return tuple(f"{host} {nic.name}" for nic in ports_of(facts, host, ranks)[:MAX_PORTS])


def look_at_ports(facts: BenchFacts, host: str, ranks: Sequence[int] | None = None) -> Action:
    """What the network team does next about one host, or about some ranks of it."""
    nics = ports_of(facts, host, ranks)
    commands = [_command(nic) for nic in nics[:MAX_PORTS]]
    names = ", ".join(nic.name for nic in nics[:MAX_PORTS])
    more = f" and {len(nics) - MAX_PORTS} more" if len(nics) > MAX_PORTS else ""
    what = f"port{'s' if len(nics) > 1 else ''} {names}{more}" if nics else "its NICs"
    return Action(
        team=Team.NETWORK,
        text=f"on {host}: {what}, cable, transceiver and switch port: speed, errors, discards, pause frames",
        command="; ".join(commands) if commands else f"ip -s link; rdma link; ibstat   # on {host}",
    )


def look_inside(facts: BenchFacts, host: str, gpus: Sequence[GpuRef] = ()) -> Action:
    """What to do next about transfers inside one host."""
    on_gpu = any(place.host == host and place.device != "cpu" for place in facts.places)
    if not on_gpu:
        return Action(
            team=Team.PLATFORM,
            text=f"on {host}: what else uses the CPUs and the memory, and on which cores the ranks may run",
            command="uptime; grep -H . /proc/pressure/cpu; ps -eo pid,psr,pcpu,comm --sort=-pcpu | head",
        )
    only = "".join(f" -i {gpu.index}" for gpu in gpus[:1] if gpu.index is not None)
    return Action(
        team=Team.HARDWARE,
        text=f"on {host}: NVLink state and errors, PCIe width and generation, and how the GPUs are joined",
        command=f"nvidia-smi topo -m; nvidia-smi nvlink -s{only}; nvidia-smi nvlink -e{only}; nvidia-smi -q -d PERFORMANCE{only}",
    )


def gpu_of(facts: BenchFacts, rank: int) -> GpuRef | None:
    """The GPU of a rank; None when it has none or none is known."""
    place = facts.place_of(rank)
    return place.gpu if place is not None else None


def gpus_of(facts: BenchFacts, ranks: Sequence[int]) -> tuple[GpuRef, ...]:
    """The GPUs of some ranks, as far as known."""
    return tuple(gpu for rank in ranks if (gpu := gpu_of(facts, rank)) is not None)


def busier(facts: BenchFacts, hosts: Sequence[str]) -> tuple[str, ...]:
    """Why some of `hosts` are busy, when others that measured are not: then load may be the cause."""
    busy = busy_hosts(facts)
    measured = {each.host for each in facts.contention}
    theirs = tuple(line for line in busy if any(line.startswith(f"{host}: ") for host in hosts))
    return theirs if theirs and len(busy) < len(measured) else ()


def _command(nic: Nic) -> str:
    device, _, port = nic.name.partition("/")
    name, number = shlex.quote(device), shlex.quote(port or "1")
    match nic.kind:
        case "infiniband":
            return f"ibstat {name} {number}; perfquery -C {name} -P {number} -x; mlxlink -d {name} -p {number} -c -m"
        case "roce":
            return f"rdma link show {name}/{number}; mlxlink -d {name} -p {number} -c -m; rdma -p statistic show link {name}/{number}"
        case "efa":
            return f"rdma -p statistic show link {name}/{number}"
        case _:
            return f"ethtool {name}; ethtool -S {name} | grep -Ei {_ERRORS}; ip -s link show {name}"
