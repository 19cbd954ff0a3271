"""Rules about settings inside a host: links between GPUs, memory, algorithms, channels, logging."""

from __future__ import annotations

from distdoctor.env.checks.nccl_risk import Risk, Rule, is_off, is_on, sure, worse
from distdoctor.env.checks.nccl_view import NcclView, nccl_number
from distdoctor.env.versions import at_least
from distdoctor.report.model import Confidence, Severity
from distdoctor.units import KIB, MIB, format_bytes

_GUIDE = "NCCL user guide, environment variables"

# NCCL's default is 4 MiB per channel and pair; a quarter or sixteen times that is our own threshold.
SMALL_BUFFER_BYTES = MIB
LARGE_BUFFER_BYTES = 64 * MIB

# One or two channels cannot fill a modern link; NCCL chooses 8 to 32 by itself. Our own threshold.
FEW_CHANNELS = 2

# Below this many ranks, INFO logs stay readable and small. Our own threshold.
MANY_RANKS = 64

# GPUs whose NVLink domain spans hosts.
_MULTI_NODE_NVLINK = ("GB200", "GB300")

# Longer values are cut in titles.
_LONGEST_VALUE = 40


def _p2p_off(view: NcclView, value: str, name: str) -> Risk | None:
    if view.num_gpus is not None and view.num_gpus < 2:
        return None
    return Risk(
        severity=worse(view.nvlink),
        confidence=sure(view.nvlink),
        title=f"{name}={value.strip()[:8]} keeps GPUs of a host from talking directly",
        why=(
            "Their traffic goes through host memory instead"
            + (", although they have NVLink" if view.nvlink else "")
            + ". It is a known way round hangs with PCIe ACS or an IOMMU, and often left over."
        ),
        source=_GUIDE,
    )


def _p2p_disable(view: NcclView, value: str) -> Risk | None:
    return _p2p_off(view, value, "NCCL_P2P_DISABLE") if is_on(value) else None


def _p2p_level(view: NcclView, value: str) -> Risk | None:
    return _p2p_off(view, value, "NCCL_P2P_LEVEL") if value.strip().upper() in ("LOC", "0") else None


def _shm_disable(view: NcclView, value: str) -> Risk | None:
    if not is_on(value) or (view.num_gpus is not None and view.num_gpus < 2):
        return None
    return Risk(
        severity=Severity.WARNING,
        title="NCCL_SHM_DISABLE=1 sends traffic inside the host over the network",
        why="GPUs without a direct link then reach each other through NIC or TCP. Often left over from a small /dev/shm.",
        source=_GUIDE,
        advice="Enlarge /dev/shm and remove it",
    )


def _buffsize(view: NcclView, value: str) -> Risk | None:
    del view
    size = nccl_number(value)
    if not value or (SMALL_BUFFER_BYTES <= size <= LARGE_BUFFER_BYTES):
        return None
    if size < SMALL_BUFFER_BYTES:
        why = "Small buffers cut each transfer into many pieces: bandwidth falls."
    else:
        why = "The buffer exists for each channel and peer: GPU memory grows by gigabytes."
    text = format_bytes(size) if size >= KIB else f"{size} bytes"
    return Risk(
        severity=Severity.WARNING,
        title=f"NCCL_BUFFSIZE is {text}; the default is 4 MiB",
        why=why + " It must be equal on all ranks.",
        source=_GUIDE + "; the bounds 1 MiB and 64 MiB are our own",
    )


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"


def _algo(view: NcclView, value: str) -> Risk | None:
    if not value or value.strip().startswith("^"):
        return None
    hopper = view.capability is not None and view.capability >= (9, 0)
    lacks_nvls = "nvls" not in value.lower()
    return Risk(
        severity=Severity.WARNING if hopper and lacks_nvls and view.nvlink else Severity.INFO,
        confidence=Confidence.MEDIUM,
        title=f"NCCL_ALGO={_cut(value)} forces the algorithm",
        why=(
            "NCCL cannot choose by size and topology any more; on Hopper and newer this also gives up NVLink SHARP. "
            "Since 2.24 Ring is no silent fallback: a collective that the list does not cover fails."
        ),
        source=_GUIDE,
    )


