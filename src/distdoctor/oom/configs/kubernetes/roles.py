"""Which pods a manifest starts, how many, and what the operator adds: PyTorchJob, TrainJob, MPIJob, JobSet and others.

Sources: Kubeflow Training Operator v1 (PyTorchJob, MPIJob v2beta1), Kubeflow Trainer v2 (TrainJob), JobSet v1alpha2,
batch/v1 Job, apps/v1 StatefulSet, LeaderWorkerSet v1, Volcano Job v1alpha1, KubeRay v1.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_word

KINDS = (
    *(
        "pytorchjob",
        "trainjob",
        "mpijob",
        "jobset",
        "job",
        "statefulset",
        "deployment",
        "pod",
        "rayjob",
        "raycluster",
    ),
    *("leaderworkerset", "replicaset"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods of one kind in a job."""

    name: str
    replicas: int | None
    """None: a variable, or left to somebody else."""
    keys: tuple[Entry, ...]
    """What says how many."""
    pod: Section
    """The pod's spec; for a TrainJob a pod of its trainer's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job as the manifest describes it."""

    kind: str
    name: str
    roles: tuple[Role, ...]
    ranks_per_node: Entry | None = None
    """nprocPerNode, numProcPerNode, slotsPerWorker."""
    sets_ranks: bool = False
    """The operator gives torchrun its number of nodes and ranks (PET_NNODES, PET_NPROC_PER_NODE)."""
    shows_pods: bool = True
    """False where volumes and limits stand in a runtime that is not in the manifest."""
    runtime: str | None = None


def find_workload(reading: Reading, document: Section) -> Workload | None:
    """The workload of one document; None when it is something else (Service, ConfigMap)."""
    kind = _text(document.get("kind")).lower()
    spec = document.section("spec")
    name = _text(document.section("metadata").first("name", "generateName"))
    if kind == "pytorchjob":
        return _pytorch(reading, spec, name)
    if kind == "trainjob":
        return _train(reading, spec, name)
    if kind == "mpijob":
        return _mpi(reading, spec, name)
    if kind == "jobset":
        roles = tuple(_replicated(reading, each) for each in spec.sections("replicatedJobs"))
        return Workload(kind="JobSet", name=name, roles=roles)
    if kind == "job" and spec.sections("tasks"):
        roles = tuple(
            _role(
                reading,
                _text(each.get("name")),
                each.get("replicas"),
                each.section("template").section("spec"),
            )
            for each in spec.sections("tasks")
        )
        return Workload(kind="Volcano Job", name=name, roles=roles)
    if kind == "job":
        return Workload(kind="Job", name=name, roles=(_job(reading, "job", spec, 1, ()),))
    if kind in ("statefulset", "deployment", "replicaset"):
        pod = spec.section("template").section("spec")
        return Workload(
            kind=_text(document.get("kind")),
            name=name,
            roles=(_role(reading, kind, spec.get("replicas"), pod),),
        )
    if kind == "pod":
        return Workload(kind="Pod", name=name, roles=(Role(name="pod", replicas=1, keys=(), pod=spec),))
    if kind == "leaderworkerset":
        return _leader_worker(reading, spec, name)
    if kind in ("rayjob", "raycluster"):
        return _ray(reading, spec, name)
    return None


def _text(entry: Entry | None) -> str:
    return (as_word(entry.value) or "") if entry is not None else ""


def _role(reading: Reading, name: str, replicas: Entry | None, pod: Section) -> Role:
    if replicas is None or replicas.value is None:
        return Role(name=name, replicas=1, keys=(), pod=pod)
    number = reading.integer(replicas, settles="num_nodes", what="the number of nodes")
    return Role(name=name, replicas=number, keys=(replicas,), pod=pod)


def _pytorch(reading: Reading, spec: Section, name: str) -> Workload:
    specs = spec.section("pytorchReplicaSpecs")
    roles = tuple(
        _role(
            reading,
            role,
            specs.section(role).get("replicas"),
            specs.section(role).section("template").section("spec"),
        )
        for role in specs.entries
    )
    elastic = spec.section("elasticPolicy")
    ranks = spec.get("nprocPerNode") or elastic.first("nProcPerNode", "nprocPerNode")
    low, high = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if low is not None or high is not None:
        reading.say(
            "launch", "an elastic job: it may run with fewer or more pods than replicas says", low, high
        )
    return Workload(kind="PyTorchJob", name=name, roles=roles, ranks_per_node=ranks, sets_ranks=True)


