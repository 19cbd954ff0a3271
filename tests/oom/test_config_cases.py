"""Published configurations, where they lie beside this repository: what must be flagged, and what must not be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distdoctor.oom.configs.join import config_facts
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.read import read_config
from distdoctor.oom.facts.launch import LaunchConfig
from distdoctor.oom.settings import Adapter

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "launch_configs"

pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the folder with published configurations is not beside the repository"
)

SETTINGS: dict[str, dict[str, Any]] = {
    "ds_z3_offload_all_fp16_auto.json": {
        "strategy": "zero3",
        "offload_params": "cpu",
        "offload_optimizer": "cpu",
        "precision": "master",
        "world_size": None,
        "micro_batch": None,
        "model": None,
        "max_live_elements": 10**9,
    },
    "ds_z2_autotp2_lf.json": {"strategy": "zero2", "tp": 2, "world_size": None, "model": None},
    "ds_z3_fp8_lf.json": {
        "strategy": "zero3",
        "offload_optimizer": "cpu",
        "offload_params": None,
        "fp8": None,
    },
    "ds_fp16_z3_min.json": {"strategy": "zero3", "precision": "master", "world_size": None},
    "ds_1bitlamb_64k.json": {
        "strategy": "ddp",
        "optimizer": "lamb",
        "global_batch": 65536,
        "micro_batch": 64,
    },
    "ds_z0_bf16_256.json": {"strategy": "zero1", "grads_in_fp32": True, "world_size": None},
    "acc_fsdp_2x8.yaml": {"strategy": "fsdp2", "world_size": 16, "num_nodes": 2, "gpus_per_node": 8},
    "acc_fsdp_2.yaml": {"strategy": "fsdp2", "world_size": 2, "precision": "mixed"},
    "acc_tp_hsdp_8.yaml": {"world_size": 8, "dp_replicate": 2, "dp_shard": 2, "tp": 2, "cp": 1},
    "acc_multinode_ddp_badip.yaml": {
        "strategy": "ddp",
        "world_size": 8,
        "precision": "fp32",
        "gpus_per_node": 4,
    },
    "axo_qlora_fsdp_70b.yaml": {
        "adapter": Adapter(rank=8, all_linear=True, base_bits=4),
        "offload_params": "cpu",
    },
    "axo_qwen3_8b_fsdp_tp_cp.yaml": {
        "world_size": 8,
        "dp_shard": 2,
        "tp": 2,
        "cp": 2,
        "checkpointing": "none",
    },
    "axo_gptoss_120b_offload.yaml": {
        "world_size": 16,
        "dp_shard": 16,
        "offload_params": "cpu",
        "checkpointing": "full",
    },
    "lf_megatron_qwen3_moe.yaml": {
        "strategy": "megatron-distopt",
        "tp": 1,
        "pp": 4,
        "ep": 2,
        "checkpointing": "full",
        "world_size": None,
    },
    "k8s_pytorchjob_llama31_70b.yaml": {"world_size": None, "num_nodes": None, "strategy": "fsdp2"},
    "k8s_trainjob_multinode.yaml": {"num_nodes": 3, "world_size": None, "model": None},
}
PARAMETERS = {
    "hf_llama3_8b.json": 8_030_261_248,
    "hf_llama3_70b.json": 70_553_706_496,
    "hf_mixtral_8x7b.json": 46_702_792_704,
    "axo_qlora_fsdp_70b.yaml": 70_553_706_496,
    "k8s_pytorchjob_llama31_70b.yaml": 70_553_706_496,
}
SAYS = {
    "ds_1bitlamb_64k.json": ("grad_acc x DP ranks = 1024", "error-feedback"),
    "ds_z0_bf16_256.json": ("grad_acc x DP ranks = 16", "BF16_Optimizer"),
    "ds_z2_autotp2_lf.json": ("ranks / 2", "multiple of 2"),
    "acc_fsdp_2x8.yaml": ("FULL_STATE_DICT", "num_processes is the total"),
    "acc_tp_hsdp_8.yaml": ("= 8 ranks; states are shared by 4",),
    "axo_qlora_fsdp_70b.yaml": ("4-bit base is frozen",),
    "axo_qwen3_8b_fsdp_tp_cp.yaml": ("= 8 ranks",),
    "k8s_pytorchjob_llama31_70b.yaml": ("hostPath", "/local/nccl_trace_rank_", "expandable_segments:True"),
}
FLAGS = {
    "acc_multinode_ddp_badip.yaml": (
        ("PLACEHOLDER_ADDRESS", "'1234'"),
        ("SAME_ON_EVERY_NODE", "machine_rank 0"),
    ),
    "axo_gptoss_120b_offload.yaml": (("HOST_MEMORY", "host memory"),),
}
OPEN = {
    "ds_z3_offload_all_fp16_auto.json": ("hidden_size²", "the model"),
    "k8s_pytorchjob_llama31_70b.yaml": ("$NUM_NODES", "$GPU_PER_NODE"),
    "k8s_trainjob_multinode.yaml": ("numProcPerNode",),
    "lf_megatron_qwen3_moe.yaml": ("the number of ranks",),
}
NOTES = {
    "k8s_pytorchjob_llama31_70b.yaml": ("IPC_LOCK",),
    "lf_megatron_qwen3_moe.yaml": ("8 GPUs of 78 GB", "(8 // 2 // 4) * 8"),
    "axo_gptoss_120b_offload.yaml": ("2 x 8 H100",),
}
MAY_STOP = {"acc_multinode_ddp_badip.yaml"}


def read(name: str) -> LaunchConfig:
    return read_config(str(CASES / name))


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings(name: str) -> None:
    settings = read(name).settings
    got = {field: getattr(settings, field) for field in SETTINGS[name]}
    assert {field: getattr(value, "value", value) for field, value in got.items()} == SETTINGS[name]


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_parameters(name: str) -> None:
    model = read(name).settings.model
    assert model is not None
    assert parameters_of(model) == PARAMETERS[name]


@pytest.mark.parametrize("name", sorted(SAYS))
def test_statements(name: str) -> None:
    texts = " | ".join(f"{each.text}" for each in read(name).statements)
    assert [part for part in SAYS[name] if part not in texts] == []


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_flags(name: str) -> None:
    defects = [(each.kind.name, each.title) for each in read(name).defects]
    for kind, part in FLAGS[name]:
        assert any(kind == each and part in title for each, title in defects), defects


@pytest.mark.parametrize("name", sorted(OPEN))
def test_open_points(name: str) -> None:
    texts = " | ".join(f"{each.what} {each.why}" for each in read(name).open_points)
    assert [part for part in OPEN[name] if part not in texts] == []


@pytest.mark.parametrize("name", sorted(NOTES))
def test_notes(name: str) -> None:
    texts = " | ".join(read(name).notes)
    assert [part for part in NOTES[name] if part not in texts] == []


@pytest.mark.parametrize("name", sorted({*SETTINGS, *PARAMETERS}))
def test_no_published_file_is_said_to_stop_without_reason(name: str) -> None:
    facts = config_facts([read(name)])
    stopping = [each.title for each in facts.defects if each.stops_job]
    assert (stopping == []) is (name not in MAY_STOP)
