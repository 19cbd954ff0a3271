"""Why are the GPUs of one host slow together? No NVLink SHARP, host memory, lost links, old software, settings."""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.hypothesis import FITS, SAID, Hypothesis, hypothesis, share_left
from distdoctor.nccl_bench.analysis.shortfall import Shortfall
from distdoctor.report.model import Fault, Team

# Shares of the expectation that belong to a cause. NVLink SHARP lost: 367 of 473 on H200, 682 of 838 on B200
# (stas00/ml-engineering); host memory instead of peers: 3.9 of 47 and less. The limits around them are our own.
NVLS_LOST = (0.70, 0.90)
HOST_MEMORY_MOST = 0.15

# A sibling collective at or above this share of its own expectation is well.
WELL = 0.9

# First NCCL with NVLink SHARP within a host: release notes 2.17 and 2.18.
NVLS_SINCE = (2, 18)

FORCED = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NTHREADS",
    "NCCL_BUFFSIZE",
    "NCCL_P2P_LEVEL",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_CROSS_NIC",
    "NCCL_TOPO_FILE",
    "NCCL_GRAPH_FILE",
    "NCCL_TUNER_CONFIG_PATH",
    "NCCL_CHECKS_DISABLE",
    "NCCL_LAUNCH_MODE",
)


def nvls_lost(shortfall: Shortfall) -> Hypothesis | None:
    """NVLink SHARP expected and not used."""
    if shortfall.expectation.scheme != "nvls":
        return None
    log = shortfall.facts.nccl_log
    pro: list[tuple[str, int]] = []
    contra: list[str] = []
    if NVLS_LOST[0] <= shortfall.ratio <= NVLS_LOST[1]:
        pro.append((f"{share_left(shortfall)}, what a ring over the same links gives", FITS))
    for name in ("all_gather", "reduce_scatter"):
        sibling = shortfall.siblings.get(name)
        if sibling is not None and sibling >= WELL:
            pro.append((f"{name}, which does not use it, is as fast as it should be", FITS))
        elif sibling is not None:
            contra.append(f"{name}, which does not use it, is slow too")
    if log is not None and (log.nvls_available is False or log.nvls_channels == 0 or log.nvls_failures):
        pro.append(("NCCL's log: NVLink SHARP is not available or has 0 channels", SAID))
    if any(each.nvls_supported is False for each in shortfall.facts.hardware):
        pro.append(("the driver reports no multicast support on a host", SAID))
    pro += [(f"set: {setting}", SAID) for setting in _settings_against_nvls(shortfall)]
    algorithm = shortfall.row.algorithm
    if algorithm is not None and algorithm.lower().startswith("nvls"):
        contra.append(f"NCCL chose {algorithm} for this size")
    elif algorithm is not None:
        pro.append((f"NCCL chose {algorithm} for this size", SAID))
    return hypothesis(
        "NVLink SHARP off",
        "The NVLink switches do not add up the data (NVLink SHARP is off), so that the GPUs do it in a ring",
        pro,
        contra,
        decides="whether the fabric manager has set up the fabric, and what NCCL says of NVLS",
        command="nvidia-smi -q | grep -A4 Fabric; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NVLS,TUNING … 2>&1 | grep -i nvls",
        team=Team.PLATFORM,
        fault=Fault.CONFIG,
        cause_class="gpu:nvls_off",
    )


def _settings_against_nvls(shortfall: Shortfall) -> list[str]:
    """Settings that switch NVLink SHARP off: its own, the memory it needs, or a list of algorithms without it."""
    found = [
        f"{name}=0"
        for name in ("NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE")
        if shortfall.setting(name) == f"{name}=0"
    ]
    setting = shortfall.setting("NCCL_ALGO")
    value = setting.split("=", 1)[1].strip().lower() if setting is not None else ""
    if setting is not None and value and value.startswith("^") is ("nvls" in value):
        found.append(setting)
    return found


