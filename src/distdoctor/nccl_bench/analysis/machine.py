"""What are the ranks of one group made of: GPUs, NVLinks, PCIe, network ports? As far as the evidence says."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.nccl_bench.catalog.gpus import PCIE_X16_GBPS, GpuKind, gpu_kind
from distdoctor.nccl_bench.catalog.platforms import platform_nics
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.places import HostHardware, Nic
from distdoctor.nccl_bench.facts.rows import Group, GroupKind

# More GPUs than this are in no host; a table whose host names were made equal looks like that.
MAX_GPUS_PER_HOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One host of the group, equal to the others; where they differ, the best equipped: what was paid for."""

    models: tuple[str, ...]
    """Model names as read, each once; empty when no GPU is named."""
    kind: GpuKind | None
    """The one kind that all models are; None when not known or mixed."""
    gpus: int | None
    """GPUs of a host."""
    active_nvlinks: int | None
    nvlink_gbps: float | None
    """One link in one direction, GB/s."""
    has_nvswitch: bool | None
    pcie_gbps: float | None
    """The slot in one direction, GB/s; None when only the GPU's own ability is known."""
    nics: tuple[Nic, ...] | None
    """The fastest ports, RDMA before Ethernet; None: not known."""

    @property
    def nic_gbps(self) -> float | None:
        """One of `nics` in one direction, GB/s."""
        if not self.nics or self.nics[0].rate_gbit is None:
            return None
        return self.nics[0].rate_gbit / 8

    @property
    def nvlinks(self) -> int | None:
        """Links of one GPU: the product's where it is a baseboard, so that a lost link shows; else the active ones."""
        product = self.kind.nvlinks if self.kind is not None else None
        if self.kind is not None and self.kind.is_baseboard and product is not None:
            return max(product, self.active_nvlinks or 0)
        return self.active_nvlinks

    @property
    def link_gbps(self) -> float | None:
        """One link in one direction: as read, else the product's."""
        return self.nvlink_gbps or (self.kind.link_gbps if self.kind is not None else None)


def hosts_of_group(facts: BenchFacts, group: Group) -> tuple[str, ...] | None:
    """Names of the hosts of a group in rank order; None when its ranks or their places are not all known."""
    ranks = group.ranks
    if not ranks and group.kind in (GroupKind.JOB, GroupKind.TABLE) and facts.num_ranks:
        ranks = tuple(range(facts.num_ranks))
    # Not facts.host_of, which looks through all places for each of perhaps thousands of ranks.
    host_by_rank = {place.rank: place.host for place in facts.places}
    hosts = [host_by_rank.get(rank) for rank in ranks]
    if not hosts or None in hosts:
        return None
    return tuple(dict.fromkeys(host for host in hosts if host is not None))


def num_hosts_of(facts: BenchFacts, group: Group, num_ranks: int | None) -> int | None:
    """How many hosts a group spans; None when the evidence does not say, or says something impossible."""
    hosts = hosts_of_group(facts, group)
    count = len(hosts) if hosts is not None else None
    if count is None and (group.kind in (GroupKind.JOB, GroupKind.TABLE)):
        count = facts.num_hosts
    if count is None and facts.nccl_log is not None:
        counts = {each.num_hosts for each in facts.nccl_log.comms if each.num_ranks == num_ranks}
        count = counts.pop() if len(counts) == 1 else None
    if count is not None and num_ranks is not None and num_ranks > count * MAX_GPUS_PER_HOST:
        return None
    return count


def machine_of(facts: BenchFacts, group: Group) -> Machine:
    """What is known of the hosts of `group`; fields are None where nothing is."""
    hosts = hosts_of_group(facts, group)
    hardware = tuple(each for each in facts.hardware if hosts is None or each.host in hosts)
    models = _models(facts, group, hardware)
    kinds = {gpu_kind(model) for model in models}
    return Machine(
        models=models,
        kind=kinds.pop() if len(kinds) == 1 else None,
        gpus=max((len(each.gpu_models) for each in hardware if each.gpu_models), default=None),
        active_nvlinks=_most([each.nvlinks_per_gpu for each in hardware]),
        nvlink_gbps=_highest([each.nvlink_gbps for each in hardware]),
        has_nvswitch=_agreed([each.has_nvswitch for each in hardware]),
        pcie_gbps=_highest([_slot_gbps(each) for each in hardware]),
        nics=_nics(facts, hardware),
    )


def shares_gpus(facts: BenchFacts) -> bool:
    """Several ranks on one GPU, told or seen: two places with one host and one UUID, full address or index."""
    if facts.shares_gpus:
        return True
    seen: set[tuple[str, str]] = set()
    for place in facts.places:
        name = place.gpu_uuid or _full_address(place.gpu_pci, place.gpu_index)
        if name is None:
            continue
        if (place.host, name) in seen:
            # Equal host names over many ranks are names that were made equal, not one crowded GPU.
            return len(facts.places) <= MAX_GPUS_PER_HOST
        seen.add((place.host, name))
    return False


def _full_address(pci: str | None, index: int | None) -> str | None:
    """An address with domain and bus ("0000:02:00"), with the index; older tables print the bus alone, cut."""
    return f"{pci}/{index}" if pci is not None and ":" in pci else None


def _models(facts: BenchFacts, group: Group, hardware: tuple[HostHardware, ...]) -> tuple[str, ...]:
    wanted = set(group.ranks)
    placed = [
        place.gpu_model for place in facts.places if place.gpu_model and (not wanted or place.rank in wanted)
    ]
    listed = [model for each in hardware for model in each.gpu_models or ()]
    logged = list(facts.nccl_log.gpu_models) if facts.nccl_log is not None else []
    return tuple(dict.fromkeys(placed or listed or logged))


def _nics(facts: BenchFacts, hardware: tuple[HostHardware, ...]) -> tuple[Nic, ...] | None:
    """The ports that NCCL would take on the host that has most: the fastest, RDMA before Ethernet."""
    per_host = [_fastest(each.nics) for each in hardware if each.nics is not None]
    if per_host:
        return max(per_host, key=lambda nics: sum(nic.rate_gbit or 0 for nic in nics))
    log = facts.nccl_log
    return platform_nics(log.platform) if log is not None and log.platform else None


def _fastest(nics: tuple[Nic, ...]) -> tuple[Nic, ...]:
    """Ports of the highest rate: slower ones serve storage and management, and NCCL prefers the fast."""
    rdma = tuple(nic for nic in nics if nic.kind != "ethernet") or nics
    top = max((nic.rate_gbit or 0 for nic in rdma), default=0)
    return tuple(nic for nic in rdma if (nic.rate_gbit or 0) == top)


def _slot_gbps(host: HostHardware) -> float | None:
    """One direction of the GPUs' slots; generations 1 and 2 are what an idle GPU shows, and say nothing."""
    whole = PCIE_X16_GBPS.get(host.pcie_gen or 0)
    return whole * host.pcie_width / 16 if whole is not None and host.pcie_width else None


def _most(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _highest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _agreed(values: list[bool | None]) -> bool | None:
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None
