"""What NCCL's own log (NCCL_DEBUG=INFO) says about transports, channels, algorithms and overrides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How two ranks of one host, or two hosts, are joined, and in how many lines it stands."""

    transport: str
    """"P2P", "SHM", "NET", "NVLS", "COLLNET"."""
    detail: str
    """"CUMEM", "IPC/read", "direct/direct", "IB", "AWS Libfabric", "Socket" …"""
    source: int | None = None
    target: int | None = None
    gpudirect: bool = False
    """NET with /GDRDMA."""
    device: str | None = None
    """Index of the NIC for NET, as NCCL numbers them."""
    pxn: bool = False
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A setting that the environment made, in NCCL's words."""

    name: str
    value: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenAlgorithm:
    """What NCCL chose for one collective and size (SUBSYS TUNING)."""

    collective: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommShape:
    """One communicator."""

    num_ranks: int
    num_hosts: int | None = None
    local_ranks: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedNic:
    """One NIC in the list that NCCL says it uses."""

    name: str
    """"mlx5_0:1/RoCE", "eth0"."""
    kind: str
    """"ib", "roce", "socket"."""
    index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """One log, or the logs of one job put together. None: not in the log."""

    origin: str
    version: str | None = None
    network: str | None = None
    """"IB", "Socket", "AWS Libfabric", "IBext_v8" …; of "Using network …"."""
    networks: tuple[str, ...] = ()
    """All that appear, when processes differ."""
    nics: tuple[LoggedNic, ...] = ()
    plugin: str | None = None
    plugin_version: str | None = None
    plugin_api: int | None = None
    """The N of ncclNetPlugin_vN that was loaded."""
    provider: str | None = None
    """libfabric's: "efa", "tcp;ofi_rxm" …"""
    gpudirect_disabled: tuple[str, ...] = ()
    """HCAs for which "GPU Direct RDMA Disabled" stands."""
    gpudirect_enabled: tuple[str, ...] = ()
    ibverbs_missing: bool = False
    no_ib_device: bool = False
    nvls_available: bool | None = None
    """"NVLS multicast support is (not) available"."""
    nvls_channels: int | None = None
    collective_channels: int | None = None
    p2p_channels: int | None = None
    comms: tuple[CommShape, ...] = ()
    routes: tuple[Route, ...] = ()
    algorithms: tuple[ChosenAlgorithm, ...] = ()
    overrides: tuple[Override, ...] = ()
    warnings: tuple[str, ...] = ()
    """Lines of NCCL WARN, their text, at most 50."""
    init_s: float | None = None
    hosts: tuple[str, ...] = ()
    gpu_models: tuple[str, ...] = ()
    first_lines: tuple[tuple[str, int], ...] = ()
    """(what, line): where the telling lines stand, for evidence: ("network", 12)."""

    def line_of(self, what: str) -> int | None:
        """Line number of the telling line, or None."""
        return dict(self.first_lines).get(what)
