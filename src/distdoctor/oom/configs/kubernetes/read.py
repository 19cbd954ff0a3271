"""Kubernetes manifests: how many ranks the pods start, whether their GPUs suffice, and what the command says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.errors import InputError
from distdoctor.oom.configs.addresses import is_loopback, placeholder_reason
from distdoctor.oom.configs.commands.command_line import Launch, Launcher
from distdoctor.oom.configs.commands.embedded import absorb
from distdoctor.oom.configs.commands.launchers import is_counted_later, read_launchers
from distdoctor.oom.configs.commands.training_flags import read_training_flags
from distdoctor.oom.configs.commands.variables import read_variables
from distdoctor.oom.configs.kubernetes.pod import Pod, find_pod_launch, read_pod, read_shm
from distdoctor.oom.configs.kubernetes.roles import KINDS, Role, Workload, find_workload
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section, walk
from distdoctor.oom.configs.text.values import as_word, template_in
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.configs.trainers.trainer import assume_plain_copies, read_trainer
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The workload with the pod that trains in it."""

    workload: Workload
    pod: Pod
    nodes: int | None
    keys: tuple[Entry, ...]
    """What says how many pods there are."""


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like a manifest: 0 to 1."""
    kinds = {each.lower() for each in re.findall(r"^[ \t-]*\"?kind\"?:[ ]*[\"']?(\w+)", text, re.MULTILINE)}
    if not re.search(r"^[ \t-]*\"?apiVersion\"?[ ]*:", text, re.MULTILINE):
        return 0.0
    return 0.97 if kinds & set(KINDS) else 0.6 if kinds else 0.3


def read(path: str, text: str) -> LaunchConfig:
    """The first workload in the manifest. Raises InputError when there is none."""
    reading = Reading(path=path, family=ConfigFamily.KUBERNETES)
    found = read_yaml(text, path)
    for what in found.lenient:
        reading.note(f"{what}: kubectl refuses the file")
    if found.is_template:
        reading.note("a template: what stands between braces or behind $ is filled in before it is applied")
    documents = [each for document in found.documents for each in _documents(document)]
    workloads = [each for document in documents if (each := find_workload(reading, document)) is not None]
    if not workloads:
        kinds = ", ".join(
            dict.fromkeys(as_word(kind.value) or "?" for d in documents if (kind := d.get("kind")))
        )
        raise InputError(
            f"`{path}` is a Kubernetes manifest without a training job ({kinds[:80]})",
            hint="give the manifest of the PyTorchJob, TrainJob, MPIJob, JobSet or Job",
        )
    if len(workloads) > 1:
        reading.note(
            f"{len(workloads)} workloads in one file; {workloads[0].kind} {workloads[0].name} was read"
        )
    _workload(reading, workloads[0])
    _embedded(reading, documents)
    reading.leave_open(
        "the number of ranks", "the manifest and its command do not say it", settles="world_size"
    )
    reading.leave_open("the model", "the manifest names none", settles="model")
    reading.leave_open("the micro-batch", "the command does not say it", settles="micro_batch")
    return reading.done()


def _documents(document: Section) -> list[Section]:
    kind = document.get("kind")
    if kind is not None and (as_word(kind.value) or "").lower() == "list":
        return list(document.sections("items"))
    return [document]


def _workload(reading: Reading, workload: Workload) -> None:
    role = _training_role(workload)
    if role is None:
        reading.leave_open("the pods", f"the {workload.kind} has no pod template", settles="world_size")
        return
    nodes = _nodes(workload, role)
    keys = tuple(key for each in workload.roles for key in each.keys)
    pod = read_pod(reading, role.pod)
    _what_it_is(reading, workload, nodes, pod, keys)
    if workload.shows_pods and pod.gpu_key is not None:
        read_shm(reading, role.pod, pod.container)
    reading.set("num_nodes", nodes, keys[0] if keys else None, implied=not keys)
    given = (
        {"WORLD_SIZE": str(nodes), "PET_NNODES": str(nodes), "NNODES": str(nodes)}
        if nodes and workload.sets_ranks
        else {}
    )
    launch = find_pod_launch(reading, pod, given)
    launcher_role = next((each for each in workload.roles if each.name.lower() == "launcher"), None)
    if launcher_role is not None:
        launch = find_pod_launch(reading, read_pod(reading, launcher_role.pod), given) or launch
    job = _Job(workload=workload, pod=pod, nodes=nodes, keys=keys)
    _ranks(reading, job, launch)
    _devices(reading, pod)
    read_variables(reading, {**pod.variables, **(launch.variables if launch else {})}, replicas=nodes)
    _address(reading, pod, nodes)
    if launch is not None:
        read_training_flags(reading, launch.arguments)
        _arguments(reading, launch)
    _locked_memory(reading, pod)


def _training_role(workload: Workload) -> Role | None:
    """Workers rather than a launcher; of several, those with GPUs."""
    trainers = [each for each in workload.roles if each.name.lower() not in ("launcher", "head")]
    with_gpus = [
        each for each in trainers if "gpu" in " ".join(entry.name for entry in walk(each.pod)).lower()
    ]
    candidates = with_gpus or trainers or list(workload.roles)
    workers = [each for each in candidates if each.name.lower() == "worker"]
    return (workers or candidates or [None])[0]  # type: ignore[list-item]  # an empty list falls through to None


def _nodes(workload: Workload, role: Role) -> int | None:
    """Masters train too; launchers and heads do not."""
    if workload.kind in ("PyTorchJob", "Volcano Job"):
        counts = [each.replicas for each in workload.roles]
        return sum(each for each in counts if each is not None) if None not in counts else None
    return role.replicas


def _what_it_is(
    reading: Reading, workload: Workload, nodes: int | None, pod: Pod, keys: tuple[Entry, ...]
) -> None:
    many = f"{nodes} pod{'s' if nodes != 1 else ''}" if nodes is not None else "pods, their number a variable"
    gpus = f", {pod.gpus} GPU{'s' if pod.gpus != 1 else ''} each" if pod.gpus is not None else ""
    runtime = f" on the runtime {workload.runtime}" if workload.runtime else ""
    reading.say("launch", f"{workload.kind}{runtime}: {many}{gpus}", *keys, pod.gpu_key)


def _ranks(reading: Reading, job: _Job, launch: Launch | None) -> None:
    workload, pod, nodes, keys = job.workload, job.pod, job.nodes, job.keys
    if launch is None or not launch.starts_ranks:
        _one_each(reading, job, launch)
        return
    if Launcher.TORCHRUN in launch.launchers:
        options = launch.options[Launcher.TORCHRUN]
        per_node = options.first("nproc_per_node", "nproc_per_gpu") or workload.ranks_per_node
        if per_node is None and workload.sets_ranks and not workload.shows_pods:
            _by_runtime(reading, workload, pod, nodes)
            return
        if is_counted_later(per_node) and template_in(per_node.value if per_node else None) is None:
            per_node = (
                Entry(name=per_node.name, value=pod.gpus, line=per_node.line)
                if per_node and pod.gpus
                else per_node
            )
        if per_node is not None:
            options.entries["nproc_per_node"] = per_node
    before = nodes
    read_launchers(reading, launch, nodes=nodes)
    said = reading.get("num_nodes")
    if before is not None and said is not None and said != before:
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"the command expects {said} nodes, and the manifest starts {before} pods",
            reading.keys.get("num_nodes"),
            *keys,
            why="Too few pods and the rendezvous waits until its timeout; too many and some are turned away.",
            fix=f"make both the same: `--nnodes={before}`, or {said} replicas",
            stops=said > before,
        )
    if workload.kind == "MPIJob":
        _slots(reading, workload, nodes, keys)


def _one_each(reading: Reading, job: _Job, launch: Launch | None) -> None:
    """No launcher in the command: the operator's own number of ranks, else one a pod, or what the image starts."""
    workload, nodes, keys = job.workload, job.nodes, job.keys
    per_node = reading.integer(workload.ranks_per_node, settles="gpus_per_node", what="ranks of a node")
    if workload.kind == "MPIJob":
        _slots(reading, workload, nodes, keys)
        return
    if workload.kind == "RayJob" or launch is None or not workload.sets_ranks:
        reading.leave_open(
            "the number of ranks",
            "Ray's trainer decides"
            if workload.kind == "RayJob"
            else "the command starts no launcher that is known here",
            settles="world_size",
        )
        return
    if workload.ranks_per_node is not None and per_node is None:
        return
    each = per_node or 1
    reading.set("gpus_per_node", each, workload.ranks_per_node)
    if nodes is not None:
        reading.set("world_size", nodes * each, keys[0] if keys else None)
        reading.say("ranks", f"{nodes} pods x {each} rank{'s' if each > 1 else ''} = {nodes * each}", *keys)


