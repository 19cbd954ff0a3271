"""Launch configurations as people write them, with what a careful reader would say of each. Texts of our own.

`says` and `open` are parts of sentences; `flags` are kinds of defect with a part of their title; `stops` are kinds of
which one stops the job; `never` are kinds that would be a false alarm; `only` are all kinds that may appear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One configuration and the right answers."""

    name: str
    text: str
    settings: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    flags: tuple[tuple[str, str], ...] = ()
    stops: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    says: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


DEEPSPEED = (
    Sample(
        name="ds_z2.json",
        text="""\
{
  "train_batch_size": 512,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},
     "allgather_bucket_size": 2e8, "reduce_bucket_size": "2e8", "overlap_comm": true, "contiguous_gradients": true},
  "gradient_clipping": 1.0
}""",
        settings={
            "strategy": "zero2",
            "micro_batch": 4,
            "accumulation_steps": 4,
            "global_batch": 512,
            "world_size": 32,
            "offload_optimizer": "cpu",
            "reduce_bucket_elements": 200000000,
            "precision": "master",
            "optimizer": "adamw",
        },
        flags=(("HOST_MEMORY", "host memory"),),
        only=("HOST_MEMORY",),
    ),
    Sample(
        name="ds_bad.json",
        text="""\
{
  "train_batch_size": 100,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": 2,
  "fp16": {"enabled": true},
  "bf16": {"enabled": true},
  "zero_optimisation": {"stage": 3},
  "zero_optimization": {"stage": 3, "offload_optimiser": {"device": "cpu"}}
}""",
        settings={"strategy": "zero3", "micro_batch": 8, "world_size": None, "precision": None},
        flags=(
            ("BATCH_DOES_NOT_DIVIDE", "100"),
            ("CONFLICT", "fp16 and bf16"),
            ("UNKNOWN_KEY", "offload_optimiser"),
            ("UNKNOWN_KEY", "zero_optimisation"),
        ),
        stops=("BATCH_DOES_NOT_DIVIDE", "CONFLICT"),
    ),
    Sample(
        name="ds_comment.json",
        text="""\
// tuned for 4x A10
{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {
    "stage": 2, /* was 3 */
    "offload_param": {"device": "nvme"},
  },
  "fp16": {"enabled": true},
}""",
        settings={"strategy": "zero2", "offload_params": None, "micro_batch": 1},
        flags=(("INEFFECTIVE", "offload_param"), ("EMPTY_VALUE", "nvme_path")),
    ),
    Sample(
        name="ds_inf.json",
        text="""\
{"bf16":{"enabled":"auto"},"zero_optimization":{"stage":3,"offload_param":{"device":"nvme","nvme_path":"/nvme0","buffer_count":5},"offload_optimizer":{"device":"nvme","nvme_path":"/nvme0"},"stage3_max_live_parameters":1e9,"zero_hpz_partition_size":8},"train_batch_size":"auto","train_micro_batch_size_per_gpu":"auto"}""",
        settings={
            "strategy": "zero3",
            "offload_params": "nvme",
            "offload_optimizer": "nvme",
            "max_live_elements": 1000000000,
            "micro_batch": None,
            "precision": None,
        },
        never=("COSTLY_PRECISION", "CONFLICT", "HOST_MEMORY"),
        says=("NVMe", "hpZ"),
        open=("train_batch_size",),
    ),
    Sample(
        name="ds_onebit.json",
        text="""\
{"train_batch_size":4096,"train_micro_batch_size_per_gpu":16,"optimizer":{"type":"OneBitAdam","params":{"lr":4e-4,"freeze_step":23000}},"fp16":{"enabled":true},"zero_optimization":{"stage":1}}""",
        settings={"strategy": "zero1"},
        flags=(("CONFLICT", "OneBitAdam"),),
        stops=("CONFLICT",),
        says=("256",),
    ),
    Sample(
        name="ds_mics.json",
        text="""\
{"train_micro_batch_size_per_gpu":2,"zero_optimization":{"stage":3,"mics_shard_size":8,"mics_hierarchical_params_gather":true},"steps_per_print":10,"wall_clock_breakdown":true}""",
        settings={"dp_shard": 8, "precision": "fp32"},
        flags=(("COSTLY_PRECISION", ""), ("SLOW_BY_DESIGN", "wall_clock")),
        says=("MiCS",),
    ),
    Sample(
        name="zero3_bom.json",
        text="""\ufeff{\r
  "bf16": {"enabled": true},\r
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}, "stage3_gather_16bit_weights_on_model_save": false},\r
  "train_batch_size": "auto", "gradient_accumulation_steps": 10, "train_micro_batch_size_per_gpu": "auto"\r
}\r
""",
        settings={
            "strategy": "zero3",
            "offload_params": "none",
            "offload_optimizer": "none",
            "accumulation_steps": 10,
            "precision": "master",
        },
        only=(),
    ),
    Sample(
        name="ds_stage_str.json",
        text="""\
{"train_micro_batch_size_per_gpu": "4", "zero_optimization": {"stage": "2", "cpu_offload": true}, "fp16": {"enabled": "true"}}""",
        settings={"strategy": "zero2", "micro_batch": 4, "offload_optimizer": "cpu", "precision": "master"},
    ),
    Sample(
        name="ds_dup.json",
        text="""\
{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1, "stage": 2}, "bf16": {"enabled": true}}""",
        settings={"strategy": "zero2"},
        flags=(("CONFLICT", "twice"),),
        says=("= 8",),
    ),
    Sample(
        name="ds_ulysses.json",
        text="""\
{"train_micro_batch_size_per_gpu":1,"sequence_parallel_size":4,"zero_optimization":{"stage":3},"bf16":{"enabled":true},"torch_autocast":{"enabled":false}}""",
        settings={"cp": 4, "strategy": "zero3", "micro_batch": 1},
        only=(),
    ),
    Sample(
        name="ds_misplaced.json",
        text="""\
{"train_micro_batch_size_per_gpu":1,"stage":3,"bf16":{"enabled":true},"offload_optimizer":{"device":"cpu"}}""",
        flags=(("UNKNOWN_KEY", "stage"), ("UNKNOWN_KEY", "offload_optimizer")),
    ),
    Sample(
        name="ds_fp32_lamb.json",
        text="""\
{"train_micro_batch_size_per_gpu":1,"optimizer":{"type":"Lamb","params":{}},"fp16":{"enabled":true},"zero_optimization":{"stage":2}}""",
        settings={"optimizer": "lamb"},
        flags=(("CONFLICT", "zero_allow_untested_optimizer"),),
    ),
)

