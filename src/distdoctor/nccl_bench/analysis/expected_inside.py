"""What do the GPUs of one host reach among themselves? NVLink, NVLink SHARP, xGMI, bridges, PCIe.

Each range is the bandwidth of one GPU's links in one direction times the share of it that published nccl-tests
runs of healthy machines reached (catalog/expected_busbw.json). busbw of a ring can at best equal that bandwidth;
with NVLink SHARP the switches add up, each GPU sends half as much, and busbw can exceed it.
"""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.expected import Expectation
from distdoctor.nccl_bench.analysis.machine import Machine
from distdoctor.nccl_bench.catalog.gpus import PCIE_X16_GBPS
from distdoctor.report.model import Confidence
from distdoctor.units import GIB, MIB

Range = tuple[float, float]

# Shares of NVLink bandwidth that rings on baseboards reached: all_reduce A100 0.77-0.78, H200 0.81-0.82, B200
# 0.75-0.76, V100 0.83; all_gather A100 0.74, H200 0.80; reduce_scatter A100 0.77, H200 0.81; the others on
# A100 only: broadcast 0.78, all_to_all 0.75, sendrecv 0.65.
RING: dict[str, Range] = {
    "all_reduce": (0.75, 0.83),
    "all_gather": (0.74, 0.83),
    "reduce_scatter": (0.75, 0.83),
    "broadcast": (0.75, 0.83),
    "all_to_all": (0.74, 0.83),
    "sendrecv": (0.65, 0.83),
}
SEEN_ON_A100_ONLY = frozenset({"broadcast", "all_to_all", "sendrecv"})

# V100 boards without switches join 8 GPUs by a mesh: Azure fails an ND40rs v2 below 110 GB/s, 0.73 of 150.
RING_MESH_OF_8: Range = (0.70, 0.83)

# all_reduce through NVLink SHARP, by number of ranks: H200 0.92, 0.97, 1.02 and 1.05-1.07 on 5, 6, 7 and 8 of 8
# (H100: 1.06-1.07 on 8); with 4 ranks and fewer NCCL stayed with the ring (0.81).
NVLS_MIN_RANKS = 5
NVLS_HOPPER: dict[int, Range] = {5: (0.92, 1.08), 6: (0.96, 1.08), 7: (1.02, 1.08), 8: (1.05, 1.08)}
# B200: 0.93-0.94 on 8; nothing is published for 5 to 7, where the ring's low end is taken.
NVLS_BLACKWELL: dict[int, Range] = {8: (0.93, 0.95)}
NVLS_RING_LOW = 0.75
NVLS_HIGH = 1.08

# MI300X, 7 xGMI links, n ranks use n-1 of them: 0.70 on 8, 0.74 on 2.
XGMI: Range = (0.69, 0.78)

# Bridged cards: H100 PCIe pair 0.39 (116 of 300 GB/s), Azure's limit for a pair of H100 NVL 0.69, an NV4 pair
# 0.84. Wide, because how many bridges are plugged in is not seen from the model.
BRIDGE: Range = (0.38, 0.85)

# PCIe: 8 RTX 5090 0.44, 4 of them 0.56, 8 H100 PCIe 0.56-0.71 (guides), 4 A100 PCIe 0.79 (Azure's limit). What the
# paths between the slots are (switch, root ports, sockets) decides, and is not known here.
PCIE: Range = (0.40, 0.80)

# The slot may be a generation older than the card; then half of it is what can be asked for.
OLDER_SLOT = 0.5

# Sizes from which healthy curves have 90 % of their plateau: H100 at 512 MiB has 0.92 of it, A100 0.96; B200 at
# 4 GiB has 0.88 and at 16 GiB 1; PCIe saturates early.
PLATEAU_BYTES = {"hopper": 512 * MIB, "ampere": 512 * MIB, "blackwell": 8 * GIB}
PLATEAU_BYTES_DEFAULT = 512 * MIB
PLATEAU_BYTES_PCIE = 256 * MIB

