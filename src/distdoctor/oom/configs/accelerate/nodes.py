"""How many processes accelerate starts on how many machines, and where they meet.

accelerate, utils/launch.py: every machine starts num_processes // num_machines ranks; `num_processes` is the total.
"""

from __future__ import annotations

from distdoctor.oom.configs.addresses import is_loopback, placeholder_reason
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section
from distdoctor.oom.configs.text.values import as_int, as_word, template_in, words_of
from distdoctor.oom.facts.launch import Defect


def read_nodes(reading: Reading, root: Section, kind: str | None) -> None:
    """Fill in ranks and nodes, and check the meeting point of several machines."""
    processes_key, machines_key = root.get("num_processes"), root.get("num_machines")
    processes = reading.integer(processes_key, settles="world_size", minimum=-1, what="the number of ranks")
    machines = reading.integer(machines_key, settles="num_nodes", minimum=0, what="the number of machines")
    if machines is None and machines_key is None:
        machines = 1
    if machines:
        reading.set("num_nodes", machines, machines_key, implied=machines_key is None)
    if processes is not None and processes > 0:
        _ranks(reading, root, kind, processes, machines)
    elif processes_key is None or (processes is not None and processes < 1):
        reading.leave_open(
            "the number of ranks",
            "num_processes is not given: accelerate takes the GPUs that it sees",
            settles="world_size",
        )
    if machines is not None and machines > 1:
        _meeting_point(reading, root, machines)
    elif machines == 1:
        rank = root.get("machine_rank")
        if rank is not None and (as_int(rank.value) or 0) > 0:
            reading.defect(
                Defect.CONFLICT,
                f"machine_rank is {as_int(rank.value)}, but there is one machine",
                rank,
                machines_key,
                why="Ranks of machines count from 0; with one machine the rendezvous waits for others or fails.",
                fix="set `num_machines` to the real number, or `machine_rank: 0`",
                stops=True,
                sure=False,
            )


def _ranks(reading: Reading, root: Section, kind: str | None, processes: int, machines: int | None) -> None:
    processes_key, machines_key = root.get("num_processes"), root.get("num_machines")
    if kind == "no" and processes > 1:
        reading.defect(
            Defect.INEFFECTIVE,
            f"distributed_type NO starts one process, not {processes}",
            root.get("distributed_type"),
            processes_key,
            why="accelerate starts a plain Python process; the other GPUs stay idle.",
            fix="set `distributed_type: MULTI_GPU`, `FSDP` or `DEEPSPEED`",
        )
        reading.set("world_size", 1, root.get("distributed_type"))
        return
    if machines and machines > 1 and processes % machines:
        started = processes // machines
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"{processes} processes do not divide over {machines} machines",
            processes_key,
            machines_key,
            why=f"`num_processes` is the total over all machines. Each starts {processes} // {machines} = {started}, "
            f"so {started * machines} ranks run, not {processes}."
            if started
            else "`num_processes` is the total over all machines; some would start none.",
            fix=f"set `num_processes` to a multiple of {machines}: ranks of one machine x {machines}",
            stops=started == 0,
        )
        if started:
            reading.set("world_size", started * machines, processes_key)
            reading.set("gpus_per_node", started, processes_key)
        return
    reading.set("world_size", processes, processes_key)
    if machines:
        reading.set("gpus_per_node", processes // machines, processes_key)
    where = f" on {machines} machines, {processes // machines} each" if machines and machines > 1 else ""
    reading.say(
        "ranks", f"{processes} ranks{where} (num_processes is the total)", processes_key, machines_key
    )
    _devices(reading, root, processes, machines)


def _devices(reading: Reading, root: Section, processes: int, machines: int | None) -> None:
    entry = root.get("gpu_ids")
    ids = words_of(entry)
    if entry is None or not ids or ids == ("all",) or any(template_in(each) for each in ids):
        return
    devices = len(set(ids))
    per_machine = processes // (machines or 1)
    if per_machine > devices:
        reading.defect(
            Defect.MORE_RANKS_THAN_DEVICES,
            f"{per_machine} ranks on a machine, but gpu_ids names {devices}",
            entry,
            root.get("num_processes"),
            why="Ranks beyond the last GPU fail with `invalid device ordinal`, or share a GPU and its memory.",
            fix=f"set `num_processes` to {devices * (machines or 1)}, or name more GPUs",
            stops=True,
        )
    elif per_machine < devices:
        reading.defect(
            Defect.INEFFECTIVE,
            f"gpu_ids names {devices} GPUs, and {per_machine} ranks run on a machine",
            entry,
            root.get("num_processes"),
            why="Every rank uses one GPU; the others stay idle.",
            fix=f"set `num_processes` to {devices * (machines or 1)}",
            sure=False,
        )


def _meeting_point(reading: Reading, root: Section, machines: int) -> None:
    address = root.get("main_process_ip")
    text = as_word(address.value) if address is not None else None
    if text is None:
        reading.defect(
            Defect.EMPTY_VALUE,
            f"{machines} machines, but main_process_ip is {'empty' if address is not None else 'missing'}",
            address,
            root.get("num_machines"),
            why="The machines need one address to meet at; without it each looks at itself, or the launch stops.",
            fix="set `main_process_ip` to the address of machine 0, or pass `--main_process_ip`",
            stops=True,
            sure=False,
        )
    elif reason := placeholder_reason(text):
        reading.defect(
            Defect.PLACEHOLDER_ADDRESS,
            f"main_process_ip {text[:24]!r} is {reason}"[:80],
            address,
            why="Ranks meet at this address before anything else; with this one they wait until the timeout.",
            fix="set `main_process_ip` to an address of machine 0 that the others reach: `hostname -I` there",
            stops=True,
        )
    elif template := template_in(text):
        reading.leave_open("main_process_ip", f"`main_process_ip` holds {template}, filled in later")
    elif is_loopback(text):
        reading.defect(
            Defect.PLACEHOLDER_ADDRESS,
            f"main_process_ip {text} means each machine itself",
            address,
            root.get("num_machines"),
            why="Every machine would wait for the others at its own loopback address.",
            fix="set `main_process_ip` to an address of machine 0 that the others reach: `hostname -I` there",
            stops=True,
        )
    rank = root.get("machine_rank")
    number = as_int(rank.value) if rank is not None else None
    backend = (as_word(entry.value) or "").lower() if (entry := root.get("rdzv_backend")) else "static"
    if number is not None and number >= machines:
        reading.defect(
            Defect.CONFLICT,
            f"machine_rank {number} of {machines} machines: ranks count from 0",
            rank,
            root.get("num_machines"),
            why="The rendezvous never completes: one rank is missing, and one is outside.",
            fix=f"give the machines the ranks 0 to {machines - 1}",
            stops=True,
        )
    elif number is not None and backend == "static":
        reading.defect(
            Defect.SAME_ON_EVERY_NODE,
            f"machine_rank {number} stands in the file, and must differ on every machine",
            rank,
            why="With the same file on all machines they all claim the same rank, and the rendezvous hangs.",
            fix="start each with `accelerate launch --machine_rank $NODE_RANK …`, or edit its copy of the file",
            sure=False,
        )
    port = root.get("main_process_port")
    if port is None or port.value is None:
        reading.note("no main_process_port: accelerate takes 29500, which another job on machine 0 may hold")