ACCELERATE = (
    Sample(
        name="acc_hybrid.yaml",
        text="""\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
fsdp_config:
  fsdp_sharding_strategy: 4
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_offload_params: true
  fsdp_activation_checkpointing: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
machine_rank: 0
main_process_ip: <MASTER_IP>
main_process_port: 29500
num_machines: 4
num_processes: 32
rdzv_backend: static
""",
        settings={
            "world_size": 32,
            "num_nodes": 4,
            "gpus_per_node": 8,
            "dp_shard": 8,
            "dp_replicate": 4,
            "checkpointing": "full",
            "strategy": "fsdp2",
            "offload_params": "cpu",
            "precision": "mixed",
        },
        flags=(
            ("PLACEHOLDER_ADDRESS", "main_process_ip"),
            ("SAME_ON_EVERY_NODE", "machine_rank"),
            ("HOST_MEMORY", ""),
        ),
        stops=("PLACEHOLDER_ADDRESS",),
    ),
    Sample(
        name="acc_mesh.yaml",
        text="""\
distributed_type: FSDP
mixed_precision: 'bf16'
num_machines: 2
num_processes: 16
machine_rank: $RANK_NODE
main_process_ip: node-0.cluster.local
fsdp_config:
  fsdp_version: 2
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_reshard_after_forward: false
  fsdp_use_orig_params: true
parallelism_config:
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
  parallelism_config_cp_size: 1
""",
        settings={"reshard_after_forward": False, "tp": 2, "dp_shard": 4},
        flags=(("MESH_DOES_NOT_DIVIDE", "8"), ("INEFFECTIVE", "sharding_strategy")),
        stops=("MESH_DOES_NOT_DIVIDE",),
        never=("PLACEHOLDER_ADDRESS", "SAME_ON_EVERY_NODE"),
    ),
    Sample(
        name="acc_ds.yaml",
        text="""\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 8
  offload_optimizer_device: cpu
  offload_param_device: cpu
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
gpu_ids: 0,1
mixed_precision: fp16
num_machines: 1
num_processes: 4
""",
        settings={
            "strategy": "zero3",
            "offload_params": "cpu",
            "offload_optimizer": "cpu",
            "accumulation_steps": 8,
            "world_size": 4,
            "precision": "master",
        },
        flags=(("MORE_RANKS_THAN_DEVICES", "4 ranks"), ("HOST_MEMORY", "")),
        stops=("MORE_RANKS_THAN_DEVICES",),
    ),
    Sample(
        name="acc_dsfile.yaml",
        text="""\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  deepspeed_config_file: configs/zero3.json
  zero3_init_flag: true
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 8
""",
        settings={"strategy": None, "world_size": 8},
        flags=(("CONFLICT", "deepspeed_config_file"),),
        open=("configs/zero3.json",),
    ),
    Sample(
        name="acc_div.yaml",
        text="""\
distributed_type: MULTI_GPU
mixed_precision: no
num_machines: 3
num_proceses: 8
num_processes: 8
main_process_ip: 10.1.2.3
machine_rank: 5
""",
        settings={"num_nodes": 3, "precision": "fp32"},
        flags=(
            ("MESH_DOES_NOT_DIVIDE", "3 machines"),
            ("UNKNOWN_KEY", "num_proceses"),
            ("CONFLICT", "machine_rank"),
        ),
    ),
    Sample(
        name="acc_no.yaml",
        text="""\
compute_environment: LOCAL_MACHINE
distributed_type: 'NO'
mixed_precision: bf16
num_processes: 4
num_machines: 1
use_cpu: false
""",
        settings={"world_size": 1},
        flags=(("INEFFECTIVE", "NO starts one"),),
        only=("INEFFECTIVE",),
    ),
    Sample(
        name="acc_tab.yaml",
        text="""\
distributed_type: MULTI_GPU
mixed_precision: bf16
fsdp_config:
\tfsdp_version: 1
num_processes: 4
""",
        settings={"world_size": 4},
        flags=(("CONFLICT", "tab"),),
    ),
    Sample(
        name="acc_meg.yaml",
        text="""\
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 2
  megatron_lm_pp_degree: 4
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 1
  megatron_lm_use_distributed_optimizer: true
mixed_precision: bf16
num_machines: 1
num_processes: 6
""",
        settings={
            "strategy": "megatron-distopt",
            "tp": 1,
            "pp": 4,
            "precision": "master",
            "checkpointing": "selective",
        },
        flags=(("INEFFECTIVE", "sequence parallelism"), ("MESH_DOES_NOT_DIVIDE", "4")),
        stops=("MESH_DOES_NOT_DIVIDE",),
    ),
    Sample(
        name="acc.json",
        text="""\
{"compute_environment":"LOCAL_MACHINE","distributed_type":"MULTI_GPU","mixed_precision":"bf16","num_processes":8,"num_machines":1,"machine_rank":0,"use_cpu":false}""",
        settings={"world_size": 8, "strategy": "ddp", "precision": "mixed", "gpus_per_node": 8},
        only=(),
    ),
    Sample(
        name="acc_anchor.yaml",
        text="""\
x-common: &c
  fsdp_version: 2
  fsdp_reshard_after_forward: true
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  <<: *c
  fsdp_offload_params: false
""",
        settings={"strategy": "fsdp2", "reshard_after_forward": True, "world_size": 8},
        flags=(("UNKNOWN_KEY", "x-common"),),
    ),
    Sample(
        name="acc_multi_missing_ip.yaml",
        text="""\
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 2, offload_param_device: cpu, offload_optimizer_device: none, gradient_accumulation_steps: 1}
mixed_precision: bf16
num_machines: 2
num_processes: 16
main_process_ip:
machine_rank: 0
""",
        settings={"strategy": "zero2", "offload_params": None, "offload_optimizer": "none"},
        flags=(("INEFFECTIVE", "offload_param_device"), ("EMPTY_VALUE", "main_process_ip")),
    ),
    Sample(
        name="acc_localhost.yaml",
        text="""\
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 2
num_processes: 16
main_process_ip: 127.0.0.1
main_process_port: 29500
machine_rank: 1
rdzv_backend: c10d
""",
        settings={"world_size": 16},
        flags=(("PLACEHOLDER_ADDRESS", "127.0.0.1"),),
        never=("SAME_ON_EVERY_NODE",),
    ),
    Sample(
        name="acc_fp8.yaml",
        text="""\
distributed_type: FSDP
mixed_precision: fp8
fp8_config: {backend: TE, fp8_format: HYBRID}
num_processes: 8
fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_auto_wrap_policy: NO_WRAP}
""",
        settings={"fp8": True, "reshard_after_forward": False, "precision": "mixed"},
        flags=(("INEFFECTIVE", "wrapping"),),
    ),
)

