#!/bin/bash
export NCCL_IB_SL=1
export TRITON_CACHE_DIR=/tmp/triton_$SLURM_NODEID

# Set these before running
MEGATRON_PATH=${MEGATRON_PATH:-"path_to_megatron"}
OUT=${OUT:-"path_for_logs"}
USE_FSDP=${USE_FSDP:-1}
SHARDING=${SHARDING:-"optim_grads_params"}
PROFILE=${PROFILE:-0}
TP=${TP:-1}
EP=${EP:-8}
MBS=${MBS:-4}
GBS=${GBS:-2048}
NOTE=${NOTE:-""}

ARGS=(
    --tensor-model-parallel-size ${TP}
    --expert-model-parallel-size ${EP}
    --expert-tensor-parallel-size 1
    --context-parallel-size 1
    --use-distributed-optimizer
    --use-mcore-models
    --sequence-parallel
    --use-flash-attn
    --disable-bias-linear
    --micro-batch-size ${MBS}
    --global-batch-size ${GBS}
    --train-samples 585937500
    --recompute-granularity selective
    --recompute-modules mlp moe mla_up_proj layernorm
    --seq-length 4096
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model deepseek-ai/DeepSeek-V3
    --split 99,1,0
    --num-layers 61
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
    --kv-channels 128
    --max-position-embeddings 4096
    --position-embedding-type rope
    --make-vocab-size-divisible-by 3232
    --normalization RMSNorm
    --swiglu
    --untie-embeddings-and-output-weights
    --multi-latent-attention
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --qk-layernorm
    --lr-warmup-init 3.9e-7
    --num-experts 256
    --moe-layer-freq [0]*3+[1]*58
    --moe-ffn-hidden-size 2048
    --moe-shared-expert-intermediate-size 2048
    --moe-router-topk 8
    --moe-grouped-gemm
    --moe-router-topk-scaling-factor 2.5
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --mtp-num-layers 1
    --bf16
)

if [ "${USE_FSDP}" = 1 ]; then
    unset CUDA_DEVICE_MAX_CONNECTIONS
    ARGS=(
        "${ARGS[@]}"
        --use-megatron-fsdp
        --data-parallel-sharding-strategy ${SHARDING}
        --init-model-with-meta-device
        --ckpt-format fsdp_dtensor
    )
fi

if [ "${PROFILE}" = 1 ]; then
    PROFILE_CMD="nsys profile --trace=cuda,nvtx \
        -o ${OUT}/nsys/run-TP${TP}EP${EP}-${NOTE}"
    ARGS=(
        "${ARGS[@]}"
        --profile
        --profile-ranks 0
    )
else
    PROFILE_CMD=""
fi

RUN="
cd ${MEGATRON_PATH};
git rev-parse HEAD;
export PYTHONPATH=${MEGATRON_PATH}:${PYTHONPATH};
${PROFILE_CMD} python ${MEGATRON_PATH}/pretrain_gpt.py ${ARGS[@]}"

LOGS="${OUT}/slurm"
mkdir -p ${LOGS} || {
    echo "Error: no folder ${LOGS}"
    exit 1
}

set +e
sbatch <<EOF
#!/bin/bash

#SBATCH --job-name=fill_in_name
#SBATCH --nodes=fill_in_nodes
#SBATCH --ntasks-per-node=fill_in_tasks
#SBATCH --gres=gpu:fill_in_gpus
#SBATCH --exclusive

srun \
    --mpi=pmix -l \
    --container-workdir=${MEGATRON_PATH} \
    bash -x -c "${RUN}" 2>&1 | tee ${LOGS}/\${SLURM_JOB_ID}.log

EOF
set -e
