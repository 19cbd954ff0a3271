"""Shell and sbatch scripts that start Megatron-LM: on how many ranks, with which arguments, and what contradicts."""

from __future__ import annotations

import re
from dataclasses import replace

from distdoctor.errors import InputError
from distdoctor.oom.configs.commands.launch_claims import check_claims
from distdoctor.oom.configs.commands.launch_environment import check_environment
from distdoctor.oom.configs.commands.launch_line import (
    LaunchLine,
    arguments_of,
    has_word_with_blank,
    launch_line,
)
from distdoctor.oom.configs.commands.launch_ranks import read_ranks
from distdoctor.oom.configs.deepspeed import read as deepspeed
from distdoctor.oom.configs.megatron.flags import flags_of, normal
from distdoctor.oom.configs.megatron.job import MARKS, read_megatron
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import Script, read_script
from distdoctor.oom.configs.shell.values import UnknownKind
from distdoctor.oom.facts.launch import ConfigFamily, ConfigKey, Defect, LaunchConfig

_FLAG = re.compile(r"--([a-z][\w-]{3,60})")
_SCRIPT_START = re.compile(r"\s*#!|(?s:.{0,5000}?)^#SBATCH\s", re.MULTILINE)
_PROGRAM = re.compile(r"\b(?:pretrain|finetune|train)_(?:gpt|mamba|t5|bert|vlm|llama|retro|hybrid)\w*\.py\b")
_NOT_TRAINING = re.compile(
    r"preprocess|convert|checkpoint/|download|vllm|serve|inference|text_generation|tools/"
)

# So many of Megatron's own arguments are no accident. Our own bound: other trainers share at most two of the names.
_ENOUGH = 3


def sniff(path: str, text: str) -> float:
    """How much this looks like a script that starts Megatron-LM: 0 to 1."""
    if path.endswith((".py", ".json", ".toml")) or text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return 0.0
    names = {normal(name) for name in _FLAG.findall(text[:500_000])}
    marks = len(names & MARKS)
    if marks < _ENOUGH and not (marks and _PROGRAM.search(text)):
        return 0.0
    if path.endswith((".yaml", ".yml")) and re.search(r"^[ \t]*MODEL_ARGS\s*:", text, re.MULTILINE):
        return 0.0
    if re.search(r"^(?:apiVersion|kind)\s*:", text, re.MULTILINE):
        return 0.0
    is_script = bool(_SCRIPT_START.match(text[:6000].lstrip("\ufeff"))) or path.endswith(
        (".sh", ".sbatch", ".slurm", ".bash")
    )
    # Above what a DeepSpeed file or a trainer gets that such a script holds or writes.
    return 0.98 if is_script else 0.8


def read(path: str, text: str) -> LaunchConfig:
    """The Megatron job that a script starts. Raises InputError when no command in it has Megatron's arguments."""
    script = read_script(text)
    launches = [found for command in script.commands if (found := launch_line(command)) is not None]
    training = max(launches, key=_weight, default=None)
    if training is None or _weight(training) < _ENOUGH:
        raise InputError(
            f"`{path}` starts no Megatron-LM training that can be followed",
            hint=script.notes[0] if script.notes else "give the script that holds the training command",
        )
    reading = Reading(path=path, family=ConfigFamily.MEGATRON)
    for note in script.notes:
        reading.note(note)
    if training.condition is not None:
        reading.note(
            f"the training starts only where `{training.condition.text}` (line {training.condition.line})"
        )
    others = [each for each in launches if each is not training and _weight(each) >= _ENOUGH]
    if others:
        shown = ", ".join(str(each.line) for each in others[:5])
        reading.note(f"line {training.line} was read; other training commands stand in line {shown}")
    read_ranks(reading, script, training)
    arguments, loose = arguments_of(training.arguments)
    lines = _lines_of_options(text)
    arguments = [replace(each, line=lines.get(each.name, each.line)) for each in arguments]
    read_megatron(reading, flags_of(arguments, loose))
    _written_configuration(reading, script)
    _defaults(reading, script)
    _one_word(reading, training)
    _refused(reading, script, training)
    _unset_variables(reading, script, training)
    _ignored_directives(reading, script)
    check_environment(reading, script, training)
    check_claims(reading, script)
    return reading.done()


