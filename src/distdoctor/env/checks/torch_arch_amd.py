"""Does a ROCm torch hold code for the AMD GPUs that are here, and does AMD still support them?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Found, NotSeen, Outcome, Passed
from distdoctor.env.checks.torch_view import TorchBuild
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.versions import at_least
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

_GFX = re.compile(r"gfx[0-9a-f]{3,5}")

# Targets that a ROCm release no longer supports, with the first such release. gfx906 (MI50, MI60, Radeon VII) is in
# maintenance since 5.7 and in no support matrix of 6.x; gfx803 and gfx900 were dropped before. Source: ROCm release
# notes 5.7 and the system requirements pages of 4.5 and 6.0.
_UNSUPPORTED_SINCE = {"gfx803": "4.0", "gfx900": "5.0", "gfx906": "6.0"}


def check_amd(facts: EnvFacts, build: TorchBuild) -> Sequence[Outcome]:
    """Not in the compiled list: critical when the list is torch's own. Out of AMD's support: a warning."""
    targets = amd_targets(facts)
    if not targets:
        unread = Unread(
            cause=SkipCause.NOT_IN_EVIDENCE,
            reason="the AMD GPUs' targets (gfx…) were not seen",
            how="rocminfo | grep gfx",
        )
        return [NotSeen(unread=unread, what="targets of the AMD GPUs")]
    probe = facts.torch_probe
    compiled = set(_GFX.findall(" ".join(probe.arch_list))) if probe is not None else set()
    lacking = [target for target in targets if compiled and target not in compiled]
    if lacking:
        return [_no_code(sorted(compiled), lacking, probe.sources.get("arch_list") if probe else None)]
    dropped = [
        each
        for each in targets
        if each in _UNSUPPORTED_SINCE and at_least(build.hip, _UNSUPPORTED_SINCE[each])
    ]
    if dropped:
        return [_unsupported(build, dropped[0])]
    return [Passed(detail=f"ROCm {build.hip} and {', '.join(targets)}")]


def amd_targets(facts: EnvFacts) -> list[str]:
    """LLVM targets of the AMD GPUs ("gfx942"), from their names or beside them."""
    gpus = facts.gpus
    if gpus is None:
        return []
    texts = [device.name or "" for device in gpus.devices or () if device.vendor == "amd"]
    texts += [value for key, value in gpus.extra.items() if key.endswith(".gfx")]
    return sorted({target for text in texts for target in _GFX.findall(text)})


def _no_code(compiled: Sequence[str], lacking: Sequence[str], source: str | None) -> Found:
    return Found(
        title=f"This torch has no code for the AMD GPU's target {lacking[0]}",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"torch holds {' '.join(compiled)}",
                expected=", ".join(lacking),
                expected_source="the GPUs",
                source=source,
            ),
        ),
        explanation="The first kernel fails with “invalid device function”, unless HSA_OVERRIDE_GFX_VERSION names a close target.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Take a ROCm build that has this target",
                command="python -c 'import torch; print(torch.cuda.get_arch_list())'",
            ),
        ),
        cause_class="env:gpu_arch",
        fault=Fault.SOFTWARE,
    )


def _unsupported(build: TorchBuild, target: str) -> Found:
    return Found(
        key="unsupported",
        title=f"AMD target {target} is out of support in ROCm {(build.hip or '').partition('-')[0][:12]}",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"the GPU is {target}, torch is built for ROCm {build.hip}",
                expected=f"ROCm older than {_UNSUPPORTED_SINCE[target]}",
                expected_source="ROCm release notes 5.7 and system requirements of 6.0",
                source=build.source,
            ),
        ),
        explanation="It may still run, but its libraries are no longer tested on this target, and kernels may be missing or wrong.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Use a GPU that this ROCm supports, or the last ROCm that supports this GPU",
            ),
        ),
        cause_class="env:gpu_arch",
        fault=Fault.SOFTWARE,
    )