def _by_runtime(reading: Reading, workload: Workload, pod: Pod, nodes: int | None) -> None:
    """Kubeflow Trainer: numProcPerNode comes from the runtime, whose stock value `auto` counts the GPUs of a node."""
    runtime = f"the runtime {workload.runtime}" if workload.runtime else "its runtime"
    reading.leave_open(
        "the number of ranks",
        f"{nodes if nodes is not None else 'an unknown number of'} nodes x ranks of a node, which {runtime} says "
        "(numProcPerNode)",
        settles="world_size",
        how_to=f"`--gpus N`, or `kubectl get clustertrainingruntime {workload.runtime or 'NAME'} -o yaml`",
    )
    if pod.gpus is not None:
        reading.set("gpus_per_node", pod.gpus, pod.gpu_key, implied=True)


def _slots(reading: Reading, workload: Workload, nodes: int | None, keys: tuple[Entry, ...]) -> None:
    slots = reading.integer(
        workload.ranks_per_node, settles="gpus_per_node", minimum=1, what="ranks of a node"
    ) or (1 if workload.ranks_per_node is None else None)
    if slots is None:
        return
    if "gpus_per_node" not in reading.values:
        reading.set("gpus_per_node", slots, workload.ranks_per_node)
    world = reading.get("world_size")
    if nodes is None:
        return
    if world is None:
        reading.set("world_size", nodes * slots, keys[0] if keys else None, implied=True)
        reading.say(
            "ranks",
            f"{nodes} workers x {slots} slots = {nodes * slots} ranks",
            *keys,
            workload.ranks_per_node,
        )
    elif world > nodes * slots:
        reading.defect(
            Defect.MORE_RANKS_THAN_DEVICES,
            f"mpirun starts {world} ranks in {nodes} x {slots} = {nodes * slots} slots",
            reading.keys.get("world_size"),
            workload.ranks_per_node,
            *keys,
            why="mpirun stops: there are not enough slots available in the system.",
            fix=f"set `-np {nodes * slots}`, or raise slotsPerWorker or the replicas",
            stops=True,
        )