def _train(reading: Reading, spec: Section, name: str) -> Workload:
    trainer = spec.section("trainer")
    nodes = trainer.get("numNodes")
    reference = spec.section("runtimeRef")
    runtime = _text(reference.get("name"))
    container = Section(
        name=trainer.name,
        entries={
            **{
                key: each
                for key, each in trainer.entries.items()
                if key in ("command", "args", "env", "image")
            },
            **({"resources": trainer.entries["resourcesPerNode"]} if "resourcesPerNode" in trainer else {}),
        },
    )
    pod = Section(
        name=trainer.name,
        entries={
            "containers": Entry(
                name="trainer",
                value=(Entry(name="trainer", value=container, line=trainer.line),),
                line=trainer.line,
            )
        },
    )
    number = reading.integer(nodes, settles="num_nodes", minimum=1, what="the number of nodes")
    if nodes is None:
        reading.leave_open(
            "the number of nodes", f"the runtime {runtime or 'of the TrainJob'} says it", settles="num_nodes"
        )
    return Workload(
        kind="TrainJob",
        name=name,
        roles=(Role(name="trainer", replicas=number, keys=(nodes,) if nodes is not None else (), pod=pod),),
        ranks_per_node=trainer.get("numProcPerNode"),
        sets_ranks=True,
        shows_pods=False,
        runtime=runtime or None,
    )


def _mpi(reading: Reading, spec: Section, name: str) -> Workload:
    specs = spec.section("mpiReplicaSpecs")
    roles = tuple(
        _role(
            reading,
            role,
            specs.section(role).get("replicas"),
            specs.section(role).section("template").section("spec"),
        )
        for role in specs.entries
    )
    return Workload(kind="MPIJob", name=name, roles=roles, ranks_per_node=spec.get("slotsPerWorker"))


def _replicated(reading: Reading, replicated: Section) -> Role:
    copies_key = replicated.get("replicas")
    copies = reading.integer(copies_key, settles="num_nodes", what="the number of nodes") if copies_key else 1
    job = replicated.section("template").section("spec")
    keys = (copies_key,) if copies_key is not None else ()
    return _job(reading, _text(replicated.get("name")) or "job", job, copies, keys)


def _job(reading: Reading, name: str, spec: Section, copies: int | None, keys: tuple[Entry, ...]) -> Role:
    """batch/v1: parallelism is 1 unless given; pods that run at the same time are min(parallelism, completions)."""
    parallel_key, completions_key = spec.get("parallelism"), spec.get("completions")
    parallel = (
        reading.integer(parallel_key, settles="num_nodes", what="the number of nodes") if parallel_key else 1
    )
    completions = reading.integer(completions_key) if completions_key else None
    pods = parallel if completions is None or parallel is None else min(parallel, completions)
    total = pods * copies if pods is not None and copies is not None else None
    given = tuple(each for each in (*keys, parallel_key, completions_key) if each is not None)
    return Role(name=name, replicas=total, keys=given, pod=spec.section("template").section("spec"))


def _leader_worker(reading: Reading, spec: Section, name: str) -> Workload:
    template = spec.section("leaderWorkerTemplate")
    groups, size = spec.get("replicas"), template.get("size")
    num_groups = reading.integer(groups, settles="num_nodes") if groups is not None else 1
    pods = reading.integer(size, settles="num_nodes") if size is not None else 1
    if num_groups is not None and num_groups > 1:
        reading.note(
            f"{num_groups} groups of a LeaderWorkerSet: each group is a job of its own; one was read"
        )
    return Workload(
        kind="LeaderWorkerSet",
        name=name,
        roles=(
            Role(
                name="group",
                replicas=pods,
                keys=tuple(each for each in (groups, size) if each is not None),
                pod=template.section("workerTemplate").section("spec"),
            ),
        ),
    )


def _ray(reading: Reading, spec: Section, name: str) -> Workload:
    cluster = spec.section("rayClusterSpec") or spec
    roles = tuple(
        _role(
            reading,
            _text(each.get("groupName")) or "worker",
            each.get("replicas"),
            each.section("template").section("spec"),
        )
        for each in cluster.sections("workerGroupSpecs")
    )
    return Workload(kind="RayJob", name=name, roles=roles)