TRAINER = (
    Sample(
        name="sft.yaml",
        text="""\
model_name_or_path: mistralai/Mistral-7B-v0.1
torch_dtype: bfloat16
dataset_name: HuggingFaceH4/ultrachat_200k
bf16: true
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
learning_rate: 2.0e-05
max_seq_length: 2048
per_device_train_batch_size: 8
gradient_accumulation_steps: 2
use_liger_kernel: true
optim: adamw_torch
packing: true
""",
        settings={
            "micro_batch": 8,
            "accumulation_steps": 2,
            "seq_len": 2048,
            "precision": "pure16",
            "checkpointing": "full",
            "fused_loss": True,
            "optimizer": "adamw",
            "optimizer_loop": "foreach",
        },
        model="mistral-7b",
        open=("number of ranks",),
        only=(),
    ),
    Sample(
        name="args.json",
        text="""\
{"model_name_or_path":"meta-llama/Llama-2-13b-hf","per_device_train_batch_size":1,"gradient_accumulation_steps":16,"bf16":true,"fsdp":"shard_grad_op auto_wrap offload","fsdp_config":{"activation_checkpointing":true,"transformer_layer_cls_to_wrap":["LlamaDecoderLayer"]},"gradient_checkpointing":true,"optim":"adamw_torch_fused","model_max_length":4096}""",
        settings={
            "strategy": "fsdp2",
            "reshard_after_forward": False,
            "offload_params": "cpu",
            "precision": "mixed",
            "seq_len": 4096,
        },
        model="llama2-13b",
        flags=(("CONFLICT", "two kinds"), ("HOST_MEMORY", "")),
        stops=("CONFLICT",),
    ),
    Sample(
        name="log.txt",
        text="""\
2024-05-01 12:00:00 INFO Training/evaluation parameters TrainingArguments(
_n_gpu=1,
adafactor=False,
bf16=True,
deepspeed=None,
fp16=False,
fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>],
fsdp_config={'min_num_params': 0, 'xla': False, 'transformer_layer_cls_to_wrap': ['LlamaDecoderLayer']},
gradient_accumulation_steps=8,
gradient_checkpointing=False,
local_rank=0,
optim=OptimizerNames.ADAMW_TORCH,
per_device_train_batch_size=4,
torch_compile=False,
)
loading...
""",
        settings={
            "micro_batch": 4,
            "accumulation_steps": 8,
            "strategy": "fsdp2",
            "optimizer": "adamw",
            "precision": "mixed",
            "checkpointing": "none",
        },
        only=(),
    ),
    Sample(
        name="grpo.yaml",
        text="""\
# Model arguments
model_name_or_path: Qwen/Qwen2.5-Math-7B
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2
# GRPO trainer config
bf16: true
use_vllm: true
do_eval: true
gradient_accumulation_steps: 8
gradient_checkpointing: true
max_prompt_length: 512
max_completion_length: 1024
num_generations: 7
per_device_train_batch_size: 16
""",
        settings={"micro_batch": 16, "accumulation_steps": 8, "checkpointing": "full", "attention": "flash"},
        never=("COSTLY_PRECISION", "CONFLICT"),
        open=("sequence length",),
    ),
    Sample(
        name="peft_args.json",
        text="""\
{"model_name_or_path":"tiiuae/falcon-7b","use_peft":true,"lora_r":16,"lora_target_modules":["query_key_value"],"load_in_8bit":true,"per_device_train_batch_size":4,"optim":"paged_adamw_32bit","fp16":true,"max_length":512}""",
        settings={"optimizer": "adamw", "seq_len": 512, "micro_batch": 4},
        says=("8-bit base",),
    ),
    Sample(
        name="unknown_opt.yaml",
        text="""\
model_name_or_path: gpt2-xl
per_device_train_batch_size: 4
optim: some_new_optimizer
bf16: "{{ use_bf16 }}"
learning_rate: 1e-5
output_dir: out
""",
        settings={"optimizer": None, "precision": None, "micro_batch": 4},
        never=("COSTLY_PRECISION",),
        open=("some_new_optimizer",),
    ),
)

