"""Keys that DeepSpeed reads, so that a slip is told from an extension.

Source: deepspeed.ai, "DeepSpeed Configuration JSON"; runtime/config.py, runtime/zero/config.py and offload_config.py
of 0.19. Sections that are pydantic models forbid other keys: the job stops at start.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROOT = _words(
    """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer scheduler
    communication_data_type seq_parallel_communication_data_type prescale_gradients gradient_predivide_factor
    sparse_gradients fp16 bf16 bfloat16 amp torch_autocast gradient_clipping zero_optimization zero_allow_untested_optimizer
    zero_force_ds_cpu_optimizer steps_per_print wall_clock_breakdown dump_state autotuning flops_profiler
    activation_checkpointing sparse_attention tensorboard wandb csv_monitor comet monitor_config comms_logger
    comms_config compression_training data_efficiency curriculum_learning elasticity checkpoint data_types
    dataloader_drop_last disable_allgather nebula pipeline quantize_training aio hybrid_engine tensor_parallel
    sequence_parallel_size memory_breakdown eigenvalue progressive_layer_drop compile use_data_before_expert_parallel_
    graph_harvesting timers load_universal_checkpoint use_node_local_storage inference_tp_size expert_parallel expert_parallel_size
    weight_quantization zenflow train_iters sequence_length model memory_profiling seed
    """
)

ZERO = _words(
    """
    stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce allgather_partitions
    allgather_bucket_size overlap_comm load_from_fp32_weights elastic_checkpoint offload_param offload_optimizer zenflow
    sub_group_size cpu_offload_param cpu_offload_params cpu_offload_use_pin_memory cpu_offload stage3_prefetch_bucket_size
    prefetch_bucket_size stage3_param_persistence_threshold param_persistence_threshold stage3_model_persistence_threshold
    model_persistence_threshold stage3_max_live_parameters max_live_parameters stage3_max_reuse_distance
    max_reuse_distance stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save
    stage3_module_granularity_threshold module_granularity_threshold stage3_use_all_reduce_for_fetch_params
    use_all_reduce_for_fetch_params stage3_allgather_sequential allgather_sequential stage3_partition_stream_chunk_size
    partition_stream_chunk_size stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1
    round_robin_gradients zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights
    zero_quantized_gradients zeropp_loco_param mics_shard_size mics_hierarchical_params_gather memory_efficient_linear
    pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
    save_muon_momentum_buffer_in_memory leaf_module stage3_gather_fp16_weights
    """
)

OFFLOAD = _words(
    """
    device nvme_path buffer_count buffer_size max_in_cpu pin_memory pipeline pipeline_read pipeline_write fast_init
    ratio super_offload cpuadam_cores_perc
    """
)

SIXTEEN_BIT = _words(
    """
    enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis min_loss_scale consecutive_hysteresis
    fp16_master_weights_and_grads immediate_grad_update check_grad_overflow bf16_master_weights_and_grads
    bf16_optimizer_states opt_level
    """
)

# Read in stage 3 alone; with a lower stage they do nothing. Templates of Hugging Face carry them along.
ONLY_STAGE_3 = frozenset(name for name in ZERO if name.startswith("stage3_")) | {
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_gradients",
    "mics_shard_size",
}
