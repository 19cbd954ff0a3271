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
    is_send: bool | None = None
    """NET: whether the line is about sending; None where it does not say."""
    count: int = 1
    """Lines that say the same."""
    where: str | None = None
    """ "nccl.log:12": file and line of the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A setting that the environment made, in NCCL's words."""

    name: str
    value: str
    line: int | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenAlgorithm:
    """What NCCL chose for one collective and size (SUBSYS TUNING)."""

    collective: str
    size_bytes: int
    algorithm: str
    protocol: str
    channels: str | None = None
    line: int | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommShape:
    """One communicator."""

    num_ranks: int
    num_hosts: int | None = None
    local_ranks: int | None = None
    line: int | None = None
    mnnvl: bool | None = None
    """NVLink joins hosts (MNNVL): NCCL counts them as one."""
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedNic:
    """One NIC in the list that NCCL says it uses."""

    name: str
    """"mlx5_0:1/RoCE", "eth0"."""
    kind: str
    """"ib", "roce", "socket"."""
    index: int | None = None
    address: str | None = None
    """Of an interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedWarning:
    """One NCCL WARN text and where it stands; equal texts but for numbers and addresses are one."""

    text: str
    host: str | None = None
    count: int = 1
    where: str | None = None


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
    first_places: tuple[tuple[str, str], ...] = ()
    """(what, "file:line"), the same for several files."""
    library: str = "NCCL"
    """ "NCCL" or "RCCL"."""
    num_processes: int | None = None
    """Processes with lines of their own; None when lines carry no process id."""
    host_networks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(host, networks that its processes use)."""
    devices_per_host: int | None = None
    """CUDA device indices that appear on the host that has most of them."""
    ring_ranks: int | None = None
    """Ranks in the longest ring that is listed."""
    ring_block: int | None = None
    """Ranks that stand together in that ring before it moves on to the next group: those of a host."""
    nics_found: int | None = None
    """libfabric's "found N nics"."""
    platform: str | None = None
    """Cloud machine type that a plugin names: "p5.48xlarge"."""
    plugin_lines: bool = False
    """A network plugin of a cloud or vendor wrote lines of its own (NET/OFI, NET/FasTrak, NET/gIB …)."""
    plugins_missing: tuple[str, ...] = ()
    """Plugins that were looked for and not found: "libnccl-net.so"."""
    wanted_plugin_api: int | None = None
    """Highest N of ncclNetPlugin_vN that this NCCL looked for in vain."""
    bootstrap: LoggedNic | None = None
    """Interface of "Bootstrap : Using …", or of OOB."""
    gpudirect_too_far: int = 0
    """Lines that refuse GPUDirect RDMA to one GPU and NIC because of their distance."""
    ring_gpudirect: bool | None = None
    """ "use ring PXN p GDR g"; False when any ring does without."""
    dmabuf: bool | None = None
    nvls_set_up: bool = False
    """Lines of a working set-up: "Connected NVLS tree", "NVLS comm", "NVLS Head"."""
    nvls_failures: tuple[str, ...] = ()
    """Lines that tell that NVLS was tried and given up."""
    nvlink_to_switch_gbps: float | None = None
    """ "NVL[370.8] - NVS": bandwidth from a GPU to the NVSwitches, as NCCL's topology has it."""
    nvlink_gbps: float | None = None
    """ "NVL[40.0]" between two GPUs or to a switch, the highest."""
    system_gbps: float | None = None
    """ "=== System : maxBw 48.0 totalBw 370.8": all that one GPU can move, the highest; PCIe alone is at most 48."""
    all_direct_p2p: bool | None = None
    """ "isAllDirectP2p"; False when any communicator does without."""
    unplaced_gpus: int = 0
    """GPUs whose CPU affinity is the whole machine: no NUMA information."""
    warned: tuple[LoggedWarning, ...] = ()
    """`warnings` with host and place."""
    returned_errors: int = 0
    """Lines that show a whole call of NCCL come back with an error: "init.cc:1534 -> 2"."""
    invalid_settings: tuple[str, ...] = ()
    """ "Invalid value x for NCCL_Y, using default 0."."""

    def place_of(self, what: str) -> str:
        """File and line of the telling line; the name of the log when it is not known."""
        return dict(self.first_places).get(what, self.origin)

    def override_of(self, name: str) -> Override | None:
        """The setting of that name, the last one that the log holds."""
        return next((each for each in reversed(self.overrides) if each.name == name), None)

    @property
    def rdma_nics(self) -> tuple[LoggedNic, ...]:
        """NICs for RDMA in the list that NCCL uses."""
        return tuple(nic for nic in self.nics if nic.kind != "socket")

    @property
    def socket_interfaces(self) -> tuple[LoggedNic, ...]:
        """Interfaces in NCCL's list for sockets."""
        return tuple(nic for nic in self.nics if nic.kind == "socket")
