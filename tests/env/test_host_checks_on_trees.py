"""From a tree to outcomes: what the host, process, container and launch checks say about whole machines."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distdoctor.env.checks import (
    allocation,
    cgroup,
    clock,
    container,
    cpu_placement,
    host_tuning,
    launch,
    limits,
    pcie_isolation,
    remove_ipc,
    shm,
)
from distdoctor.env.checks.base import Check, run_checks
from distdoctor.env.collect.container import collect_container
from distdoctor.env.collect.host import collect_host
from distdoctor.env.collect.process import collect_process
from distdoctor.env.collect.scheduler import collect_scheduler
from distdoctor.env.collect.variables import collect_variables
from distdoctor.env.collect.world import World
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.report.model import CheckState
from fake_world import make_world
from host_trees import (
    SLURM_ENVIRON,
    HalfReadableWorld,
    bare_metal,
    docker_v2,
    kubernetes_v1,
    plain_file,
    slurm_step,
)
from pci_bytes import config_space

CHECKS: tuple[Check, ...] = (
    shm.CHECK, limits.MEMLOCK, limits.NOFILE, limits.STACK, cgroup.MEMORY, cgroup.CPU, cpu_placement.AFFINITY,
    cpu_placement.NUMA_KNOWN, pcie_isolation.ACS, pcie_isolation.IOMMU, host_tuning.NUMA_BALANCING,
    host_tuning.GOVERNOR, host_tuning.HUGE_PAGES, host_tuning.SWAP, clock.CHECK, remove_ipc.CHECK, container.CHECK,
    launch.CHECK, allocation.LOGIN_NODE, allocation.GPUS_GIVEN,
)  # fmt: skip

SHM = {"/dev/shm": (64 << 20, 64 << 20)}


def facts_of(world: World, num_gpus: int = 2) -> EnvFacts:
    devices = tuple(GpuDevice(index=index, nvlinks=()) for index in range(num_gpus))
    return EnvFacts(
        host_name="host-a",
        process=collect_process(world),
        host=collect_host(world),
        container=collect_container(world),
        scheduler=collect_scheduler(world),
        variables=collect_variables(world),
        gpus=GpuFacts(devices=devices, num_pci_gpus=num_gpus),
        network=NetworkFacts(rdma_ports=(RdmaPort(device="mlx5_0", port=1),)),
    )


def found_ids(world: World, num_gpus: int = 2) -> set[str]:
    findings, _, _ = run_checks(CHECKS, facts_of(world, num_gpus))
    for finding in findings:
        assert len(finding.title) <= 80, finding.title
        assert finding.evidence, finding.id
        assert finding.explanation, finding.id
    return {finding.id for finding in findings}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_each_check_has_its_page(check: Check) -> None:
    page = Path(__file__).parents[2] / "docs" / "checks" / f"{check.id}.md"
    assert page.read_text().startswith(f"# {check.id}\n")


def test_a_server_with_acs_on_and_no_job(tmp_path: Path) -> None:
    world = make_world(tmp_path, bare_metal(), file_systems={"/dev/shm": (1 << 40, 1 << 40)})
    for folder in ("pci0000:00/0000:00:01.0", "pci0000:80/0000:80:01.0"):
        plain_file(tmp_path, f"/sys/devices/{folder}/config", config_space(acs=0x1D))
    assert found_ids(world) == {"pcie-acs", "numa-balancing", "cpu-governor"}


def test_dockers_defaults(tmp_path: Path) -> None:
    world = make_world(tmp_path, docker_v2(cpu_max="200000 100000"), file_systems=SHM)
    assert found_ids(world) == {
        "shm-too-small",
        "memlock-too-low",
        "nofile-too-low",
        "cgroup-memory",
        "cgroup-cpu",
    }


def test_a_pod_with_small_limits(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    world = make_world(tmp_path, kubernetes_v1(), file_systems=SHM, environ=environ)
    assert found_ids(world, num_gpus=4) == {"shm-too-small", "cgroup-memory", "cgroup-cpu", "cpu-affinity"}


def test_a_slurm_step_whose_shell_limit_came_along(tmp_path: Path) -> None:
    world = make_world(
        tmp_path, slurm_step(), file_systems={"/dev/shm": (1 << 40, 1 << 40)}, environ=SLURM_ENVIRON
    )
    assert found_ids(world, num_gpus=8) == {"memlock-too-low", "cgroup-memory"}


def test_on_a_machine_that_shows_nothing_no_check_passes(tmp_path: Path) -> None:
    world = make_world(tmp_path, {"/etc/hostname": "x\n"})
    facts = EnvFacts(
        process=collect_process(world),
        host=collect_host(world),
        container=collect_container(world),
        scheduler=collect_scheduler(world),
        gpus=GpuFacts(),
    )
    findings, _, results = run_checks(CHECKS, facts)
    assert not findings
    assert [result.id for result in results if result.state is CheckState.PASSED] == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EPERM])
@pytest.mark.once
def test_any_single_unreadable_file_ends_in_an_answer(tmp_path: Path, number: int) -> None:
    make_world(tmp_path, {**bare_metal(), **slurm_step()} | {"/dev/null": ""})
    for path in sorted({**bare_metal(), **slurm_step()}):
        world = HalfReadableWorld(root=tmp_path, broken={path: number}, environ=SLURM_ENVIRON)
        run_checks(CHECKS, facts_of(world))
