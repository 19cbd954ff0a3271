"""Limits, affinity and cgroup of a process on bare metal, in containers, in a Slurm step, and half readable."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distdoctor.env.collect.process import collect_process, parse_limits
from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.process import UNLIMITED
from distdoctor.report.model import SkipCause
from distdoctor.units import GIB
from fake_world import make_world
from host_trees import HalfReadableWorld, bare_metal, docker_v2, kubernetes_v1, limits, slurm_step, status

SHM = {"/dev/shm": (GIB, GIB // 2)}


def test_a_login_session_on_bare_metal_has_no_limits(tmp_path: Path) -> None:
    facts = collect_process(make_world(tmp_path, bare_metal(), file_systems=SHM))
    assert (facts.pid, facts.is_root, facts.command) == (4242, True, "python3 train.py --lr 1e-4")
    assert (facts.memlock_bytes, facts.nofile, facts.stack_bytes) == (UNLIMITED, 1048576, 8388608)
    assert facts.affinity_cpus == (0, 1, 2, 3)
    assert facts.cgroup_memory_max_bytes == UNLIMITED
    assert facts.cgroup_cpu_quota_cpus == UNLIMITED
    assert facts.cgroup_sees_root is True
    assert facts.cgroup_oom_kills == 0
    assert (facts.shm_total_bytes, facts.shm_free_bytes) == (GIB, GIB // 2)


def test_docker_on_version_2_shows_its_own_cgroup_as_the_top(tmp_path: Path) -> None:
    facts = collect_process(make_world(tmp_path, docker_v2()))
    assert facts.cgroup_version == 2
    assert facts.cgroup_memory_max_bytes == 64 * GIB
    assert facts.cgroup_sees_root is False
    assert facts.cgroup_cpu_quota_cpus == 8
    assert (facts.cgroup_cpu_periods, facts.cgroup_cpu_throttled_periods) == (20000, 5000)
    assert facts.cgroup_oom_kills == 1
    assert facts.cgroup_memory_file_bytes == 14_000_000_000, (
        "shared memory is no cache that can be given back"
    )
    assert facts.unread["shm_total_bytes"].cause is SkipCause.ABSENT


def test_a_pod_on_version_1_is_read_below_its_mounts(tmp_path: Path) -> None:
    facts = collect_process(make_world(tmp_path, kubernetes_v1()))
    assert facts.cgroup_version == 1
    assert facts.cgroup_memory_max_bytes == 32 * GIB
    assert facts.cgroup_memory_current_bytes == 10_000_000_000
    assert facts.cgroup_memory_file_bytes == 5_000_000
    assert facts.cgroup_cpu_quota_cpus == 4
    assert facts.cgroup_oom_kills == 3


@pytest.mark.parametrize("limit", ["9223372036854771712", "9223372036854710272", "-1"])
def test_version_1_tells_the_limit_of_a_hidden_ancestor(tmp_path: Path, limit: str) -> None:
    facts = collect_process(make_world(tmp_path, kubernetes_v1(limit)))
    assert facts.cgroup_memory_max_bytes == 32 * GIB
    assert "hierarchical_memory_limit" in facts.sources["cgroup_memory_max_bytes"]


def test_version_1s_largest_number_means_no_limit(tmp_path: Path) -> None:
    files = kubernetes_v1("9223372036854771712")
    files["/sys/fs/cgroup/memory/memory.stat"] = "hierarchical_memory_limit 9223372036854771712\n"
    assert collect_process(make_world(tmp_path, files)).cgroup_memory_max_bytes == UNLIMITED


def test_the_limit_of_a_slurm_job_counts_for_its_task(tmp_path: Path) -> None:
    facts = collect_process(make_world(tmp_path, slurm_step()))
    assert facts.cgroup_memory_max_bytes == 100_000_000_000
    assert facts.sources["cgroup_memory_max_bytes"].endswith("/job_77/memory.max")
    assert facts.cgroup_memory_current_bytes == 4000, "usage is the job's, whose limit counts"
    assert (facts.cgroup_oom_kills, facts.cgroup_limit_oom_kills) == (0, 2)
    assert facts.affinity_cpus == (0, 1)
    assert facts.parent_affinity_cpus == (0, 1, 2, 3)
    assert facts.is_root is False


def test_in_the_mixed_layout_version_1_rules_memory(tmp_path: Path) -> None:
    files = kubernetes_v1()
    files["/proc/self/cgroup"] += "0::/kubepods/burstable/pod1f2e/0123456789ab\n"
    assert collect_process(make_world(tmp_path, files)).cgroup_version == 1


def test_without_mountinfo_the_usual_places_are_tried(tmp_path: Path) -> None:
    files = docker_v2()
    del files["/proc/self/mountinfo"]
    assert collect_process(make_world(tmp_path, files)).cgroup_memory_max_bytes == 64 * GIB


def test_a_cgroup_outside_the_namespace_is_hidden_by_the_container(tmp_path: Path) -> None:
    facts = collect_process(make_world(tmp_path, {**docker_v2(), "/proc/self/cgroup": "0::/../../other\n"}))
    assert facts.cgroup_memory_max_bytes is None
    assert facts.unread["cgroup_memory_max_bytes"].cause is SkipCause.IN_CONTAINER


def test_a_namespace_without_the_controller_is_not_taken_for_unlimited(tmp_path: Path) -> None:
    files = docker_v2()
    del files["/sys/fs/cgroup/memory.max"]
    facts = collect_process(make_world(tmp_path, files))
    assert facts.cgroup_memory_max_bytes is None
    assert facts.unread["cgroup_memory_max_bytes"].cause is SkipCause.IN_CONTAINER


def test_an_unreadable_level_is_not_taken_for_unlimited(tmp_path: Path) -> None:
    make_world(tmp_path, slurm_step())
    job = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_77/memory.max"
    facts = collect_process(HalfReadableWorld(root=tmp_path, broken={job: errno.EACCES}))
    assert facts.cgroup_memory_max_bytes is None
    assert facts.unread["cgroup_memory_max_bytes"].cause is SkipCause.NEEDS_ROOT


@pytest.mark.parametrize("text", ["many", "", "0x10", "12 monkeys"])
def test_a_limit_that_is_no_number_is_unread(tmp_path: Path, text: str) -> None:
    facts = collect_process(make_world(tmp_path, docker_v2(memory_max=text)))
    assert facts.cgroup_memory_max_bytes is None
    assert facts.unread["cgroup_memory_max_bytes"].cause is SkipCause.FAILED


@pytest.mark.parametrize("text", ["-5 100000", "100000 0", "100000", "max"])
def test_absurd_cpu_quotas_are_unread_or_unlimited(tmp_path: Path, text: str) -> None:
    facts = collect_process(make_world(tmp_path, docker_v2(cpu_max=text)))
    if text == "max":
        assert facts.cgroup_cpu_quota_cpus == UNLIMITED
    else:
        assert facts.cgroup_cpu_quota_cpus is None
        assert facts.unread["cgroup_cpu_quota_cpus"].cause is SkipCause.FAILED


def test_without_proc_everything_has_a_reason(tmp_path: Path) -> None:
    facts = collect_process(make_world(tmp_path, {"/etc/hostname": "x\n"}))
    for name in (
        "memlock_bytes",
        "nofile",
        "affinity_cpus",
        "cgroup_memory_max_bytes",
        "cgroup_cpu_quota_cpus",
    ):
        assert getattr(facts, name) is None
        assert facts.unread[name].cause is SkipCause.ABSENT, name


def test_absurd_limits_are_left_out() -> None:
    text = limits(memlock="lots", nofile="-3", stack="18446744073709551615")
    parsed = parse_limits(text)
    assert "Max locked memory" not in parsed
    assert "Max open files" not in parsed
    assert parsed["Max stack size"].soft == UNLIMITED


def test_a_limit_that_is_not_shown_is_unsupported(tmp_path: Path) -> None:
    world = make_world(tmp_path, {"/proc/self/limits": "Limit\n", "/proc/self/status": status()})
    assert collect_process(world).unread["nofile"].cause is SkipCause.UNSUPPORTED


def test_cpu_lists_are_ranges_and_numbers() -> None:
    assert parse_cpu_list("0-2,8\n") == (0, 1, 2, 8)
    assert parse_cpu_list("\n") == ()
    for text in ("a-b", "3-1", "0-99999999", "-4"):
        with pytest.raises(ValueError, match=r".+"):
            parse_cpu_list(text)
