"""NCCL's lines about networks: which one, over which NICs, by which plugin, with or without GPUDirect RDMA.

Formats: NVIDIA/nccl 2.4 to 2.30 (src/transport/net_ib*, net_socket.cc, src/plugin, src/graph/topo.cc), and the
plugins of AWS (NET/OFI), Google (FasTrak, GPUDirectTCPX, gIB) and NVIDIA (IBext, RDMA Plugin).
"""

from __future__ import annotations

import re

from distdoctor.nccl_bench.facts.nccl_log import LoggedNic
from distdoctor.nccl_bench.readers.nccl_lines import LogLine
from distdoctor.nccl_bench.readers.nccl_notes import Notes

_USING_NETWORK = re.compile(r"Using network (\S.{0,60})$")
_ASSIGNED = re.compile(r"Assigned NET plugin (\S.{0,60}?) to comm")
_NET_USING = re.compile(r"NET/(\S[^:]{0,40}?) ?: Using ?(.*)$")
_RDMA_NIC = re.compile(r"(?:\[(\d+)\]\s?)?([A-Za-z][\w.\-]{0,60}):(\d+)/(IB|RoCE|ETH\w*)", re.IGNORECASE)
_INTERFACE = re.compile(r"\[(\d+)\]([^\s:\[\]]{1,40}):(\S{1,80}?)<\d+>")
_OUT_OF_BAND = re.compile(r"OOB ([^\s:]{1,40}):(\S{1,80}?)<\d+>")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[\d+\])?([^\s:]{1,40}):(\S{1,80}?)(?:<\d+>|$)")
_GPUDIRECT = re.compile(
    r"(?:NET/(\S[^:]{0,40}?) ?: )?GPU Direct RDMA (?:\(\w+\) )?(Disabled|Enabled) for HCA (\d+) ?'?([\w.:+\-]*)",
    re.IGNORECASE,
)
_DISTANCE = re.compile(r"GPU Direct RDMA (Disabled|Enabled) for GPU \S+ ?/ ?HCA \S+ \(distance")
_LOADED = re.compile(r"Loaded net plugin (\S.{0,60}?) \(v(\d+)\)")
_WANTED = re.compile(r"Failed to find ncclNetPlugin_v(\d+) symbol")
_MISSING = re.compile(
    r"(?:Could not find ?: ?|No plugin found \(|Plugin load returned \d+ ?: ?)([\w./\-]*\.so[\w.]*)"
)
_PROVIDER = re.compile(r"Selected [Pp]rovider is ([\w;.\-]{1,40})")
_FOUND_NICS = re.compile(r"found (\d{1,3}) nics?\b")
_PLATFORM = re.compile(r"(?:Running on |platform ?: ?)((?:p|P|g|G|trn)\d[\w.\-]{0,30})")
_PLUGIN_VERSION = re.compile(
    r"(?:Plugin version ?: ?|aws-ofi-[nr]ccl |, version: |Initializing gIB )(v?\d\S{0,40})"
)
_CLOUD_PLUGIN = re.compile(r"NET/(OFI|FasTrak|gIB|FastSocket|GPUDirectTCPX\w*)\b|network FasTrak")

# Networks whose lines about GPUDirect mean nothing: sockets never have it.
_SOCKETS = frozenset({"socket", "fastsocket"})


def read_network_line(line: LogLine, notes: Notes) -> None:
    """Note what one message says about networks."""
    text = line.text
    if "sing network" in text or "Assigned NET" in text:
        _network(line, notes)
    if "NET/" in text:
        _net(line, notes)
    if "GPU Direct RDMA" in text:
        _gpudirect(line, notes)
    if "ootstrap" in text:
        found = _BOOTSTRAP.search(text)
        if found:
            notes.bootstrap = LoggedNic(name=found[1], kind="socket", address=found[2])
            notes.mark("bootstrap", line)
    if "libibverbs" in text and ("Failed to open" in text or "cannot open" in text):
        notes.flag("ibverbs missing", line)
    if "DMA-BUF is available" in text:
        notes.flag("dmabuf", line)
    if "lugin" in text or "FasTrak" in text or "gIB" in text or "ofi" in text:
        _plugin(line, notes)


