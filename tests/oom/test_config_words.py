"""Words in configurations: addresses, numbers, optimizers, slips of names, and command lines taken apart."""

from __future__ import annotations

import pytest

from distdoctor.oom.configs.addresses import is_loopback, placeholder_reason
from distdoctor.oom.configs.commands.command_line import Launcher, find_launch, read_options
from distdoctor.oom.configs.optimizers import named_optimizer
from distdoctor.oom.configs.parameter_count import size_in_name
from distdoctor.oom.configs.reading import last
from distdoctor.oom.configs.text.near_names import near_name
from distdoctor.oom.configs.text.tree import Entry
from distdoctor.oom.configs.text.values import as_bytes, as_flag, as_int, default_in, template_in
from distdoctor.oom.settings import Optimizer


@pytest.mark.parametrize(
    "text",
    [
        "1234",
        "<MASTER_IP>",
        "xxx",
        "x.x.x.x",
        "10.0.0.X",
        "your_ip",
        "MASTER_ADDR",
        "main_process_ip",
        "MASTER_NODE_IP",
        "YOUR-HOST",
        "10.0.0.300",
        "1.2.3.x:29500",
        "ip",
        "fill me",
        "my_ip",
        "node.example.com",
        "changeme",
    ],
)
def test_placeholders_are_no_addresses(text: str) -> None:
    assert placeholder_reason(text)


@pytest.mark.parametrize(
    "text",
    [
        "192.168.0.1",
        "node-0",
        "node001.cluster.local",
        "trainer-0.trainer",
        "fe80::1",
        "[2001:db8::1]:29500",
        "10.1.2.3:29500",
        "ip-10-0-1-5.ec2.internal",
        "$MASTER_ADDR",
        "${HEAD:-x}",
        "gpu42",
        "master",
        "head-node",
        "my-job-0.my-job",
        "node-example-3",
        "put-01",
        "$(hostname)",
    ],
)
def test_real_hosts_and_variables_are_not_accused(text: str) -> None:
    assert placeholder_reason(text) is None


def test_loopback_is_known_in_all_its_forms() -> None:
    assert all(is_loopback(each) for each in ("localhost", "127.0.0.1", "127.1.2.3:29500", "::1", "0.0.0.0"))
    assert not any(is_loopback(each) for each in ("10.0.0.1", "node-0", "$X"))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1e9, 10**9),
        ("5e8", 5 * 10**8),
        ("1_000", 1000),
        ("8", 8),
        (1.5, None),
        ("auto", None),
        (True, None),
        (None, None),
        ("$N", None),
        (float("nan"), None),
        ("9" * 70, None),
        (-1, -1),
    ],
)
def test_numbers_however_they_are_written(value: object, number: int | None) -> None:
    assert as_int(value) == number  # type: ignore[arg-type]


def test_switches_templates_and_quantities() -> None:
    assert [as_flag(each) for each in ("True", "no", 1, "auto", None)] == [True, False, True, None, None]
    assert template_in("replicas-{{ .n }}") == "{{ .n }}"
    assert template_in("a$") is None
    assert default_in("${N:-8}") == "8"
    assert (as_bytes("2Gi"), as_bytes("1G"), as_bytes("x")) == (2 << 30, 10**9, None)


def test_optimizers_are_known_by_all_their_names() -> None:
    names = (
        "adamw_torch_fused",
        "OptimizerNames.ADAMW_TORCH",
        "torch.optim.AdamW",
        "FusedAdam",
        "paged_adamw_32bit",
    )
    assert {found.optimizer for each in names if (found := named_optimizer(each))} == {Optimizer.ADAMW}
    assert named_optimizer("paged_adamw_8bit").is_paged  # type: ignore[union-attr]
    assert named_optimizer("OneBitAdam").is_onebit  # type: ignore[union-attr]
    assert named_optimizer("something_new") is None


