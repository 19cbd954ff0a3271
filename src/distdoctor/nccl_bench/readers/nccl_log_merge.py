"""Logs of several processes (NCCL_DEBUG_FILE=nccl.%h.%p) put together as the log of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from distdoctor.nccl_bench.facts.nccl_log import CommShape, LoggedWarning, NcclLog, Route
from distdoctor.nccl_bench.readers.nccl_notes import MAX_DISTINCT, MAX_WARNINGS

T = TypeVar("T")
K = TypeVar("K")
NumberT = TypeVar("NumberT", int, float)


def merge_logs(logs: Sequence[NcclLog]) -> NcclLog:
    """One log of all: what any process says; places name their files. Raises ValueError when there is none."""
    if not logs:
        raise ValueError("no log to merge")
    if len(logs) == 1:
        return logs[0]
    disabled = _distinct(nic for log in logs for nic in log.gpudirect_disabled)
    networks = _distinct(name for log in logs for name in log.networks)
    return NcclLog(
        origin=f"{logs[0].origin} and {len(logs) - 1} more",
        version=_first(log.version for log in logs),
        library=_first(log.library for log in logs if log.version) or logs[0].library,
        network=networks[0] if networks else None,
        networks=networks,
        host_networks=_host_networks(logs),
        nics=_by(lambda nic: (nic.kind, nic.name), (nic for log in logs for nic in log.nics)),
        nics_found=_highest(log.nics_found for log in logs),
        plugin=_first(log.plugin for log in logs),
        plugin_version=_first(log.plugin_version for log in logs),
        plugin_api=_first(log.plugin_api for log in logs),
        wanted_plugin_api=_highest(log.wanted_plugin_api for log in logs),
        plugins_missing=_distinct(name for log in logs for name in log.plugins_missing),
        plugin_lines=any(log.plugin_lines for log in logs),
        provider=_first(log.provider for log in logs),
        platform=_first(log.platform for log in logs),
        bootstrap=_first(log.bootstrap for log in logs),
        gpudirect_disabled=disabled,
        gpudirect_enabled=_distinct(
            nic for log in logs for nic in log.gpudirect_enabled if nic not in disabled
        ),
        gpudirect_too_far=sum(log.gpudirect_too_far for log in logs),
        ring_gpudirect=_all(log.ring_gpudirect for log in logs),
        dmabuf=_any(log.dmabuf for log in logs),
        ibverbs_missing=any(log.ibverbs_missing for log in logs),
        no_ib_device=any(log.no_ib_device for log in logs),
        nvls_available=_any(log.nvls_available for log in logs),
        nvls_channels=_highest(log.nvls_channels for log in logs),
        nvls_set_up=any(log.nvls_set_up for log in logs),
        nvls_failures=_distinct(text for log in logs for text in log.nvls_failures),
        collective_channels=_highest(log.collective_channels for log in logs),
        p2p_channels=_highest(log.p2p_channels for log in logs),
        comms=_comms(logs),
        routes=_routes(logs),
        ring_ranks=_highest(log.ring_ranks for log in logs),
        ring_block=_highest(log.ring_block for log in logs),
        system_gbps=_highest(log.system_gbps for log in logs),
        nvlink_gbps=_highest(log.nvlink_gbps for log in logs),
        nvlink_to_switch_gbps=_highest(log.nvlink_to_switch_gbps for log in logs),
        all_direct_p2p=_all(log.all_direct_p2p for log in logs),
        algorithms=_by(
            lambda each: (each.collective, each.size_bytes, each.algorithm, each.protocol, each.channels),
            (each for log in logs for each in log.algorithms),
        ),
        overrides=_by(lambda each: (each.name, each.value), (each for log in logs for each in log.overrides)),
        returned_errors=sum(log.returned_errors for log in logs),
        invalid_settings=_distinct(text for log in logs for text in log.invalid_settings),
        warnings=_distinct(text for log in logs for text in log.warnings)[:MAX_WARNINGS],
        warned=_warned(logs),
        unplaced_gpus=sum(log.unplaced_gpus for log in logs),
        init_s=_highest(log.init_s for log in logs),
        hosts=_distinct(host for log in logs for host in log.hosts),
        num_processes=sum(log.num_processes or 0 for log in logs) or None,
        devices_per_host=_devices(logs),
        gpu_models=_distinct(model for log in logs for model in log.gpu_models),
        first_places=_places(logs),
    )


def _distinct(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))[:MAX_DISTINCT]


def _by(key: Callable[[T], K], values: Iterable[T]) -> tuple[T, ...]:
    kept: dict[K, T] = {}
    for value in values:
        kept.setdefault(key(value), value)
    return tuple(kept.values())[:MAX_DISTINCT]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _highest(values: Iterable[NumberT | None]) -> NumberT | None:
    return max((value for value in values if value is not None), default=None)


def _all(values: Iterable[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return all(known) if known else None


def _any(values: Iterable[bool | None]) -> bool | None:
    known = [value for value in values if value is not None]
    return any(known) if known else None


def _host_networks(logs: Sequence[NcclLog]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    merged: dict[str, dict[str, None]] = {}
    for log in logs:
        for host, names in log.host_networks:
            merged.setdefault(host, {}).update(dict.fromkeys(names))
    return tuple((host, tuple(names)) for host, names in merged.items())


def _comms(logs: Sequence[NcclLog]) -> tuple[CommShape, ...]:
    every = _by(
        lambda comm: (comm.num_ranks, comm.num_hosts, comm.local_ranks, comm.mnnvl),
        (comm for log in logs for comm in log.comms),
    )
    whole = {comm.num_ranks for comm in every if comm.num_hosts is not None}
    return tuple(comm for comm in every if comm.num_hosts is not None or comm.num_ranks not in whole)


def _routes(logs: Sequence[NcclLog]) -> tuple[Route, ...]:
    merged: dict[Route, Route] = {}
    for log in logs:
        for route in log.routes:
            key = replace(route, count=0, line=None, where=None)
            old = merged.get(key)
            merged[key] = route if old is None else replace(old, count=old.count + route.count)
    return tuple(merged.values())[:MAX_DISTINCT]


def _warned(logs: Sequence[NcclLog]) -> tuple[LoggedWarning, ...]:
    merged: dict[tuple[str, str | None], LoggedWarning] = {}
    for log in logs:
        for each in log.warned:
            key = (each.text, each.host)
            old = merged.get(key)
            merged[key] = each if old is None else replace(old, count=old.count + each.count)
    return tuple(merged.values())[:MAX_WARNINGS]


def _devices(logs: Sequence[NcclLog]) -> int | None:
    """Processes of one host that each see one device number count as that many devices."""
    by_host: dict[tuple[str, ...], int] = {}
    for log in logs:
        if len(log.hosts) == 1 and log.devices_per_host:
            by_host[log.hosts] = by_host.get(log.hosts, 0) + log.devices_per_host
    known = [*by_host.values(), *(log.devices_per_host for log in logs if log.devices_per_host)]
    return max(known, default=None)


def _places(logs: Sequence[NcclLog]) -> tuple[tuple[str, str], ...]:
    merged: dict[str, str] = {}
    for log in logs:
        for what, place in log.first_places:
            merged.setdefault(what, place)
    return tuple(merged.items())
