"""Is the reduction in the NVSwitch (NVLink SHARP, "NVLS") set up where the hardware has it?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.log_platform import expects_nvls, gpu_models
from distdoctor.nccl_bench.analysis.nccl_warnings import FATAL_NVLS
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import log_or_reason, override_evidence, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import ChosenAlgorithm, NcclLog, Override
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# all_reduce over 8 H200: 482 GB/s with NVLS, 368 without; over 8 B200: 846 and 682 (stas00/ml-engineering, network).
_LOSS = "19 to 24 % of all_reduce at large sizes"

# NCCL sets NVLS up for more than two GPUs of a host (NVIDIA/nccl src/transport/nvls.cc, ncclNvlsInit).
_MIN_GPUS = 3

# NVLS came with NCCL 2.17 (release notes).
_FIRST_VERSION = (2, 17)

_SETTINGS = ("NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_CUMEM_ENABLE", "NCCL_NVLS_NCHANNELS", "NCCL_MNNVL_ENABLE")


def check_nvls(facts: BenchFacts) -> Sequence[Outcome]:
    """A warning where it is expected and missing; a lead or info where the GPU is not known."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    working = _working(log)
    if working is not None:
        if _shut_out(log) and (log.nvls_channels or expects_nvls(facts)) and not _used(log):
            return [_found(facts, log, Severity.WARNING, Confidence.HIGH)]
        return [Passed(detail=working)]
    if log.library == "RCCL":
        return [NotApplicable(detail="RCCL: AMD GPUs have no NVSwitch")]
    if any(re.search(FATAL_NVLS, each) for each in log.warnings):
        return [NotApplicable(detail="its set-up failed, which NCCL's warning tells")]
    if log.nvls_failures:
        return [_found(facts, log, Severity.WARNING, Confidence.HIGH)]
    per_host = _gpus_per_host(log)
    if per_host is not None and per_host < _MIN_GPUS:
        return [NotApplicable(detail=f"{per_host} GPUs a host: NCCL uses NVLS for more than two")]
    expected = expects_nvls(facts)
    if expected is False:
        return [
            NotApplicable(
                detail=f"no NVSwitch with multicast ({', '.join(gpu_models(facts)[:3]) or 'PCIe only'})"
            )
        ]
    missing = log.nvls_channels == 0 or log.nvls_available is False
    if not missing:
        if _version(log) is not None and _version(log) < _FIRST_VERSION and not expected:  # type: ignore[operator]
            return [NotApplicable(detail=f"NCCL {log.version} has no NVLS")]
        off = log.override_of("NCCL_NVLS_ENABLE")
        if off is None or off.value != "0":
            return [unsaid(facts, "whether NVLS is set up")]
    return [_found(facts, log, *_how_bad(log, expected))]


def _used(log: NcclLog) -> ChosenAlgorithm | None:
    return next((each for each in log.algorithms if each.algorithm.startswith("NVLS")), None)


def _shut_out(log: NcclLog) -> bool:
    """NCCL_ALGO leaves all_reduce without NVLS, however well it is set up."""
    algorithm = log.override_of("NCCL_ALGO")
    return algorithm is not None and any(map(_excludes_nvls, algorithm.value.lower().split(";")))


def _excludes_nvls(part: str) -> bool:
    """Whether one part, "ring,tree", "^nvls" or "allreduce:ring", keeps NVLS from all_reduce."""
    function, colon, names = part.rpartition(":")
    if (colon and function.strip() != "allreduce") or not names.strip():
        return False
    if names.startswith("^"):
        return "nvls" in names.lstrip("^").split(",")
    return "nvls" not in names


def _working(log: NcclLog) -> str | None:
    used = _used(log)
    if used is not None:
        return f"{used.collective} of {used.size_bytes} bytes runs as {used.algorithm}"
    if log.nvls_channels:
        return f"NVLS is set up, with {log.nvls_channels} channels"
    if log.nvls_set_up and log.nvls_channels is None:
        return "NVLS is set up"
    if log.nvls_available and log.nvls_channels is None and not log.nvls_failures:
        return "NVLS is available; the log does not say which collectives use it"
    return None


def _how_bad(log: NcclLog, expected: bool | None) -> tuple[Severity, Confidence]:
    if expected:
        return Severity.WARNING, Confidence.HIGH
    if log.nvls_available or _asks_for_nvls(log):
        # The driver has multicast, or somebody counts on NVLS; both are so on Hopper and newer.
        return Severity.WARNING, Confidence.MEDIUM if log.nvls_available else Confidence.LOW
    return Severity.INFO, Confidence.LOW