def test_a_slip_is_told_from_another_word() -> None:
    known = ("zero_optimization", "train_batch_size", "stage")
    assert near_name("zero_optimisation", known) == "zero_optimization"
    assert near_name("train-batch-size", known) == "train_batch_size"
    assert near_name("stage", known) is None
    assert near_name("_comment", known) is None
    assert near_name("monitoring", known) is None
    assert near_name("expert_parallel", ("expert_parallel_size",)) is None


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen3-8B", 8),
        ("llama-3-70b-fp16", 70),
        ("Qwen2.5-0.5B", 0.5),
        ("Mixtral-8x7B", None),
        ("Qwen3-30B-A3B", 30),
        ("gpt2", None),
        ("7b-or-13b", None),
    ],
)
def test_sizes_in_names(name: str, billions: float | None) -> None:
    found = size_in_name(name)
    assert (found / 1e9 if found else None) == billions


def test_launchers_options_and_script_arguments_are_told_apart() -> None:
    line = "NCCL_DEBUG=INFO srun --nodes 2 torchrun --standalone --nproc_per_node=8 -m pkg.train --lr 1e-4 --flag -x y"
    found = find_launch([Entry(name="", value=word, line=1) for word in line.split()])
    assert found is not None
    assert found.launchers == (Launcher.SRUN, Launcher.TORCHRUN)
    assert found.of(Launcher.TORCHRUN).entries["nproc_per_node"].value == "8"
    assert found.script is not None
    assert found.script.value == "pkg.train"
    assert found.arguments.entries["lr"].value == "1e-4"
    assert found.arguments.entries["flag"].value is True
    assert found.variables["NCCL_DEBUG"].value == "INFO"


@pytest.mark.parametrize(
    ("line", "launchers"),
    [
        ("python -m torch.distributed.run --nproc-per-node 2 t.py", (Launcher.TORCHRUN,)),
        ("python3.11 -u -m torch.distributed.launch --nproc_per_node=2 t.py", (Launcher.TORCHRUN,)),
        ("/opt/venv/bin/accelerate launch --num_processes 4 t.py", (Launcher.ACCELERATE,)),
        ("deepspeed --num_gpus 4 t.py", (Launcher.DEEPSPEED,)),
        ("mpirun -np 8 -x A=b --mca btl tcp python t.py --lr 1", (Launcher.MPI, Launcher.PYTHON)),
        ("llamafactory-cli train x.yaml", (Launcher.OWN,)),
        ("tune run --nproc_per_node 8 full_finetune_distributed --config c", (Launcher.TORCHRUN,)),
    ],
)
def test_launchers_by_all_their_names(line: str, launchers: tuple[Launcher, ...]) -> None:
    found = find_launch([Entry(name="", value=word, line=1) for word in line.split()])
    assert found is not None
    assert found.launchers == launchers


def test_a_command_that_starts_nothing_is_no_launch() -> None:
    assert find_launch([Entry(name="", value=word) for word in ("echo", "torch", "run")]) is None
    assert find_launch([]) is None


def test_options_in_all_forms() -> None:
    words = [
        "--a=1",
        "--b",
        "2",
        "--list",
        "x",
        "y",
        "--flag",
        "--neg",
        "-1",
        "trainer.devices=8",
        "conf.yaml",
    ]
    found = read_options([Entry(name="", value=word, line=1) for word in words])
    values = {key: entry.value for key, entry in found.entries.items() if not isinstance(entry.value, tuple)}
    assert (
        values == {"a": "1", "b": "2", "flag": True, "neg": "-1", "trainer.devices": "8"}
        or values["neg"] == "-1"
    )
    assert len(found.items("list")) == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("zero_optimization.stage", "stage"),
        ("spec.containers[0].resources.limits.nvidia.com/gpu", "nvidia.com/gpu"),
        ("replicas", "replicas"),
    ],
)
def test_a_key_is_called_by_its_last_part(name: str, shown: str) -> None:
    assert last(name) == shown
