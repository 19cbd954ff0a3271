# The same for a mixture of experts, in the form of spring 2026: batches in sequences.
from torchtitan.components.loss import ChunkedCELoss
from torchtitan.components.quantization import Float8GroupedExpertsConverter, Float8LinearConverter
from torchtitan.config import ActivationCheckpointConfig, CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer

from . import model_registry  # noqa: TID252 - as such files have it


def deepseek_v3_671b() -> Trainer.Config:
    compile_config = CompileConfig(enable=True, components=["loss"])
    enabled = compile_config.enable and "model" in compile_config.components
    return Trainer.Config(
        loss=ChunkedCELoss.Config(),
        hf_assets_path="./assets/hf/DeepSeek-V3.1-Base",
        model_spec=model_registry(
            "671B",
            attn_backend="flex",
            converters=[
                Float8LinearConverter.Config(filter_fqns=["output"], model_compile_enabled=enabled),
                Float8GroupedExpertsConverter.Config(model_compile_enabled=enabled),
            ],
        ),
        training=TrainingConfig(local_batch_size=4, seq_len=4096, steps=10000),
        parallelism=ParallelismConfig(pipeline_parallel_schedule="Interleaved1F1B", expert_parallel_degree=2),
        activation_checkpoint=ActivationCheckpointConfig(mode="selective"),
        compile=compile_config,
    )