def _lines_of_options(text: str) -> dict[str, int]:
    """Where each option stands that stands once: commands are put together from arrays far above them."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(text[:1_000_000].split("\n"), start=1):
        for name in re.findall(
            r"(?<![\w-])--([a-zA-Z][\w-]*)", line.split(" #")[0] if not line.lstrip().startswith("#") else ""
        ):
            places.setdefault(name, []).append(number)
    return {name: lines[0] for name, lines in places.items() if len(lines) == 1}


def _written_configuration(reading: Reading, script: Script) -> None:
    """A DeepSpeed file that the script writes itself (`cat <<EOT > ds_config.json`)."""
    for each in script.heredocs:
        if not each.text.lstrip().startswith("{") or deepspeed.sniff(reading.path, each.text) < 0.5:
            continue
        try:
            written = deepspeed.read(reading.path, each.text)
        except InputError as error:
            reading.note(
                f"the DeepSpeed configuration in line {each.line} could not be read: {error.message}"
            )
            continue
        reading.references[:] = [name for name in reading.references if name != each.target]
        reading.note(
            f"the DeepSpeed configuration that the script writes in line {each.line} was read as well"
        )
        _compare_written(reading, written, each.line)
        return


def _compare_written(reading: Reading, written: LaunchConfig, line: int) -> None:
    for name in ("strategy", "micro_batch", "global_batch"):
        theirs, ours = getattr(written.settings, name), reading.get(name)
        if theirs is None or (name in written.implied and ours is not None):
            continue
        if ours is None:
            reading.set(name, theirs, ConfigKey(name="DeepSpeed configuration", value="", line=line))
            reading.open_points = [each for each in reading.open_points if each.settles != name]
        elif theirs != ours and name not in reading.implied:
            shown = [getattr(value, "value", value) for value in (ours, theirs)]
            reading.defect(
                Defect.CONFLICT,
                f"{_WORDS[name]}: {shown[0]} among the arguments, {shown[1]} in the DeepSpeed file"[:80],
                reading.keys.get(name),
                ConfigKey(name="DeepSpeed configuration", value=str(shown[1]), line=line),
                why="DeepSpeed takes its own file; Megatron computes with its arguments.",
                fix="give both the same value",
                sure=False,
            )
    for defect in written.defects:
        reading.defects.append(
            replace(
                defect,
                keys=tuple(
                    replace(key, line=key.line + line - 1 if key.line else line) for key in defect.keys
                ),
            )
        )


_WORDS = {"strategy": "ZeRO stage", "micro_batch": "micro-batch", "global_batch": "global batch"}


def _weight(launch: LaunchLine) -> int:
    """How many of Megatron's arguments a command has; what only prepares or serves counts less."""
    words = [word for token in launch.arguments for word in token.text.split()]
    names = {normal(word.partition("=")[0]) for word in words if word.startswith("--")}
    marks = len(names & MARKS) + 2 * bool(_PROGRAM.search(launch.program or ""))
    return marks - 5 * bool(_NOT_TRAINING.search(launch.program or ""))


def _one_word(reading: Reading, launch: LaunchLine) -> None:
    token = has_word_with_blank(launch.arguments)
    if token is not None and token.is_known:
        reading.defect(
            Defect.CONFLICT,
            f"`{token.text[:50]}` reaches the program as one word"[:80],
            ConfigKey(name=token.text.split()[0], value=token.text, line=token.line),
            why='Quoted together and expanded as "${ARGS[@]}", option and value are one argument that argparse '
            "does not know.",
            fix="write option and value as two words of the array",
            stops=True,
        )


