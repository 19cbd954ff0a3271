#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
CKPT=${1:-"checkpoints/run"}
TOKENIZER=${3:-"MOCK"} # a path, or "MOCK"
DATA=${4:-"MOCK"}
mkdir -p "$(dirname "$CKPT")"

GPUS_PER_NODE=8
NUM_NODES=1
MASTER_ADDR=${MASTER_ADDR:-localhost}
NODE_RANK=${NODE_RANK:-0}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
SCRIPT="examples/pretrain_gpt.py"

TP_SIZE=1     
CP_SIZE=1     
PP_SIZE=1     
DTYPE="fp8"
SEQ=8192

LAUNCH=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --node_rank $NODE_RANK
    --master_addr $MASTER_ADDR
)

MODEL=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length $SEQ
    --max-position-embeddings $SEQ
    --position-embedding-type rope
    --rotary-base 1000000 
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear 
)

TRAINING=(
    --micro-batch-size 1
    --global-batch-size 128
    --decoupled-lr 5.0e-4      # for the embedding only
    --bf16
    --grad-reduce-in-bf16
    --cross-entropy-loss-fusion
)

DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-param-gather"
    )
fi

PARALLEL=(
    --tensor-model-parallel-size $TP_SIZE
    --context-parallel-size $CP_SIZE
    # --pipeline-model-parallel-size $PP_SIZE # one node needs none
    --sequence-parallel  # always on with TP_SIZE=2
)
DDP=(
    --use-distributed-optimizer
    --overlap-grad-reduce
)
TRAINING+=("${DDP[@]}")

DATA_ARGS=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ "$DATA" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA_ARGS+=(
        "--mock-data"
        "--tokenizer-type NullTokenizer"
        "--vocab-size 128256" 
        "--split '99,1,0'"
    )
else
    DATA_ARGS+=(
        "--data-path $DATA"
        "--tokenizer-type HuggingFaceTokenizer" 
        "--tokenizer-model $TOKENIZER"
        # perhaps the tokenizer knows it: --vocab-size
        "--vocab-size 128256"
    )
fi

if [ ! -f "$SCRIPT" ]; then
    echo "Error: no $SCRIPT"
    echo "Start this from the repository's root."
    exit 1
fi

torchrun ${LAUNCH[@]} \
    "$SCRIPT" \
    ${MODEL[@]} \
    ${TRAINING[@]} \
    ${DTYPE_ARGS[@]} \
    ${PARALLEL[@]} \
    ${DATA_ARGS[@]}

set +x
