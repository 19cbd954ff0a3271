"""Does `import torch` work in the job's Python, and if not, what is missing and where should it come from?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.torch_import_cause import ImportCause, library_path_evidence
from distdoctor.env.checks.torch_import_ends import aborted, exited_early, hung
from distdoctor.env.checks.torch_import_libraries import library_cause
from distdoctor.env.checks.torch_import_missing import interpreter_fails, not_installed
from distdoctor.env.checks.torch_import_python import beside_shadow, numpy_cause, python_cause
from distdoctor.env.checks.torch_import_symbols import nccl_wheels
from distdoctor.env.checks.torch_view import pip_command
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.torch import ProbeState, TorchProbe
from distdoctor.env.readers.import_error import read_import_fault
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

COLLECT_ENV_STEP = "collect_env"
"""`last_step` of a dump whose own script failed after torch had been imported."""


def check_torch_import(facts: EnvFacts) -> Sequence[Outcome]:
    """Every failed import is critical. No torch at all: critical in a Python that was named, else a warning."""
    probe = facts.torch_probe
    if probe is None or probe.state is None:
        return _not_probed(facts)
    if probe.last_step == COLLECT_ENV_STEP:
        return [_collect_env_failed(facts, probe)]
    match probe.state:
        case ProbeState.OK:
            return _imported(facts, probe)
        case ProbeState.NOT_FOUND:
            return not_installed(facts)
        case ProbeState.BAD_INTERPRETER:
            reason = probe.error_text or "the interpreter does not run"
            return interpreter_fails(Unread(cause=SkipCause.FAILED, reason=reason))
        case ProbeState.HUNG:
            return [_found(facts, probe, beside_shadow(facts, hung(facts, probe)))]
        case ProbeState.ABORTED | ProbeState.EXITED_EARLY | ProbeState.RAISED:
            return [_found(facts, probe, _cause(facts, probe))]


def _not_probed(facts: EnvFacts) -> Sequence[Outcome]:
    python, files = facts.python, facts.torch
    if python is not None and python.executable is None and "executable" in python.unread:
        return interpreter_fails(python.unread["executable"])
    if facts.torch_probe is None and files is not None and files.found is False:
        return not_installed(facts)
    return [missing(facts, "torch_probe.state")]


def _imported(facts: EnvFacts, probe: TorchProbe) -> Sequence[Outcome]:
    numpy = next((line for line in probe.warnings if "NumPy" in line or "_ARRAY_API" in line), None)
    seconds = f" in {probe.import_s:.1f} s" if probe.import_s is not None else ""
    passed = Passed(detail=f"torch {probe.torch_version or '(version unknown)'} was imported{seconds}")
    if numpy is None:
        return [passed]
    if "No module named 'numpy'" in numpy:
        return [_numpy_absent(facts, probe, numpy), passed]
    cause = numpy_cause(facts, numpy)
    return [
        Found(
            key="numpy",
            title=cause.title,
            severity=Severity.WARNING,
            confidence=Confidence.HIGH,
            evidence=(Evidence(text=numpy, source=probe.sources.get("state")), *cause.evidence),
            explanation=f"{cause.explanation} The import itself went on, without NumPy support.",
            actions=cause.actions,
            cause_class=cause.cause_class,
            fault=cause.fault,
        ),
        passed,
    ]


def _numpy_absent(facts: EnvFacts, probe: TorchProbe, line: str) -> Found:
    """torch does without NumPy; most training scripts do not."""
    return Found(
        key="numpy-absent",
        title="NumPy is not installed beside torch",
        severity=Severity.INFO,
        evidence=(Evidence(text=line, source=probe.sources.get("state")),),
        explanation="torch was imported and works; tensors cannot be converted to and from NumPy arrays.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install it if the training script uses it",
                command=pip_command(facts, "install numpy"),
            ),
        ),
        fault=Fault.SOFTWARE,
    )


def _collect_env_failed(facts: EnvFacts, probe: TorchProbe) -> Outcome:
    where = f" at {probe.error_where}" if probe.error_where else ""
    return NotSeen(
        unread=Unread(
            cause=SkipCause.NOT_IN_EVIDENCE,
            reason=f"collect_env itself failed{where}; {facts.origin} does not say whether torch works",
            how="python -c 'import torch; print(torch.__version__)'",
        )
    )


def _cause(facts: EnvFacts, probe: TorchProbe) -> ImportCause:
    text = probe.error_text or ""
    cause = library_cause(facts, read_import_fault(text))
    if cause is not None:
        return cause
    if probe.state is ProbeState.ABORTED:
        return beside_shadow(facts, aborted(facts, probe))
    if probe.state is ProbeState.EXITED_EARLY:
        return beside_shadow(facts, exited_early(facts, probe))
    cause = python_cause(facts, f"{probe.error_type or ''}: {text}")
    if cause is not None:
        return cause
    return _two_nccl_wheels(facts) or _unexplained(facts, probe)


def _two_nccl_wheels(facts: EnvFacts) -> ImportCause | None:
    """An import that failed for a reason that is not shown, with two NCCL wheels in one environment."""
    wheels = nccl_wheels(facts)
    if len(wheels) < 2:
        return None
    named = " and ".join(f"{name} {version}" for name, version in sorted(wheels.items()))
    return ImportCause(
        title="torch does not import, and two NCCL packages overwrite each other",
        explanation=(
            f"{named} write the same file nvidia/nccl/lib/libnccl.so.2; the one installed last wins, and torch may find functions "
            "missing in it (pytorch issue 186591). The text does not show the error itself, so this is the likely cause."
        ),
        evidence=(
            Evidence(
                text=f"{named} are both installed", expected="one", expected_source="pytorch issue 186591"
            ),
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See the error; then uninstall both, and install the one that torch requires",
                command="python -c 'import torch'; python -m pip show torch | grep Requires",
            ),
        ),
        cause_class="env:nccl_conflict",
        confidence=Confidence.MEDIUM,
    )


def _unexplained(facts: EnvFacts, probe: TorchProbe) -> ImportCause:
    kind = (probe.error_type or "an error")[:30]
    return ImportCause(
        title=f"torch does not import: {kind} is raised",
        explanation="The message matches none of the causes that we know; it stands above in its own words.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See the whole traceback",
                command="python -X faulthandler -c 'import torch'",
            ),
        ),
        evidence=library_path_evidence(facts),
        confidence=Confidence.MEDIUM,
        fault=Fault.SOFTWARE,
    )


def _found(facts: EnvFacts, probe: TorchProbe, cause: ImportCause) -> Found:
    kind = f"{probe.error_type}: " if probe.error_type else ""
    evidence: list[Evidence] = []
    if probe.error_text:
        evidence.append(Evidence(text=f"{kind}{probe.error_text[:600]}", source=probe.sources.get("state")))
    if probe.error_where:
        evidence.append(Evidence(text=f"at {probe.error_where}", source=probe.sources.get("state")))
    files = facts.torch
    if files is not None and files.path is not None:
        version = f"torch {files.version}" if files.version else "torch"
        evidence.append(Evidence(text=f"{version} in {files.path}", source=files.sources.get("path")))
    return Found(
        title=cause.title,
        severity=Severity.CRITICAL,
        confidence=cause.confidence,
        evidence=(*evidence, *cause.evidence),
        explanation=cause.explanation,
        actions=cause.actions,
        cause_class=cause.cause_class,
        fault=cause.fault,
    )


CHECK = Check(
    id="torch-import-fails",
    title="import of torch in the job's Python",
    run=check_torch_import,
    essential=True,
)