SCRIPTS = (
    Sample(
        name="run.sh",
        text="""\
#!/bin/bash
export NCCL_DEBUG=WARN
GPUS_PER_NODE=8
NNODES=2
BS=4
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK \\
  --master_addr 10.0.0.11 --master_port 29500 \\
  train.py \\
  --model_name_or_path Qwen/Qwen2.5-7B-Instruct \\
  --deepspeed configs/ds_z3.json \\
  --bf16 True --per_device_train_batch_size ${BS} \\
  --gradient_accumulation_steps 4 --model_max_length 8192 \\
  --gradient_checkpointing True --optim adamw_torch
""",
        settings={
            "world_size": 16,
            "num_nodes": 2,
            "gpus_per_node": 8,
            "micro_batch": 4,
            "accumulation_steps": 4,
            "seq_len": 8192,
            "checkpointing": "full",
            "precision": "master",
        },
        model="qwen2.5-7b",
        never=("PLACEHOLDER_ADDRESS",),
        open=("configs/ds_z3.json",),
    ),
    Sample(
        name="ds_launch.sh",
        text="""\
deepspeed --num_gpus=4 finetune.py --model_name_or_path huggyllama/llama-65b --use_lora True --lora_r 64 --load_in_4bit True \\
 --per_device_train_batch_size 2 --fp16 True --max_length 1024 --optim paged_adamw_8bit
""",
        settings={"world_size": 4, "micro_batch": 2, "optimizer": "adamw-8bit", "seq_len": 1024},
        model="llama1-65b",
        says=("4-bit base", "rank 64"),
    ),
    Sample(
        name="acc_launch.sh",
        text="""\
#!/usr/bin/env bash
set -euo pipefail
accelerate launch --num_processes 16 --num_machines 2 --machine_rank 0 --main_process_ip MASTER_NODE_IP --main_process_port 29501 \\
  --mixed_precision bf16 --use_fsdp --fsdp_sharding_strategy FULL_SHARD --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP \\
  sft.py --model_name_or_path google/gemma-2-9b --per_device_train_batch_size 1 --max_seq_length 4096 --bf16
""",
        settings={
            "world_size": 16,
            "num_nodes": 2,
            "gpus_per_node": 8,
            "strategy": "fsdp2",
            "micro_batch": 1,
        },
        model="gemma2-9b",
        flags=(("PLACEHOLDER_ADDRESS", "MASTER_NODE_IP"), ("SAME_ON_EVERY_NODE", "")),
    ),
    Sample(
        name="job.sbatch",
        text="""\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $head_node:29500 \\
   train.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 --bf16 --fsdp "full_shard auto_wrap" --max_seq_length 8192
""",
        settings={
            "world_size": 32,
            "num_nodes": 4,
            "gpus_per_node": 8,
            "strategy": "fsdp2",
            "reshard_after_forward": True,
        },
        model="llama3-8b",
        never=("PLACEHOLDER_ADDRESS", "SAME_ON_EVERY_NODE"),
    ),
    Sample(
        name="trl_cli.sh",
        text="""\
accelerate launch --config_file=examples/accelerate_configs/deepspeed_zero3.yaml --num_processes=7 \\
    src/open_r1/grpo.py --config recipes/Qwen2.5-Math-7B/grpo/config_simple_rl.yaml
""",
        settings={"world_size": 7},
        never=("COSTLY_PRECISION",),
        open=("deepspeed_zero3.yaml", "config_simple_rl.yaml"),
    ),
    Sample(
        name="lf_cli.sh",
        text="""\
FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=192.168.0.1 MASTER_PORT=29500 llamafactory-cli train examples/train_full/llama3_full_sft.yaml
""",
        settings={"num_nodes": 2},
        open=("llama3_full_sft.yaml",),
    ),
    Sample(
        name="axo_cli.sh",
        text="""\
#!/bin/bash
accelerate launch -m axolotl.cli.train examples/llama-3/lora-8b.yml
""",
        open=("lora-8b.yml",),
    ),
    Sample(
        name="visible.sh",
        text="""\
CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node=4 train.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --fp16
""",
        settings={"world_size": 4, "num_nodes": 1, "gpus_per_node": 4},
        flags=(("MORE_RANKS_THAN_DEVICES", "4 ranks"),),
    ),
    Sample(
        name="old.sh",
        text="""\
python -m torch.distributed.launch --nproc_per_node=8 --nnodes=2 --node_rank=0 --master_addr="10.0.0.1" --master_port=1234 run_clm.py \\
   --model_name_or_path facebook/opt-6.7b --fp16 --per_device_train_batch_size=4 --block_size 1024 --sharded_ddp simple
""",
        settings={"world_size": 16, "num_nodes": 2, "micro_batch": 4, "seq_len": 1024},
        flags=(("SAME_ON_EVERY_NODE", "node_rank"),),
        never=("PLACEHOLDER_ADDRESS",),
    ),
    Sample(
        name="ds_include.sh",
        text="""\
deepspeed --include="worker-0:0,1,2,3@worker-1:0,1" --master_port 29500 main.py --zero_stage 3 --offload --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --model_name_or_path facebook/opt-13b --dtype bf16 --max_seq_len 512
""",
        settings={"world_size": 6, "num_nodes": 2, "micro_batch": 8, "seq_len": 512, "strategy": "zero3"},
    ),
    Sample(
        name="elastic.sh",
        text="""\
torchrun --nnodes=1:4 --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-endpoint=localhost:29400 train.py --per_device_train_batch_size=1 --bf16=true
""",
        settings={"world_size": None, "num_nodes": None},
        open=("number of nodes",),
    ),
    Sample(
        name="hf_flag_sweep.sh",
        text="""\
#!/bin/bash
for LR in 1e-5 2e-5; do
  for BS in 4; do
    accelerate launch --num_processes 8 train.py --model_name_or_path Qwen/Qwen2-7B --per_device_train_batch_size $BS --learning_rate $LR --bf16 True --gradient_checkpointing True
  done
done
""",
        settings={"world_size": 8, "micro_batch": 4, "checkpointing": "full"},
    ),
)

