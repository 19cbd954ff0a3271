"""What the options of torchrun, accelerate launch, deepspeed, mpirun and srun say about ranks and their meeting point.

Sources: torch.distributed.run (`--nnodes MIN:MAX`, `--nproc-per-node gpu`), accelerate launch, deepspeed's runner,
Open MPI's mpirun, srun.
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.accelerate.read import read_precision, read_root
from distdoctor.oom.configs.addresses import is_loopback, placeholder_reason
from distdoctor.oom.configs.commands.command_line import Launch, Launcher
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_int, as_word, is_auto, template_in
from distdoctor.oom.facts.launch import Defect


def read_launchers(reading: Reading, launch: Launch, *, nodes: int | None = None) -> None:
    """Fill in ranks, nodes and ranks of a node; `nodes` is what a scheduler or manifest says, if it says it."""
    if Launcher.ACCELERATE in launch.launchers:
        _accelerate(reading, launch.of(Launcher.ACCELERATE))
    elif Launcher.TORCHRUN in launch.launchers:
        _torchrun(reading, launch.of(Launcher.TORCHRUN), nodes)
    elif Launcher.DEEPSPEED in launch.launchers:
        _deepspeed(reading, launch.of(Launcher.DEEPSPEED))
    elif Launcher.MPI in launch.launchers:
        _mpi(reading, launch.of(Launcher.MPI))
    elif Launcher.OWN in launch.launchers:
        _own(reading, launch)
    elif Launcher.SRUN in launch.launchers:
        _srun(reading, launch.of(Launcher.SRUN))


def _torchrun(reading: Reading, options: Section, nodes: int | None) -> None:
    standalone = options.get("standalone")
    nodes_key = options.first("nnodes", "nnode")
    said = _nnodes(reading, nodes_key)
    if standalone is not None:
        if said is not None and said > 1:
            reading.defect(
                Defect.CONFLICT,
                f"--standalone is for one node; --nnodes says {said}",
                standalone,
                nodes_key,
                why="torchrun meets on the loopback of each node: every node runs a job of its own.",
                fix="replace `--standalone` by `--rdzv-backend=c10d --rdzv-endpoint=HOST:29500`",
                stops=True,
            )
        said = said or 1
    if said is None and nodes_key is None:
        said = nodes
    reading.set("num_nodes", said, nodes_key or standalone)
    per_node_key = options.first("nproc_per_node", "nproc_per_gpu")
    per_node = _per_node(reading, per_node_key)
    if said is not None and per_node is not None:
        reading.set("world_size", said * per_node, per_node_key)
        shown = f"{said} node{'s' if said != 1 else ''} x {per_node} rank{'s' if per_node != 1 else ''}"
        reading.say(
            "ranks", f"{shown} = {said * per_node}", nodes_key or reading.keys.get("num_nodes"), per_node_key
        )
    elif per_node is not None or said is not None:
        reading.leave_open(
            "the number of ranks",
            f"nodes {said if said is not None else 'unknown'}, ranks of a node {per_node if per_node is not None else 'unknown'}",
            settles="world_size",
        )
    endpoint = options.first("rdzv_endpoint", "master_addr")
    rank = options.get("node_rank")
    if said is not None and said > 1:
        _endpoint(reading, endpoint, standalone is not None)
        _fixed_rank(reading, rank, said, options)


def _nnodes(reading: Reading, entry: Entry | None) -> int | None:
    text = as_word(entry.value) if entry is not None else None
    span = re.fullmatch(r"(\d+):(\d+)", text or "")
    if entry is not None and span:
        low, high = int(span[1]), int(span[2])
        if low == high:
            return high
        reading.leave_open(
            "the number of nodes", f"`{entry.name}` allows {low} to {high} (elastic)", settles="num_nodes"
        )
        return None
    return reading.integer(entry, settles="num_nodes", minimum=1, what="the number of nodes")


def _per_node(reading: Reading, entry: Entry | None) -> int | None:
    """torch.distributed.run: 1 when it is not given; `gpu`, `auto` and `cpu` are counted on the node."""
    if entry is None:
        reading.set("gpus_per_node", 1, implied=True)
        reading.note("torchrun without --nproc-per-node starts one rank on each node")
        return 1
    text = (as_word(entry.value) or "").lower()
    if text in ("gpu", "auto", "cpu", "xpu"):
        reading.leave_open(
            "ranks of a node",
            f"`{entry.name} {text}` counts the devices of the node",
            settles="gpus_per_node",
        )
        return None
    number = reading.integer(entry, settles="gpus_per_node", minimum=1, what="ranks of a node")
    reading.set("gpus_per_node", number, entry)
    return number


def _endpoint(reading: Reading, entry: Entry | None, is_standalone: bool) -> None:
    text = as_word(entry.value) if entry is not None else None
    if entry is None or text is None or is_standalone or template_in(text):
        return
    name = entry.name.lstrip("-")
    reason = placeholder_reason(text)
    if reason or is_loopback(text):
        reading.defect(
            Defect.PLACEHOLDER_ADDRESS,
            f"{name} {text[:24]!r} is {reason or 'each node itself'}"[:80],
            entry,
            why="Ranks of all nodes meet at this address before anything else; with this one they wait until the "
            "timeout.",
            fix=f"set `--{name}` to an address of the first node that the others reach",
            stops=True,
            sure=reason is not None or not is_loopback(text),
        )


def _fixed_rank(reading: Reading, rank: Entry | None, nodes: int, options: Section) -> None:
    number = as_int(rank.value) if rank is not None else None
    if number is None:
        return
    if number >= nodes:
        reading.defect(
            Defect.CONFLICT,
            f"node_rank {number} of {nodes} nodes: ranks count from 0",
            rank,
            options.get("nnodes"),
            why="The rendezvous never completes.",
            fix=f"give the nodes the ranks 0 to {nodes - 1}",
            stops=True,
        )
        return
    reading.defect(
        Defect.SAME_ON_EVERY_NODE,
        f"node_rank {number} stands in the command, and must differ on every node",
        rank,
        why="The same command on all nodes gives them all the same rank, and the rendezvous hangs.",
        fix="use `--node-rank=$SLURM_NODEID` or a rendezvous of type c10d, which needs none",
        sure=False,
    )


_FSDP = re.compile(r"fsdp_")
_DEEPSPEED_KEYS = (
    *("deepspeed_config_file", "zero_stage", "offload_optimizer_device", "offload_param_device"),
    *("gradient_accumulation_steps", "gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model"),
)


def _accelerate(reading: Reading, options: Section) -> None:
    """Options of `accelerate launch` in the form of its file; they win over the file they name."""
    config = options.get("config_file")
    file = as_word(config.value) if config is not None else None
    if config is not None and file:
        reading.references.append(file)
        reading.leave_open(
            f"what {file} says",
            "the accelerate file is named, and was not given",
            how_to=f"give `{file}` as another file",
        )
    kinds = {
        "use_fsdp": "fsdp",
        "use_deepspeed": "deepspeed",
        "use_megatron_lm": "megatron_lm",
        "multi_gpu": "multi_gpu",
    }
    kind = next((kinds[name] for name in kinds if name in options), None)
    if kind is None and any(_FSDP.match(name) for name in options.entries):
        kind = "fsdp"
    if kind is None and "deepspeed_config_file" in options:
        kind = "deepspeed"
    root = Section(
        entries={
            **options.entries,
            "fsdp_config": Entry(
                name="fsdp",
                value=Section(
                    entries={name: each for name, each in options.entries.items() if _FSDP.match(name)}
                ),
            ),
            "deepspeed_config": Entry(
                name="deepspeed",
                value=Section(
                    entries={
                        name: options.entries[name] for name in _DEEPSPEED_KEYS if name in options.entries
                    }
                ),
            ),
        }
    )
    if kind != "fsdp":
        root.entries.pop("fsdp_config")
    if kind != "deepspeed":
        root.entries.pop("deepspeed_config")
    if "mixed_precision" in options:
        read_precision(reading, root, kind)
    if "num_processes" in options or "num_machines" in options or not file:
        read_root(reading, root, kind)
    elif kind is not None:
        read_root(reading, root, kind)
        for name in ("num_nodes", "world_size"):
            if name in reading.implied:
                reading.values.pop(name, None)
                reading.implied.discard(name)


def _deepspeed(reading: Reading, options: Section) -> None:
    gpus, nodes = options.get("num_gpus"), options.get("num_nodes")
    include = options.first("include", "i")
    text = as_word(include.value) if include is not None else None
    if text and ":" in text and not template_in(text):
        hosts = [each.partition(":") for each in text.split("@")]
        slots = [len([slot for slot in part[2].split(",") if slot]) for part in hosts]
        reading.set("world_size", sum(slots), include)
        reading.set("num_nodes", len(hosts), include)
        reading.say("ranks", f"{sum(slots)} ranks on {len(hosts)} hosts, by --include", include)
        return
    hostfile = options.first("hostfile", "h")
    per_node = reading.integer(gpus, settles="gpus_per_node", minimum=-1, what="ranks of a node")
    count = reading.integer(nodes, settles="num_nodes", minimum=-1, what="the number of nodes")
    if per_node is not None and per_node > 0:
        reading.set("gpus_per_node", per_node, gpus)
        if count is None and hostfile is None:
            count = 1
        if count is not None and count > 0:
            reading.set("num_nodes", count, nodes, implied=nodes is None)
            reading.set("world_size", count * per_node, gpus)
            reading.say("ranks", f"{count} nodes x {per_node} ranks = {count * per_node}", nodes, gpus)
            return
    why = (
        "the hostfile lists hosts and their slots"
        if hostfile is not None
        else "deepspeed takes all GPUs that it sees"
    )
    reading.leave_open("the number of ranks", why, settles="world_size")


def _mpi(reading: Reading, options: Section) -> None:
    count = options.first("np", "n", "c")
    number = reading.integer(count, settles="world_size", minimum=1, what="the number of ranks")
    per_node = options.first("npernode", "ppn", "map_by", "nperhost")
    text = as_word(per_node.value) if per_node is not None else None
    found = re.fullmatch(r"(?:ppr:)?(\d+)(?::node.*)?", text or "")
    each = int(found[1]) if found else None
    reading.set("world_size", number, count)
    if number is not None:
        reading.say("ranks", f"{number} ranks by {count.name if count else 'mpirun'}", count)
    if each:
        reading.set("gpus_per_node", each, per_node)
        if number is not None and number % each == 0:
            reading.set("num_nodes", number // each, per_node, implied=True)


def _own(reading: Reading, launch: Launch) -> None:
    """LLaMA-Factory and ms-swift start torchrun with NNODES and NPROC_PER_NODE; without the latter on all GPUs."""
    nodes_key, each_key = launch.variables.get("NNODES"), launch.variables.get("NPROC_PER_NODE")
    nodes = reading.integer(nodes_key, settles="num_nodes", minimum=1, what="the number of nodes")
    each = reading.integer(each_key, settles="gpus_per_node", minimum=1, what="ranks of a node")
    reading.set("num_nodes", nodes, nodes_key)
    reading.set("gpus_per_node", each, each_key)
    if each is not None:
        reading.set("world_size", (nodes or 1) * each, each_key)
        reading.say(
            "ranks", f"{nodes or 1} nodes x {each} ranks = {(nodes or 1) * each}", nodes_key, each_key
        )
    else:
        reading.leave_open(
            "the number of ranks",
            "no NPROC_PER_NODE: the command takes all GPUs that it sees",
            settles="world_size",
        )


def _srun(reading: Reading, options: Section) -> None:
    nodes_key, tasks_key = options.first("nodes", "n_odes"), options.get("ntasks")
    each_key = options.get("ntasks_per_node")
    nodes = reading.integer(nodes_key, settles="num_nodes", minimum=1)
    tasks = reading.integer(tasks_key, settles="world_size", minimum=1)
    each = reading.integer(each_key, minimum=1)
    reading.set("num_nodes", nodes, nodes_key)
    if tasks is None and nodes is not None and each is not None:
        tasks = nodes * each
    reading.set("world_size", tasks, tasks_key or each_key)
    reading.set("gpus_per_node", each, each_key)
    if tasks is not None:
        reading.say("ranks", f"{tasks} tasks by srun, one rank each", nodes_key, tasks_key, each_key)


def is_counted_later(entry: Entry | None) -> bool:
    """Whether a count is left to the machine: `gpu`, `auto`, or a variable."""
    if entry is None:
        return False
    text = (as_word(entry.value) or "").lower()
    return text in ("gpu", "auto", "cpu") or is_auto(entry.value) or template_in(entry.value) is not None