def _asks_for_nvls(log: NcclLog) -> bool:
    return any(
        (each.name == "NCCL_ALGO" and re.search("nvls", each.value, re.IGNORECASE) and "^" not in each.value)
        or (each.name == "NCCL_NVLS_ENABLE" and each.value == "1")
        for each in log.overrides
    )


def _gpus_per_host(log: NcclLog) -> int | None:
    counts = [comm.local_ranks for comm in log.comms if comm.local_ranks is not None and not comm.mnnvl]
    return max(counts, default=None)


def _version(log: NcclLog) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", log.version or "")
    return (int(found[1]), int(found[2])) if found else None


def _found(facts: BenchFacts, log: NcclLog, severity: Severity, confidence: Confidence) -> Found:
    known = bool(expects_nvls(facts)) or bool(log.nvls_failures) or bool(log.nvls_channels)
    title = "The reduction in the NVSwitch (NVLS) is not used"
    if log.nvls_channels:
        title = "NCCL_ALGO shuts the reduction in the NVSwitch (NVLS) out"
    elif not known:
        title = "NVLS is not used: costs speed if these GPUs are Hopper or newer on NVSwitch"
    return Found(
        title=title,
        severity=severity,
        confidence=confidence,
        evidence=_evidence(facts, log),
        explanation=(
            f"On NVSwitch systems with Hopper or newer GPUs NCCL lets the switches add up data; without it all_reduce "
            f"falls to what a ring reaches, which costs {_LOSS} (8 H200: 368 instead of 482 GB/s bus bandwidth). "
            "Usual causes: NCCL_ALGO or NCCL_NVLS_ENABLE, the fabric manager, a driver older than CUDA 12.1's, IMEX on "
            "NVL72, or one process that drives several GPUs with an old NCCL."
        ),
        actions=_actions(log, known=known),
        cause_class="gpu:nvls_off",
        fault=Fault.CONFIG if _limits(log) else Fault.HOST,
    )


def _evidence(facts: BenchFacts, log: NcclLog) -> tuple[Evidence, ...]:
    lines: list[Evidence] = []
    if log.nvls_channels is not None:
        lines.append(
            Evidence(
                text=f"NCCL set up {log.nvls_channels} nvls channels",
                value=log.nvls_channels,
                unit="channels",
                expected="16 to 32 on NVSwitch with Hopper or newer",
                expected_source="NVIDIA/nccl src/transport/nvls.cc (NVLS_NCHANNELS)",
                source=log.place_of("nvls channels"),
            )
        )
    if log.nvls_available is not None:
        word = "available" if log.nvls_available else "not available"
        place = log.place_of("nvls available" if log.nvls_available else "nvls unavailable")
        lines.append(Evidence(text=f"NVLS multicast support is {word}", source=place))
    lines += [Evidence(text=text, source=log.place_of("nvls failure")) for text in log.nvls_failures[:3]]
    models = gpu_models(facts)
    if models:
        lines.append(Evidence(text=f"GPUs: {', '.join(models[:3])}", source=log.place_of("gpu model")))
    elif log.nvlink_to_switch_gbps:
        text = f"each GPU has {log.nvlink_to_switch_gbps:g} GB/s to the NVSwitches"
        lines.append(Evidence(text=text, source=log.place_of("nvlink to switch")))
    return (*lines, *override_evidence(log, *_SETTINGS)) or (
        Evidence(text="no line of the log shows NVLS", source=log.origin),
    )


def _limits(log: NcclLog) -> list[Override]:
    """Settings that keep NVLS out."""
    return [
        each
        for each in log.overrides
        if (each.name in ("NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE") and each.value == "0")
        or (each.name == "NCCL_ALGO")
    ]


def _actions(log: NcclLog, *, known: bool) -> tuple[Action, ...]:
    actions: list[Action] = []
    if not known:
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="See which GPUs these are",
                command="nvidia-smi -L; nvidia-smi topo -m",
            )
        )
    limits = list(dict.fromkeys(each.name for each in _limits(log)))
    if limits:
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="Let NCCL choose: remove the settings that limit it",
                command="unset " + " ".join(limits),
            )
        )
    actions.append(
        Action(
            team=Team.PLATFORM,
            text="See whether the NVSwitch fabric is up: state Completed, status Success",
            command="nvidia-smi -q | grep -A4 -i fabric; systemctl status nvidia-fabricmanager",
        )
    )
    return tuple(actions)


CHECK = BenchCheck(id="nccl-log-nvls", title="reduction in the NVSwitch (NVLS)", run=check_nvls)