KUBERNETES = (
    Sample(
        name="ptj.yaml",
        text="""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: sft-8b}
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec:
          containers:
          - name: pytorch
            image: repo/train:1
            command: ["torchrun", "train.py", "--per_device_train_batch_size", "2", "--bf16", "--model_name_or_path", "meta-llama/Meta-Llama-3-8B", "--max_seq_length=4096"]
            resources: {limits: {nvidia.com/gpu: 4, memory: 256Gi}}
            volumeMounts: [{mountPath: /dev/shm, name: dshm}]
          volumes:
          - name: dshm
            emptyDir: {medium: Memory, sizeLimit: 64Gi}
    Worker:
      replicas: 3
      template:
        spec:
          containers:
          - name: pytorch
            image: repo/train:1
            command: ["torchrun", "train.py", "--per_device_train_batch_size", "2", "--bf16", "--model_name_or_path", "meta-llama/Meta-Llama-3-8B", "--max_seq_length=4096"]
            resources: {limits: {nvidia.com/gpu: 4, memory: 256Gi}}
            volumeMounts: [{mountPath: /dev/shm, name: dshm}]
          volumes:
          - name: dshm
            emptyDir: {medium: Memory, sizeLimit: 64Gi}
""",
        settings={"num_nodes": 4, "gpus_per_node": 8, "world_size": 32, "micro_batch": 2, "seq_len": 4096},
        model="llama3-8b",
        flags=(("MORE_RANKS_THAN_DEVICES", "8 ranks"),),
        stops=("MORE_RANKS_THAN_DEVICES",),
        never=("HOST_MEMORY", "SLOW_BY_DESIGN"),
    ),
    Sample(
        name="job.yaml",
        text="""\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      containers:
      - name: main
        image: img
        env:
        - {name: MASTER_ADDR, value: train-0.train}
        - {name: NODE_RANK, value: "0"}
        - {name: PYTORCH_CUDA_ALLOC_CONF, value: "expandable_segment:True"}
        command: ["bash", "-c"]
        args:
        - |
          set -e
          pip list
          torchrun --nnodes=2 --nproc_per_node=8 --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR train.py --model_name_or_path Qwen/Qwen2.5-32B --per_device_train_batch_size 1 --deepspeed ds.json
        resources:
          requests: {nvidia.com/gpu: 8}
          limits: {nvidia.com/gpu: 8}
""",
        settings={"num_nodes": 2, "gpus_per_node": 8, "world_size": 16, "micro_batch": 1},
        model="qwen2.5-32b",
        flags=(
            ("SAME_ON_EVERY_NODE", "NODE_RANK"),
            ("UNKNOWN_KEY", "expandable_segment"),
            ("HOST_MEMORY", "/dev/shm"),
        ),
    ),
    Sample(
        name="mpi.yaml",
        text="""\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            image: x
            command: [mpirun, -np, "32", --allow-run-as-root, -bind-to, none, -x, NCCL_DEBUG=INFO, python, train.py, --batch-size, "64"]
    Worker:
      replicas: 2
      template:
        spec:
          hostIPC: true
          containers:
          - name: w
            image: x
            resources: {limits: {nvidia.com/gpu: 8}}
""",
        settings={"num_nodes": 2},
        flags=(("MORE_RANKS_THAN_DEVICES", "32 ranks"),),
        stops=("MORE_RANKS_THAN_DEVICES",),
        never=("HOST_MEMORY",),
    ),
    Sample(
        name="helm.yaml",
        text="""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {{ .Release.Name }}-train
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: {{ .Values.nodes }}
        completions: {{ .Values.nodes }}
        template:
          spec:
            {{- if .Values.hostNetwork }}
            hostNetwork: true
            {{- end }}
            containers:
            - name: train
              image: "{{ .Values.image }}"
              command: ["torchrun", "--nproc-per-node={{ .Values.gpus }}", "--nnodes={{ .Values.nodes }}", "train.py"]
              resources:
                limits:
                  nvidia.com/gpu: {{ .Values.gpus | default 8 }}
""",
        settings={"world_size": None, "num_nodes": None},
        open=("nodes",),
    ),
    Sample(
        name="tj.yaml",
        text="""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: ft}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: img
    numNodes: 2
    numProcPerNode: 4
    resourcesPerNode: {limits: {nvidia.com/gpu: 4}, requests: {nvidia.com/gpu: 4}}
    command: [torchrun, train.py, --per_device_train_batch_size=4, --bf16=True, --model_name_or_path=Qwen/Qwen3-4B]
""",
        settings={"num_nodes": 2, "gpus_per_node": 4, "world_size": 8, "micro_batch": 4},
        model="qwen3-4b",
        never=("MORE_RANKS_THAN_DEVICES", "HOST_MEMORY", "INEFFECTIVE"),
    ),
    Sample(
        name="sts.yaml",
        text="""\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: trainer}
spec:
  replicas: 4
  serviceName: trainer
  template:
    spec:
      containers:
      - name: t
        image: i
        env:
        - {name: MASTER_ADDR, value: localhost}
        command: ["torchrun"]
        args: ["--nnodes=8", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=$(MASTER_ADDR):29400", "main.py"]
        resources: {limits: {nvidia.com/gpu: 8}}
        volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes: [{name: shm, emptyDir: {}}]
""",
        flags=(
            ("MESH_DOES_NOT_DIVIDE", "8 nodes"),
            ("INEFFECTIVE", "8 GPUs"),
            ("SLOW_BY_DESIGN", "emptyDir"),
            ("PLACEHOLDER_ADDRESS", ""),
        ),
        stops=("PLACEHOLDER_ADDRESS",),
    ),
    Sample(
        name="cm.yaml",
        text="""\
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data:
  ds_config.json: |
    {
      "train_micro_batch_size_per_gpu": 2,
      "gradient_accumulation_steps": 4,
      "bf16": {"enabled": true},
      "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    }
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: ft}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: i
            command: [torchrun, --nproc_per_node=8, --nnodes=2, train.py, --deepspeed=/conf/ds_config.json, --model_name_or_path=meta-llama/Llama-2-70b-hf, --per_device_train_batch_size=2, --bf16]
            resources: {limits: {nvidia.com/gpu: "8", memory: 400Gi}}
            volumeMounts: [{name: s, mountPath: /dev/shm}]
          volumes: [{name: s, emptyDir: {medium: Memory}}]
""",
        settings={
            "strategy": "zero3",
            "offload_optimizer": "cpu",
            "world_size": 16,
            "micro_batch": 2,
            "num_nodes": 2,
        },
        model="llama2-70b",
    ),
    Sample(
        name="ray.yaml",
        text="""\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: rl}
spec:
  entrypoint: python train.py --num-workers 16
  rayClusterSpec:
    headGroupSpec:
      template: {spec: {containers: [{name: head, image: r}]}}
    workerGroupSpecs:
    - groupName: gpu
      replicas: 2
      template:
        spec:
          containers:
          - name: w
            image: r
            resources: {limits: {nvidia.com/gpu: 8}}
""",
        settings={"world_size": None},
        open=("number of ranks",),
    ),
    Sample(
        name="volcano.yaml",
        text="""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: v}
spec:
  minAvailable: 3
  tasks:
  - name: master
    replicas: 1
    template:
      spec:
        containers:
        - {name: m, image: i, command: [sh, -c, "torchrun --nnodes=3 --nproc_per_node=8 --node_rank=${VC_TASK_INDEX} --master_addr=${MASTER} t.py"], resources: {limits: {nvidia.com/gpu: 8}}}
  - name: worker
    replicas: 2
    template:
      spec:
        containers:
        - {name: m, image: i, command: [sh, -c, "torchrun --nnodes=3 --nproc_per_node=8 --node_rank=${VC_TASK_INDEX} --master_addr=${MASTER} t.py"], resources: {limits: {nvidia.com/gpu: 8}}}
""",
        settings={"num_nodes": 3, "gpus_per_node": 8, "world_size": 24},
        never=("MESH_DOES_NOT_DIVIDE",),
    ),
    Sample(
        name="pod_oneproc.yaml",
        text="""\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: i
    command: ["python", "train.py", "--per_device_train_batch_size=4", "--bf16", "--model_name_or_path=Qwen/Qwen3-0.6B"]
    resources:
      requests: {nvidia.com/gpu: 4}
""",
        settings={"micro_batch": 4},
        flags=(("CONFLICT", "limit"),),
        stops=("CONFLICT",),
    ),
    Sample(
        name="ptj_env.yaml",
        text="""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: i, args: ["--backend", "nccl"], resources: {limits: {nvidia.com/gpu: 1}}}]}}}
    Worker: {replicas: 3, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: i, args: ["--backend", "nccl"], resources: {limits: {nvidia.com/gpu: 1}}}]}}}
""",
        settings={"num_nodes": 4},
    ),
)

