# A registry of configurations in the manner of TorchTitan, for reading only.
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.quantization import Float8LinearConverter
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC
from torchtitan.trainer import Trainer

from . import model_registry  # noqa: TID252 - as such files have it

CONTEXT = 8192


def _tokens(sequences: int) -> int:
    return sequences * CONTEXT


def llama3_tiny() -> Trainer.Config:
    model_spec = model_registry("debugmodel")
    return Trainer.Config(
        hf_assets_path="./tests/tokenizer",
        model_spec=model_spec,
        optimizer=default_adamw(lr=8e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=8 * 2048, max_context_length=2048, steps=10
        ),
        activation_checkpoint=SelectiveAC.Config(),
    )


def llama3_tiny_tp() -> Trainer.Config:
    config = llama3_tiny()
    config.parallelism.tensor_parallel_degree = 2
    config.training.max_context_length = 4096
    config.activation_checkpoint = None
    return config


def llama3_8b() -> Trainer.Config:
    """One node."""
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        model_spec=model_registry("8B"),
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=_tokens(1),
            max_context_length=CONTEXT,
        ),
        activation_checkpoint=MemoryBudgetAC.Config(memory_budget=0.5),
    )


def llama3_70b() -> Trainer.Config:
    model_spec = model_registry("70B")
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        hf_assets_path="./assets/hf/Llama-3.1-70B",
        model_spec=model_spec,
        optimizer=default_adamw(lr=1.5e-4),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=8 * 8192,
            max_context_length=8192,
            steps=1000,
        ),
        parallelism=ParallelismConfig(tensor_parallel_degree=8),
        activation_checkpoint=FullAC.Config(),
    )


def llama3_405b() -> Trainer.Config:
    compile_config = CompileConfig(enable=True, enable_async_tensor_parallel=True)
    model_spec = model_registry(
        "405B",
        converters=[
            Float8LinearConverter.Config(
                filter_fqns=["lm_head"],
                model_compile_enabled=(compile_config.enable and "model" in compile_config.components),
            ),
        ],
    )
    return Trainer.Config(
        model_spec=model_spec,
        optimizer=default_adamw(lr=8e-5),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192),
        parallelism=ParallelismConfig(
            tensor_parallel_degree=8, pipeline_parallel_degree=2, num_pp_microbatches=16
        ),
        activation_checkpoint=FullAC.Config(),
        compile=compile_config,
    )
