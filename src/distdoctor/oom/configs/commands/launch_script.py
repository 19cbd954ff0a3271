"""A shell script or a pasted command line that starts ranks with trainer arguments.

Which words a command gets is read by `shell.read_script` (variables, arrays, branches); what they mean is read here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from distdoctor.oom.configs.commands.command_line import Launch, Launcher, find_launch
from distdoctor.oom.configs.commands.embedded import absorb
from distdoctor.oom.configs.commands.launchers import read_launchers
from distdoctor.oom.configs.commands.slurm import check_tasks_of_launcher, key_of
from distdoctor.oom.configs.commands.training_flags import read_training_flags
from distdoctor.oom.configs.commands.variables import read_variables, variables_of_command
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import Command, Script, read_script
from distdoctor.oom.configs.text.word_lines import words_with_lines
from distdoctor.oom.configs.trainers.trainer import SURE, assume_plain_copies, read_trainer
from distdoctor.oom.facts.launch import ConfigFamily, ConfigKey, Defect, LaunchConfig

_LAUNCHER = re.compile(
    r"\b(?:torchrun|accelerate[ \t]+launch|deepspeed|torch\.distributed\.(?:run|launch)|mpirun|srun|python3?[ \t]+\S+\.py|llamafactory-cli|axolotl)\b"
)
_HF = re.compile(
    r"--(?:per_device_train_batch_size|model_name_or_path|gradient_checkpointing|bf16|deepspeed|use_peft|lora_r)\b"
)
_MEGATRON = re.compile(
    r"--(?:tensor-model-parallel-size|pipeline-model-parallel-size|micro-batch-size|num-layers)\b"
)


def sniff(path: str, text: str) -> float:
    """How much this looks like a script that starts training: 0 to 1."""
    head = text.lstrip("\ufeff \t\r\n")
    if head.startswith("{") or re.search(r"^(?:apiVersion|kind)\s*:", text, re.MULTILINE):
        return 0.0
    if not _LAUNCHER.search(text) or _MEGATRON.search(text):
        return 0.0
    is_script = head.startswith("#!") or path.endswith((".sh", ".slurm", ".sbatch", ".bash"))
    if _HF.search(text):
        return (
            0.85
            if is_script or re.search(r"^[ \t]*(?:torchrun|accelerate|deepspeed|python)", text, re.MULTILINE)
            else 0.5
        )
    return 0.6 if is_script else 0.4


def read(path: str, text: str) -> LaunchConfig:
    """What the script starts. Never raises for what it holds: lines that are no shell are noted."""
    reading = Reading(path=path, family=ConfigFamily.HF_TRAINER)
    script = read_script(text)
    lines = text.split("\n")
    launches = [
        (launch, command)
        for command in script.commands
        if (launch := find_launch(words_with_lines(command, lines)))
    ]
    for note in script.notes:
        reading.note(note)
    if not launches:
        reading.leave_open("the launch", "no command in the script starts ranks", settles="world_size")
        return reading.done()
    launch, command = max(launches, key=lambda each: _weight(each[0]))
    if len(launches) > 1:
        reading.note(f"{len(launches)} commands start Python; the one of line {command.line} was taken")
    _directives(reading, script)
    variables = {
        **variables_of_command(script, command.line),
        **launch.variables,
    }
    launch = replace(launch, variables=variables)
    read_launchers(reading, launch)
    _tasks(reading, script, launch)
    read_variables(reading, variables)
    read_training_flags(reading, launch.arguments)
    read_trainer(reading, launch.arguments)
    if "per_device_train_batch_size" in launch.arguments:
        assume_plain_copies(reading, why="the command names neither fsdp nor deepspeed")
    _written_files(reading, script)
    _unset(reading, command)
    config = launch.arguments.get("config")
    if config is not None and isinstance(config.value, str):
        reading.references.append(config.value)
        reading.leave_open(
            f"what {config.value} says",
            "the script is given this file, and it was not given here",
            how_to=f"give `{config.value}` as another file",
        )
    reading.leave_open("the number of ranks", "the launcher's options do not say it", settles="world_size")
    return reading.done()


def _weight(launch: Launch) -> int:
    """How much a command looks like the training: its launcher, and the trainer's arguments."""
    names = launch.arguments.entries
    return (
        (20 if launch.starts_ranks else 0)
        + 3 * sum(name in names for name in SURE)
        + ("model_name_or_path" in names)
        + min(len(names), 5)
    )


def _written_files(reading: Reading, script: Script) -> None:
    """Configurations that the script writes itself, by here-documents."""
    for each in script.heredocs:
        name = (each.target or "here-document").rsplit("/", 1)[-1]
        if absorb(reading, name, each.text, line=each.line - 1):
            reading.references = [path for path in reading.references if path.rsplit("/", 1)[-1] != name]
            reading.open_points = [point for point in reading.open_points if name not in point.what]


def _directives(reading: Reading, script: Script) -> None:
    """#SBATCH says how many nodes; ranks may use fewer of them."""
    for each in script.directives:
        key = key_of(each)
        if each.name == "nodes" and each.value.isdigit():
            reading.set("num_nodes", int(each.value), key, implied=True)
        gpus = re.search(r"(?:^|:)(\d+)$", each.value)
        if (
            each.name in ("gpus-per-node", "gres")
            and gpus
            and ("gpu" in each.value or each.name == "gpus-per-node")
        ):
            reading.say("launch", f"{gpus[1]} GPUs on each node, by Slurm", key)
            reading.set("gpus_per_node", int(gpus[1]), key, implied=True)


def _tasks(reading: Reading, script: Script, launch: Launch) -> None:
    """srun starts a launcher once for each task, and the launcher starts all ranks of the node."""
    launcher = next(
        (each for each in (Launcher.TORCHRUN, Launcher.ACCELERATE) if each in launch.launchers), None
    )
    steps = launch.of(Launcher.SRUN)
    says = any(name in steps for name in ("ntasks_per_node", "ntasks", "n"))
    if launcher is not None and Launcher.SRUN in launch.launchers and not says:
        check_tasks_of_launcher(reading, script, launcher.value)


def _unset(reading: Reading, command: Command) -> None:
    """Options whose value is a variable that the script never sets: they reach the program empty."""
    for before, token in zip(command.tokens, command.tokens[1:], strict=False):
        name = before.text if before.text.startswith("--") and "=" not in before.text else None
        inside = re.match(r"(--[\w-]+)=", token.text)
        option = inside[1] if inside else name
        never = [each for each in token.unknowns if each.kind.name == "NEVER_SET"]
        if option and never and (inside or token.is_all_unknown):
            reading.defect(
                Defect.UNSET_VARIABLE,
                f"{option[:30]} gets {never[0].shown[:30]}, which nothing in the script sets",
                ConfigKey(name=option, value=never[0].shown, line=token.line),
                why="Unless the caller exports it, the option reaches the program without a value.",
                fix=f"set it before: `export {never[0].name}=…`, or give it a default: `${{{never[0].name}:-8}}`",
                sure=False,
            )
