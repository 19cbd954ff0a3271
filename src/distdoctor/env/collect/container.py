"""Are we inside a container, of which kind, and what does it separate us from?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.report.model import SkipCause

NONE, GENERIC = "none", "container"

# The kernel gives the first namespaces fixed numbers: include/linux/proc_ns.h, PROC_PID_INIT_INO and
# PROC_USER_INIT_INO. Any other number is a namespace that somebody made.
FIRST_NAMESPACE = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}

# Path of a process' cgroup on hosts without cgroup namespaces → who made it. Kubernetes comes first: its
# pods run under containerd, CRI-O or Docker and carry their names too.
CGROUP_KINDS = (
    (re.compile(r"/kubepods|/kubelet/|cri-containerd-|/crio-"), "kubernetes"),
    (re.compile(r"/libpod[-_]|/libpod_parent"), "podman"),
    (re.compile(r"/docker/|/docker-[0-9a-f]{12}|/dockerd/"), "docker"),
    (re.compile(r"/lxc/|/lxc\.payload|/lxc\.monitor|/machine\.slice/"), "lxc"),
    (re.compile(r"/garden/|/containerd/|/actions_job/"), GENERIC),
)

# Values of the variable `container`, which container managers set for the first process (systemd's convention).
VARIABLE_KINDS = {"docker": "docker", "podman": "podman", "lxc": "lxc", "lxc-libvirt": "lxc", "oci": GENERIC}

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def collect_container(world: World) -> ContainerFacts:
    """Kind of container, image, namespaces, and what the NVIDIA runtime was asked for.

    `kind` is "none" only when the process is seen to live in the machine's first PID namespace and nothing
    else speaks of a container; None when that cannot be seen either.
    """
    reading = Reading()
    first_pid = reading.take(
        "same_pid_namespace_as_init", world.proc("ns/pid"), lambda: _is_first_namespace(world, "pid")
    )
    reading.take("user_namespace", world.proc("ns/user"), lambda: not _is_first_namespace(world, "user"))
    sign = next(_signs(world), None)
    if sign is not None:
        kind, source = sign
        reading.put("kind", source, kind)
    elif first_pid is None:
        reading.miss(
            "kind", SkipCause.FAILED, f"no sign of a container, but {world.proc('ns/pid')} cannot be read"
        )
    else:
        reading.put("kind", world.proc("ns/pid"), NONE if first_pid else GENERIC)
    reading.take("image", "variables of the image", lambda: _image(world))
    _take_variable(world, reading, "runtime_capabilities", "NVIDIA_DRIVER_CAPABILITIES")
    _take_variable(world, reading, "visible_devices", "NVIDIA_VISIBLE_DEVICES")
    return ContainerFacts(**reading.fields())


def _signs(world: World) -> Iterator[tuple[str, str]]:
    """(kind, what says so), the most telling first.

    A container that a job starts inside another environment (Singularity in a pod) is the innermost, so the
    runtimes that only a job starts come before Kubernetes, and Kubernetes before the runtimes below it.
    """
    environ = world.environ
    for name in ("APPTAINER_NAME", "SINGULARITY_NAME", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if environ.get(name):
            yield "singularity", name
    if world.exists("/.singularity.d"):
        yield "singularity", "/.singularity.d"
    if environ.get("ENROOT_ROOTFS") or "enroot" in _root_mount(world) or "pyxis_" in _root_mount(world):
        yield "enroot", f"{world.proc('mountinfo')} (the root mount)"
    if environ.get("KUBERNETES_SERVICE_HOST"):
        yield "kubernetes", "KUBERNETES_SERVICE_HOST"
    if world.exists(SERVICE_ACCOUNT):
        yield "kubernetes", SERVICE_ACCOUNT
    cgroup = _text(world, "cgroup")
    for pattern, kind in CGROUP_KINDS:
        if pattern.search(cgroup):
            yield kind, world.proc("cgroup")
    if world.exists("/run/.containerenv"):
        yield "podman", "/run/.containerenv"
    if world.exists("/.dockerenv"):
        yield "docker", "/.dockerenv"
    variable = environ.get("container", "")
    if variable:
        yield VARIABLE_KINDS.get(variable, GENERIC), f"container={variable[:40]}"


def _is_first_namespace(world: World, kind: str) -> bool:
    link = world.readlink_proc(f"ns/{kind}")
    if not link.startswith(f"{kind}:["):
        raise ValueError(f"unexpected namespace link {link[:60]!r}")
    return link == FIRST_NAMESPACE[kind]


def _root_mount(world: World) -> str:
    """The mountinfo line of `/`: an image's own file system shows whose it is."""
    for line in _text(world, "mountinfo").splitlines():
        fields = line.split(" ")
        if len(fields) > 4 and fields[4] == "/":
            return line
    return ""


def _image(world: World) -> str:
    environ = world.environ
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if environ.get(name):
            return environ[name]
    try:
        match = re.search(r'^image="([^"]+)"', world.read_text("/run/.containerenv"), re.MULTILINE)
    except OSError:
        match = None
    if match:
        return match[1]
    # NVIDIA's framework images say what they are.
    if environ.get("NVIDIA_PRODUCT_NAME") == "PyTorch" and environ.get("NVIDIA_PYTORCH_VERSION"):
        return f"nvcr.io/nvidia/pytorch:{environ['NVIDIA_PYTORCH_VERSION']}-py3"
    raise UnreadError(SkipCause.ABSENT, "neither a variable nor a file names the image")


def _take_variable(world: World, reading: Reading, name: str, variable: str) -> None:
    value = world.environ.get(variable)
    if value is None:
        reading.miss(name, SkipCause.ABSENT, f"{variable} is not set")
    else:
        reading.put(name, variable, value)


def _text(world: World, name: str) -> str:
    try:
        return world.read_proc(name)
    except (OSError, ValueError):
        return ""
