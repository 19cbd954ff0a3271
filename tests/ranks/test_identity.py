"""Who am I, by the variables that each launcher really sets."""

from __future__ import annotations

import pytest

from distdoctor.errors import UsageError
from distdoctor.ranks.identity import RankIdentity, detect_identity, single_identity
from distdoctor.ranks.launchers import Launcher
from distdoctor.ranks.quiet import should_speak

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "3f2a9c52-61c1-4a50-9a0b-0d4b2d1f7a11",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "RANK": "11",
    "LOCAL_RANK": "3",
    "GROUP_RANK": "1",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "gpu-a",
    "MASTER_PORT": "29401",
}
SLURM_JOB = {
    "SLURM_CLUSTER_NAME": "hpc",
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "gpu[01-04]",
    "SLURM_NNODES": "4",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURMD_NODENAME": "gpu01",
}
SLURM_STEP = {
    **SLURM_JOB,
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "gpu[02-03]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_GTIDS": "4,5,6,7",
    "SLURMD_NODENAME": "gpu03",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_ess_base_jobid": "3467182081",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "3467182081",
}
HYDRA = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "PMI_FD": "9",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
}


def identity(environ: dict[str, str], hostname: str = "host-a", *, entered: bool = False) -> RankIdentity:
    return detect_identity(environ, hostname, entered_from_outside=lambda _: entered)


