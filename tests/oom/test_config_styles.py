"""Many ways to write the same launch: each with what a careful reader would say of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.read import best_reader
from distdoctor.oom.facts.launch import Defect

M = "Megatron-LM script"


@dataclass
class Case:
    name: str
    text: str
    reader: str
    size: float | None = None
    """Billions of parameters; None where the file does not decide them."""
    defects: tuple[Defect, ...] = ()
    opens: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


CASES: list[Case] = []


def case(
    name: str,
    text: str,
    reader: str,
    *,
    size: float | None = None,
    defects: Any = (),
    opens: Any = (),
    unset: Any = (),
    **settings: Any,
) -> None:
    CASES.append(Case(name, text, reader, size, tuple(defects), tuple(opens), tuple(unset), settings))


case(
    "functions.sh",
    r"""#!/bin/bash
set -euo pipefail
readonly NPROC=8
model_args() {
  case "$1" in
    small) echo "--num-layers 12 --hidden-size 768 --num-attention-heads 12" ;;
    *) echo "unknown" >&2; exit 1 ;;
  esac
}
launch() {
  local nodes=$1; shift
  torchrun --nproc-per-node "$NPROC" --nnodes "$nodes" pretrain_gpt.py \
    --num-layers 12 --hidden-size 768 --num-attention-heads 12 \
    --seq-length 1024 --max-position-embeddings 1024 \
    --micro-batch-size 8 --global-batch-size 64 --fp16 \
    --tensor-model-parallel-size 1 "$@"
}
main() {
  launch "${NODES:-2}" --use-distributed-optimizer
}
main "$@"
""",
    M,
    size=0.125,
    defects=[Defect.BATCH_DOES_NOT_DIVIDE],
    world_size=16,
    tp=1,
    strategy="megatron-distopt",
    precision="master",
)

case(
    "sweep.sh",
    r"""#!/bin/bash
for MBS in 1 2 4; do
  for TP in 2; do
    torchrun --standalone --nproc_per_node=8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
     --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size $MBS --global-batch-size 64 --bf16 \
     --tensor-model-parallel-size $TP --exit-interval 10
  done
done
""",
    M,
    size=1.3,
    defects=[],
    opens=["--micro-batch-size"],
    unset=["micro_batch"],
    world_size=8,
    tp=2,
)

case(
    "meg_ds_zero2.sh",
    r"""#!/bin/bash
cat <<EOF > ds.json
{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": { "stage": 1 },
  "fp16": { "enabled": true }
}
EOF
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py \
  --tensor-model-parallel-size 1 --no-pipeline-parallel \
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 \
  --micro-batch-size 4 --global-batch-size 64 --fp16 \
  --deepspeed --deepspeed_config ds.json --zero-stage 2 --checkpoint-activations
""",
    M,
    size=0.355,
    defects=[Defect.CONFLICT],
    world_size=16,
    strategy="zero2",
    checkpointing="full",
    tp=1,
)

case(
    "typo.sh",
    r"""#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=4
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODE pretrain_gpt.py \
 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 \
 --micro-batch-size 1 --global-batch-size 128 --bf16 --tensor-model-parallel-size 2
""",
    M,
    size=6.67,
    defects=[Defect.UNSET_VARIABLE],
    opens=["number of ranks"],
    unset=["world_size"],
    tp=2,
    gpus_per_node=8,
)

case(
    "srun_direct.sbatch",
    r"""#!/bin/bash
#SBATCH --job-name=qwen3-30b-a3b
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
export CUDA_DEVICE_MAX_CONNECTIONS=1
IMG=nvcr.io/nvidia/pytorch:25.04-py3
OPTS="--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --kv-channels 128 \
  --group-query-attention --num-query-groups 4 --qk-layernorm --seq-length 4096 --max-position-embeddings 40960 \
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope \
  --num-experts 128 --moe-ffn-hidden-size 768 --moe-router-topk 8 --moe-grouped-gemm --moe-layer-freq ([1]*48) \
  --vocab-size 151936 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --expert-model-parallel-size 8 \
  --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 256 --bf16"
