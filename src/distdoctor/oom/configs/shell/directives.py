"""`#SBATCH` lines and comments of a batch script, and the variables that Slurm derives from them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(.*)$")

# Short options of sbatch; the long ones carry the meaning.
_LONG = {
    "-N": "nodes",
    "-n": "ntasks",
    "-G": "gpus",
    "-J": "job-name",
    "-c": "cpus-per-task",
    "-p": "partition",
    "-o": "output",
    "-e": "error",
    "-t": "time",
    "-C": "constraint",
    "-A": "account",
    "-w": "nodelist",
    "-q": "qos",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """One option that a script gives to sbatch."""

    name: str
    """Long form without dashes: `nodes`, `gpus-per-node`."""
    value: str
    line: int
    is_ignored: bool = False
    """It stands after the first command, where sbatch no longer reads (man sbatch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of the script, without its `#`."""

    text: str
    line: int


def read_directives(text: str) -> tuple[Directive, ...]:
    """The `#SBATCH` options in order. `##SBATCH` and `# SBATCH` are comments to sbatch and to us."""
    directives: list[Directive] = []
    commands_have_begun = False
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        match = _DIRECTIVE.match(stripped[:2000])
        if match is not None:
            directives += _options(match[1], number, is_ignored=commands_have_begun)
        elif stripped and not stripped.startswith("#"):
            commands_have_begun = True
    return tuple(directives)


def _options(text: str, line: int, *, is_ignored: bool) -> list[Directive]:
    without_comment = re.split(r"\s#", text, maxsplit=1)[0]
    found: list[Directive] = []
    words = without_comment.split()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif re.match(r"-[A-Za-z]", word):
            name, value = _LONG.get(word[:2], word[1:2]), word[2:].lstrip("=")
            equals = value
        else:
            continue
        if not equals and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        found.append(Directive(name=name, value=value.strip("'\""), line=line, is_ignored=is_ignored))
    return found


def read_comments(text: str) -> tuple[Comment, ...]:
    """Whole-line and trailing comments. A `#` inside quotes may be taken for one; nothing is decided by that."""
    comments: list[Comment] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(("#!", "#SBATCH")):
            continue
        match = re.search(r"(?:^|\s)#+\s*(.*)$", line[:2000])
        if match is not None and match[1]:
            comments.append(Comment(text=match[1].strip(), line=number))
    return tuple(comments)


def directive_number(directives: tuple[Directive, ...], *names: str) -> int | None:
    """The integer of the last such option that sbatch reads; None when absent or no plain number.

    `--nodes=2-4` and `--nodes=your_own_number` are no plain numbers.
    """
    number = None
    for directive in directives:
        if directive.name in names and not directive.is_ignored:
            number = int(directive.value) if re.fullmatch(r"\d{1,6}", directive.value) else None
    return number


def gpus_per_node(directives: tuple[Directive, ...]) -> int | None:
    """GPUs of one node: `--gpus-per-node=h100:8`, `--gres=gpu:8`, or `--gpus` over the nodes."""
    found = None
    for directive in directives:
        if directive.is_ignored:
            continue
        if directive.name == "gpus-per-node":
            found = _last_count(directive.value)
        elif directive.name == "gres":
            for part in directive.value.split(","):
                if part.split(":")[0] == "gpu":
                    found = _last_count(part.removeprefix("gpu").lstrip(":") or "1")
    if found is None:
        whole = next(
            (_last_count(d.value) for d in directives if d.name == "gpus" and not d.is_ignored), None
        )
        nodes = directive_number(directives, "nodes")
        if whole and nodes and whole % nodes == 0:
            found = whole // nodes
    if found is None:
        each = next(
            (_last_count(d.value) for d in directives if d.name == "gpus-per-task" and not d.is_ignored), None
        )
        tasks = directive_number(directives, "ntasks-per-node")
        found = each * tasks if each and tasks else None
    return found


def _last_count(text: str) -> int | None:
    last = text.partition("(")[0].rpartition(":")[2]
    return int(last) if re.fullmatch(r"\d{1,4}", last) else None


def slurm_variables(directives: tuple[Directive, ...]) -> dict[str, str]:
    """What Slurm would put into the environment, where the directives say it. `sbatch`'s own options win over them."""
    nodes = directive_number(directives, "nodes")
    per_node = directive_number(directives, "ntasks-per-node")
    tasks = directive_number(directives, "ntasks")
    gpus = gpus_per_node(directives)
    if tasks is None and nodes is not None and per_node is not None:
        tasks = nodes * per_node
    numbers = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS_PER_NODE": per_node,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_CPUS_PER_TASK": directive_number(directives, "cpus-per-task"),
        "SLURM_GPUS_ON_NODE": gpus,
    }
    variables = {name: str(number) for name, number in numbers.items() if number is not None}
    for directive in directives:
        if directive.is_ignored or not directive.value:
            continue
        if directive.name == "gpus-per-node":
            variables["SLURM_GPUS_PER_NODE"] = directive.value
        elif directive.name == "job-name":
            variables["SLURM_JOB_NAME"] = directive.value
    return variables


def gpu_word(directives: tuple[Directive, ...]) -> tuple[str, Directive] | None:
    """The type in `--gres=gpu:h100:8` or `--gpus-per-node=h100:8`, as the site writes it."""
    for each in directives:
        if each.is_ignored or each.name not in ("gres", "gpus-per-node", "gpus", "gpus-per-task"):
            continue
        for part in each.value.split(","):
            words = part.removeprefix("gpu:").split(":")
            if len(words) == 2 and re.fullmatch(r"[A-Za-z][\w.-]{1,40}", words[0]) and words[1].isdigit():
                return words[0], each
    return None