def _defaults(reading: Reading, script: Script) -> None:
    """Values that a caller may replace, so that nobody takes them for the job's."""
    taken = [
        f"{name}={value}"
        for name, value in script.defaults.items()
        if re.fullmatch(r"[\d.]+", value) and not name.isdigit() and "PORT" not in name
    ]
    if taken:
        reading.note(f"defaults of the script, which its caller may replace: {', '.join(taken[:8])}")


def _refused(reading: Reading, script: Script, launch: LaunchLine) -> None:
    """What bash itself would refuse in the training command."""
    for each in script.refused:
        if "needs quotes" in each.what and each.line >= launch.line:
            reading.defect(
                Defect.CONFLICT,
                f"bash refuses the training command: {each.what.partition(':')[0]}"[:80],
                ConfigKey(name="(command)", value=each.what, line=each.line),
                why="A parenthesis without quotes is a syntax error of the shell; the training never starts.",
                fix="put the value in quotes: `--moe-layer-freq '([0]*3+[1]*58)'`",
                sure=False,
                stops=True,
            )
            return


def _unset_variables(reading: Reading, script: Script, launch: LaunchLine) -> None:
    """Variables that nothing sets and that the training command, or a condition before it, depends on."""
    tokens = [*launch.arguments, *launch.launcher_options.values(), *launch.scheduler_options.values()]
    used = {each.name for token in tokens for each in token.unknowns}
    never = [each for each in script.unset if each.kind is UnknownKind.NEVER_SET]
    deciding = {each.name for each in never if _decides_branches(script, each.name, each.line)}
    named = [each for each in never if each.name in deciding or each.name in used]
    if not named:
        return
    names = ", ".join(each.shown for each in named)
    title = f"{names} {'is' if len(named) == 1 else 'are'} never set in the script"
    near = _scheduler_variable(script, named[0].name)
    why = (
        "Unless the caller exports it, it is empty"
        if len(named) == 1
        else "Unless the caller exports them, they are empty"
    )
    why += "; a condition over an empty variable is false, and no branch is taken." if deciding else "."
    if near:
        why += f" Slurm sets `{near}` instead."
    reading.defect(
        Defect.UNSET_VARIABLE,
        title if len(title) <= 80 else f"{len(named)} variables are never set in the script",
        *(ConfigKey(name=each.shown, value="", line=each.line) for each in named),
        why=why,
        fix=f"set it at the top: `{named[0].name}=${{{near or named[0].name + ':-…'}}}`",
        sure=False,
        stops=bool(deciding),
    )


def _decides_branches(script: Script, name: str, line: int) -> bool:
    """Whether some variable stays unset because a condition over this one is false: it stands in a condition's line
    and behind it come assignments that are never made."""
    skipped = [
        alternative.line
        for each in script.unset
        for alternative in each.alternatives
        if each.kind is UnknownKind.NOT_TAKEN
    ]
    return any(condition_line == line for condition_line in script.condition_lines.get(name, ())) and any(
        line <= each for each in skipped
    )


def _scheduler_variable(script: Script, name: str) -> str | None:
    """The variable of Slurm that a name like NODES probably means."""
    is_nodes = re.fullmatch(r"(?:NUM_?)?N?NODES|NODE_?(?:NUM|COUNT)|N_NODES", name.upper())
    return "SLURM_JOB_NUM_NODES" if is_nodes and script.directives else None


def _ignored_directives(reading: Reading, script: Script) -> None:
    ignored = [each for each in script.directives if each.is_ignored]
    if ignored:
        reading.defect(
            Defect.INEFFECTIVE,
            f"{len(ignored)} #SBATCH line{'s' if len(ignored) > 1 else ''} after the first command",
            *(
                ConfigKey(name=f"#SBATCH --{each.name}", value=each.value, line=each.line)
                for each in ignored[:5]
            ),
            why="sbatch stops reading its options at the first command (man sbatch).",
            fix="move them to the top, right below `#!`",
        )