def _devices(reading: Reading, pod: Pod) -> None:
    ranks = reading.get("gpus_per_node")
    if ranks is None or ("gpus_per_node" in reading.implied and pod.gpus is None):
        return
    if pod.gpu_key is None:
        reading.leave_open(
            "GPUs of a pod",
            f"{ranks} ranks run in a pod that asks for no GPU",
            how_to="add `limits: {nvidia.com/gpu: N}`",
        )
        return
    if pod.gpus is None:
        return
    key = reading.keys.get("gpus_per_node")
    if ranks > pod.gpus:
        reading.defect(
            Defect.MORE_RANKS_THAN_DEVICES,
            f"{ranks} ranks in a pod that has {pod.gpus} GPU{'s' if pod.gpus != 1 else ''}",
            key,
            pod.gpu_key,
            why="Ranks beyond the last GPU fail with `invalid device ordinal`, or share a GPU and its memory.",
            fix=f"start {pod.gpus} ranks in each pod, or ask for {ranks} GPUs",
            stops=True,
        )
    elif ranks < pod.gpus:
        reading.defect(
            Defect.INEFFECTIVE,
            f"{pod.gpus} GPUs in each pod, and {ranks} rank{'s' if ranks != 1 else ''}",
            pod.gpu_key,
            key,
            why="A rank uses one GPU; the others are held and idle.",
            fix=f"start {pod.gpus} ranks in each pod: `torchrun --nproc-per-node={pod.gpus}`",
            sure=False,
        )


def _address(reading: Reading, pod: Pod, nodes: int | None) -> None:
    entry = pod.variables.get("MASTER_ADDR")
    text = as_word(entry.value) if entry is not None else None
    if entry is None or text is None or nodes is None or nodes < 2 or template_in(text):
        return
    reason = placeholder_reason(text)
    if reason or is_loopback(text):
        reading.defect(
            Defect.PLACEHOLDER_ADDRESS,
            f"MASTER_ADDR {text[:24]!r} is {reason or 'each pod itself'}"[:80],
            entry,
            why="Ranks of all pods meet at this address; with this one they wait until the timeout.",
            fix="use the operator's own MASTER_ADDR, or the headless service's name of pod 0",
            stops=True,
        )


def _arguments(reading: Reading, launch: Launch) -> None:
    names = launch.arguments.entries
    if any(
        name in names for name in ("per_device_train_batch_size", "model_name_or_path", "model_name", "bf16")
    ):
        read_trainer(reading, launch.arguments)
        if "per_device_train_batch_size" in names:
            assume_plain_copies(reading, why="the command names neither fsdp nor deepspeed")
        return
    config = launch.arguments.get("config")
    if config is not None and isinstance(config.value, str):
        reading.references.append(config.value)
        reading.leave_open(
            f"what {config.value} says",
            "the command is given this file, and it was not given here",
            how_to=f"give `{config.value}` as another file",
        )


def _locked_memory(reading: Reading, pod: Pod) -> None:
    resources = pod.container.section("resources").section("limits")
    fabric = [each for name, each in resources.entries.items() if re.search(r"rdma|/efa|/ib|roce|/hca", name)]
    if not fabric:
        return
    reading.say("launch", "the pod asks for network devices", *fabric)
    added = pod.container.section("securityContext").section("capabilities").items("add")
    privileged = pod.container.section("securityContext").get("privileged")
    if not any(as_word(each.value) in ("IPC_LOCK", "SYS_ADMIN", "ALL") for each in added) and not (
        privileged is not None and privileged.value is True
    ):
        reading.note(
            "no IPC_LOCK in the manifest: RDMA needs locked memory, unless the runtime's memlock is unlimited"
        )


def _embedded(reading: Reading, documents: list[Section]) -> None:
    """Configurations in ConfigMaps beside the job."""
    for document in documents:
        kind = document.get("kind")
        if kind is None or (as_word(kind.value) or "").lower() != "configmap":
            continue
        for name, entry in document.section("data").entries.items():
            if isinstance(entry.value, str) and absorb(reading, name, entry.value, line=entry.line or 0):
                reading.references = [each for each in reading.references if not each.endswith(name)]
                reading.open_points = [each for each in reading.open_points if f"/{name}" not in each.what]
