"""TorchTitan's configurations in Python: functions that return a `Trainer.Config(…)`. Read as a syntax tree, never run.

Several functions in one file are several configurations: `FILE.py:llama3_70b` chooses one.
"""

from __future__ import annotations

import ast
import re
import warnings

from distdoctor.errors import InputError
from distdoctor.oom.configs.commands.launch_claims import gpus_in_comment
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.torchtitan.common import read_titan
from distdoctor.oom.configs.torchtitan.python_module import PythonModule
from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig

# Registries have some 500 lines.
MAX_CHARACTERS = 1_000_000

_NAMED = re.compile(r"(.*\.py):([A-Za-z_]\w*)")
_MARKS = re.compile(
    r"\b(?:torchtitan|Trainer\.Config|JobConfig|ParallelismConfig|TrainingConfig|model_registry|FullAC|SelectiveAC|"
    r"num_tokens_per_microbatch_per_dp_rank)\b"
)


def sniff(path: str, text: str) -> float:
    """How much this looks like TorchTitan's configurations in Python: 0 to 1."""
    if not (_split(path)[0].endswith(".py") or re.search(r"^(?:from|import) \w", text, re.MULTILINE)):
        return 0.0
    marks = {found.group() for found in _MARKS.finditer(text[:500_000])}
    has_config = re.search(r"\b(?:Trainer\.Config|JobConfig|\w*Trainer\.Config|TrainingConfig)\(", text)
    return 0.9 if has_config and len(marks) >= 2 else 0.0


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`; `path` may end in `:function`. Raises InputError with the line for what is no
    Python, and when the function is not there."""
    file, wanted = _split(path)
    reading = Reading(path=file, family=ConfigFamily.TORCHTITAN)
    calls = PythonModule(_parsed(file, text))
    names = calls.configurations()
    if not names:
        raise InputError(
            f"`{file}` holds no function that returns a configuration",
            hint="TorchTitan's are functions that return `Trainer.Config(…)`; print the values with `--debug.print_config`",
        )
    if wanted is not None and wanted not in names:
        raise InputError(
            f"`{file}` holds no configuration `{wanted}`", hint=f"it holds {', '.join(names[:20])}"
        )
    if wanted is None and len(names) > 1:
        shown = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
        reading.leave_open(
            "which configuration",
            f"the file holds {len(names)}: {shown}",
            how_to=f"name one: `--config {file}:{names[-1]}`",
        )
        return reading.done()
    name = wanted or names[0]
    section = calls.configuration(name)
    extra = {
        "_function": Entry(name="function", value=name),
        "_imports": Entry(name="imports", value=" ".join(calls.imported()[:40])),
    }
    reading.say("model", f"configuration `{name}`")
    read_titan(reading, Section(entries={**section.entries, **extra}))
    for note in calls.notes:
        reading.note(note)
    for number, line in enumerate(text[:20_000].splitlines(), start=1):
        claim = gpus_in_comment(line.partition("#")[2]) if "#" in line else None
        if claim is not None:
            reading.note(
                f"a comment in line {number} says {claim}; that is no setting, and was not taken as one"
            )
            break
    return reading.done()


def _split(path: str) -> tuple[str, str | None]:
    found = _NAMED.fullmatch(path)
    return (found[1], found[2]) if found else (path, None)


def _parsed(path: str, text: str) -> ast.Module:
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"`{path}` is too large for a configuration")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in the text
            return ast.parse(text.lstrip("\ufeff"))
    except SyntaxError as error:
        raise InputError(f"`{path}` is not valid Python: {error.msg}, line {error.lineno}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"`{path}` cannot be read as Python: {type(error).__name__}") from None