def host_memory(shortfall: Shortfall) -> Hypothesis | None:
    """SHM instead of P2P within a host."""
    if shortfall.expectation.scheme not in ("nvls", "nvlink", "bridge", "pcie", "xgmi"):
        return None
    log = shortfall.facts.nccl_log
    pro: list[tuple[str, int]] = []
    contra: list[str] = []
    if shortfall.ratio <= HOST_MEMORY_MOST:
        pro.append((share_left(shortfall), FITS))
    inside = [route for route in log.routes if route.transport in ("SHM", "P2P")] if log is not None else []
    if any(route.transport == "SHM" for route in inside):
        pro.append(("NCCL's log: connections within a host go `via SHM`", SAID))
    elif inside:
        contra.append("NCCL's log: all connections within a host go `via P2P`")
    setting = shortfall.setting("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
    if setting is not None and setting not in ("NCCL_P2P_DISABLE=0", "NCCL_P2P_LEVEL=SYS"):
        pro.append((f"set: {setting}", SAID))
    if any(each.p2p_broken for each in shortfall.facts.hardware):
        pro.append(("the driver reports that GPUs cannot reach one another", SAID))
    if any(each.nvlinks_per_gpu == 0 for each in shortfall.facts.hardware) and (
        shortfall.expectation.scheme != "pcie"
    ):
        pro.append(("no NVLink is active on a GPU", SAID))
    return hypothesis(
        "host memory",
        "The GPUs of a host do not reach one another directly; data goes through the host's memory",
        pro,
        contra,
        decides="whether GPUs reach one another, and what NCCL uses",
        command="nvidia-smi topo -p2p r; NCCL_DEBUG=INFO … 2>&1 | grep ' via '",
        team=Team.PLATFORM,
        fault=Fault.HOST,
        cause_class="gpu:p2p_off",
    )


def links_lost(shortfall: Shortfall) -> Hypothesis | None:
    """Fewer active NVLinks than the product has."""
    active, links = shortfall.machine.active_nvlinks, shortfall.machine.nvlinks
    fewest = min(
        (each.nvlinks_per_gpu for each in shortfall.facts.hardware if each.nvlinks_per_gpu is not None),
        default=active,
    )
    if not fewest or not links or fewest >= links:
        return None
    return hypothesis(
        "lost links",
        "Some NVLinks of a GPU are down",
        [(f"{fewest} of {links} NVLinks are active on a GPU", SAID)],
        [],
        decides="which links of which GPU are down",
        command="nvidia-smi nvlink --status",
        team=Team.HARDWARE,
        fault=Fault.GPU,
        cause_class="gpu:nvlink",
    )


def forced(shortfall: Shortfall) -> Hypothesis | None:
    """Settings that take choices away from NCCL."""
    settings = [setting for name in FORCED if (setting := shortfall.setting(name)) is not None]
    if not settings:
        return None
    unset = " ".join(f"-u {setting.split('=', 1)[0]}" for setting in settings[:5])
    return hypothesis(
        "forced settings",
        "Settings of the job take choices away from NCCL",
        [(f"set: {', '.join(settings[:5])}", SAID)],
        [],
        decides="the same measurement without these settings",
        command=f"env {unset} …",
        team=Team.JOB_OWNER,
        fault=Fault.CONFIG,
        cause_class="config:nccl_override",
    )


def old_software(shortfall: Shortfall) -> Hypothesis | None:
    """NCCL older than what the hardware needs."""
    text = shortfall.facts.versions.nccl or (
        shortfall.facts.nccl_log.version if shortfall.facts.nccl_log else None
    )
    version = _version(text)
    if version is None or shortfall.expectation.scheme != "nvls" or version >= NVLS_SINCE:
        return None
    return hypothesis(
        "old NCCL",
        "This NCCL is older than the hardware and does not know all of it",
        [(f"NCCL {text}; NVLink SHARP needs 2.18", SAID)],
        [],
        decides="which NCCL is loaded",
        command="python -c 'import torch; print(torch.cuda.nccl.version())'",
        team=Team.JOB_OWNER,
        fault=Fault.SOFTWARE,
        cause_class="env:nccl_bug",
    )


def _version(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    if len(parts) < 2 or not parts[0].isdecimal() or not parts[1].isdecimal():
        return None
    return int(parts[0]), int(parts[1])
