"""How many ranks on how many nodes a script starts, and whether its own numbers agree.

torchrun: ranks = nnodes x nproc_per_node. accelerate: `--num_processes` is the total. srun without a launcher: one
rank for each task. `#SBATCH` lines count where the command line does not say otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import find_gpu_type
from distdoctor.oom.configs.commands.launch_line import LaunchLine
from distdoctor.oom.configs.commands.launch_meeting import check_meeting_point
from distdoctor.oom.configs.commands.reasons import reason_of
from distdoctor.oom.configs.commands.slurm import check_tasks_of_launcher, directive_key, key_of
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.directives import directive_number, gpu_word, gpus_per_node
from distdoctor.oom.configs.shell.script import Script
from distdoctor.oom.configs.shell.values import Token
from distdoctor.oom.facts.launch import ConfigKey, Defect


@dataclass(slots=True, kw_only=True)
class _Number:
    """A count with the key that says it; `token` where it could not be read."""

    value: int | None = None
    key: ConfigKey | None = None
    token: Token | None = None


def read_ranks(reading: Reading, script: Script, launch: LaunchLine) -> None:
    """Fill in nodes, GPUs of a node and ranks, and note what contradicts itself."""
    nodes = _nodes(script, launch)
    each = _ranks_of_node(script, launch)
    total = _total(script, launch, nodes, each)
    if nodes.value is not None:
        reading.set("num_nodes", nodes.value, nodes.key)
    if each.value is not None:
        reading.set("gpus_per_node", each.value, each.key)
    if total.value is not None:
        reading.set("world_size", total.value, total.key)
        _say(reading, launch, nodes, each, total)
    else:
        _leave_open(reading, nodes, each, total, script)
    _compare_nodes(reading, script, launch, nodes)
    _compare_devices(reading, script, launch, each)
    _compare_tasks(reading, script, launch)
    check_meeting_point(reading, script, launch, nodes.value)
    _gpu_type(reading, script)


def _say(reading: Reading, launch: LaunchLine, nodes: _Number, each: _Number, total: _Number) -> None:
    by = launch.launcher or launch.scheduler or "the script"
    parts = ""
    if nodes.value is not None and each.value is not None:
        parts = f": {nodes.value} node{'s' if nodes.value > 1 else ''} x {each.value}"
    elif nodes.value is not None:
        parts = f" on {nodes.value} nodes"
    reading.say("ranks", f"{total.value} ranks, started by {by}{parts}", nodes.key, each.key, total.key)


def _leave_open(reading: Reading, nodes: _Number, each: _Number, total: _Number, script: Script) -> None:
    reasons = []
    for number, what in ((total, "ranks"), (nodes, "nodes"), (each, "ranks of a node")):
        if number.value is None and number.token is not None:
            reasons.append(f"the number of {what} is {reason_of(number.token)}")
    placeholders = [
        each for each in script.directives if each.name == "nodes" and not re.search(r"\d", each.value)
    ]
    for each_directive in placeholders[:1]:
        reasons.append(f"`--nodes={each_directive.value}` is a place to fill in")
    if not reasons:
        missing = [
            what for number, what in ((nodes, "nodes"), (each, "ranks of a node")) if number.value is None
        ]
        reasons.append(f"the script does not give the number of {' and '.join(missing) or 'ranks'}")
    reading.leave_open("the number of ranks", "; ".join(dict.fromkeys(reasons)), settles="world_size")


def _nodes(script: Script, launch: LaunchLine) -> _Number:
    found = _option(launch.launcher_options, "nnodes", "num_machines", "num_nodes", "nnode")
    if found is not None and (found.value is not None or found.token is not None):
        return found
    found = _option(launch.scheduler_options, "nodes", "N")
    if found is not None and found.value is not None:
        return found
    number = directive_number(script.directives, "nodes")
    if number is not None:
        return _Number(value=number, key=directive_key(script, "nodes"))
    if launch.launcher in ("torchrun", "accelerate") or "standalone" in launch.launcher_options:
        return _Number(value=1)  # torchrun's own default for --nnodes, and accelerate's for --num_machines
    return found or _Number()


def _ranks_of_node(script: Script, launch: LaunchLine) -> _Number:
    if launch.launcher in ("torchrun", "deepspeed"):
        found = _option(launch.launcher_options, "nproc_per_node", "num_gpus", "nproc")
        if found is not None:
            if found.token is not None and found.token.text in ("gpu", "auto"):
                return _devices(script)
            return found
        if launch.launcher == "torchrun":
            return _Number(value=1)  # torchrun's own default
        return _devices(script)
    if launch.launcher == "accelerate":
        return _Number()
    found = _option(launch.scheduler_options, "ntasks_per_node", "npernode", "ppn")
    if found is not None:
        return found
    number = directive_number(script.directives, "ntasks-per-node")
    return (
        _Number(value=number, key=directive_key(script, "ntasks-per-node"))
        if launch.scheduler == "srun"
        else _Number()
    )


def _devices(script: Script) -> _Number:
    number = gpus_per_node(script.directives)
    return _Number(value=number, key=directive_key(script, "gpus-per-node", "gres", "gpus"))


def _total(script: Script, launch: LaunchLine, nodes: _Number, each: _Number) -> _Number:
    if launch.launcher == "accelerate":
        found = _option(launch.launcher_options, "num_processes")
        if found is not None:
            if found.value is not None and nodes.value:
                per_node, rest = divmod(found.value, nodes.value)
                if not rest:
                    each.value, each.key = per_node, found.key
            return found
        return _Number()
    if launch.launcher is None and launch.scheduler is not None:
        found = _option(launch.scheduler_options, "ntasks", "n", "np")
        if found is not None:
            return found
        number = directive_number(script.directives, "ntasks")
        if number is not None and each.value is None and launch.scheduler == "srun":
            return _Number(value=number, key=directive_key(script, "ntasks"))
    if nodes.value is None or each.value is None:
        return _Number()
    return _Number(value=nodes.value * each.value)


def _option(options: dict[str, Token], *names: str) -> _Number | None:
    for name in names:
        token = options.get(name)
        if token is None:
            continue
        text = token.text.partition(":")[2] if re.fullmatch(r"(\d+):\1", token.text) else token.text
        is_number = re.fullmatch(r"\d{1,7}", text) is not None and token.is_known
        dashes = "-" if len(name) == 1 else "--"
        key = ConfigKey(name=f"{dashes}{name}", value=token.text, line=token.line)
        return _Number(value=int(text), key=key) if is_number else _Number(token=token, key=key)
    return None


def _compare_nodes(reading: Reading, script: Script, launch: LaunchLine, nodes: _Number) -> None:
    allocated = directive_number(script.directives, "nodes")
    if allocated is not None and nodes.value is not None and nodes.value > allocated and launch.launcher:
        reading.defect(
            Defect.CONFLICT,
            f"{nodes.value} nodes are awaited, {allocated} are allocated",
            nodes.key,
            directive_key(script, "nodes"),
            why="The launcher waits for nodes that the scheduler does not start; the rendezvous times out.",
            fix="use `$SLURM_NNODES` for the launcher's number of nodes",
            stops=True,
        )


def _compare_devices(reading: Reading, script: Script, launch: LaunchLine, each: _Number) -> None:
    devices = gpus_per_node(script.directives)
    if devices is not None and each.value is not None and each.value > devices and launch.launcher:
        reading.defect(
            Defect.MORE_RANKS_THAN_DEVICES,
            f"{each.value} ranks a node, but {devices} GPUs are allocated on each",
            each.key,
            directive_key(script, "gpus-per-node", "gres", "gpus"),
            why="Ranks without a GPU of their own fail with `invalid device ordinal`, or share one and run out of memory.",
            fix=f"start {devices} ranks a node, or allocate {each.value} GPUs",
            stops=True,
        )


def _compare_tasks(reading: Reading, script: Script, launch: LaunchLine) -> None:
    own = _option(launch.scheduler_options, "ntasks_per_node", "ntasks", "n")
    if launch.scheduler == "srun" and launch.launcher in ("torchrun", "accelerate") and own is None:
        check_tasks_of_launcher(reading, script, launch.launcher)


def _gpu_type(reading: Reading, script: Script) -> None:
    """The type that the site's own word names, where it names exactly one of our table."""
    found = gpu_word(script.directives)
    if found is None:
        return
    word, directive = found
    key = key_of(directive)
    known = find_gpu_type(word)
    if known is not None:
        reading.set("gpu_type", known.name, key)
    else:
        reading.leave_open(
            "the type of GPU",
            f"`{word}` is the site's word for it",
            settles="gpu_type",
            how_to="`--gpu-type …`",
        )
