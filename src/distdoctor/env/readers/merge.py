"""Facts about one host from several texts, put together. What one text leaves open another may fill."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState, PairLink
from distdoctor.env.facts.kernel_log import KernelLogFacts
from distdoctor.env.facts.network import Interface, NetworkFacts, RdmaPort
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.env.pci import same_device

S = TypeVar("S", bound=Section)


def merge_facts(first: EnvFacts, second: EnvFacts) -> EnvFacts:
    """Both as facts of one host and process; where both say something, `first` counts."""
    changes: dict[str, Any] = {}  # Any: sections of different types, taken and put back by name
    for field in dataclasses.fields(EnvFacts):
        ours, theirs = getattr(first, field.name), getattr(second, field.name)
        if field.name == "unread":
            changes["unread"] = {**theirs, **ours}
        elif ours is None:
            changes[field.name] = theirs
        elif isinstance(ours, GpuFacts) and isinstance(theirs, GpuFacts):
            changes[field.name] = merge_gpus(ours, theirs)
        elif isinstance(ours, NetworkFacts) and isinstance(theirs, NetworkFacts):
            changes[field.name] = _merge_network(ours, theirs)
        elif isinstance(ours, KernelLogFacts) and isinstance(theirs, KernelLogFacts):
            changes[field.name] = _merge_logs(ours, theirs)
        elif isinstance(ours, VariableFacts) and isinstance(theirs, VariableFacts):
            merged = {**theirs.environment, **ours.environment}
            changes[field.name] = dataclasses.replace(merge_sections(ours, theirs), environment=merged)
        elif isinstance(ours, Section) and isinstance(theirs, Section):
            changes[field.name] = merge_sections(ours, theirs)
    facts = dataclasses.replace(first, **changes)
    unread = {name: why for name, why in facts.unread.items() if getattr(facts, name, None) is None}
    return dataclasses.replace(facts, unread=unread)


def merge_sections(first: S, second: S) -> S:
    """Fields of `second` where `first` has None or nothing; sources and reasons go with their fields."""
    changes: dict[str, Any] = {}  # Any: each field keeps its own declared type
    sources, unread = dict(first.sources), dict(first.unread)
    for field in dataclasses.fields(first):
        if field.name in ("sources", "unread"):
            continue
        ours, theirs = getattr(first, field.name), getattr(second, field.name)
        if _is_empty(ours) and not _is_empty(theirs):
            changes[field.name] = theirs
            unread.pop(field.name, None)
            if field.name in second.sources:
                sources[field.name] = second.sources[field.name]
        elif ours is None and field.name in second.unread:
            unread.setdefault(field.name, second.unread[field.name])
    return dataclasses.replace(first, **changes, sources=sources, unread=unread)


def merge_gpus(first: GpuFacts, second: GpuFacts) -> GpuFacts:
    """GPUs joined device by device; a state of NVML that is bad is kept over one that is good."""
    merged = merge_sections(first, second)
    states = [state for state in (first.nvml_state, second.nvml_state) if state is not None]
    bad = [state for state in states if state is not NvmlState.OK]
    changes: dict[str, Any] = {}  # Any: see merge_sections
    if states:
        changes["nvml_state"] = bad[0] if bad else states[0]
    if first.devices is not None and second.devices is not None:
        changes["devices"] = _merge_devices(first.devices, second.devices)
    if first.pair_links and second.pair_links:
        changes["pair_links"] = _merge_pairs(first.pair_links, second.pair_links)
    if first.extra and second.extra:
        changes["extra"] = {**second.extra, **first.extra}
    return dataclasses.replace(merged, **changes)


def _merge_devices(first: tuple[GpuDevice, ...], second: tuple[GpuDevice, ...]) -> tuple[GpuDevice, ...]:
    devices = list(first)
    for theirs in second:
        for position, ours in enumerate(devices):
            if _same_gpu(ours, theirs):
                devices[position] = _merge_device(ours, theirs)
                break
        else:
            devices.append(theirs)
    # A GPU known by its address alone sorts behind the numbered ones.
    return tuple(sorted(devices, key=lambda device: (device.index == UNKNOWN_INDEX, device.index)))


def _same_gpu(ours: GpuDevice, theirs: GpuDevice) -> bool:
    """By UUID, else by PCI address, else by index: the most particular name that both have decides."""
    if ours.uuid and theirs.uuid:
        return ours.uuid == theirs.uuid
    if ours.pci and theirs.pci:
        return same_device(ours.pci, theirs.pci)
    return ours.index == theirs.index != UNKNOWN_INDEX


def _merge_device(ours: GpuDevice, theirs: GpuDevice) -> GpuDevice:
    merged = merge_sections(ours, theirs)
    index = ours.index if ours.index != UNKNOWN_INDEX else theirs.index
    # A name that the table cut ("Tesla V100-SXM2...") gives way to a whole one.
    name, whole = ours.name, theirs.name
    if name and whole and name.endswith("...") and not whole.endswith("..."):
        return dataclasses.replace(merged, index=index, name=whole)
    return dataclasses.replace(merged, index=index)


def _merge_pairs(first: Iterable[PairLink], second: Iterable[PairLink]) -> tuple[PairLink, ...]:
    pairs: dict[tuple[str, ...], PairLink] = {}
    for link in (*first, *second):
        pairs.setdefault(tuple(sorted((link.a, link.b))), link)
    return tuple(pairs.values())


def _merge_network(first: NetworkFacts, second: NetworkFacts) -> NetworkFacts:
    merged = merge_sections(first, second)
    changes: dict[str, Any] = {}  # Any: see merge_sections
    if first.rdma_ports is not None and second.rdma_ports is not None:
        ports: dict[tuple[str, int], RdmaPort] = {}
        for port in (*first.rdma_ports, *second.rdma_ports):
            key = (port.device, port.port)
            ports[key] = merge_sections(ports[key], port) if key in ports else port
        changes["rdma_ports"] = tuple(ports.values())
    if first.interfaces is not None and second.interfaces is not None:
        interfaces: dict[str, Interface] = {}
        for interface in (*first.interfaces, *second.interfaces):
            name = interface.name
            interfaces[name] = (
                merge_sections(interfaces[name], interface) if name in interfaces else interface
            )
        changes["interfaces"] = tuple(interfaces.values())
    return dataclasses.replace(merged, **changes)


def _merge_logs(first: KernelLogFacts, second: KernelLogFacts) -> KernelLogFacts:
    """Events of both; a line that both logs hold counts once."""
    events = list(first.events or ())
    known = {(event.kind, event.text, event.stamp) for event in events}
    events += [event for event in second.events or () if (event.kind, event.text, event.stamp) not in known]
    merged = merge_sections(first, second)
    if first.events is None and second.events is None:
        return merged
    lines = [count for count in (first.num_lines, second.num_lines) if count is not None]
    return dataclasses.replace(merged, events=tuple(events), num_lines=sum(lines) if lines else None)


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, tuple | Mapping | frozenset) and not value)
