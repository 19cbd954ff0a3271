"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER against the GPUs that are here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.nccl_view import setting_evidence, shown, unset_action
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.facts.variables import Setting
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

_SOURCE = "CUDA programming guide, environment variables"
_NAME = "CUDA_VISIBLE_DEVICES"
_INDEX = re.compile(r"\d{1,4}\Z")
_GPU_UUID = re.compile(r"GPU-[0-9a-fA-F-]{1,40}\Z")
_MIG_UUID = re.compile(r"MIG-(?:[0-9a-fA-F-]{1,40}|GPU-[0-9a-fA-F-]{1,40}/\d+/\d+)\Z")
# Words by which schedulers and people hide every GPU; CUDA takes any text that is no device as the end.
_HIDE_ALL = ("", "-1", "nodevfiles", "none", "void")
_MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str
    """"index", "gpu", "mig" or "bad"."""


def check_cuda_variables(facts: EnvFacts) -> Sequence[Outcome]:
    """A list that CUDA cuts short is critical; hiding every GPU, or a doubtful order, is told."""
    gpus = facts.gpus
    devices = None if gpus is None or gpus.devices is None else _nvidia(gpus.devices)
    if devices == [] and not (gpus is not None and gpus.num_pci_gpus):
        return [NotApplicable(detail="no NVIDIA GPU here")]
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    settings = facts.variables.in_force()
    outcomes: list[Outcome] = []
    visible = settings.get(_NAME)
    if visible is not None:
        outcomes += _visible(facts, visible, devices)
    outcomes += _order(settings.get("CUDA_DEVICE_ORDER"), devices)
    if outcomes:
        return outcomes
    if devices is None and visible is not None and visible.value.strip():
        return [missing(facts, "gpus.devices", what=f"whether the GPUs that {_NAME} names are here")]
    if visible is None:
        return [Passed(detail=f"{_NAME} is unset: CUDA sees every GPU")]
    return [Passed(detail=f"{_NAME}={shown(visible.value)} names GPUs that are here")]


def parse_visible_devices(value: str) -> tuple[_Token, ...]:
    """The entries of a list, each with its kind; at most 256."""
    tokens = []
    for part in value.strip().removesuffix(",").split(",")[:_MAX_TOKENS]:
        text = part.strip()
        if _INDEX.match(text):
            kind = "index"
        elif _GPU_UUID.match(text):
            kind = "gpu"
        elif _MIG_UUID.match(text):
            kind = "mig"
        else:
            kind = "bad"
        tokens.append(_Token(text, kind))
    return tuple(tokens)


def _nvidia(devices: Sequence[GpuDevice]) -> list[GpuDevice]:
    return [each for each in devices if each.vendor == "nvidia"]


def _visible(facts: EnvFacts, setting: Setting, devices: Sequence[GpuDevice] | None) -> list[Outcome]:
    if setting.value.strip().lower() in _HIDE_ALL:
        return [_hides_all(facts, setting)]
    tokens = parse_visible_devices(setting.value)
    bad = next((index for index, token in enumerate(tokens) if token.kind == "bad"), None)
    if bad is not None:
        hint = (
            " A range is not understood: write 0,1,2,3." if re.match(r"\d+-\d+\Z", tokens[bad].text) else ""
        )
        return [
            _cut_short(
                setting,
                f"{_NAME} has an entry that CUDA does not understand: {shown(tokens[bad].text)[:12]}",
                f"CUDA stops at entry {bad + 1} and uses {bad} of {len(tokens)}.{hint}",
            )
        ]
    if len({token.kind for token in tokens}) > 1:
        return [
            _cut_short(
                setting,
                f"{_NAME} mixes numbers and UUIDs",
                "CUDA takes a list of one kind; it stops where the kind changes.",
                confidence=Confidence.MEDIUM,
            )
        ]
    texts = [token.text.lower() for token in tokens]
    double = next((text for text in texts if texts.count(text) > 1), None)
    if double is not None:
        return [
            _cut_short(
                setting,
                f"{_NAME} names device {double[:20]} twice",
                "CUDA refuses such a list, and no device is left; if it did not, two ranks would share one GPU.",
                confidence=Confidence.MEDIUM,
            )
        ]
    return _absent(facts, setting, tokens, devices)


