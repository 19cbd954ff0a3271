"""No torch, or no Python to look for it in: is that the job's fault, or did we look in the wrong place?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Found, NotSeen, Outcome
from distdoctor.env.checks.torch_view import has_nvidia, pip_command
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# Distributions that make no sense without torch.
_NEED_TORCH = (
    "torchvision",
    "torchaudio",
    "deepspeed",
    "accelerate",
    "lightning",
    "pytorch-lightning",
    "megatron-core",
    "vllm",
    "xformers",
)

_HOW = "distdoctor env --python /path/to/the/job/bin/python   # or --pid PID of a running rank"


def not_installed(facts: EnvFacts) -> Sequence[Outcome]:
    """Critical when the Python was named; a warning when we chose it; an info when nothing here asks for torch.

    In the last two cases the job may use another Python, so torch has then not been looked at.
    """
    python = facts.python
    executable = python.executable if python is not None else None
    named = not facts.is_live or (python is not None and python.chosen_by in ("--python", "the live process"))
    evidence = Evidence(
        text=f"torch is not on the search path of {executable or 'this Python'}",
        source=(facts.torch.sources.get("found") if facts.torch else None) or "import torch",
    )
    if named and facts.is_live:
        return [
            Found(
                title="torch is not installed in the Python that was named",
                severity=Severity.CRITICAL,
                confidence=Confidence.HIGH,
                evidence=(evidence,),
                explanation="Every rank that starts with this Python ends with “No module named 'torch'”.",
                actions=(
                    Action(
                        team=Team.JOB_OWNER,
                        text="Install torch for it, or name the job's own Python",
                        command=pip_command(facts, "install torch"),
                    ),
                ),
                cause_class="env:torch_import",
                fault=Fault.SOFTWARE,
            )
        ]
    wanted = _why_wanted(facts)
    looked = ", ".join(python.also_looked_at) if python is not None and python.also_looked_at else ""
    found = Found(
        title="No torch here: name the Python that the job uses"
        if facts.is_live
        else "torch is not installed",
        severity=Severity.WARNING if wanted or not facts.is_live else Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            evidence,
            *((Evidence(text=f"also looked in {looked}"),) if looked else ()),
            *((Evidence(text=wanted),) if wanted else ()),
        ),
        explanation=(
            "distdoctor looked into the Python that it runs in, and into the first one on PATH. When it has an environment of its "
            "own, the job's is another one, and nothing is known yet about the job's torch, CUDA and NCCL."
            if facts.is_live
            else "The list of packages in this text has no torch."
        ),
        actions=(Action(team=Team.JOB_OWNER, text="Look again, with the job's own Python", command=_HOW),),
        cause_class="env:torch_import",
        fault=Fault.CONFIG,
    )
    if found.severity is not Severity.INFO:
        return [found]
    unseen = Unread(cause=SkipCause.NOT_ASKED, reason="no torch in the Python that was looked at", how=_HOW)
    return [found, NotSeen(unread=unseen)]


def interpreter_fails(unread: Unread) -> Sequence[Outcome]:
    """A wrong path is a question to repeat; a Python that hangs would hang the job too."""
    if unread.cause is not SkipCause.TIMED_OUT:
        return [NotSeen(unread=unread)]
    return [
        Found(
            key="interpreter",
            title="The job's Python does not start in time",
            severity=Severity.CRITICAL,
            # A slow file system looks alike, above all under a short `--timeout`.
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=unread.reason,
                    expected="well under 1 s",
                    expected_source="our own measurements: 20 to 100 ms",
                ),
            ),
            explanation="An interpreter that does not answer a one-line program waits for its file system, or for something that its "
            "start-up files (sitecustomize, .pth) do.",
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="See whether the file system answers, and whether it starts without its start-up files",
                    command=f"{unread.how or 'timeout 30 python -c pass'}; df -h .",
                ),
            ),
            cause_class="env:torch_import",
            fault=Fault.HOST,
        )
    ]


def _why_wanted(facts: EnvFacts) -> str | None:
    """What on this host suggests that torch is wanted; None when nothing does."""
    if facts.scheduler is not None and facts.scheduler.rank is not None:
        return f"this process is rank {facts.scheduler.rank} of a job"
    if has_nvidia(facts):
        return "this host has an NVIDIA GPU or driver"
    if facts.gpus is not None and facts.gpus.amd_pci_gpus:
        return "this host has an AMD GPU"
    distributions = facts.python.distributions if facts.python is not None else {}
    needing = next((name for name in _NEED_TORCH if name in distributions), None)
    return f"{needing} is installed, which needs torch" if needing else None
