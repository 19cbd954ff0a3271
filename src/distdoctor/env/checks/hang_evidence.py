"""If the job hangs, will anything be left that tells why? Flight recorder and watchdog settings, by torch version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.nccl_view import NcclView, nccl_number, setting_evidence, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.variables import Setting
from distdoctor.env.versions import at_least
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Entries; torch 2.11 made it the default (FlightRecorder.hpp). Before, the recorder was off unless asked for.
BUFFER_ENTRIES = 2000
_RECORDER_SINCE = "2.2"
_RECORDER_DEFAULT_SINCE = "2.11"

# The name TORCH_FR_BUFFER_SIZE; older versions read TORCH_NCCL_TRACE_BUFFER_SIZE alone.
_NEW_NAME_SINCE = "2.8"

# Dumping on a timeout: off in the sources of 2.6, on in those with the heartbeat monitor (2.8). 2.7 was not read.
_DUMP_DEFAULT_ON_SINCE = "2.8"
_DUMP_DEFAULT_OFF_BEFORE = "2.7"

_BUFFER_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILE_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_SOURCE = "torch, FlightRecorder.hpp and ProcessGroupNCCL.cpp"
_FALSE = ("0", "n", "no", "f", "false")
_EPHEMERAL = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/")


@dataclass(frozen=True, slots=True)
class _Gap:
    """One thing that keeps the evidence from being written, and the lines that mend it."""

    what: str
    evidence: Evidence
    severity: Severity
    lines: tuple[str, ...]


def check_hang_evidence(facts: EnvFacts) -> Sequence[Outcome]:
    """What is missing, as one finding with the exact lines to set; a warning when nothing would be written."""
    torch = facts.torch
    if torch is not None and torch.is_cpu_build and not torch.hip_build:
        return [NotApplicable(detail="this torch is built without CUDA: there is no NCCL watchdog")]
    if torch is not None and torch.found is False:
        return [NotApplicable(detail="torch is not installed")]
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    view = view_of(facts)
    if "environment" in facts.variables.unread:
        # A text that shows some variables does not say that the others are unset, but what it shows is set.
        gaps = _switched_off(view)
        return [_finding(view, gaps)] if gaps else [missing(facts, "variables.environment")]
    if view.torch is None:
        return [missing(facts, "torch.version", what="what torch records by default")]
    if at_least(view.torch, _RECORDER_SINCE) is False:
        return [NotApplicable(detail=f"torch {view.torch_text} has no flight recorder")]
    gaps = [*_recorder(view), *_dump(view), *_watchdog(view)]
    place = _place(facts, view)
    if gaps:
        return [_finding(view, [*gaps, *place])]
    if place:
        return [_finding(view, place)]
    return [Passed(detail=f"torch {view.torch_text} records collectives and writes them when one times out")]


def _switched_off(view: NcclView) -> list[_Gap]:
    """What a variable that is set takes away; the names are enough, whatever torch's version is by default."""
    gaps: list[_Gap] = []
    if any(name in view.settings for name in _BUFFER_NAMES) and view.torch is not None:
        gaps += _recorder(view)
    if "TORCH_NCCL_DUMP_ON_TIMEOUT" in view.settings:
        gaps += _dump(view)
    return [*gaps, *_watchdog(view)]


def _recorder(view: NcclView) -> list[_Gap]:
    name, setting = _read_buffer_setting(view)
    unread = view.settings.get("TORCH_FR_BUFFER_SIZE")
    if unread is not None and name != unread.name and at_least(view.torch, _NEW_NAME_SINCE) is False:
        return [
            _Gap(
                f"torch {view.torch_text} does not read TORCH_FR_BUFFER_SIZE yet",
                setting_evidence(unread, expected=_BUFFER_NAMES[1], source=_SOURCE),
                Severity.WARNING,
                (f"export TORCH_NCCL_TRACE_BUFFER_SIZE={BUFFER_ENTRIES}",),
            )
        ]
    line = f"export {_buffer_name(view)}={BUFFER_ENTRIES}"
    if setting is not None:
        if nccl_number(setting.value) > 0:
            return []
        return [
            _Gap(
                "The flight recorder is switched off",
                setting_evidence(setting, expected="more than 0 entries", source=_SOURCE),
                Severity.WARNING,
                (line,),
            )
        ]
    if at_least(view.torch, _RECORDER_DEFAULT_SINCE):
        return []
    evidence = Evidence(
        text=f"{_buffer_name(view)} is unset; torch {view.torch_text} then records nothing",
        value=None,
        expected=f"{BUFFER_ENTRIES} entries, the default since torch {_RECORDER_DEFAULT_SINCE}",
        expected_source=_SOURCE,
        source=_source_of_absence(view),
    )
    return [_Gap("The flight recorder is off by default", evidence, Severity.WARNING, (line,))]


