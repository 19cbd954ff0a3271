"""Variables and NCCL's configuration files: what is kept, what is in force, who set it."""

from __future__ import annotations

from pathlib import Path

from distdoctor.env.catalog.variables import nccl_variables, torch_variables
from distdoctor.env.collect.variables import MAX_VALUE_CHARACTERS, collect_variables, parse_nccl_conf
from fake_world import make_world

STATUS = "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n"
PASSWD = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
BASE = {"/proc/self/status": STATUS, "/etc/passwd": PASSWD}


def test_only_relevant_variables_are_kept(tmp_path: Path) -> None:
    environ = {
        "NCCL_DEBUG": "INFO",
        "RANK": "0",
        "nccl_debug": "x",
        "AWS_SECRET_ACCESS_KEY": "s",
        "LD_SDK_KEY": "s",
    }
    facts = collect_variables(make_world(tmp_path, BASE, environ=environ))
    assert set(facts.environment) == {"NCCL_DEBUG", "RANK", "nccl_debug"}
    assert facts.whose == "this shell"


def test_every_variable_that_the_catalogs_know_is_kept(tmp_path: Path) -> None:
    names = {*nccl_variables(), *torch_variables()}
    facts = collect_variables(make_world(tmp_path, BASE, environ=dict.fromkeys(names, "1")))
    assert names - set(facts.environment) == set()


def test_long_values_are_cut(tmp_path: Path) -> None:
    facts = collect_variables(make_world(tmp_path, BASE, environ={"NCCL_IB_HCA": "x" * 100_000}))
    assert len(facts.environment["NCCL_IB_HCA"]) == MAX_VALUE_CHARACTERS


def test_the_environment_wins_then_the_users_file_then_the_hosts(tmp_path: Path) -> None:
    files = {
        **BASE,
        "/home/user/.nccl.conf": "NCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5_0\n",
        "/etc/nccl.conf": "NCCL_DEBUG=TRACE\nNCCL_IB_HCA=mlx5_1\nNCCL_NET=Socket\n",
    }
    facts = collect_variables(make_world(tmp_path, files, environ={"NCCL_DEBUG": "WARN"}))
    in_force = {each.name: (each.value, each.origin) for each in facts.settings}
    assert in_force == {
        "NCCL_DEBUG": ("WARN", "environment"),
        "NCCL_IB_HCA": ("mlx5_0", "/home/user/.nccl.conf"),
        "NCCL_NET": ("Socket", "/etc/nccl.conf"),
    }
    debug = facts.in_force()["NCCL_DEBUG"]
    assert debug.overridden == ("/home/user/.nccl.conf=INFO", "/etc/nccl.conf=TRACE")


def test_nccl_conf_file_replaces_the_users_file(tmp_path: Path) -> None:
    files = {**BASE, "/opt/job.conf": "NCCL_DEBUG=INFO\n", "/home/user/.nccl.conf": "NCCL_DEBUG=TRACE\n"}
    facts = collect_variables(make_world(tmp_path, files, environ={"NCCL_CONF_FILE": "/opt/job.conf"}))
    assert [each.path for each in facts.config_files] == ["/opt/job.conf", "/etc/nccl.conf"]
    assert facts.value("NCCL_DEBUG") == "INFO"
    assert facts.path_errors == {"NCCL_CONF_FILE": ""}


def test_a_missing_file_is_told_from_an_empty_one(tmp_path: Path) -> None:
    facts = collect_variables(make_world(tmp_path, {**BASE, "/etc/nccl.conf": ""}, environ={}))
    assert [(each.path, each.exists) for each in facts.config_files] == [
        ("/home/user/.nccl.conf", False),
        ("/etc/nccl.conf", True),
    ]


def test_a_named_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    facts = collect_variables(make_world(tmp_path, BASE, environ={"NCCL_TOPO_FILE": "/no/topo.xml"}))
    assert facts.path_errors == {"NCCL_TOPO_FILE": "No such file or directory"}


def test_configuration_lines_are_read_as_nccl_reads_them() -> None:
    text = '# comment\nNCCL_DEBUG=INFO\n NCCL_NET=IB\nNCCL_ALGO\nNCCL_DEBUG=WARN\nNCCL_IB_HCA="mlx5"\nNCCL_X=a=b\n'
    assert parse_nccl_conf(text) == {
        "NCCL_DEBUG": "INFO",
        " NCCL_NET": "IB",
        "NCCL_IB_HCA": '"mlx5"',
        "NCCL_X": "a=b",
    }


def test_what_torchrun_sets_by_itself_is_labelled(tmp_path: Path) -> None:
    environ = {"TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    facts = collect_variables(make_world(tmp_path, BASE, environ=environ))
    assert set(facts.launcher_set) == {"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}
    assert facts.in_force()["OMP_NUM_THREADS"].origin == "set by torchrun"


def test_another_value_or_no_torchrun_is_the_users_own(tmp_path: Path) -> None:
    with_torchrun = {"TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "8"}
    without = {"OMP_NUM_THREADS": "1"}
    for name, environ in (("a", with_torchrun), ("b", without)):
        facts = collect_variables(make_world(tmp_path / name, BASE, environ=environ))
        assert facts.launcher_set == ()
        assert facts.in_force()["OMP_NUM_THREADS"].origin == "environment"


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    facts = collect_variables(make_world(tmp_path, {}, environ={}))
    assert facts.environment == {}
    assert [each.exists for each in facts.config_files] == [False]
