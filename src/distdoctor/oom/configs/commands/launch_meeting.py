"""Where the ranks of a script meet: placeholders, each node at itself, every node with the same rank."""

from __future__ import annotations

import re

from distdoctor.oom.configs.addresses import is_loopback, placeholder_reason
from distdoctor.oom.configs.commands.launch_line import LaunchLine
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import Script
from distdoctor.oom.configs.shell.values import Token
from distdoctor.oom.facts.launch import ConfigKey, Defect


def check_meeting_point(reading: Reading, script: Script, launch: LaunchLine, nodes: int | None) -> None:
    """Adds defects of the address and of the nodes' ranks that a launch line gives for `nodes` nodes."""
    options = launch.launcher_options
    static = options.get("rdzv_backend", Token(text="static", line=0)).text == "static"
    for name in ("master_addr", "main_process_ip", "rdzv_endpoint"):
        token = options.get(name)
        if token is None or token.unknowns:
            continue
        key = ConfigKey(name=f"--{name}", value=token.text, line=token.line)
        reason = placeholder_reason(token.text)
        if reason is not None:
            reading.defect(
                Defect.PLACEHOLDER_ADDRESS,
                f"--{name} {token.text[:30]} is {reason}"[:80],
                key,
                why="The ranks meet at this address; without it none of them starts.",
                fix=f"set `--{name}` to the first node's address",
                stops=True,
            )
        elif (
            nodes is not None
            and nodes > 1
            and (default := _default_of(script, token.text, "ADDR|HOST|HEAD|IP|NODE|ENDPOINT"))
        ):
            reading.note(f"unless ${default} is set, every node meets at {token.text}")
        elif nodes is not None and nodes > 1 and is_loopback(token.text):
            reading.defect(
                Defect.PLACEHOLDER_ADDRESS,
                f"--{name} is {token.text[:30]}, and {nodes} nodes must meet there"[:80],
                key,
                why="Every node would wait for the others at itself.",
                fix="give the first node's address: `$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)`",
                sure=False,
                stops=True,
            )
    rank = options.get("node_rank") or options.get("machine_rank")
    if rank is None or _default_of(script, rank.text, "RANK|NODEID|INDEX"):
        return
    if rank.is_known and nodes is not None and nodes > 1 and launch.scheduler and static:
        reading.defect(
            Defect.SAME_ON_EVERY_NODE,
            f"every node gets rank {rank.text[:10]}",
            ConfigKey(name="--node_rank", value=rank.text, line=rank.line),
            why="srun runs this line on every node with the same words; the nodes cannot tell themselves apart.",
            fix="use `$SLURM_NODEID` (within `bash -c '…'`), or `--rdzv_backend=c10d` without a node rank",
            stops=True,
        )


def _default_of(script: Script, text: str, pattern: str) -> str | None:
    """The variable that `text` is only the default of, among those whose name fits."""
    for name, value in script.defaults.items():
        if (
            re.search(pattern, name, re.IGNORECASE)
            and value
            and (text == value or text.startswith(f"{value}:"))
        ):
            return name
    return None
