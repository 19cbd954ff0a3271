"""Why an import failed, when Python itself said why: a shadowing folder, a half installation, NumPy, a module."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from distdoctor.env.checks.torch_import_cause import ImportCause
from distdoctor.env.checks.torch_view import pip_command
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Team

# CPython's words since 3.7; since 3.13 it also names the file ("consider renaming '/job/random.py'").
_PARTIAL = re.compile(r"partially initialized module '(?P<module>[\w.]+)'")
_RENAME = re.compile(r"consider renaming '(?P<file>[^']+)'")
_IN_BRACKETS = re.compile(r"\((?P<file>/[^()]+\.py)\)")
_NO_MODULE = re.compile(r"No module named '(?P<module>[\w.]+)'")
_NUMPY = re.compile(
    r"numpy\.dtype size changed|numpy\.core\.multiarray failed to import|_ARRAY_API not found|compiled using NumPy 1|"
    r"numpy\._core\.multiarray failed|Failed to initialize NumPy"
)


def python_cause(facts: EnvFacts, text: str) -> ImportCause | None:
    """The cause that Python's own words or the place of the package name; None when they name none."""
    if _NUMPY.search(text):
        return numpy_cause(facts, text)
    partial = _PARTIAL.search(text)
    module = _NO_MODULE.search(text)
    if module and module["module"] != "torch" and not module["module"].startswith("torch."):
        return _module_missing(facts, module["module"])
    if partial and not partial["module"].startswith("torch"):
        return _shadowed_module(text, partial["module"])
    if _is_local(facts) or "has no attribute '__version__' (imported from" in text:
        return _shadowed_torch(facts, text)
    if module or partial:
        return _incomplete(facts)
    return None


def numpy_cause(facts: EnvFacts, text: str) -> ImportCause:
    """torch (or something beside it) was compiled for another major version of NumPy."""
    have = facts.python.distributions.get("numpy") if facts.python is not None else None
    evidence = (Evidence(text=f"NumPy {have} is installed", value=have),) if have else ()
    wants_1 = "compiled using NumPy 1" in text or (have or "").startswith("2.")
    return ImportCause(
        title="torch and the installed NumPy do not fit together",
        explanation="A module that was compiled against NumPy 1 does not work with NumPy 2, and the other way round. torch's "
        "wheels work with NumPy 2 since 2.3.",
        evidence=evidence,
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install the NumPy that this torch was built for, or a newer torch",
                command=pip_command(facts, "install 'numpy<2'" if wants_1 else "install --upgrade numpy"),
            ),
        ),
    )


def beside_shadow(facts: EnvFacts, cause: ImportCause) -> ImportCause:
    """`cause`, and, when a local folder hides the installed torch, that this is the first thing to look at."""
    if not _is_local(facts):
        return cause
    shadow = _shadowed_torch(facts, "")
    return replace(
        cause,
        explanation=f"{shadow.title}: it is what ends like this. {cause.explanation}",
        evidence=(*cause.evidence, *shadow.evidence),
        actions=(*shadow.actions, *cause.actions),
    )


def _is_local(facts: EnvFacts) -> bool:
    files = facts.torch
    return (
        files is not None
        and bool(files.is_local)
        and (files.shadowed_path is not None or files.has_native_code is False)
    )


def _shadowed_torch(facts: EnvFacts, text: str) -> ImportCause:
    files = facts.torch
    taken = files.path if files is not None and files.is_local else None
    if taken is None:
        imported = re.search(r"\(imported from (?P<path>[^)]+)\)", text)
        taken = imported["path"] if imported else "a local folder"
    evidence = [
        Evidence(text=f"`import torch` takes {taken}", source=files.sources.get("path") if files else None)
    ]
    if files is not None and files.shadowed_path is not None:
        evidence.append(Evidence(text=f"the installed package is {files.shadowed_path}"))
    return ImportCause(
        title="A local folder or file named torch hides the installed one",
        explanation="Python looks into the working folder (or the script's own) and along PYTHONPATH before it looks into "
        "site-packages. A source tree of PyTorch, a file torch.py or an empty folder there is taken for torch. A job that "
        "starts elsewhere may not be affected.",
        evidence=tuple(evidence),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Start from another folder, or rename it; look at PYTHONPATH",
                command=f"ls -ld {shlex.quote(taken)}; echo $PYTHONPATH; pwd",
            ),
        ),
        fault=Fault.USER_CODE,
    )


def _shadowed_module(text: str, module: str) -> ImportCause:
    named = _RENAME.search(text) or _IN_BRACKETS.search(text)
    file = named["file"] if named else None
    return ImportCause(
        title=f"A local file hides the Python module {module[:30]}",
        explanation="torch imports this module, and Python takes a file of the same name from the working folder or PYTHONPATH.",
        evidence=(Evidence(text=f"the file is {file}"),) if file else (),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Rename the file, and remove its __pycache__",
                command=f"ls -l {shlex.quote(file or module.replace('.', '/') + '.py')}",
            ),
        ),
        fault=Fault.USER_CODE,
        confidence=Confidence.HIGH if file else Confidence.MEDIUM,
    )


def _module_missing(facts: EnvFacts, module: str) -> ImportCause:
    top = module.partition(".")[0]
    package = {"yaml": "pyyaml", "typing_extensions": "typing-extensions"}.get(top, top)
    return ImportCause(
        title=f"torch does not import: the Python module {module[:30]} is missing",
        explanation=f"torch needs `{module}`, which is not installed for this Python. Packages installed with --no-deps, or another "
        "Python than the one they were installed for, leave such gaps.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Install it for this very Python",
                command=pip_command(facts, f"install {shlex.quote(package)}"),
            ),
        ),
        confidence=Confidence.HIGH,
    )


def _incomplete(facts: EnvFacts) -> ImportCause:
    files = facts.torch
    evidence = [
        Evidence(text=f"{each} was left behind by an interrupted pip")
        for each in (files.leftovers if files else ())
    ]
    if files is not None and len(files.dist_versions) > 1:
        evidence.append(
            Evidence(
                text=f"torch's metadata is there {len(files.dist_versions)} times: {', '.join(files.dist_versions)}"
            )
        )
    if files is not None and files.has_native_code is False:
        evidence.append(Evidence(text=f"{files.path} has no compiled module _C"))
    return ImportCause(
        title="torch does not import: its installation is incomplete",
        explanation="Parts of the package are missing or come from another version, as after an installation that was "
        "interrupted, or when two versions were unpacked into one folder. A file of the job that is named like one of torch's "
        "modules has the same effect.",
        evidence=tuple(evidence),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Remove torch, and install it anew",
                command=f"{pip_command(facts, 'uninstall -y torch')} && {pip_command(facts, 'install torch')}",
            ),
        ),
        confidence=Confidence.HIGH if evidence else Confidence.MEDIUM,
    )