@pytest.mark.parametrize(
    ("environ", "launcher", "rank", "world", "local_rank", "local_world", "spans_hosts"),
    [
        ({}, Launcher.NONE, 0, 1, 0, 1, False),
        (TORCHRUN, Launcher.TORCHRUN, 11, 16, 3, 8, True),
        ({"RANK": "2", "WORLD_SIZE": "4"}, Launcher.MANUAL, 2, 4, None, None, None),
        (
            {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"},
            Launcher.MANUAL, 2, 4, 2, 4, False,
        ),
        ({"RANK": "1", "WORLD_SIZE": "3", "DISTDOCTOR_LAUNCH_ID": "x"}, Launcher.DISTDOCTOR, 1, 3, 1, 3, False),
        (OPEN_MPI, Launcher.OPEN_MPI, 3, 4, 1, 2, True),
        (HYDRA, Launcher.PMI, 1, 2, 1, 2, False),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, Launcher.PMI, 1, 2, None, None, None),
        (SLURM_STEP, Launcher.SLURM, 5, 8, 1, 4, True),
        # The shell that sbatch or salloc starts has PROCID 0 and is no task.
        (SLURM_JOB, Launcher.NONE, 0, 1, 0, 1, False),
        ({**SLURM_JOB, "SLURM_STEP_ID": "4294967291"}, Launcher.NONE, 0, 1, 0, 1, False),
        ({**SLURM_JOB, "SLURM_STEP_ID": "batch"}, Launcher.NONE, 0, 1, 0, 1, False),
        # The launcher nearest to the process counts.
        ({**SLURM_STEP, **TORCHRUN}, Launcher.TORCHRUN, 11, 16, 3, 8, True),
        ({**SLURM_STEP, **OPEN_MPI}, Launcher.OPEN_MPI, 3, 4, 1, 2, True),
        ({**SLURM_STEP, **HYDRA}, Launcher.PMI, 1, 2, 1, 2, False),
        ({**SLURM_STEP, "RANK": "5", "WORLD_SIZE": "8"}, Launcher.MANUAL, 5, 8, None, None, None),
        # A bare PMIx rank has no size; Slurm has both.
        ({**SLURM_STEP, "PMIX_RANK": "5", "PMIX_NAMESPACE": "slurm.pmix.4711.2"}, Launcher.SLURM, 5, 8, 1, 4, True),
        ({"PMIX_RANK": "5"}, Launcher.NONE, 0, 1, 0, 1, False),
        ({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4", "HOSTNAME": "j-2"}, Launcher.KUBERNETES, 2, 4, 0, 1, True),
        ({"JOB_COMPLETION_INDEX": "2"}, Launcher.NONE, 0, 1, 0, 1, False),
        # A PyTorchJob's pod: WORLD_SIZE counts processes, RANK counts pods.
        (
            {"RANK": "1", "WORLD_SIZE": "16", "PET_NODE_RANK": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "8"},
            Launcher.KUBERNETES, 1, 2, 0, 1, True,
        ),
        ({"RANK": "3"}, Launcher.NONE, 0, 1, 0, 1, False),
        ({"WORLD_SIZE": "3"}, Launcher.NONE, 0, 1, 0, 1, False),
        # Tasks of a heterogeneous step are counted over all parts.
        (
            {**SLURM_STEP, "SLURM_HET_SIZE": "2", "SLURM_PROCID": "9"},
            Launcher.NONE, 0, 1, 0, 1, False,
        ),
    ],
)  # fmt: skip
def test_launchers(
    environ: dict[str, str],
    launcher: Launcher,
    rank: int,
    world: int,
    local_rank: int | None,
    local_world: int | None,
    spans_hosts: bool | None,
) -> None:
    found = identity(environ)
    assert (found.launcher, found.rank, found.world_size) == (launcher, rank, world)
    assert (found.local_rank, found.local_world_size) == (local_rank, local_world)
    assert found.spans_hosts is spans_hosts
    assert found.is_reporter is (rank == 0)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "abc", "WORLD_SIZE": "2"}, "RANK=`abc` is not a whole number"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=`-1`"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE=`0`"),
        ({"RANK": "0", "WORLD_SIZE": "1e9"}, "WORLD_SIZE=`1e9`"),
        ({"RANK": "0", "WORLD_SIZE": "99999999"}, "more than 1048576 ranks"),
        ({**TORCHRUN, "WORLD_SIZE": ""}, "RANK is set but WORLD_SIZE is not"),
        ({**TORCHRUN, "LOCAL_RANK": "x"}, "LOCAL_RANK=`x`"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK=3 is not below"),
    ],
)
def test_variables_that_contradict_themselves_are_a_usage_error(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        identity(environ)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert should_speak(environ, lambda _: False)


def test_ranks_on_this_host_are_known_where_the_launcher_tells() -> None:
    assert identity(TORCHRUN).ranks_here == tuple(range(8, 16))
    assert identity(SLURM_STEP).ranks_here == (4, 5, 6, 7)
    assert identity({**SLURM_STEP, "SLURM_GTIDS": "1,3,5,7"}).ranks_here == (1, 3, 5, 7)
    assert identity({**SLURM_STEP, "SLURM_GTIDS": "0,1"}).ranks_here is None
    assert identity(OPEN_MPI).ranks_here is None


def test_all_ranks_of_a_launch_share_its_key_and_other_launches_do_not() -> None:
    one = identity(TORCHRUN)
    assert one.job_key == identity({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"}).job_key
    assert one.job_key != identity({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}).job_key
    assert one.job_key != identity({**TORCHRUN, "MASTER_PORT": "29402"}).job_key
    assert one.key_never_reused
    assert not identity({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}).key_never_reused
    step = identity(SLURM_STEP)
    assert step.job_key == identity({**SLURM_STEP, "SLURM_PROCID": "0", "SLURM_GTIDS": "0,1,2,3"}).job_key
    assert step.job_key != identity({**SLURM_STEP, "SLURM_STEP_ID": "3"}).job_key
    assert identity({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0"}).job_key == identity(OPEN_MPI).job_key


def test_hosts_come_from_the_step_for_its_tasks_and_from_the_job_otherwise() -> None:
    assert identity(SLURM_STEP).node_list == ("gpu02", "gpu03")
    assert identity({**SLURM_STEP, **TORCHRUN}).node_list == ("gpu02", "gpu03")
    assert identity({**SLURM_STEP, **OPEN_MPI}).node_list == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert identity(SLURM_JOB).node_list == ("gpu01", "gpu02", "gpu03", "gpu04")
    assert identity({"LSB_MCPU_HOSTS": "a 1 b 4"}).node_list == ("a", "b")
    files = {"/var/spool/nodes": "n1\nn1\nn2\n"}
    pbs = detect_identity({"PBS_NODEFILE": "/var/spool/nodes"}, "n1", read_file=files.__getitem__)
    assert pbs.node_list == ("n1", "n2")


def test_an_unusable_node_list_is_a_note_not_an_error() -> None:
    found = identity({**SLURM_JOB, "SLURM_JOB_NODELIST": "gpu[1-"})
    assert found.node_list == ()
    assert "node list cannot be used" in found.notes[0]
    assert "No such file" in identity({"PBS_NODEFILE": "/nowhere/nodes"}).notes[0]


def test_the_machine_is_named_as_the_scheduler_names_it() -> None:
    assert identity(SLURM_STEP, "ip-10-0-0-3.ec2.internal").host == "gpu03"
    assert identity(SLURM_STEP, "ip-10-0-0-3.ec2.internal").hostname == "ip-10-0-0-3"
    # Hydra carries the first node's variables to all nodes.
    assert identity({**SLURM_STEP, **HYDRA}, "gpu07").host == "gpu07"
    pod = identity(
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NODE_NAME": "metal-7", "HOSTNAME": "train-worker-1"},
        "train-worker-1",
    )
    assert (pod.host, pod.pod) == ("metal-7", "train-worker-1")


def test_absent_hosts_are_named_only_when_the_list_is_as_long_as_the_launch_is_wide() -> None:
    found = identity(SLURM_STEP)
    assert found.missing_hosts(frozenset({"gpu03.cluster"})) == ("gpu02",)
    # Two agents in an allocation of four nodes: the other two were never meant to run.
    narrow = identity({**SLURM_JOB, **TORCHRUN})
    assert len(narrow.node_list) == 4
    assert narrow.missing_hosts(frozenset({"gpu01"})) == ()


def test_a_process_put_into_a_pod_by_hand_stands_alone() -> None:
    found = identity({"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "m"}, entered=True)
    assert (found.launcher, found.rank, found.world_size) == (Launcher.NONE, 0, 1)
    assert "started by hand" in found.notes[0]
    assert should_speak({"RANK": "3", "WORLD_SIZE": "8"}, lambda _: True)
    # torchrun started in such a shell has ranks of its own.
    assert identity(TORCHRUN, entered=True).rank == 11
    assert not should_speak(TORCHRUN, lambda _: True)


def test_what_is_odd_is_noted() -> None:
    assert "WORLD_SIZE is not" in identity({"RANK": "3"}).notes[0]
    assert "Indexed Job" in identity({"JOB_COMPLETION_INDEX": "2"}).notes[0]
    assert "MASTER_PORT" in identity({"MASTER_PORT": "many"}).notes[0]
    assert "set too early" in identity({**SLURM_STEP, "RANK": "0", "WORLD_SIZE": "8"}).notes[0]


def test_rank_zero_speaks_and_the_others_keep_still() -> None:
    assert should_speak({}, lambda _: False)
    assert should_speak({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"}, lambda _: False)
    assert not should_speak(TORCHRUN, lambda _: False)
    assert not should_speak(SLURM_STEP, lambda _: False)
    assert should_speak(SLURM_JOB, lambda _: False)


def test_a_single_process_ignores_the_environment() -> None:
    assert single_identity("x").world_size == 1
    assert single_identity("x").host == "x"