AXOLOTL_LF = (
    Sample(
        name="axo1.yml",
        text="""\
base_model: NousResearch/Llama-2-7b-hf
load_in_8bit: true
load_in_4bit: false
datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
adapter: lora
lora_r: 32
lora_alpha: 16
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
flash_attention: true
""",
        settings={
            "micro_batch": 2,
            "accumulation_steps": 4,
            "seq_len": 4096,
            "optimizer": "adamw-8bit",
            "checkpointing": "full",
            "attention": "flash",
        },
        model="llama2-7b",
        says=("8-bit base", "8192 tokens"),
        open=("number of ranks",),
        only=(),
    ),
    Sample(
        name="axo2.yml",
        text="""\
base_model: Qwen/Qwen2.5-72B
datasets: [{path: x, type: alpaca}]
adapter: qlora
load_in_8bit: true
lora_r: 16
lora_target_modules: [q_proj, v_proj]
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_bnb_8bit
bf16: true
fsdp_version: 2
fsdp_config:
  offload_params: false
  reshard_after_forward: true
deepspeed: deepspeed_configs/zero3.json
""",
        settings={"micro_batch": 1},
        model="qwen2.5-72b",
        flags=(("CONFLICT", "qlora"), ("CONFLICT", "deepspeed and fsdp")),
        stops=("CONFLICT",),
    ),
    Sample(
        name="lf.yaml",
        text="""\
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
deepspeed: examples/deepspeed/ds_z3_config.json
### dataset
dataset: identity
template: llama3
cutoff_len: 2048
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
bf16: true
ddp_timeout: 180000000
""",
        settings={
            "micro_batch": 1,
            "accumulation_steps": 2,
            "seq_len": 2048,
            "checkpointing": "full",
            "precision": "master",
        },
        model="llama3-8b",
        says=("rank 8",),
        open=("ds_z3_config.json",),
        only=(),
    ),
    Sample(
        name="lf2.yaml",
        text="""\
model_name_or_path: Qwen/Qwen2.5-14B
stage: sft
finetuning_type: full
quantization_bit: 4
template: qwen
cutoff_len: 4096
per_device_train_batch_size: 2
pure_bf16: true
enable_liger_kernel: true
flash_attn: fa2
""",
        settings={"precision": "pure16", "fused_loss": True, "attention": "flash"},
        model="qwen2.5-14b",
        flags=(("CONFLICT", "quantised"),),
        stops=("CONFLICT",),
    ),
    Sample(
        name="axo_ds.yml",
        text="""\
base_model: mistralai/Mixtral-8x7B-v0.1
datasets: [{path: a, type: b}]
sequence_len: 4096
sample_packing: true
adapter: qlora
load_in_4bit: true
lora_r: 32
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
flash_attention: true
deepspeed: deepspeed_configs/zero2.json
""",
        settings={"optimizer": "adamw-8bit", "micro_batch": 2, "precision": "master"},
        model="mixtral-8x7b",
        open=("zero2.json",),
        only=(),
    ),
    Sample(
        name="axo_cp.yml",
        text="""\
base_model: meta-llama/Llama-3.2-1B
datasets: [{path: a, type: b}]
context_parallel_size: 4
sequence_len: 32768
micro_batch_size: 2
gradient_accumulation_steps: 1
flash_attention: true
bf16: true
fp16: true
optimizer: adamw_torch_fused
chunked_cross_entropy: true
""",
        settings={"cp": 4, "seq_len": 32768, "fused_loss": True},
        flags=(("CONFLICT", "context parallelism"), ("CONFLICT", "bf16 and fp16")),
    ),
    Sample(
        name="lf_fsdp.yaml",
        text="""\
model_name_or_path: 01-ai/Yi-34B
stage: pt
finetuning_type: freeze
freeze_trainable_layers: 2
template: yi
fsdp: full_shard auto_wrap
fsdp_config: examples/fsdp.json
per_device_train_batch_size: 1
fp16: true
disable_gradient_checkpointing: true
""",
        settings={"strategy": "fsdp2", "checkpointing": "none", "seq_len": 2048, "precision": "mixed"},
        open=("examples/fsdp.json",),
    ),
)

