"""Megatron-LM jobs from scripts and YAML: sizes, ranks, what contradicts itself, what stays open."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.oom.configs.megatron import bridge as megatron_bridge
from distdoctor.oom.configs.megatron import script as megatron_script
from distdoctor.oom.configs.megatron import yaml as megatron_yaml
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.read import best_reader
from distdoctor.oom.facts.launch import Defect, LaunchConfig
from distdoctor.oom.settings import Checkpointing, DataParallel

SCRIPTS = Path(__file__).parent / "launch_scripts"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "launch_configs"

SHAPE = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --swiglu --disable-bias-linear --normalization RMSNorm --vocab-size 32000 "
    "--position-embedding-type rope --untie-embeddings-and-output-weights --bf16"
)


def script(arguments: str, *, head: str = "", nodes: int = 1) -> str:
    return (
        f"#!/bin/bash\n{head}export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
        f"torchrun --nproc_per_node 8 --nnodes {nodes} pretrain_gpt.py {SHAPE} {arguments}\n"
    )


def read(arguments: str, *, head: str = "", nodes: int = 1) -> LaunchConfig:
    return megatron_script.read("run.sh", script(arguments, head=head, nodes=nodes))


def from_file(name: str) -> LaunchConfig:
    return megatron_script.read(name, (SCRIPTS / name).read_text(encoding="utf-8"))


def kinds(config: LaunchConfig) -> list[Defect]:
    return [each.kind for each in config.defects]


def size(config: LaunchConfig) -> float:
    assert config.settings.model is not None
    count = parameters_of(config.settings.model)
    assert count is not None
    return count / 1e9


def test_one_node_with_fp8_and_sequence_parallelism_that_does_nothing() -> None:
    config = from_file("fp8_one_node.sh")
    settings = config.settings
    assert (settings.world_size, settings.tp, settings.pp, settings.fp8) == (8, 1, 1, True)
    assert settings.strategy is DataParallel.MEGATRON_DISTRIBUTED
    assert size(config) == pytest.approx(8.03, abs=0.01)
    assert [(each.kind, each.is_certain) for each in config.defects] == [(Defect.INEFFECTIVE, True)]
    assert config.defects[0].keys[0].name == "--sequence-parallel"
    assert config.defects[0].keys[0].line == 70


def test_a_pipeline_under_deepspeed_with_a_written_configuration() -> None:
    config = from_file("pipeline_deepspeed.slurm")
    settings = config.settings
    assert (settings.world_size, settings.tp, settings.pp) == (192, 4, 12)
    assert settings.strategy is DataParallel.ZERO1
    assert "strategy" in config.implied
    assert settings.checkpointing is Checkpointing.FULL
    assert size(config) == pytest.approx(176.2, abs=0.1)
    slow = [each for each in config.defects if each.kind is Defect.SLOW_BY_DESIGN]
    assert [each.is_certain for each in slow] == [False]
    assert kinds(config) == [Defect.SLOW_BY_DESIGN], (
        "70 layers over 12 stages are fine with a partition method"
    )
    assert any("line 73" in note for note in config.notes)


def test_megatron_fsdp_with_a_model_of_experts_and_nodes_to_fill_in() -> None:
    config = from_file("megatron_fsdp_moe.sh")
    settings = config.settings
    assert settings.strategy is DataParallel.MEGATRON_FSDP
    assert (settings.ep, settings.micro_batch, settings.global_batch) == (8, 4, 2048)
    assert settings.world_size is None
    assert "fill_in_nodes" in next(each.why for each in config.open_points if each.settles == "world_size")
    assert settings.model is not None
    assert settings.model.shape is not None
    assert settings.model.shape.moe is not None
    assert settings.model.shape.moe.first_dense_layers == 3
    assert size(config) == pytest.approx(682.6, abs=0.5)
    assert not any("--profile" in each.what for each in config.open_points)


def test_sizes_that_no_branch_sets_are_empty_and_not_guessed() -> None:
    config = from_file("untaken_branches.sbatch")
    assert config.settings.tp is None
    assert config.settings.world_size == 16
    by_kind = {each.kind: each for each in config.defects}
    assert by_kind[Defect.EMPTY_VALUE].stops_job
    assert not by_kind[Defect.EMPTY_VALUE].is_certain
    assert "$NODES" in by_kind[Defect.UNSET_VARIABLE].title
    assert "SLURM_JOB_NUM_NODES" in by_kind[Defect.UNSET_VARIABLE].why


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("--tensor-model-parallel-size 3", Defect.MESH_DOES_NOT_DIVIDE, "TP 3"),
        ("--pipeline-model-parallel-size 16", Defect.MESH_DOES_NOT_DIVIDE, "PP 16"),
        (
            "--micro-batch-size 2 --global-batch-size 100 --tensor-model-parallel-size 2",
            Defect.BATCH_DOES_NOT_DIVIDE,
            "micro-batch 2 x 4",
        ),
        ("--num-experts 6 --expert-model-parallel-size 4", Defect.MESH_DOES_NOT_DIVIDE, "6 experts"),
        ("--expert-model-parallel-size 4", Defect.CONFLICT, "without --num-experts"),
        ("--num-query-groups 8", Defect.INEFFECTIVE, "--group-query-attention"),
        ("--overlap-param-gather", Defect.CONFLICT, "--use-distributed-optimizer"),
        ("--fp16", Defect.CONFLICT, "--bf16 and --fp16"),
        ("--use-torch-fsdp2 --use-distributed-optimizer", Defect.CONFLICT, "fsdp2"),
        ("--micro-batch-size --global-batch-size 8", Defect.EMPTY_VALUE, "--micro-batch-size"),
        ("--micro-batch-size 1 --micro-batch-size 2", Defect.INEFFECTIVE, "given twice"),
        ("--recompute-granularity full", Defect.CONFLICT, "--recompute-method"),
        (
            "--num-experts 8 --expert-model-parallel-size 2 --tensor-model-parallel-size 2",
            Defect.CONFLICT,
            "--sequence-parallel",
        ),
    ],
)
def test_a_contradiction_is_told(arguments: str, kind: Defect, words: str) -> None:
    config = read(arguments)
    titles = [each.title for each in config.defects if each.kind is kind]
    assert any(words in title for title in titles), config.defects


@pytest.mark.parametrize(
    "arguments",
    [
        "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 64",
        "--pipeline-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 64",
        "--group-query-attention --num-query-groups 8 --tensor-model-parallel-size 8",
        "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 --use-distributed-optimizer "
        "--overlap-param-gather --overlap-grad-reduce",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--micro-batch-size 1 --global-batch-size 512 --train-iters 500_000",
    ],
)
def test_a_sound_job_has_no_defect(arguments: str) -> None:
    assert read(arguments).defects == ()


def test_a_size_in_a_comment_or_name_that_the_sizes_contradict() -> None:
    told = read("", head="# Model parameters, defaults to 39B model\n")
    assert kinds(told) == [Defect.NAME_DISAGREES]
    assert "39B" in told.defects[0].title
    assert "6.74B" in told.defects[0].title
    named = read("", head="#SBATCH --job-name=llama-70b\n")
    assert kinds(named) == [Defect.NAME_DISAGREES]


@pytest.mark.parametrize(
    "head",
    [
        "# Llama-2 7B model\n",
        "# trained on 450B tokens\n",
        "# 7b: 32 | 13b: 40 | 70b: 80 layers\n",
        "# wait for 39 batches\n",
        "#SBATCH --job-name=train-7B\n",
        "# see the 8x7B model\n",
    ],
)
def test_a_comment_that_says_something_else_is_no_claim(head: str) -> None:
    assert read("", head=head).defects == ()


def test_ranks_by_scheduler_and_launcher_that_disagree() -> None:
    config = read("", head="#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n", nodes=4)
    assert set(kinds(config)) == {Defect.CONFLICT, Defect.MORE_RANKS_THAN_DEVICES}


def test_a_launcher_started_once_for_each_gpu() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun "
        + script("", nodes=2).split("\n")[2]
    )
    config = megatron_script.read("a.sbatch", text)
    assert any("8 times on each node" in each.title for each in config.defects)


def test_srun_alone_starts_one_rank_for_each_task() -> None:
    text = (
        f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsrun python pretrain_gpt.py {SHAPE}\n"
    )
    config = megatron_script.read("a.sbatch", text)
    assert (config.settings.world_size, config.settings.num_nodes) == (32, 4)
    assert config.defects == ()


def test_the_same_node_rank_everywhere_and_an_address_to_fill_in() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun --nproc_per_node 8 --nnodes 2 --node_rank 0 "
        f"--master_addr <master-ip> pretrain_gpt.py {SHAPE}\n"
    )
    config = megatron_script.read("a.sbatch", text.replace("<master-ip>", "your_master_ip"))
    assert set(kinds(config)) == {Defect.SAME_ON_EVERY_NODE, Defect.PLACEHOLDER_ADDRESS}


def test_a_value_that_depends_on_a_condition_is_open_with_its_values() -> None:
    text = script("--tensor-model-parallel-size $TP").replace(
        "torchrun", "if nvidia-smi | grep -q H100; then TP=4; else TP=8; fi\ntorchrun"
    )
    config = megatron_script.read("run.sh", text)
    assert config.settings.tp is None
    point = next(each for each in config.open_points if each.what == "--tensor-model-parallel-size")
    assert "4" in point.why
    assert "8" in point.why
    assert config.defects == ()


def test_the_same_argument_in_every_branch_is_certain() -> None:
    text = script("${D[@]}").replace(
        "torchrun",
        "if [ -f x ]; then D=(--global-batch-size 64 --mock-data); else D=(--data-path x --global-batch-size 64); fi\ntorchrun",
    )
    config = megatron_script.read("run.sh", text)
    assert config.settings.global_batch == 64


def test_a_variable_that_the_caller_gives_is_open_and_told_softly() -> None:
    config = read("--tensor-model-parallel-size $TP --save $OUT")
    assert config.settings.tp is None
    unset = next(each for each in config.defects if each.kind is Defect.UNSET_VARIABLE)
    assert not unset.is_certain
    assert not unset.stops_job


def test_option_and_value_quoted_together_reach_the_program_as_one_word() -> None:
    config = megatron_script.read("run.sh", 'A=("--micro-batch-size 2")\n' + script('"${A[@]}"'))
    assert any("one word" in each.title for each in config.defects)
    assert config.settings.micro_batch == 2


def test_a_script_without_megatron_is_not_taken() -> None:
    text = "#!/bin/bash\ntorchrun --nproc_per_node 8 train.py --lr 1e-4\n"
    assert megatron_script.sniff("a.sh", text) == 0.0
    with pytest.raises(InputError):
        megatron_script.read("a.sh", text)


YAML = """ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --max-position-embeddings: 1024
  --micro-batch-size: 4
  --global-batch-size: 32
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --use-distributed-optimizer: true
  --swiglu: false
  --vocab-size: ${VOCAB}
  --data-path: ${DATA_PATH}/text
  --bf16: true
