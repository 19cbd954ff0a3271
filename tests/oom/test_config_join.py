"""Several files of one job: what they add to each other, and where they contradict."""

from __future__ import annotations

import re

import typer

from distdoctor.cli.oom import register
from distdoctor.oom.configs.join import config_facts, join_configs
from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.configs.reading import HOW
from distdoctor.oom.facts.launch import ConfigDefect, LaunchConfig
from distdoctor.oom.settings import DataParallel, Offload, Precision, Settings

ZERO3_AUTO = """{
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto"},
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}"""
TRAINER = """model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
gradient_checkpointing: true
deepspeed: conf/zero3.json
max_seq_length: 4096
"""
ACCELERATE = """distributed_type: DEEPSPEED
deepspeed_config: {deepspeed_config_file: conf/zero3.json}
num_machines: 2
num_processes: 16
main_process_ip: 10.0.0.5
machine_rank: 0
"""


def read(**files: str) -> list[LaunchConfig]:
    return [read_config_text(name.replace("__", "."), text) for name, text in files.items()]


def titles(defects: tuple[ConfigDefect, ...]) -> list[str]:
    return [f"{each.kind.name} {each.title}" for each in defects]


def test_files_of_one_job_complete_each_other() -> None:
    joined, defects = join_configs(read(zero3__json=ZERO3_AUTO, args__yaml=TRAINER, acc__yaml=ACCELERATE))
    assert (joined.strategy, joined.precision) == (DataParallel.ZERO3, Precision.MASTER)
    assert (joined.micro_batch, joined.accumulation_steps, joined.world_size, joined.num_nodes) == (
        2,
        4,
        16,
        2,
    )
    assert joined.model is not None
    assert defects == ()


def test_automatic_buffers_follow_the_models_hidden_size() -> None:
    joined, _ = join_configs(read(zero3__json=ZERO3_AUTO, args__yaml=TRAINER))
    assert joined.reduce_bucket_elements == 4096 * 4096
    assert joined.persistence_threshold_elements == 40960


def test_what_another_file_supplies_is_no_longer_open() -> None:
    alone = config_facts(read(zero3__json=ZERO3_AUTO))
    assert "train_micro_batch_size_per_gpu" in [point.what for _, point in alone.still_open()]
    together = config_facts(read(zero3__json=ZERO3_AUTO, args__yaml=TRAINER, acc__yaml=ACCELERATE))
    left = [point.what for _, point in together.still_open()]
    assert "train_micro_batch_size_per_gpu" not in left
    assert not [each for each in left if "zero3.json" in each]


def test_two_micro_batches_are_a_contradiction_with_both_keys() -> None:
    fixed = ZERO3_AUTO.replace(
        '"train_micro_batch_size_per_gpu": "auto"', '"train_micro_batch_size_per_gpu": 8'
    )
    _, defects = join_configs(read(zero3__json=fixed, args__yaml=TRAINER))
    (defect,) = defects
    assert defect.title == "two files disagree on the micro-batch: 8 and 2"
    assert defect.stops_job
    assert [key.name for key in defect.keys] == [
        "zero3.json: train_micro_batch_size_per_gpu",
        "args.yaml: per_device_train_batch_size",
    ]


def test_bf16_against_fp16_is_a_contradiction() -> None:
    fixed = ZERO3_AUTO.replace('"bf16": {"enabled": "auto"}', '"fp16": {"enabled": true}')
    _, defects = join_configs(read(zero3__json=fixed, args__yaml=TRAINER))
    assert titles(defects) == ["CONFLICT two files disagree on the type: fp16 and bf16"]


def test_fp32_that_nobody_asked_for_gives_way() -> None:
    plain = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
    joined, defects = join_configs(
        read(acc__yaml=plain, args__yaml=TRAINER.replace("deepspeed: conf/zero3.json\n", ""))
    )
    assert joined.precision is Precision.MIXED
    assert defects == ()


def test_ranks_of_launcher_and_file_are_compared() -> None:
    script = "torchrun --nnodes 2 --nproc_per_node 4 t.py --per_device_train_batch_size 2 --bf16\n"
    joined, defects = join_configs(read(acc__yaml=ACCELERATE, run__sh="#!/bin/bash\n" + script))
    assert any("the number of ranks: 16 and 8" in each for each in titles(defects))
    assert joined.world_size == 16


def test_a_global_batch_that_the_ranks_do_not_make() -> None:
    fixed = ZERO3_AUTO.replace('"train_batch_size": "auto"', '"train_batch_size": 96')
    _, defects = join_configs(read(zero3__json=fixed, args__yaml=TRAINER, acc__yaml=ACCELERATE))
    assert titles(defects) == ["BATCH_DOES_NOT_DIVIDE global batch 96 is not 2 x 4 x 16 = 128"]


