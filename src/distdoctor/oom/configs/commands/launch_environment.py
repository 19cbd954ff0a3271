"""Environment variables that Megatron-LM insists on; those that slow any job down are read by variables.py."""

from __future__ import annotations

from distdoctor.oom.configs.commands.launch_line import LaunchLine
from distdoctor.oom.configs.commands.variables import read_variables, variables_of_command
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import Script
from distdoctor.oom.configs.text.tree import Entry

_NAME = "CUDA_DEVICE_MAX_CONNECTIONS"


def check_environment(reading: Reading, script: Script, launch: LaunchLine) -> None:
    """Adds what the environment of the training command does to it."""
    variables = variables_of_command(script, launch.line)
    for name, value in launch.environment.items():
        variables[name] = Entry(name=name, value=value, line=launch.line)
    read_variables(reading, variables)
    _connections(reading, script, launch)


def _connections(reading: Reading, script: Script, launch: LaunchLine) -> None:
    """`validate_args`: tensor or context parallelism on GPUs before Blackwell needs CUDA_DEVICE_MAX_CONNECTIONS=1."""
    tp, cp = reading.get("tp"), reading.get("cp")
    uses = (tp is not None and tp > 1) or (cp is not None and cp > 1)
    if not uses or _NAME in script.variables or _NAME in launch.environment or script.sources:
        return
    reading.note(
        f"{_NAME} is not set here; Megatron-LM wants it to be 1 with tensor or context parallelism on GPUs before "
        "Blackwell"
    )
