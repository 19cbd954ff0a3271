"""Which scheduler and launcher started this process, and what is its place in the job?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from distdoctor.env.collect.container import SERVICE_ACCOUNT
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.errors import UsageError
from distdoctor.ranks.identity import RankIdentity, detect_identity
from distdoctor.ranks.launchers import Launcher, is_slurm_step
from distdoctor.ranks.processes import entered_container_from_outside
from distdoctor.report.model import SkipCause

# The variable that each scheduler sets in every job. Kubernetes comes last: Slurm also runs inside pods.
SCHEDULERS = (
    ("slurm", "SLURM_JOB_ID"),
    ("pbs", "PBS_JOBID"),
    ("lsf", "LSB_JOBID"),
    ("flux", "FLUX_JOB_ID"),
    ("sge", "SGE_TASK_ID"),
    ("kubernetes", "KUBERNETES_SERVICE_HOST"),
)

JOB_VARIABLES = {
    "job_id": ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"),
    "job_name": ("SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME"),
    "step_id": ("SLURM_STEP_ID",),
    "partition": ("SLURM_JOB_PARTITION", "PBS_QUEUE", "LSB_QUEUE"),
}

# Where Slurm's client is usually found; `sinfo` is part of every client installation.
SLURM_SIGNS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/usr/bin/sinfo",
    "/usr/local/bin/sinfo",
    "/opt/slurm/bin/sinfo",
    "/cm/shared/apps/slurm/current/bin/sinfo",
)

PLACE_FIELDS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "num_nodes")


def collect_scheduler(world: World) -> SchedulerFacts:
    """Scheduler, job and place in it, by variables of the process. Nothing is raised.

    Variables that contradict themselves leave the place None with the contradiction as the reason.
    """
    reading = Reading()
    environ = world.environ
    scheduler = _scheduler(world)
    reading.put("scheduler", "environment", scheduler)
    for field, names in JOB_VARIABLES.items():
        _take_first(reading, environ, field, names)
    _read_place(world, reading)
    _read_pod(world, reading, scheduler)
    _read_request(reading, environ)
    _take_number(reading, environ, "restart_count", ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
    signs = [path for path in SLURM_SIGNS if world.exists(path)]
    reading.put(
        "on_login_node",
        signs[0] if signs else ", ".join(SLURM_SIGNS[:4]),
        bool(signs) and scheduler == "none",
    )
    return SchedulerFacts(**reading.fields())


def tasks_per_node(text: str, node: int) -> int:
    """Tasks on the `node`-th node by Slurm's SLURM_TASKS_PER_NODE: `8(x2),4` is 8, 8, 4.

    Raises ValueError when the text is malformed or has no such node.
    """
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part.strip())
        if match is None:
            raise ValueError(f"not a task count: {part[:40]!r}")
        repeat = int(match[2] or "1")
        if node < repeat:
            return int(match[1])
        node -= repeat
    raise ValueError(f"`{text[:40]}` does not reach node {node}")


def _scheduler(world: World) -> str:
    for name, variable in SCHEDULERS:
        if world.environ.get(variable):
            return name
    return "kubernetes" if world.exists(SERVICE_ACCOUNT) else "none"


def _read_place(world: World, reading: Reading) -> None:
    try:
        identity = _identity(world)
    except UsageError as error:
        for field in ("launcher", *PLACE_FIELDS, "master_addr", "master_port"):
            reading.miss(field, SkipCause.FAILED, error.message, error.hint)
        return
    launcher = identity.launcher
    reading.put("launcher", "environment", launcher.value)
    for field in PLACE_FIELDS:
        value = getattr(identity, field)
        if launcher is Launcher.NONE:
            reading.miss(field, SkipCause.ABSENT, "no launcher started this process as a rank")
        elif value is None:
            reading.miss(field, SkipCause.ABSENT, f"{launcher.value} does not tell {field.replace('_', ' ')}")
        else:
            reading.put(field, "environment", value)
    for field, variable in (("master_addr", "MASTER_ADDR"), ("master_port", "MASTER_PORT")):
        value = getattr(identity, field)
        if value is None:
            reading.miss(field, SkipCause.ABSENT, f"{variable} is not set")
        else:
            reading.put(field, variable, value)
    reading.put("node_list", "environment", identity.node_list)
    reading.put("notes", "environment", identity.notes)


def _identity(world: World) -> RankIdentity:
    """The identity by the world's variables, with looks at this machine only when they are this process' own."""
    own = world.pid == "self" and world.is_this_machine
    return detect_identity(
        world.environ,
        None if own else "host",
        entered_from_outside=entered_container_from_outside if own else _never,
        read_file=world.read_text,
    )


def _never(_: str) -> bool:
    return False


def _read_pod(world: World, reading: Reading, scheduler: str) -> None:
    environ = world.environ
    if scheduler != "kubernetes" and not environ.get("KUBERNETES_SERVICE_HOST"):
        for field in ("pod_name", "pod_namespace"):
            reading.miss(field, SkipCause.ABSENT, "not in a Kubernetes pod")
        return
    # A pod's host name is its name unless the pod sets another.
    _take_first(reading, environ, "pod_name", ("POD_NAME", "HOSTNAME"))
    source = f"{SERVICE_ACCOUNT}/namespace"
    if environ.get("POD_NAMESPACE"):
        reading.put("pod_namespace", "POD_NAMESPACE", environ["POD_NAMESPACE"])
    else:
        reading.take("pod_namespace", source, lambda: world.read_line(source))


def _read_request(reading: Reading, environ: Mapping[str, str]) -> None:
    _take_number(reading, environ, "gpus_requested", ("SLURM_GPUS_ON_NODE",))
    listed = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS")
    if reading.get("gpus_requested") is None and listed:
        reading.put("gpus_requested", "SLURM_STEP_GPUS or SLURM_JOB_GPUS", len(listed.split(",")))
    _take_number(reading, environ, "cpus_requested", ("SLURM_CPUS_ON_NODE", "NCPUS"))
    if not is_slurm_step(environ):
        reading.miss("tasks_on_node", SkipCause.ABSENT, "not in a step of srun")
        return
    names = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    text = next((environ[name] for name in names if environ.get(name)), "")
    node = environ.get("SLURM_NODEID", "0")
    reading.take("tasks_on_node", " or ".join(names), lambda: tasks_per_node(text, int(node)))


def _take_first(reading: Reading, environ: Mapping[str, str], field: str, names: tuple[str, ...]) -> None:
    for name in names:
        if environ.get(name):
            reading.put(field, name, environ[name][:256])
            return
    reading.miss(field, SkipCause.ABSENT, f"{' or '.join(names[:2])} is not set")


def _take_number(reading: Reading, environ: Mapping[str, str], field: str, names: tuple[str, ...]) -> None:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isdecimal() and len(text) < 10:
            reading.put(field, name, int(text))
            return
        if text:
            reading.miss(field, SkipCause.FAILED, f"{name}=`{text[:20]}` is not a number")
            return
    reading.miss(field, SkipCause.ABSENT, f"{' or '.join(names)} is not set")
