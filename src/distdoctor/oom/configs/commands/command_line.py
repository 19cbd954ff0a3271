"""A training command taken apart: which launcher, its options, the script, and the script's options.

Words come with their lines: from a shell script (`shell.read_script`) or from a manifest's `command` and `args`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from distdoctor.oom.configs.commands.option_words import MODULE_LAUNCHERS, is_option
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_word

MAX_WORDS = 5000


class Launcher(str, Enum):
    """What starts the ranks."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate launch"
    DEEPSPEED = "deepspeed"
    MPI = "mpirun"
    SRUN = "srun"
    OWN = "a command of the framework"
    """`llamafactory-cli train`, `axolotl train`, `trl sft`, `swift sft`: they start torchrun themselves."""
    PYTHON = "python"


# Options of launchers that take no value; all others take one.
_SWITCHES = {
    Launcher.TORCHRUN: frozenset(
        {"standalone", "no_python", "run_path", "use_env", "virtual_local_rank", "m", "module"}
    ),
    Launcher.ACCELERATE: frozenset(
        (
            *(
                "multi_gpu",
                "cpu",
                "tpu",
                "mps",
                "use_deepspeed",
                "use_fsdp",
                "use_megatron_lm",
                "quiet",
                "q",
                "m",
            ),
            *(
                "module",
                "no_python",
                "debug",
                "ipex",
                "use_xpu",
                "enable_cpu_affinity",
                "same_network",
                "no_tpu_cluster",
            ),
            *("tpu_use_cluster", "use_parallelism_config", "downcast_bf16"),
        )
    ),
    Launcher.DEEPSPEED: frozenset(
        (
            *(
                "no_python",
                "no_local_rank",
                "no_ssh_check",
                "no_ssh",
                "force_multi",
                "save_pid",
                "module",
                "m",
            ),
            *("elastic_training", "bind_cores_to_rank"),
        )
    ),
    Launcher.MPI: frozenset(
        (
            *(
                "allow_run_as_root",
                "oversubscribe",
                "bind_to_none",
                "tag_output",
                "report_bindings",
                "use_hwthread_cpus",
            ),
            *("display_map", "display_allocation", "v", "q", "prefix_output"),
        )
    ),
    Launcher.SRUN: frozenset(
        {
            "exclusive",
            "l",
            "label",
            "unbuffered",
            "u",
            "overlap",
            "kill_on_bad_exit",
            "no_container_remap_root",
            "container_writable",
            "container_mount_home",
        }
    ),
    Launcher.OWN: frozenset(),
    Launcher.PYTHON: frozenset({"u", "i", "b", "e", "s", "o", "oo"}),
}
_OF_MODULES = {
    "torchrun": Launcher.TORCHRUN,
    "accelerate": Launcher.ACCELERATE,
    "deepspeed": Launcher.DEEPSPEED,
}
_OWN_COMMANDS = frozenset({"llamafactory-cli", "lmf", "axolotl", "trl", "swift", "megatron"})
# mpirun: `-x NAME=value`, `--mca name value`.
_TWO_VALUES = frozenset({"mca", "gmca"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One command that starts ranks."""

    launchers: tuple[Launcher, ...]
    """Outermost first: srun, then torchrun."""
    options: dict[Launcher, Section]
    """Of each launcher, names with underscores."""
    script: Entry | None
    arguments: Section
    """Options of the training script, names with underscores."""
    variables: dict[str, Entry] = field(default_factory=dict)
    """`NAME=value` before the command, and mpirun's `-x NAME=value`."""

    def of(self, launcher: Launcher) -> Section:
        """Options of one launcher; empty when it takes no part."""
        return self.options.get(launcher, Section())

    @property
    def starts_ranks(self) -> bool:
        """Whether it is more than plain Python."""
        return any(each is not Launcher.PYTHON for each in self.launchers)


def find_launch(words: Sequence[Entry]) -> Launch | None:
    """The launch in a command's words; None when nothing in it starts a training script."""
    words = words[:MAX_WORDS]
    launchers: list[Launcher] = []
    options: dict[Launcher, Section] = {}
    variables: dict[str, Entry] = {}
    place = 0
    script: Entry | None = None
    while place < len(words):
        text = as_word(words[place].value) or ""
        assigned = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text, re.DOTALL)
        if assigned and not launchers:
            variables[assigned[1]] = Entry(name=assigned[1], value=assigned[2], line=words[place].line)
            place += 1
            continue
        launcher, length = _launcher_at(words, place)
        if launcher is None:
            if launchers and not text.startswith("-"):
                script = words[place]
                place += 1
                break
            place += 1
            continue
        launchers.append(launcher)
        place, options[launcher], is_script = _options(words, place + length, launcher, variables)
        if is_script and place < len(words):
            script = words[place]
            place += 1
            break
    if not launchers:
        return None
    return Launch(
        launchers=tuple(launchers),
        options=options,
        script=script,
        arguments=read_options(words[place:]),
        variables=variables,
    )


def _launcher_at(words: Sequence[Entry], place: int) -> tuple[Launcher | None, int]:
    """The launcher that begins at `place`, and how many words name it."""
    texts = [as_word(each.value) or "" for each in words[place : place + 4]]
    name = texts[0].rsplit("/", 1)[-1]
    following = texts[1:]
    if name in ("torchrun", "torchrun.sh", "elastic_launch"):
        return Launcher.TORCHRUN, 1
    if name == "accelerate" and following[:1] == ["launch"]:
        return Launcher.ACCELERATE, 2
    if name in ("accelerate-launch",):
        return Launcher.ACCELERATE, 1
    if name == "deepspeed":
        return Launcher.DEEPSPEED, 1
    if name in ("mpirun", "mpiexec", "horovodrun", "orterun"):
        return Launcher.MPI, 1
    if name == "srun":
        return Launcher.SRUN, 1
    if (name, *following[:1]) in (("tune", "run"), ("colossalai", "run")):
        return Launcher.TORCHRUN, 2
    if name in _OWN_COMMANDS and following[:1] and not following[0].startswith("-"):
        return Launcher.OWN, 1
    if re.fullmatch(r"python[\d.]*|python3|\$\{?PYTHON\}?", name):
        for at, word in enumerate(following):
            if word == "-m" and following[at + 1 : at + 2]:
                module = following[at + 1]
                if module in MODULE_LAUNCHERS:
                    return _OF_MODULES[MODULE_LAUNCHERS[module]], at + 3
                break
            if not word.startswith("-"):
                break
        return Launcher.PYTHON, 1
    return None, 0


def _options(
    words: Sequence[Entry], place: int, launcher: Launcher, variables: dict[str, Entry]
) -> tuple[int, Section, bool]:
    """Where the launcher's options end, the options, and whether the next word is the script itself (`-m module`)."""
    entries: dict[str, Entry] = {}
    switches = _SWITCHES[launcher]
    while place < len(words):
        text = as_word(words[place].value) or ""
        if not text.startswith("-") or text == "-":
            return place, Section(entries=entries), False
        if text == "--":
            return place + 1, Section(entries=entries), True
        name, equals, value = text.lstrip("-").partition("=")
        name = _name(name)
        key = text.partition("=")[0]
        if name in ("m", "module") and launcher is not Launcher.MPI:
            return place + 1, Section(entries=entries), True
        if launcher is Launcher.PYTHON:
            if name == "c":
                return len(words), Section(entries=entries), False
            place += 1
            continue
        if equals:
            entries[name] = Entry(name=key, value=value, line=words[place].line)
            place += 1
        elif name in switches or place + 1 >= len(words):
            entries[name] = Entry(name=key, value=True, line=words[place].line)
            place += 1
        elif name in _TWO_VALUES:
            place += 3
        else:
            given = as_word(words[place + 1].value)
            if name == "x" and given and "=" in given:
                variable, _, content = given.partition("=")
                variables[variable] = Entry(name=variable, value=content, line=words[place + 1].line)
            entries[name] = Entry(name=key, value=words[place + 1].value, line=words[place + 1].line)
            place += 2
    return place, Section(entries=entries), False


def read_options(words: Sequence[Entry]) -> Section:
    """Options of a script: `--name value`, `--name=value`, `--flag`, `--list a b`, and Hydra's `name=value`."""
    entries: dict[str, Entry] = {}
    place = 0
    while place < len(words):
        text = as_word(words[place].value) or ""
        line = words[place].line
        if not text.startswith("-") or re.fullmatch(r"-[\d.]+(?:[eE]-?\d+)?", text):
            dotted = re.fullmatch(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", text, re.DOTALL)
            if dotted:
                entries[dotted[1].replace("-", "_")] = Entry(name=dotted[1], value=dotted[2], line=line)
            elif text.endswith((".yaml", ".yml", ".json")):
                entries.setdefault("config", Entry(name="(first argument)", value=text, line=line))
            place += 1
            continue
        key, equals, value = text.partition("=")
        name = _name(key)
        place += 1
        if equals:
            entries[name] = Entry(name=key, value=value, line=line)
            continue
        values: list[Entry] = []
        while place < len(words) and not is_option(as_word(words[place].value) or ""):
            if values and re.match(r"\+{0,2}[A-Za-z_][\w.]*=", as_word(words[place].value) or ""):
                break
            values.append(words[place])
            place += 1
        if not values:
            entries[name] = Entry(name=key, value=True, line=line)
        elif len(values) == 1:
            entries[name] = Entry(name=key, value=values[0].value, line=line)
        else:
            entries[name] = Entry(name=key, value=tuple(values), line=line)
    return Section(entries=entries)


def _name(option: str) -> str:
    return option.strip("-").replace("-", "_").lower()