TEST_TYPE: regular
"""


def test_arguments_in_yaml() -> None:
    assert megatron_yaml.sniff("model_config.yaml", YAML) > 0.9
    config = megatron_yaml.read("model_config.yaml", YAML)
    settings = config.settings
    assert (settings.tp, settings.micro_batch, settings.strategy) == (2, 4, DataParallel.MEGATRON_DISTRIBUTED)
    assert settings.model is None, "the vocabulary is a variable"
    assert any("VOCAB" in each.why for each in config.open_points)
    assert config.defects == ()
    assert next(each for each in config.statements if each.topic == "batch").keys[0].line == 9


BRIDGE = """model:
  seq_length: 4096
train:
  train_iters: 20
  global_batch_size: 32
  micro_batch_size: 1
ddp:
  grad_reduce_in_fp32: true
rng:
  seed: 7
"""


def test_overrides_of_a_recipe_leave_model_and_sizes_to_it() -> None:
    assert megatron_bridge.sniff("llama3_8b_override.yaml", BRIDGE) > 0.8
    config = megatron_bridge.read("llama3_8b_override.yaml", BRIDGE)
    assert config.settings.model is None
    assert config.settings.tp is None
    assert config.settings.strategy is None
    assert (config.settings.micro_batch, config.settings.grads_in_fp32) == (1, True)
    assert {"the model", "parallel sizes (TP, PP, CP, EP)"} <= {each.what for each in config.open_points}


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of real cases is not here")
def test_the_real_override_file() -> None:
    path = CASES / "bridge_qwen3next_override.yaml"
    text = path.read_text(encoding="utf-8")
    reader = best_reader(str(path), text)
    assert reader is not None
    config = reader.read(str(path), text)
    assert config.settings.model is None
    assert config.settings.grads_in_fp32 is True
    assert config.settings.world_size is None


def test_a_script_that_writes_a_deepspeed_file_is_still_a_script() -> None:
    text = (SCRIPTS / "pipeline_deepspeed.slurm").read_text(encoding="utf-8")
    reader = best_reader("pipeline_deepspeed.slurm", text)
    assert reader is not None
    assert reader.name == "Megatron-LM script"


def test_a_bare_parenthesis_is_told_and_read_past() -> None:
    config = read("--num-experts 8 --moe-layer-freq ([1]*32) --use-distributed-optimizer")
    assert any("parenthesis" in each.title or "needs quotes" in each.title for each in config.defects)
    assert config.settings.strategy is DataParallel.MEGATRON_DISTRIBUTED


def test_a_default_address_is_no_accusation() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\nA=${MASTER_ADDR:-localhost}\nR=${NODE_RANK:-0}\n"
        f"srun torchrun --nproc_per_node 8 --nnodes 2 --node_rank $R --master_addr $A pretrain_gpt.py {SHAPE}\n"
    )
    config = megatron_script.read("a.sbatch", text)
    assert config.defects == ()
    assert any("MASTER_ADDR" in note for note in config.notes)
