"""What `#SBATCH` lines say, as keys of a report, and what follows from several tasks on a node."""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.directives import Directive, directive_number
from distdoctor.oom.configs.shell.script import Script
from distdoctor.oom.facts.launch import ConfigKey, Defect


def key_of(directive: Directive) -> ConfigKey:
    """The directive as it stands in the script."""
    return ConfigKey(name=f"#SBATCH --{directive.name}", value=directive.value, line=directive.line)


def directive_key(script: Script, *names: str) -> ConfigKey | None:
    """The last directive of these names that sbatch reads."""
    for each in reversed(script.directives):
        if each.name in names and not each.is_ignored:
            return key_of(each)
    return None


def check_tasks_of_launcher(reading: Reading, script: Script, launcher: str) -> None:
    """Adds a defect where srun, without a number of tasks of its own, starts a launcher several times on a node."""
    tasks = directive_number(script.directives, "ntasks-per-node")
    if tasks is None or tasks < 2:
        return
    reading.defect(
        Defect.CONFLICT,
        f"srun starts {launcher} {tasks} times on each node",
        directive_key(script, "ntasks-per-node"),
        why=f"{launcher} starts the ranks of a node itself; one task for each node is enough. More of them compete for "
        "the same GPUs and ports, or wait in the rendezvous for a place.",
        fix="set `#SBATCH --ntasks-per-node=1`",
        sure=False,
        stops=True,
    )