def _dump(view: NcclView) -> list[_Gap]:
    setting = view.settings.get("TORCH_NCCL_DUMP_ON_TIMEOUT")
    line = ("export TORCH_NCCL_DUMP_ON_TIMEOUT=1",)
    if setting is not None:
        if setting.value.strip().lower() not in _FALSE:
            return []
        return [
            _Gap(
                "Writing the record on a timeout is switched off",
                setting_evidence(setting, expected="1", source=_SOURCE),
                Severity.WARNING,
                line,
            )
        ]
    if at_least(view.torch, _DUMP_DEFAULT_ON_SINCE):
        return []
    debug = view.settings.get("TORCH_DISTRIBUTED_DEBUG")
    if debug is not None and debug.value.strip().upper() == "DETAIL":
        return []
    certain = at_least(view.torch, _DUMP_DEFAULT_OFF_BEFORE) is False
    text = "writes no record then" if certain else "may not write a record then (its default was not checked)"
    evidence = Evidence(
        text=f"TORCH_NCCL_DUMP_ON_TIMEOUT is unset; torch {view.torch_text} {text}",
        expected="1",
        expected_source=_SOURCE,
        source=_source_of_absence(view),
    )
    severity = Severity.WARNING if certain else Severity.INFO
    return [_Gap("The record is not written on a timeout by default", evidence, severity, line)]


def _watchdog(view: NcclView) -> list[_Gap]:
    gaps = []
    monitor = view.settings.get("TORCH_NCCL_ENABLE_MONITORING")
    if monitor is not None and monitor.value.strip().lower() in _FALSE:
        gaps.append(
            _Gap(
                "The monitor thread that writes the record is switched off",
                setting_evidence(monitor, expected="1", source="torch, ProcessGroupNCCL.hpp"),
                Severity.WARNING,
                ("unset TORCH_NCCL_ENABLE_MONITORING",),
            )
        )
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"):
        handling = view.settings.get(name)
        if handling is not None and handling.value.strip() and nccl_number(handling.value) == 0:
            gaps.append(
                _Gap(
                    "A timeout does not end the job, so nothing triggers the record",
                    setting_evidence(
                        handling, expected="3 (torch's default) or 1", source="torch, ProcessGroupNCCL.hpp"
                    ),
                    Severity.WARNING,
                    (f"unset {name}",),
                )
            )
            break
    return gaps


def _place(facts: EnvFacts, view: NcclView) -> list[_Gap]:
    """Where the record goes: in a container it is gone with the container, unless a volume is named."""
    setting = next((view.settings[name] for name in _FILE_NAMES if name in view.settings), None)
    contained = facts.container is not None and facts.container.kind not in (None, "none")
    name = _FILE_NAMES[0] if at_least(view.torch, _NEW_NAME_SINCE) else _FILE_NAMES[1]
    line = (f"export {name}=/shared/volume/fr_${{SLURM_JOB_ID:-job}}_rank_   # the rank is appended",)
    if setting is not None:
        if contained and setting.value.startswith(_EPHEMERAL):
            evidence = setting_evidence(setting, expected="a path on a volume that stays", source=_SOURCE)
            return [
                _Gap(
                    "The record goes to a folder that ends with the container", evidence, Severity.INFO, line
                )
            ]
        return []
    if not contained:
        return []
    evidence = Evidence(
        text=(
            f"{name} is unset: the record goes to ~/.cache/torch or /tmp inside the container "
            f"({facts.container.kind if facts.container else ''})"
        ),
        expected="a path on a volume that stays",
        expected_source=_SOURCE,
        source=_source_of_absence(view),
    )
    return [_Gap("The record would be gone with the container", evidence, Severity.INFO, line)]


def _finding(view: NcclView, gaps: Sequence[_Gap]) -> Found:
    worst = Severity.WARNING if any(each.severity is Severity.WARNING for each in gaps) else Severity.INFO
    lines = list(dict.fromkeys(line for each in gaps for line in each.lines))
    title = (
        "A hang of this job would leave no record of its collectives"
        if worst is Severity.WARNING
        else "The record of a hang may be lost"
    )
    ras = (
        " NCCL 2.24 and newer can also be asked while it hangs: `ncclras -v`."
        if at_least(view.nccl, "2.24")
        else ""
    )
    return Found(
        title=title,
        severity=worst,
        confidence=Confidence.HIGH if worst is Severity.WARNING else Confidence.MEDIUM,
        evidence=tuple(each.evidence for each in gaps),
        explanation=". ".join(each.what for each in gaps)
        + ". The record (flight recorder) names the rank that did not join; without it a timeout only shows who waited."
        + ras,
        actions=(
            Action(team=Team.JOB_OWNER, text="Set this before the ranks start", command="\n".join(lines)),
        ),
        cause_class="config:no_hang_evidence",
        fault=Fault.CONFIG,
    )


def _source_of_absence(view: NcclView) -> str:
    """Where it was seen that a variable is unset."""
    return f"{len(view.settings)} variables of the process"


def _buffer_name(view: NcclView) -> str:
    return _BUFFER_NAMES[0] if at_least(view.torch, _RECORDER_DEFAULT_SINCE) else _BUFFER_NAMES[1]


def _read_buffer_setting(view: NcclView) -> tuple[str | None, Setting | None]:
    """The setting of the ring's size that this torch reads; the new name goes before the old one."""
    names = _BUFFER_NAMES if at_least(view.torch, _NEW_NAME_SINCE) else _BUFFER_NAMES[1:]
    for name in names:
        if name in view.settings:
            return name, view.settings[name]
    return None, None


CHECK = Check(
    id="hang-evidence",
    title="evidence that a hang would leave",
    run=check_hang_evidence,
    preflight=True,
)