def _network(line: LogLine, notes: Notes) -> None:
    found = _USING_NETWORK.search(line.text) or _ASSIGNED.search(line.text)
    if not found:
        return
    name = found[1].strip().rstrip(".")
    notes.networks.setdefault(name)
    notes.mark("network", line)
    notes.mark(f"network {name}", line)
    if line.host:
        notes.host_networks.setdefault(line.host, {}).setdefault(name)


def _net(line: LogLine, notes: Notes) -> None:
    text = line.text
    if "No device found" in text:
        notes.flag("no ib device", line)
    cloud = _CLOUD_PLUGIN.search(text)
    if cloud:
        notes.flag("plugin lines", line)
        _libfabric(line, notes)
    found = _NET_USING.search(text)
    if not found or text.find("threads and") >= 0:
        return
    for index, name, address in _INTERFACE.findall(found[2]):
        nic = LoggedNic(name=name, kind="socket", index=int(index), address=address)
        notes.nics.setdefault(("socket", name), nic)
        notes.mark("interfaces", line)
    if found[1].lower() in _SOCKETS:
        return
    for index, name, port, layer in _RDMA_NIC.findall(found[2].split("OOB", 1)[0]):
        kind = "ib" if layer.upper() == "IB" else "roce"
        label = f"{name}:{port}/{layer}"
        nic = LoggedNic(name=label, kind=kind, index=int(index) if index else None)
        notes.nics.setdefault((kind, label), nic)
        notes.mark("nics", line)
    out_of_band = _OUT_OF_BAND.search(found[2])
    if out_of_band and notes.bootstrap is None:
        notes.bootstrap = LoggedNic(name=out_of_band[1], kind="socket", address=out_of_band[2])
        notes.mark("bootstrap", line)


def _libfabric(line: LogLine, notes: Notes) -> None:
    for what, pattern in (("provider", _PROVIDER), ("platform", _PLATFORM)):
        found = pattern.search(line.text)
        if found:
            notes.first(what, found[1].rstrip("."), line)
    if "disabling GDR" in line.text or "GDR is disabled" in line.text:
        notes.gpudirect["all NICs (the plugin)"] = False
        notes.mark("gpudirect off", line)
    nics = _FOUND_NICS.search(line.text)
    if nics:
        notes.highest("nics found", int(nics[1]), line)


def _gpudirect(line: LogLine, notes: Notes) -> None:
    distance = _DISTANCE.search(line.text)
    if distance:
        notes.too_far += distance[1] == "Disabled"
        notes.mark(f"distance {distance[1].lower()}", line)
        return
    found = _GPUDIRECT.search(line.text)
    if not found or (found[1] or "").lower() in _SOCKETS:
        return
    enabled = found[2].lower() == "enabled"
    nic = found[4] or f"HCA {found[3]}"
    # NCCL's own line comes after a plugin's and decides; a NIC that any process has to do without counts as off.
    notes.gpudirect[nic] = enabled and notes.gpudirect.get(nic, True)
    notes.mark("gpudirect on" if enabled else "gpudirect off", line)


def _plugin(line: LogLine, notes: Notes) -> None:
    text = line.text
    loaded = _LOADED.search(text)
    if loaded:
        notes.first("plugin", loaded[1], line)
        notes.first("plugin api", loaded[2], line)
    wanted = _WANTED.search(text)
    if wanted:
        notes.highest("wanted plugin api", int(wanted[1]), line)
    missing = _MISSING.search(text)
    if missing and "net" in missing[1] and "tuner" not in text.lower():
        notes.plugins_missing.setdefault(missing[1].rstrip("."))
        notes.mark("plugin missing", line)
    version = _PLUGIN_VERSION.search(text)
    if version:
        notes.first("plugin version", version[1].rstrip(",."), line)