RING_SOURCE = (
    "published nccl-tests runs: stas00/ml-engineering network/README.md, Azure/AI-benchmarking-guide, "
    "microsoft/superbenchmark tests/data"
)
XGMI_SOURCE = "published rccl-tests run: stas00/ml-engineering network/README.md"
BRIDGE_SOURCE = (
    "NVIDIA/nccl-tests issue 194 (H100 PCIe pair); Azure/azurehpc-health-checks limits (H100 NVL pair)"
)
PCIE_SOURCE = "NVIDIA/nccl issue 1639 (RTX 5090); Azure/azurehpc-health-checks limits (A100 PCIe)"


def inside_host(machine: Machine, collective: str, num_ranks: int) -> Expectation | str:
    """The range for `num_ranks` ranks of one host, or the reason why there is none."""
    if collective not in RING:
        return f"no figure for {collective} is published"
    kind = machine.kind
    if kind is None:
        return _unknown_kind(machine, collective, num_ranks)
    if kind.form == "superchip":
        return f"how the {kind.family} of one host are joined depends on the system"
    if kind.form == "oam":
        return _xgmi(machine, collective, num_ranks)
    if not kind.is_baseboard:
        return _cards(machine, collective, num_ranks)
    if collective == "all_reduce" and kind.nvls and num_ranks >= NVLS_MIN_RANKS:
        return _nvls(machine, num_ranks)
    return ring(machine, collective, num_ranks)


def ring(machine: Machine, collective: str, num_ranks: int) -> Expectation | str:
    """A ring over the NVLinks of a baseboard."""
    links, each = machine.nvlinks, machine.link_gbps
    if not links or not each:
        return "the number of NVLinks is not known"
    family = machine.kind.family if machine.kind is not None else "GPU"
    low, high = RING[collective]
    if family in ("V100", "P100") and num_ranks > 4 and machine.has_nvswitch is not True:
        low, high = RING_MESH_OF_8
    if num_ranks == 2:
        # Both ways between one pair, which is what sendrecv measures: A100 reached 0.65 where larger rings had 0.77.
        low = min(low, RING["sendrecv"][0])
    by_analogy = (
        machine.kind is None or (collective in SEEN_ON_A100_ONLY and family != "A100") or num_ranks < 4
    )
    total = links * each
    return Expectation(
        scheme="nvlink",
        low_gbps=low * total,
        high_gbps=high * total,
        from_bytes=_plateau_bytes(machine),
        rule=f"{_links(links, each)}; a ring of {collective} over them reaches {_shares(low, high)} of it",
        source=RING_SOURCE,
        confidence=Confidence.MEDIUM if by_analogy else Confidence.HIGH,
        ceiling_gbps=total,
    )


def _nvls(machine: Machine, num_ranks: int) -> Expectation | str:
    links, each, kind = machine.nvlinks, machine.link_gbps, machine.kind
    if not links or not each or kind is None:
        return "the number of NVLinks is not known"
    seen = NVLS_HOPPER if kind.generation == "hopper" else NVLS_BLACKWELL
    is_seen = num_ranks in seen and kind.family in ("H100", "H200", "B200")
    low, high = seen[num_ranks] if is_seen else (NVLS_RING_LOW, NVLS_HIGH)
    total = links * each
    return Expectation(
        scheme="nvls",
        low_gbps=low * total,
        high_gbps=high * total,
        from_bytes=_plateau_bytes(machine),
        rule=(
            f"{_links(links, each)}; all_reduce of {num_ranks} ranks through the switches' own adders "
            f"(NVLink SHARP) reaches {_shares(low, high)} of it"
        ),
        source=RING_SOURCE,
        confidence=Confidence.HIGH if is_seen else Confidence.MEDIUM,
    )