srun --container-image=$IMG bash -c "cd /opt/megatron && python pretrain_gpt.py $OPTS"
""",
    M,
    size=30.5,
    defects=[Defect.CONFLICT],
    world_size=32,
    tp=2,
    pp=2,
    ep=8,
    strategy="megatron-distopt",
)

case(
    "quoted_freq.sh",
    r"""#!/bin/bash
MOE=(
  --num-experts 64
  --moe-layer-freq "([0]*1+[1]*26)"
  --moe-ffn-hidden-size 1408
  --moe-shared-expert-intermediate-size 2816
  --moe-router-topk 6
)
MLA=(--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128)
torchrun --nproc_per_node 8 --nnodes ${NNODES:-2} --node_rank ${NODE_RANK} pretrain_gpt.py \
  --num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 "${MOE[@]}" "${MLA[@]}" \
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope \
  --vocab-size 102400 --seq-length 4096 --max-position-embeddings 163840 --bf16 \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --expert-model-parallel-size 8 --use-distributed-optimizer \
  --micro-batch-size 1 --global-batch-size 512 --recompute-granularity selective
""",
    M,
    size=15.7,
    defects=[],
    world_size=16,
    ep=8,
    checkpointing="selective",
)

case(
    "too_many.sbatch",
    r"""#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
NNODES=4
srun torchrun --nnodes=$NNODES --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --micro-batch-size 1 --global-batch-size 64 --bf16 --pipeline-model-parallel-size 4 --overlap-param-gather
""",
    M,
    size=6.67,
    defects=[Defect.CONFLICT, Defect.UNSET_VARIABLE],
    world_size=32,
    pp=4,
)

case(
    "docker.sh",
    r"""#!/bin/bash
docker run --gpus all --rm -v $PWD:/w nvcr.io/nvidia/pytorch:24.10-py3 bash -lc "
  cd /w && torchrun --nproc-per-node=4 pretrain_gpt.py \
  --num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
  --kv-channels 64 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --seq-length 8192 \
  --max-position-embeddings 131072 --vocab-size 128256 --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 \
  --micro-batch-size 1 --global-batch-size 8 --bf16 --use-distributed-optimizer"
""",
    M,
    size=1.24,
    defects=[],
    world_size=4,
    tp=2,
    cp=2,
    num_nodes=1,
)

case(
    "heredoc_args.sh",
    r"""#!/usr/bin/env bash
read -r -d '' MODEL <<'EOF'
--num-layers 60
--hidden-size 5120
--num-attention-heads 128
EOF
NODES_LIST=(2 4 8)
N=${NODES_LIST[1]}
TP=8
CMD=$(cat <<END
torchrun --nproc_per_node=8 --nnodes=$N --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR
  pretrain_gpt.py $MODEL --seq-length 4096 --max-position-embeddings 4096 --bf16
  --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 64 --vocab-size 102400
END
)
eval $CMD
""",
    M,
    size=19.42,
    defects=[],
    world_size=32,
    tp=8,
    num_nodes=4,
)

case(
    "crlf.sh",
    "#!/bin/bash\r\nGPUS=8\r\ntorchrun --nproc_per_node $GPUS pretrain_gpt.py \\\r\n\t--num-layers 12 \\\r\n\t--hidden-size 1024 \\\r\n\t--num-attention-heads 16 \\\r\n\t--seq-length 1024 --max-position-embeddings 1024 \\\r\n\t--micro-batch-size 4 --global-batch-size 32 --fp16\r\n",
    M,
    size=0.204,
    defects=[],
    world_size=8,
    micro_batch=4,
)

case(
    "prefix.sh",
    r"""#!/bin/bash
CUDA_LAUNCH_BLOCKING=1 NCCL_DEBUG=INFO torchrun --nproc_per_node=8 --nnodes=2 --node_rank=$NODE_RANK --master_addr=<MASTER_IP> --master_port=6000 pretrain_gpt.py \
 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 --bf16 --micro-batch-size 1 --global-batch-size 32
