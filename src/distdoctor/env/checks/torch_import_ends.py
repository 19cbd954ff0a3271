"""Why an import ended without an exception: a signal, an exit half-way, a hang."""

from __future__ import annotations

import shlex

from distdoctor.env.checks.torch_import_cause import ImportCause, library_path_evidence
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.torch import TorchProbe
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Team

# What each signal says about an import, and how far that decides.
_SIGNALS = {
    "SIGILL": "The processor does not know an instruction that a library uses: the library was built for a newer CPU "
    "(AVX2, AVX-512), or a virtual machine hides the feature.",
    "SIGKILL": "Somebody killed it: as a rule the kernel's or the container's out-of-memory killer. Importing torch takes "
    "about 0.3 GiB of memory, with CUDA libraries more.",
    "SIGBUS": "A file that was mapped into memory is shorter than expected or cannot be read: a damaged or replaced file, "
    "a full /dev/shm, a failing disk or file server.",
    "SIGSEGV": "A library accessed memory that is not its own: as a rule two versions of one C++ library in a process.",
    "SIGABRT": "A library gave up and called abort(); what it printed stands above.",
    "SIGXCPU": "The CPU time limit was reached.",
}


def aborted(facts: EnvFacts, probe: TorchProbe) -> ImportCause:
    """The child was ended by a signal that we did not send."""
    name = probe.signal_name or "a signal"
    killed = name == "SIGKILL"
    return ImportCause(
        title=f"Importing torch ends the process with {name}",
        explanation=_SIGNALS.get(
            name, "No exception can be caught: every process of the job ends like this."
        ),
        evidence=library_path_evidence(facts),
        actions=(
            Action(
                team=Team.PLATFORM if killed else Team.JOB_OWNER,
                text="See who killed it"
                if killed
                else "See where it ends; then try without the variables that lead the loader elsewhere",
                command="dmesg -T | tail -20; cat /sys/fs/cgroup/memory.events"
                if killed
                else f"{_python(facts)} -X faulthandler -c 'import torch'; env -u LD_LIBRARY_PATH -u LD_PRELOAD {_python(facts)} -c 'import torch'",
            ),
        ),
        fault=Fault.HOST if killed or name in ("SIGILL", "SIGBUS") else Fault.SOFTWARE,
        confidence=Confidence.MEDIUM if killed else Confidence.HIGH,
    )


def exited_early(facts: EnvFacts, probe: TorchProbe) -> ImportCause:
    """The child ended by itself before the last step."""
    code = probe.returncode
    reached = probe.last_step or "start"
    return ImportCause(
        title=f"Python exits with code {code} while torch is imported",
        explanation=(
            f"The last step that was reached is “{reached}”. Something that torch imports, or a library's own start-up code, ended "
            "the process without an exception; with code 0 a launcher would even take the job for finished."
        ),
        evidence=(
            Evidence(
                text=f"exit code {code} after the step “{reached}”",
                value=code,
                expected="all steps",
                source=probe.sources.get("state"),
            ),
            *library_path_evidence(facts),
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Let Python say what it imports last",
                command=f"{_python(facts)} -v -c 'import torch' 2>&1 | tail -5",
            ),
        ),
    )


def hung(facts: EnvFacts, probe: TorchProbe) -> ImportCause:
    """The child did not come back in time. A slow file server looks the same as a lock that never opens."""
    limit = f"{probe.timeout_s:g} s" if probe.timeout_s is not None else "the time limit"
    where = probe.error_where or ""
    reading = any(part in where for part in ("importlib", "get_data", "linecache", "zipimport", "tokenize"))
    return ImportCause(
        title=f"Importing torch does not end within {limit}",
        explanation=(
            "An import normally takes 1 to 10 s, on a cold shared file system up to a minute. It waits at the place named above. "
            + (
                "Python is reading module files there: as a rule the file system that holds the environment is slow or hangs."
                if reading
                else "As a rule it waits for a file system, a lock, a driver call or a network name that does not answer."
            )
        ),
        evidence=(
            Evidence(
                text=f"not finished after {limit}; the last step reached is “{probe.last_step or 'none'}”",
                value=probe.timeout_s,
                unit="s",
                expected="1 to 10 s",
                expected_source="our own measurements",
                source=probe.sources.get("state"),
            ),
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See what it waits for; give it more time when the file system is only slow (--timeout 300)",
                command=f"timeout -s ABRT 60 {_python(facts)} -X faulthandler -c 'import torch'; cat /proc/mounts | grep -E ' (nfs|lustre|fuse)'",
            ),
        ),
        fault=Fault.HOST,
        confidence=Confidence.HIGH if probe.error_where else Confidence.MEDIUM,
    )


def _python(facts: EnvFacts) -> str:
    executable = facts.python.executable if facts.python is not None else None
    return shlex.quote(executable or "python")