def test_degrees_of_one_file_and_ranks_of_another() -> None:
    axolotl = (
        "base_model: Qwen/Qwen3-8B\ndatasets: [{path: a, type: b}]\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "bf16: true\ntensor_parallel_size: 3\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
    )
    launch = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
    )
    _, defects = join_configs(read(axo__yml=axolotl, acc__yaml=launch))
    assert titles(defects) == ["MESH_DOES_NOT_DIVIDE tp 3 does not divide 8 ranks"]


def test_two_kinds_of_checkpointing_in_two_files() -> None:
    launch = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
        "fsdp_config: {fsdp_activation_checkpointing: true}\n"
    )
    _, defects = join_configs(
        read(acc__yaml=launch, args__yaml=TRAINER.replace("deepspeed: conf/zero3.json\n", ""))
    )
    assert titles(defects) == ["CONFLICT two kinds of activation checkpointing are on"]


MODEL = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
 "tie_word_embeddings": false}"""


def test_a_models_config_is_the_model() -> None:
    joined, defects = join_configs(read(config__json=MODEL, args__yaml=TRAINER))
    assert joined.model is not None
    assert "config.json" in joined.model.source
    assert defects == ()
    other = MODEL.replace('"num_hidden_layers": 32', '"num_hidden_layers": 16')
    _, defects = join_configs(read(config__json=other, args__yaml=TRAINER))
    assert any("two files disagree on the model" in each for each in titles(defects))


POD = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: full}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          hostIPC: true
          containers:
          - name: pytorch
            image: i
            command: [torchrun, --nproc_per_node=8, --nnodes=2, train.py, --per_device_train_batch_size=2,
                      --model_name_or_path=meta-llama/Llama-2-70b-hf, --bf16, --deepspeed=conf/zero3.json]
            resources: {limits: {nvidia.com/gpu: 8, memory: 400Gi}}
"""
OFFLOAD = """{"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3,
 "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}"""


def test_offloaded_states_are_compared_with_the_pods_memory() -> None:
    joined, defects = join_configs(read(job__yaml=POD, zero3__json=OFFLOAD))
    assert joined.offload_params is Offload.CPU
    (defect,) = [each for each in defects if each.kind.name == "HOST_MEMORY"]
    # 68.98 billion parameters x 16 B / 2 nodes = 514 GiB.
    assert defect.title == "a pod may use 400 GiB, and offloaded states need 514 GiB"
    assert defect.stops_job
    _, enough = join_configs(read(job__yaml=POD.replace("400Gi", "900Gi"), zero3__json=OFFLOAD))
    assert [each for each in enough if each.kind.name == "HOST_MEMORY"] == []


def test_a_name_that_disagrees_with_the_sizes() -> None:
    script = (
        "#!/bin/bash\ntorchrun --nproc_per_node 8 train.py --model_type llama_v3 --num_layers 32 --hidden_width 4096 "
        "--num_heads 32 --num_key_value_heads 8 --intermediate_size 14336 --vocab_size 128256 --train_batch_size 1\n"
    )
    joined, _ = join_configs(read(run__sh=script))
    assert joined.model is not None
    assert joined.model.name.startswith("llama3")


def test_no_files_join_to_nothing() -> None:
    joined, defects = join_configs([])
    assert (joined.model, joined.world_size, defects) == (None, None, ())


def test_what_is_given_beside_the_files_wins_and_contradicts_nothing() -> None:
    files = read(zero3__json=ZERO3_AUTO, args__yaml=TRAINER)
    joined, defects = join_configs(files, Settings(micro_batch=7, world_size=48))
    assert (joined.micro_batch, joined.world_size) == (7, 48)
    assert titles(defects) == titles(join_configs(files)[1])


def test_what_is_given_is_open_no_more_and_is_checked_with_the_files() -> None:
    titan = read(
        job__toml="""[model]
name = "llama3"
flavor = "405B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
"""
    )
    assert any("ranks" in point.what for _, point in config_facts(titan).still_open())
    facts = config_facts(titan, Settings(world_size=64))
    assert not any("number of ranks" in point.what for _, point in facts.still_open())
    assert titles(config_facts(titan, Settings(world_size=63)).defects) == [
        "MESH_DOES_NOT_DIVIDE tp 8 does not divide 63 ranks"
    ]


def test_every_option_that_a_report_asks_for_exists() -> None:
    app = typer.Typer()
    register(app)
    command = typer.main.get_command(app).commands["oom"].commands["config"]  # type: ignore[attr-defined]  # both are groups
    known = {option for each in command.params for option in each.opts}
    asked = {word for text in HOW.values() for word in re.findall(r"--[a-z-]+", text)}
    assert asked <= known, asked - known