""",
    M,
    size=6.67,
    defects=[Defect.SLOW_BY_DESIGN, Defect.PLACEHOLDER_ADDRESS],
    world_size=16,
)

case(
    "mpi.sh",
    r"""#!/bin/bash
mpirun -np 32 --hostfile hosts -x PATH -x CUDA_DEVICE_MAX_CONNECTIONS=1 \
  python pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 \
  --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope --swiglu \
  --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
  --tokenizer-type Llama2Tokenizer --tokenizer-model /data/tok.model \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel \
  --num-layers-per-virtual-pipeline-stage 4 \
  --micro-batch-size 1 --global-batch-size 128 --bf16
""",
    M,
    size=6.74,
    defects=[],
    world_size=32,
    tp=4,
    pp=2,
    schedule="interleaved",
    virtual_stages=4,
    sequence_parallel=True,
)

case(
    "srun_single_quote.slurm",
    r"""#!/bin/bash
#SBATCH -J gpt-13b
#SBATCH -N 4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
#SBATCH -t 24:00:00
module load cuda/12.4
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export GPUS=4
export CUDA_DEVICE_MAX_CONNECTIONS=1
export LAUNCHER="python -m torch.distributed.run --nproc_per_node $GPUS --nnodes $SLURM_NNODES --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT --rdzv_backend c10d"
export ARGS="--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 512 --bf16 --tensor-model-parallel-size 4 --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID pretrain_gpt.py $ARGS' 2>&1 | tee out.log
""",
    M,
    size=12.85,
    defects=[],
    world_size=16,
    num_nodes=4,
    gpus_per_node=4,
    tp=4,
    checkpointing="full",
    global_batch=512,
)

case(
    "models/qwen3/config_registry.py",
    r"""from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.trainer import Trainer
from . import model_registry

def qwen3_32b() -> Trainer.Config:
    seq = 4096
    return Trainer.Config(
        hf_assets_path="./assets/hf/Qwen3-32B",
        model_spec=model_registry("32B"),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * seq, max_context_length=seq, steps=3000),
        parallelism=ParallelismConfig(data_parallel_shard_size=-1, tensor_parallel_size=2, pipeline_parallel_size=4,
            pipeline_parallel_schedule="1F1B", num_pp_microbatches=8, fsdp_reshard_after_forward="always"),
        activation_checkpoint=FullAC.Config(),
    )
""",
    "TorchTitan Python",
    size=32.8,
    defects=[],
    unset=["world_size"],
    tp=2,
    pp=4,
    micro_batch=2,
    seq_len=4096,
    accumulation_steps=8,
    reshard_after_forward=True,
    schedule="1f1b",
)

case(
    "override.yaml",
    r"""model:
  seq_length: 4096
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  recompute_granularity: full
train:
  train_iters: 100
  global_batch_size: 128
  micro_batch_size: 1
ddp:
  use_distributed_optimizer: true
mixed_precision: bf16_mixed
""",
    "Megatron-Bridge YAML",
    defects=[],
    opens=["the model", "number of ranks"],
    unset=["model", "world_size", "cp"],
    tp=4,
    pp=2,
    strategy="megatron-distopt",
    checkpointing="full",
)

case(
    "shift.sh",
    r"""#!/bin/bash
TP=2
PP=1
NODES=2
while [[ $# -gt 0 ]]; do
  case $1 in
    --tp) TP="$2"; shift 2 ;;
    --pp) PP="$2"; shift 2 ;;
    --nodes) NODES=$2; shift 2;;
    -h|--help) echo usage; exit 0 ;;
    *) echo "Unknown $1"; exit 1 ;;
  esac
done
WORLD=$((8 * NODES))
DP=$(( WORLD / (TP * PP) ))
GBS=$(( DP * 16 ))
torchrun --nproc_per_node 8 --nnodes $NODES --rdzv_backend c10d --rdzv_endpoint "${HEAD_NODE:-localhost}:29400" pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --micro-batch-size 2 --global-batch-size $GBS --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --bf16
""",
    M,
    size=6.67,
    defects=[],
    world_size=16,
    tp=2,
    pp=1,
    global_batch=128,
)

case(
    "assoc.sh",
    r"""#!/bin/bash
