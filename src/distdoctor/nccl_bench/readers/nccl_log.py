"""NCCL's own log (NCCL_DEBUG=INFO) → NcclLog: one file, or one file a process put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdoctor.evidence_bytes import decode
from distdoctor.nccl_bench.facts.nccl_log import CommShape, LoggedWarning, NcclLog, Route
from distdoctor.nccl_bench.readers.nccl_comm_lines import read_comm_line
from distdoctor.nccl_bench.readers.nccl_lines import LogLine, banner_version, nccl_lines
from distdoctor.nccl_bench.readers.nccl_log_merge import merge_logs
from distdoctor.nccl_bench.readers.nccl_network_lines import read_network_line
from distdoctor.nccl_bench.readers.nccl_notes import MAX_DISTINCT, Notes
from distdoctor.nccl_bench.readers.nccl_route_lines import read_route_line
from distdoctor.nccl_bench.readers.nccl_setting_lines import read_rank_row, read_setting_line
from distdoctor.pasted import clean_pasted

__all__ = ["merge_logs", "read_nccl_log", "sniff_nccl_log"]

# How sure a text with several lines of NCCL is; a job's log holds them among others, and other readers may be surer.
_SURE = 0.85
_UNSURE = 0.4

_TESTS_ROW_SIGN = "# "


def read_nccl_log(text: str, label: str) -> NcclLog | None:
    """What NCCL says in `text`; None when it holds no line of NCCL. `label` names the text in evidence."""
    cleaned = clean_pasted(text)
    notes = Notes(origin=label)
    seen = False
    for line in nccl_lines(cleaned):
        seen = True
        _read(line, notes)
    if not seen:
        return None
    for number, row in _rank_rows(cleaned):
        read_rank_row(number, row, notes)
    return _facts(notes)


def sniff_nccl_log(_path: str, head: bytes) -> float:
    """How surely a file's first bytes are a log of NCCL, from 0 to 1; one line alone may be anywhere."""
    if b"CCL" not in head:
        return 0.0
    count = 0
    for _line in nccl_lines(clean_pasted(decode(head))):
        count += 1
        if count > 1:
            return _SURE
    return _UNSURE if count else 0.0


def _rank_rows(text: str) -> Iterator[tuple[int, str]]:
    if " Pid " in text:
        for number, row in enumerate(text.split("\n"), start=1):
            if " Pid " in row and _TESTS_ROW_SIGN in row:
                yield number, row[-400:]


def _read(line: LogLine, notes: Notes) -> None:
    if line.host and len(notes.hosts) < MAX_DISTINCT:
        notes.hosts.setdefault(line.host)
        if line.device is not None:
            notes.devices.setdefault(line.host, set()).add(line.device)
    if line.process and len(notes.processes) < MAX_DISTINCT:
        notes.processes.setdefault(line.process)
    if "CL version" in line.text or line.level in ("BANNER", "VERSION"):
        found = banner_version(line.text)
        if found:
            notes.first("library", found[0], line)
            notes.first("version", found[1], line)
    if not read_route_line(line, notes):
        read_network_line(line, notes)
        read_comm_line(line, notes)
        read_setting_line(line, notes)


def _facts(notes: Notes) -> NcclLog:
    networks = tuple(notes.networks)
    return NcclLog(
        origin=notes.origin,
        version=notes.values.get("version"),
        library=notes.values.get("library", "NCCL"),
        network=networks[0] if networks else None,
        networks=networks,
        host_networks=tuple((host, tuple(names)) for host, names in notes.host_networks.items()),
        nics=tuple(notes.nics.values()),
        nics_found=_whole(notes, "nics found"),
        plugin=notes.values.get("plugin"),
        plugin_version=notes.values.get("plugin version"),
        plugin_api=int(notes.values["plugin api"]) if "plugin api" in notes.values else None,
        wanted_plugin_api=_whole(notes, "wanted plugin api"),
        plugins_missing=tuple(notes.plugins_missing),
        plugin_lines="plugin lines" in notes.flags,
        provider=notes.values.get("provider"),
        platform=notes.values.get("platform"),
        bootstrap=notes.bootstrap,
        gpudirect_disabled=tuple(nic for nic, on in notes.gpudirect.items() if not on),
        gpudirect_enabled=tuple(nic for nic, on in notes.gpudirect.items() if on),
        gpudirect_too_far=notes.too_far,
        ring_gpudirect=_both(notes, "ring gdr on", "ring gdr off"),
        dmabuf=True if "dmabuf" in notes.flags else None,
        ibverbs_missing="ibverbs missing" in notes.flags,
        no_ib_device="no ib device" in notes.flags,
        # Communicators of one or two GPUs a host never have NVLS: one that has it decides.
        nvls_available=_either(notes, "nvls available", "nvls unavailable"),
        nvls_channels=_whole(notes, "nvls channels"),
        nvls_set_up="nvls set up" in notes.flags,
        nvls_failures=tuple(notes.nvls_failures),
        collective_channels=_whole(notes, "collective channels"),
        p2p_channels=_whole(notes, "p2p channels"),
        comms=_comms(notes),
        routes=_routes(notes),
        ring_ranks=_whole(notes, "ring ranks"),
        ring_block=_whole(notes, "ring block"),
        system_gbps=notes.most.get("system"),
        nvlink_gbps=notes.most.get("nvlink"),
        nvlink_to_switch_gbps=notes.most.get("nvlink to switch"),
        all_direct_p2p=_both(notes, "all direct p2p", "not all direct p2p"),
        algorithms=tuple(notes.algorithms.values()),
        overrides=tuple(notes.overrides.values()),
        invalid_settings=tuple(notes.invalid),
        warnings=tuple(each.text for each in notes.warnings.values()),
        warned=_warned(notes),
        unplaced_gpus=len(notes.unplaced),
        returned_errors=notes.returned_errors,
        init_s=notes.most.get("init"),
        hosts=tuple(notes.hosts),
        num_processes=len(notes.processes) or None,
        devices_per_host=max((len(each) for each in notes.devices.values()), default=0) or None,
        gpu_models=tuple(notes.gpu_models),
        first_lines=tuple(notes.lines.items()),
        first_places=tuple((what, notes.where(number)) for what, number in notes.lines.items()),
    )


def _whole(notes: Notes, what: str) -> int | None:
    return int(notes.most[what]) if what in notes.most else None


def _both(notes: Notes, good: str, bad: str) -> bool | None:
    """False as soon as one line says the bad thing."""
    return False if bad in notes.flags else True if good in notes.flags else None


def _either(notes: Notes, good: str, bad: str) -> bool | None:
    """True as soon as one line says the good thing."""
    return True if good in notes.flags else False if bad in notes.flags else None


def _comms(notes: Notes) -> tuple[CommShape, ...]:
    """Distinct shapes; one without hosts only where no other line tells more of the same number of ranks."""
    whole = {comm.num_ranks for comm in notes.comms.values() if comm.num_hosts is not None}
    return tuple(
        comm for comm in notes.comms.values() if comm.num_hosts is not None or comm.num_ranks not in whole
    )


def _routes(notes: Notes) -> tuple[Route, ...]:
    return tuple(replace(route, count=notes.route_counts[key]) for key, route in notes.routes.items())


def _warned(notes: Notes) -> tuple[LoggedWarning, ...]:
    return tuple(replace(each, count=notes.warning_counts[key]) for key, each in notes.warnings.items())