def _absent(
    facts: EnvFacts, setting: Setting, tokens: Sequence[_Token], devices: Sequence[GpuDevice] | None
) -> list[Outcome]:
    """Devices that are not here. With MIG, or where UUIDs were not read, nothing is claimed."""
    if not devices or any(each.mig_instances or each.mig_mode for each in devices):
        return []
    if tokens[0].kind == "index":
        missing_at = next((i for i, token in enumerate(tokens) if int(token.text) >= len(devices)), None)
    elif tokens[0].kind == "gpu" and all(each.uuid for each in devices):
        uuids = [str(each.uuid).lower() for each in devices]
        missing_at = next(
            (
                i
                for i, token in enumerate(tokens)
                if not any(uuid.startswith(token.text.lower()) for uuid in uuids)
            ),
            None,
        )
    else:
        return []
    if missing_at is None:
        return []
    name = tokens[missing_at].text
    return [
        _cut_short(
            setting,
            f"{_NAME} names GPU {name[:16]}, which is not here",
            f"{len(devices)} GPUs are here, numbered from 0. CUDA stops at the first that does not exist and uses "
            f"{missing_at} of {len(tokens)}. Inside a container or a Slurm step GPUs are numbered anew.",
            devices=devices,
            confidence=Confidence.HIGH if facts.is_live else Confidence.MEDIUM,
        )
    ]


def _hides_all(facts: EnvFacts, setting: Setting) -> Found:
    is_rank = facts.scheduler is not None and facts.scheduler.rank is not None
    return Found(
        key="hides-all",
        title=f"{_NAME}={shown(setting.value)[:16]} hides every GPU from CUDA"[:80],
        severity=Severity.CRITICAL if is_rank else Severity.WARNING,
        confidence=Confidence.HIGH if is_rank else Confidence.MEDIUM,
        evidence=(setting_evidence(setting, expected="a list of GPUs, or unset", source=_SOURCE),),
        explanation=(
            "`torch.cuda.is_available()` is False in this process, though nvidia-smi shows the GPUs. A scheduler sets "
            "this when the job did not ask for GPUs."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Ask the scheduler for GPUs, or remove the setting",
                command=f"echo ${_NAME}; nvidia-smi -L",
            ),
        ),
        cause_class="config:visible_devices",
        fault=Fault.CONFIG,
    )


def _cut_short(
    setting: Setting,
    title: str,
    why: str,
    *,
    confidence: Confidence = Confidence.HIGH,
    devices: Sequence[GpuDevice] | None = None,
) -> Found:
    evidence = [
        setting_evidence(
            setting, expected="GPUs that exist, each once, all numbers or all UUIDs", source=_SOURCE
        )
    ]
    if devices is not None:
        evidence.append(
            Evidence(text=f"{len(devices)} NVIDIA GPUs are here", value=len(devices), source="NVML")
        )
    return Found(
        key="list",
        title=title[:80],
        severity=Severity.CRITICAL,
        confidence=confidence,
        evidence=tuple(evidence),
        explanation=why,
        actions=(unset_action(setting, f"Correct {_NAME}, or remove it and let the scheduler set it"),),
        cause_class="config:visible_devices",
        fault=Fault.CONFIG,
    )


def _order(setting: Setting | None, devices: Sequence[GpuDevice] | None) -> list[Outcome]:
    if setting is not None and setting.value not in ("FASTEST_FIRST", "PCI_BUS_ID"):
        return [
            Found(
                key="order",
                title=f"CUDA_DEVICE_ORDER={shown(setting.value)[:20]} is not a value that CUDA knows"[:80],
                severity=Severity.WARNING,
                evidence=(setting_evidence(setting, expected="FASTEST_FIRST or PCI_BUS_ID", source=_SOURCE),),
                explanation="CUDA then numbers GPUs by its default, FASTEST_FIRST.",
                actions=(
                    Action(
                        team=Team.JOB_OWNER, text="Correct it", command="export CUDA_DEVICE_ORDER=PCI_BUS_ID"
                    ),
                ),
                cause_class="config:device_order",
                fault=Fault.CONFIG,
            )
        ]
    names = {each.name for each in devices or () if each.name}
    if len(names) > 1 and (setting is None or setting.value == "FASTEST_FIRST"):
        return [
            Found(
                key="mixed-order",
                title="Different GPUs here: CUDA numbers them unlike nvidia-smi",
                severity=Severity.INFO,
                confidence=Confidence.MEDIUM,
                evidence=(
                    Evidence(
                        text="Models: " + ", ".join(sorted(names)),
                        expected="one model, or CUDA_DEVICE_ORDER=PCI_BUS_ID",
                        expected_source=_SOURCE,
                        source="NVML",
                    ),
                ),
                explanation="cuda:0 is the fastest GPU, not the first by PCI address: a number in a log can mean another GPU.",
                actions=(
                    Action(
                        team=Team.JOB_OWNER,
                        text="Number GPUs as nvidia-smi does",
                        command="export CUDA_DEVICE_ORDER=PCI_BUS_ID",
                    ),
                ),
                cause_class="config:device_order",
                fault=Fault.CONFIG,
            )
        ]
    return []


CHECK = Check(
    id="cuda-variables",
    title="CUDA_VISIBLE_DEVICES and device order",
    run=check_cuda_variables,
    preflight=True,
)