declare -A LAYERS=([7b]=32 [13b]=40 [70b]=80)
declare -A HID=([7b]=4096 [13b]=5120 [70b]=8192)
declare -A HEADS=([7b]=32 [13b]=40 [70b]=64)
SIZE=${SIZE:-13b}
torchrun --nproc_per_node=8 pretrain_gpt.py --num-layers ${LAYERS[$SIZE]} --hidden-size ${HID[$SIZE]} --num-attention-heads ${HEADS[$SIZE]} \
 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 --bf16 --tensor-model-parallel-size 4 \
 --pipeline-model-parallel-size 2
""",
    M,
    size=12.85,
    defects=[],
    world_size=8,
    tp=4,
    pp=2,
)

case(
    "dotenv.sh",
    r"""#!/bin/bash
set -a
. ./cluster.env
set +a
torchrun --nproc_per_node=$GPUS --nnodes=$NODES pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --tensor-model-parallel-size $TP
""",
    M,
    defects=[],
    opens=["number of ranks", "--tensor-model-parallel-size"],
    unset=["tp", "world_size"],
    size=1.3,
    micro_batch=1,
)

case(
    "pdsh.sh",
    r"""#!/bin/bash
HOSTS=(n1 n2 n3 n4)
N=${#HOSTS[@]}
for ((i=0; i<N; i++)); do
  ssh ${HOSTS[$i]} "cd /w && CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node 8 --nnodes $N --node_rank $i --master_addr ${HOSTS[0]} --master_port 6000 pretrain_gpt.py \
   --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
   --micro-batch-size 1 --global-batch-size 256 --bf16 --tensor-model-parallel-size 2 --use-distributed-optimizer" &
done
wait
""",
    M,
    size=6.67,
    defects=[],
    world_size=32,
    tp=2,
    strategy="megatron-distopt",
)

case(
    "template.sbatch",
    r"""#!/bin/bash
#SBATCH --nodes=__NODES__
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
srun python -u pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
 --micro-batch-size 1 --global-batch-size {{ gbs }} --bf16 --tensor-model-parallel-size 2 --sequence-parallel
""",
    M,
    size=6.67,
    defects=[],
    opens=["number of ranks"],
    unset=["world_size"],
    tp=2,
    gpus_per_node=8,
)

case(
    "nodes_known.sbatch",
    r"""#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gres=gpu:h100:8
NNODES=${SLURM_JOB_NUM_NODES:-2}
if [ "$NNODES" -le 4 ]; then TP=4; PP=2; GBS=288
elif [ "$NNODES" -ge 8 ]; then TP=8; PP=4; GBS=$((NNODES*8/32*576)); fi
declare -a RUN=( --nproc_per_node=8 --nnodes=$NNODES --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=$(hostname) )
srun -l python -m torch.distributed.run "${RUN[@]}" /opt/Megatron-LM/pretrain_gpt.py --num-layers 36 --hidden-size 4096 --num-attention-heads 32 \
 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size $GBS --fp16 --recompute-activations \
 --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --vocab-file /fsx/gpt2-vocab.json --merge-file /fsx/merges.txt
""",
    M,
    size=7.46,
    defects=[],
    world_size=128,
    tp=8,
    pp=4,
    global_batch=2304,
    checkpointing="selective",
)

case(
    "equals.sh",
    r"""
export OMP_NUM_THREADS=1
python -m torch.distributed.launch --nproc_per_node=4 --use_env pretrain_gpt.py --num-layers=12 --hidden-size=768 --num-attention-heads=12 \
 --seq-length=1024 --max-position-embeddings=1024 --micro-batch-size=8 --global-batch-size=64 --tensor-model-parallel-size=1 --fp16 --lr=1e-4
""",
    M,
    size=0.125,
    defects=[],
    world_size=4,
    micro_batch=8,
    global_batch=64,
)

case(
    "uneven_ok.sh",
    r"""#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 30 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
 --micro-batch-size 1 --global-batch-size 64 --bf16 --pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --rdzv-endpoint x:1
""",
    M,
    size=None,
    defects=[],
    world_size=16,
    pp=4,
)

case(
    "uneven_bad.sh",
    r"""#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 30 --hidden-size 4096 --num-attention-heads 30 --seq-length 2048 --max-position-embeddings 2048 \
 --micro-batch-size 1 --global-batch-size 64 --bf16 --pipeline-model-parallel-size 4 --tensor-model-parallel-size 2
""",
    M,
    size=None,
    defects=[Defect.MESH_DOES_NOT_DIVIDE],
    world_size=8,
    pp=4,
    tp=2,
)

case(
    "nohup.sh",
    r"""#!/bin/sh
LOG=log_$(date +%s).txt
nohup torchrun --nproc_per_node 8 \
   pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 \
   --seq-length 4096 --max-position-embeddings 4096 --swiglu --disable-bias-linear --position-embedding-type rope \
   --untie-embeddings-and-output-weights --normalization RMSNorm --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-2-7b-hf \
   --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer --overlap-grad-reduce > $LOG 2>&1 &
echo $! > pid && tail -f $LOG
""",
    M,
    size=6.74,
    defects=[],
    world_size=8,
    strategy="megatron-distopt",
)

case(
    "mini.toml",
    r"""[job]
dump_folder = "./out"
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 8192
mixed_precision_param = "float32"
enable_loss_parallel = false
tensor_parallel_degree = 2
""",
    "TorchTitan TOML",
    size=8.03,
    defects=[],
    unset=["world_size"],
    tp=2,
    precision="fp32",
    loss_parallel=False,
    micro_batch=2,
    strategy="fsdp2",
)

case(
    "models/llama3/custom.py",
    r"""from torchtitan.trainer import Trainer
from torchtitan.config import *
import os
TP = int(os.environ.get("TP", 8))
def _base(flavor, bs=4):
    return Trainer.Config(model_spec=model_registry(flavor), training=TrainingConfig(local_batch_size=bs, seq_len=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=TP), activation_checkpoint=ActivationCheckpointConfig(mode="full"))
def big() -> Trainer.Config:
    cfg = _base("70B", bs=2)
    if os.environ.get("LONG"):
        cfg.training.seq_len = 32768
    return cfg
""",
    "TorchTitan Python",
    size=70.55,
    defects=[],
    opens=["tensor_parallel_degree", "seq_len"],
    unset=["tp", "seq_len"],
    micro_batch=2,
    checkpointing="full",
)

case(
    "sft.yaml",
    r"""name: sft
trainer:
  devices: -1
  num_nodes: 2
  precision: bf16-mixed
exp_manager:
  name: x
model:
  tensor_model_parallel_size: ${oc.env:TP,4}
  pipeline_model_parallel_size: 1
  global_batch_size: 128
  micro_batch_size: 1
  restore_from_path: ???
  sequence_parallel: false
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 8
  peft:
    peft_scheme: lora
    lora_tuning:
      adapter_dim: 32
  optim:
    name: distributed_fused_adam
""",
    "NeMo YAML",
    defects=[],
    opens=["number of ranks"],
    unset=["world_size", "model"],
    tp=4,
    checkpointing="full",
    checkpoint_layers=8,
    strategy="megatron-distopt",
)


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_a_style_of_launching_is_read_as_a_careful_reader_would(each: Case) -> None:
    reader = best_reader(each.name, each.text)
    assert reader is not None
    assert reader.name == each.reader
    config = reader.read(each.name, each.text)
    for name, expected in each.settings.items():
        found = getattr(config.settings, name)
        assert getattr(found, "value", found) == expected, name
    for name in each.unset:
        assert getattr(config.settings, name) is None, name
    if each.size is not None:
        assert config.settings.model is not None
        assert (parameters_of(config.settings.model) or 0) / 1e9 == pytest.approx(each.size, rel=0.02)
    assert {defect.kind for defect in config.defects} == set(each.defects), config.defects
    for words in each.opens:
        assert any(words in point.what for point in config.open_points), config.open_points