def _proto(view: NcclView, value: str) -> Risk | None:
    del view
    if not value or value.strip().startswith("^"):
        return None
    if "ll128" in value.lower():
        return Risk(
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            title="NCCL_PROTO forces LL128, which needs platform support",
            why="NCCL allows LL128 only where 128-byte stores stay whole; forced elsewhere it can give wrong data.",
            source=_GUIDE,
        )
    return Risk(
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        title=f"NCCL_PROTO={_cut(value)} forces the protocol",
        why="Small messages lose latency, or large ones bandwidth. Old recipes for EFA set it.",
        source=_GUIDE,
    )


def _debug(view: NcclView, value: str) -> Risk | None:
    level = value.strip().upper()
    if level == "TRACE":
        return Risk(
            severity=Severity.WARNING,
            title="NCCL_DEBUG=TRACE logs every call and slows the job",
            why="It is for debugging NCCL itself.",
            source=_GUIDE,
            advice="Use WARN in production: it costs nothing and names the cause of an error",
            command="export NCCL_DEBUG=WARN",
        )
    if level == "INFO" and view.num_ranks is not None and view.num_ranks > MANY_RANKS:
        return Risk(
            severity=Severity.INFO,
            title=f"NCCL_DEBUG=INFO on {view.num_ranks} ranks fills disks and log servers",
            why="Each rank prints hundreds of lines for each communicator.",
            source=f"the bound of {MANY_RANKS} ranks is our own",
            advice="Use WARN in production",
            command="export NCCL_DEBUG=WARN",
        )
    return None


def _nvls(view: NcclView, value: str) -> Risk | None:
    if not is_off(value) or (view.capability is not None and view.capability < (9, 0)):
        return None
    known = view.capability is not None and view.nvlink
    return Risk(
        severity=Severity.WARNING if known else Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="NCCL_NVLS_ENABLE=0 gives up NVLink SHARP",
        why="All-reduce inside a host with NVSwitch (H100 and newer) gets slower. Often left over from fabric-manager trouble.",
        source=_GUIDE,
    )


# vLLM's import sets this together with NCCL_CUMEM_ENABLE=0, so that both stand in every dump of its collect_env.
_VLLM_MARK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def _cumem(view: NcclView, value: str) -> Risk | None:
    recent = at_least(view.nccl, "2.20")
    if not is_off(value) or recent is False:
        return None
    # NVLink SHARP and multi-node NVLink came with Hopper.
    can_use_it = view.capability is None or view.capability >= (9, 0)
    by_vllm = _VLLM_MARK in view.settings
    return Risk(
        severity=Severity.WARNING if recent and can_use_it and not by_vllm else Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="NCCL_CUMEM_ENABLE=0 also switches NVLink SHARP and multi-node NVLink off",
        why=(
            "vLLM sets it by itself (vllm/env_override.py); a training job need not have it."
            if by_vllm
            else "It was a way round a deadlock of 2.19 (fixed in 2.20.3) and memory growth with CUDA graphs."
        ),
        source="NVIDIA/nccl issues 1116 and 1234, release notes of 2.20.3",
        advice="Keep it under vLLM; leave it out of training jobs" if by_vllm else None,
    )


def _mnnvl(view: NcclView, value: str) -> Risk | None:
    if not is_off(value):
        return None
    if not any(mark in model for model in view.models for mark in _MULTI_NODE_NVLINK):
        return None
    return Risk(
        severity=Severity.CRITICAL if view.several_hosts else Severity.WARNING,
        title="NCCL_MNNVL_ENABLE=0: hosts talk over NICs instead of NVLink",
        why="These GPUs share one NVLink domain across hosts; with the setting it is not used.",
        source=_GUIDE,
    )