NEWER = (
    Sample(
        name="autoep.json",
        text="""\
{
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 1},
  "expert_parallel": {"enabled": true, "autoep_size": 4}
}
""",
        settings={"ep": 4, "strategy": "zero1"},
        only=(),
        says=("AutoEP",),
    ),
    Sample(
        name="axo_experts.yml",
        text="""\
base_model: Qwen/Qwen3-30B-A3B
datasets: [{path: a, type: b}]
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 1
bf16: true
expert_parallel_size: 4
dp_shard_size: 2
fsdp_version: 2
fsdp_config: {reshard_after_forward: true}
""",
        settings={"ep": 4, "world_size": 8, "dp_shard": None},
        model="qwen3-30b-a3b",
        only=(),
        says=("dp_shard 2 x ep 4 = 8 ranks",),
    ),
    Sample(
        name="chat.yaml",
        text="""\
model_name_or_path: Qwen/Qwen3-4B
chat_template: "{% for m in messages %}\\n{{ '<|' + m['role'] + '|>\\n' }}{% endfor %}"
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
max_length: 65536
""",
        settings={"micro_batch": 1, "seq_len": 65536, "strategy": "ddp"},
        model="qwen3-4b",
        only=(),
    ),
    Sample(
        name="writes_its_own.sh",
        text="""\
#!/bin/bash
cat > ds.json <<EOF
{
  "bf16": {"enabled": true},
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": 2}
}
EOF
deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path Qwen/Qwen3-4B --per_device_train_batch_size 2
""",
        settings={"world_size": 8, "strategy": "zero2", "micro_batch": 2, "precision": "master"},
        model="qwen3-4b",
        only=(),
    ),
    Sample(
        name="cpu_job.yaml",
        text="""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: elastic}
spec:
  elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 3}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: i
            resources: {requests: {cpu: 4}}
            command: [python, -m, torch.distributed.run, train.py, --batch-size=32]
""",
        settings={"num_nodes": 2, "world_size": 2},
        only=(),
        says=("elastic", "2 nodes x 1 rank = 2"),
    ),
)

ALL = (*NEWER, *DEEPSPEED, *ACCELERATE, *TRAINER, *SCRIPTS, *KUBERNETES, *AXOLOTL_LF)
