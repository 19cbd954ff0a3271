"""Does the old `pynvml` package hide NVIDIA's own binding, nvidia-ml-py?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.torch_view import pip_command
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.versions import below
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# pynvml 11.5.3 and older hold a folder pynvml/, which Python takes before nvidia-ml-py's pynvml.py; 12.0.0 and newer
# hold no such module and require nvidia-ml-py (contents of the wheels 11.5.3, 12.0.0 and 13.0.1).
FIRST_FORWARDING = "12"


def check_pynvml(facts: EnvFacts) -> Sequence[Outcome]:
    """The hiding package is a warning; the deprecated one that only forwards is an info."""
    python, gpus, probe = facts.python, facts.gpus, facts.torch_probe
    printed = next((line for line in (probe.warnings if probe is not None else ()) if "pynvml" in line), None)
    version = python.distributions.get("pynvml") if python is not None else None
    if gpus is not None and gpus.pynvml_shadowed:
        return [_hides(facts, version, gpus.sources.get("pynvml_shadowed"))]
    if version is not None and below(version, FIRST_FORWARDING):
        return [_hides(facts, version, python.sources.get("distributions") if python else None)]
    if version is not None or printed is not None:
        return [_deprecated(facts, version, printed)]
    if python is None or not python.distributions:
        return [missing(facts, "python.distributions", what="whether the package pynvml is installed")]
    if not facts.is_live:
        return [Passed(detail="the text shows no trace of the package pynvml")]
    if "nvidia-ml-py" in python.distributions:
        return [Passed(detail=f"nvidia-ml-py {python.distributions['nvidia-ml-py']} alone")]
    return [NotApplicable(detail="no NVML binding in the job's Python")]


def _hides(facts: EnvFacts, version: str | None, source: str | None) -> Found:
    official = facts.python.distributions.get("nvidia-ml-py") if facts.python is not None else None
    beside = f" beside nvidia-ml-py {official}" if official else ""
    return Found(
        title="The old package pynvml hides NVIDIA's own NVML binding",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"pynvml {version or '(by its own warning)'} is installed{beside}",
                value=version,
                expected="nvidia-ml-py alone",
                expected_source="the package's own deprecation notice",
                source=source,
            ),
        ),
        explanation="Both install a module named pynvml, and the old one is taken. Its structures are of old driver versions, so GPU "
        "names, counts or MIG devices come out wrong in torch, vLLM and monitoring.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Uninstall pynvml, then install nvidia-ml-py again (they share files)",
                command=f"{pip_command(facts, 'uninstall -y pynvml')} && {pip_command(facts, 'install --force-reinstall nvidia-ml-py')}",
            ),
        ),
        cause_class="env:library_versions",
        fault=Fault.SOFTWARE,
    )


def _deprecated(facts: EnvFacts, version: str | None, printed: str | None) -> Found:
    return Found(
        key="deprecated",
        title="The package pynvml is deprecated; nvidia-ml-py replaces it",
        severity=Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"pynvml {version} is installed" if version else (printed or "")[:300], value=version
            ),
        ),
        explanation="This version only forwards to nvidia-ml-py and warns at every import; nothing is wrong with the numbers.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Uninstall it when no other package requires it",
                command=pip_command(facts, "uninstall pynvml"),
            ),
        ),
        cause_class=None,
        fault=Fault.SOFTWARE,
    )


CHECK = Check(
    id="python-pynvml-shadow", title="the NVML binding of the job's Python", run=check_pynvml, preflight=True
)
