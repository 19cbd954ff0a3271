"""Container runtimes by their signs; the first PID namespace as the sign of none."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distdoctor.env.collect.container import collect_container
from distdoctor.report.model import SkipCause
from fake_world import make_world
from host_trees import (
    FIRST_NAMESPACES,
    OWN_PID_NAMESPACE,
    HalfReadableWorld,
    bare_metal,
    docker_v2,
    kubernetes_v1,
)


def test_bare_metal_is_no_container(tmp_path: Path) -> None:
    facts = collect_container(make_world(tmp_path, bare_metal()))
    assert facts.kind == "none"
    assert facts.same_pid_namespace_as_init is True
    assert facts.user_namespace is False


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        (docker_v2(), {}, "docker"),
        (kubernetes_v1(), {}, "kubernetes"),
        (docker_v2(), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({**OWN_PID_NAMESPACE, "/run/.containerenv": ""}, {}, "podman"),
        (
            {**OWN_PID_NAMESPACE, "/proc/self/cgroup": "0::/system.slice/docker-0123456789abcdef.scope\n"},
            {},
            "docker",
        ),
        ({**OWN_PID_NAMESPACE, "/proc/self/cgroup": "0::/lxc.payload.web/init.scope\n"}, {}, "lxc"),
        ({**OWN_PID_NAMESPACE, "/proc/self/cgroup": "0::/\n"}, {"container": "lxc"}, "lxc"),
        (FIRST_NAMESPACES, {"APPTAINER_NAME": "train.sif"}, "singularity"),
        ({**FIRST_NAMESPACES, "/.singularity.d/env/01-base.sh": ""}, {}, "singularity"),
        (
            {
                **FIRST_NAMESPACES,
                "/proc/self/mountinfo": "500 400 0:50 / / rw - overlay overlay rw,lowerdir=/run/enroot/pyxis_77.0\n",
            },
            {"SLURM_JOB_ID": "77"},
            "enroot",
        ),
        ({**OWN_PID_NAMESPACE, "/proc/self/cgroup": "0::/\n"}, {}, "container"),
    ],
)
def test_each_runtime_is_told_by_its_signs(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], kind: str
) -> None:
    facts = collect_container(make_world(tmp_path, files, environ=environ))
    assert facts.kind == kind
    assert facts.sources["kind"]


def test_singularity_inside_a_pod_is_singularity(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "SINGULARITY_CONTAINER": "/images/a.sif"}
    facts = collect_container(make_world(tmp_path, kubernetes_v1(), environ=environ))
    assert (facts.kind, facts.image) == ("singularity", "/images/a.sif")


def test_podman_names_its_image(tmp_path: Path) -> None:
    files = {
        **OWN_PID_NAMESPACE,
        "/run/.containerenv": 'engine="podman-4.9"\nimage="docker.io/library/torch:2"\n',
    }
    assert collect_container(make_world(tmp_path, files)).image == "docker.io/library/torch:2"


def test_the_nvidia_runtimes_wishes_are_kept(tmp_path: Path) -> None:
    environ = {"NVIDIA_DRIVER_CAPABILITIES": "compute", "NVIDIA_VISIBLE_DEVICES": "all"}
    facts = collect_container(make_world(tmp_path, docker_v2(), environ=environ))
    assert (facts.runtime_capabilities, facts.visible_devices) == ("compute", "all")


def test_a_rootless_container_has_a_user_namespace(tmp_path: Path) -> None:
    files = {**docker_v2(), "/proc/self/ns/user": "-> user:[4026532999]"}
    assert collect_container(make_world(tmp_path, files)).user_namespace is True


def test_without_proc_none_is_not_claimed(tmp_path: Path) -> None:
    facts = collect_container(make_world(tmp_path, {"/etc/hostname": "x\n"}))
    assert facts.kind is None
    assert facts.unread["kind"].cause is SkipCause.FAILED


def test_a_broken_cgroup_file_leaves_the_other_signs(tmp_path: Path) -> None:
    make_world(tmp_path, docker_v2())
    world = HalfReadableWorld(root=tmp_path, broken={"/proc/self/cgroup": errno.EACCES})
    assert collect_container(world).kind == "docker"
