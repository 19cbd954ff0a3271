"""FSDP's settings as a file of their own, as the trainer's `--fsdp_config` names it; and what a pod's /dev/shm may take."""

from __future__ import annotations

import pytest

from distdoctor.oom.configs.join import config_facts
from distdoctor.oom.configs.read import best_reader, read_config_text
from distdoctor.oom.facts.launch import ConfigFamily, Defect
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload

FILES = (
    '{"fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "xla": false, "activation_checkpointing": true}',
    '{"min_num_params": 2000}',
    '{"xla": true, "xla_fsdp_v2": true, "xla_fsdp_grad_ckpt": true}',
    '{"fsdp_activation_checkpointing": true, "fsdp_version": 2, "fsdp_reshard_after_forward": true}',
    '{"transformer_layer_cls_to_wrap": "Block", "backward_prefetch": "backward_pre", "limit_all_gathers": true}',
    '{"fsdp_offload_params": true, "fsdp_sharding_strategy": "FULL_SHARD", "comment": "for one host"}',
)


@pytest.mark.parametrize("text", FILES)
def test_the_file_is_read(text: str) -> None:
    config = read_config_text("fsdp.json", text)
    assert config.family is ConfigFamily.HF_TRAINER
    assert config.settings.strategy is DataParallel.FSDP


def test_its_settings_are_taken() -> None:
    assert read_config_text("f.json", FILES[0]).settings.checkpointing is Checkpointing.FULL
    assert read_config_text("f.json", FILES[5]).settings.offload_params is Offload.CPU


@pytest.mark.parametrize(
    "text",
    [
        '{"activation_checkpointing": {"partition_activations": true}, "zero_optimization": {"stage": 2}}',
        '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32}',
        '{"loss": 2.1, "xla": true, "name": "run", "tags": []}',
        '{"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}}',
    ],
)
def test_other_json_is_not_taken_for_it(text: str) -> None:
    reader = best_reader("f.json", text)
    assert reader is None or not reader.module.endswith("hf_trainer")


def test_the_command_line_names_the_strategy_and_the_file_its_details() -> None:
    script = (
        "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 "
        '--fsdp "shard_grad_op auto_wrap" --fsdp_config fsdp.json --bf16 True --max_seq_length 2048\n'
    )
    facts = config_facts([read_config_text("run.sh", script), read_config_text("fsdp.json", FILES[0])])
    assert facts.joined.reshard_after_forward is False
    assert facts.joined.checkpointing is Checkpointing.FULL
    assert facts.defects == ()


POD = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
      - name: train
        command: ["torchrun", "--nproc_per_node", "8", "train.py"]
        resources: {limits: {nvidia.com/gpu: 8%s}}
        volumeMounts: [{mountPath: /dev/shm, name: shm}]
      volumes: [{name: shm, emptyDir: {%s}}]
"""


@pytest.mark.parametrize(
    ("limit", "volume", "is_told"),
    [
        (", memory: 64Gi", "medium: Memory, sizeLimit: 128Gi", True),
        (", memory: 64Gi", "medium: Memory, sizeLimit: 64Gi", True),
        (", memory: 64Gi", "medium: Memory, sizeLimit: 16Gi", False),
        (", memory: 64Gi", "medium: Memory", False),
        ("", "medium: Memory, sizeLimit: 128Gi", False),
    ],
)
def test_shared_memory_larger_than_the_pod_is_told(limit: str, volume: str, is_told: bool) -> None:
    config = read_config_text("job.yaml", POD % (limit, volume))
    found = [each for each in config.defects if each.kind is Defect.HOST_MEMORY]
    assert bool(found) is is_told
    if found:
        assert "/dev/shm" in found[0].title
        assert not found[0].stops_job