def _few_channels(view: NcclView, value: str) -> Risk | None:
    del view
    if not 0 < nccl_number(value) <= FEW_CHANNELS:
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title=f"NCCL may use no more than {nccl_number(value)} channels",
        why="So few channels cannot fill NVLink or a fast NIC.",
        source=_GUIDE + "; the bound of 2 is our own",
    )


def _launch_mode(view: NcclView, value: str) -> Risk | None:
    del view
    if value.strip().upper() != "GROUP":
        return None
    return Risk(
        severity=Severity.WARNING,
        title="NCCL_LAUNCH_MODE=GROUP can deadlock",
        why="It needs all GPUs of a launch at once; PARALLEL is the default since 2.9.",
        source=_GUIDE,
    )


def _legacy_register(view: NcclView, value: str) -> Risk | None:
    del view
    if not is_on(value):
        return None
    return Risk(
        severity=Severity.WARNING,
        title="NCCL_LEGACY_CUDA_REGISTER=1 can hang",
        why="The old way of registering buffers synchronises the device behind the program's back.",
        source=_GUIDE,
    )


def _ras(view: NcclView, value: str) -> Risk | None:
    del view
    if not is_off(value):
        return None
    return Risk(
        severity=Severity.INFO,
        title="NCCL_RAS_ENABLE=0: `ncclras` cannot be asked about a hanging job",
        why="It costs one thread per process and tells which ranks lag behind (NCCL 2.24 and newer).",
        source=_GUIDE,
    )


def _env_plugin(view: NcclView, value: str) -> Risk | None:
    del view
    if not value or value.strip().lower() == "none":
        return None
    return Risk(
        severity=Severity.INFO,
        title="NCCL_ENV_PLUGIN: a plugin may supply other values than are shown here",
        why="NCCL 2.28 and newer ask the plugin for every setting; neither the environment nor the files show them.",
        source=_GUIDE,
        advice="See the values in force in NCCL's own log",
        command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV …",
    )


def _pxn(view: NcclView, value: str) -> Risk | None:
    if not is_on(value) or view.several_hosts is False:
        return None
    return Risk(
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="NCCL_PXN_DISABLE=1 slows all-to-all between hosts",
        why="GPUs then cannot send through the NIC of a neighbour that lies on the right rail.",
        source=_GUIDE,
    )


def _multi_rank_gpu(view: NcclView, value: str) -> Risk | None:
    del view
    if not is_on(value):
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title="NCCL_MULTI_RANK_GPU_ENABLE=1 hides two ranks on one GPU",
        why="Mostly two ranks share a GPU because LOCAL_RANK is not used; with this setting NCCL no longer says so.",
        source=_GUIDE,
    )


LOCAL_RULES = (
    Rule(("NCCL_P2P_DISABLE",), _p2p_disable),
    Rule(("NCCL_P2P_LEVEL",), _p2p_level),
    Rule(("NCCL_SHM_DISABLE",), _shm_disable),
    Rule(("NCCL_BUFFSIZE",), _buffsize),
    Rule(("NCCL_ALGO",), _algo),
    Rule(("NCCL_PROTO",), _proto),
    Rule(("NCCL_DEBUG",), _debug),
    Rule(("NCCL_NVLS_ENABLE",), _nvls),
    Rule(("NCCL_CUMEM_ENABLE",), _cumem),
    Rule(("NCCL_MNNVL_ENABLE",), _mnnvl),
    Rule(("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS"), _few_channels),
    Rule(("NCCL_LAUNCH_MODE",), _launch_mode),
    Rule(("NCCL_LEGACY_CUDA_REGISTER",), _legacy_register),
    Rule(("NCCL_RAS_ENABLE",), _ras),
    Rule(("NCCL_ENV_PLUGIN",), _env_plugin),
    Rule(("NCCL_PXN_DISABLE",), _pxn),
    Rule(("NCCL_MULTI_RANK_GPU_ENABLE",), _multi_rank_gpu),
)