def _xgmi(machine: Machine, collective: str, num_ranks: int) -> Expectation | str:
    each = machine.link_gbps
    if not each:
        return "the speed of the xGMI links is not known"
    links = min(num_ranks - 1, 7)
    low, high = XGMI
    total = links * each
    return Expectation(
        scheme="xgmi",
        low_gbps=low * total,
        high_gbps=high * total,
        from_bytes=PLATEAU_BYTES_DEFAULT,
        rule=(
            f"{num_ranks} ranks use {links} xGMI links × {each:g} GB/s = {total:g} GB/s one way; "
            f"{_shares(low, high)} of it was reached"
        ),
        source=XGMI_SOURCE,
        confidence=Confidence.HIGH
        if collective == "all_reduce" and num_ranks in (2, 8)
        else Confidence.MEDIUM,
        ceiling_gbps=total,
    )


def _cards(machine: Machine, collective: str, num_ranks: int) -> Expectation | str:
    """PCIe cards: a bridged pair or group that is known to be joined, else what PCIe gives."""
    if collective not in ("all_reduce", "all_gather", "reduce_scatter"):
        return f"no figure for {collective} on PCIe cards is published"
    links, each = machine.active_nvlinks, machine.link_gbps
    all_joined = num_ranks == 2 or machine.has_nvswitch is True
    if links and each and all_joined:
        low, high = BRIDGE
        total = links * each
        return Expectation(
            scheme="bridge",
            low_gbps=low * total,
            high_gbps=high * total,
            from_bytes=PLATEAU_BYTES_DEFAULT,
            rule=f"{_links(links, each)}; bridged cards reached {_shares(low, high)} of it",
            source=BRIDGE_SOURCE,
            confidence=Confidence.MEDIUM,
            ceiling_gbps=total,
        )
    return _pcie(machine)


def _pcie(machine: Machine) -> Expectation | str:
    kind = machine.kind
    own = PCIE_X16_GBPS.get(kind.pcie_gen) if kind is not None else None
    slot = machine.pcie_gbps
    if own is None and slot is None:
        return "the PCIe generation is not known"
    low, high = PCIE
    if slot is not None:
        top = min(slot, own) if own is not None else slot
        words = f"a PCIe slot of {top:g} GB/s one way"
    else:
        top = own or 0.0
        low *= OLDER_SLOT
        words = f"PCIe of {top:g} GB/s one way, or half of it in an older slot"
    return Expectation(
        scheme="pcie",
        low_gbps=low * top,
        high_gbps=_pcie_high(machine, top),
        from_bytes=PLATEAU_BYTES_PCIE,
        rule=f"{words}; rings over PCIe reached {_shares(low, high)} of it",
        source=PCIE_SOURCE,
        confidence=Confidence.MEDIUM,
        ceiling_gbps=None,
    )


def _pcie_high(machine: Machine, top_gbps: float) -> float:
    """Bridges that are not seen may make it faster."""
    product = machine.kind.nvlink_total_gbps if machine.kind is not None else None
    may_be_bridged = machine.active_nvlinks != 0 and product
    return BRIDGE[1] * product if may_be_bridged and product else PCIE[1] * top_gbps


def _unknown_kind(machine: Machine, collective: str, num_ranks: int) -> Expectation | str:
    """GPUs that the catalogue does not know, or that differ: judged by their links, where these were read."""
    if len(machine.models) > 1:
        return f"the GPUs differ: {', '.join(machine.models[:3])}"
    if machine.active_nvlinks and machine.has_nvswitch:
        return ring(machine, collective, num_ranks)
    if machine.active_nvlinks == 0 and machine.pcie_gbps is not None:
        return _cards(machine, collective, num_ranks)
    if machine.models:
        return f"the GPU model is not in the catalogue: {machine.models[0]}"
    return "the GPU model is not known"


def _plateau_bytes(machine: Machine) -> int:
    return PLATEAU_BYTES.get(
        machine.kind.generation if machine.kind is not None else "", PLATEAU_BYTES_DEFAULT
    )


def _links(links: int, each_gbps: float) -> str:
    return f"{links} NVLinks × {each_gbps:g} GB/s = {links * each_gbps:g} GB/s one way"


def _shares(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"
