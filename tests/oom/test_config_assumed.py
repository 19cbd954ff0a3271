"""Nothing is held against a configuration that only another file, another command or an assumption says."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from distdoctor.oom.configs.files import report_of_configs
from distdoctor.report.model import Report, Severity
from distdoctor.report.request import ReportRequest


def report_of(folder: Path, **files: str) -> Report:
    paths = []
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        paths.append(str(path))
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-config")
    return report_of_configs(request, paths)


def titles(report: Report) -> str:
    return "\n".join(each.title for each in report.findings)


def accused(report: Report) -> list[str]:
    return [each.title for each in report.findings if each.severity is not Severity.INFO]


def test_a_variable_before_one_command_is_not_held_against_another(tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\ntorchrun --standalone --nproc_per_node=8 train.py --seed 1\n"
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node=2 evaluate.py\n"
    )
    assert accused(report_of(tmp_path, run__sh=script)) == []
    own = script.replace(
        "torchrun --standalone --nproc_per_node=8", "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=8"
    )
    assert "8 ranks on a node, but CUDA_VISIBLE_DEVICES names 2" in titles(report_of(tmp_path, run__sh=own))
    exported = "export CUDA_VISIBLE_DEVICES=0,1\n" + script
    assert "names 2 GPUs" in titles(report_of(tmp_path, run__sh=exported))


def test_megatron_commands_get_their_own_variables_too(tmp_path: Path) -> None:
    script = (
        "CUDA_VISIBLE_DEVICES=0 python tools/preprocess_data.py --workers 8\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 24 --hidden-size 2048 "
        "--num-attention-heads 16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16\n"
    )
    assert "CUDA_VISIBLE_DEVICES" not in titles(report_of(tmp_path, run__sh=script))


ACCELERATE = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: %d\nmachine_rank: 0\n"


def test_ranks_of_one_file_are_held_against_gpus_of_another(tmp_path: Path) -> None:
    script = "export CUDA_VISIBLE_DEVICES=0,1,2,3\naccelerate launch --config_file acc.yaml train.py\n"
    found = report_of(tmp_path, acc__yaml=ACCELERATE % 8, go__sh=script)
    assert "8 ranks on a node, but CUDA_VISIBLE_DEVICES names 4 GPUs" in titles(found)
    fits = report_of(tmp_path, acc__yaml=ACCELERATE % 4, go__sh=script)
    assert "CUDA_VISIBLE_DEVICES" not in titles(fits)


TRAINER = "model_name_or_path: meta-llama/Llama-3.1-8B\nbf16: true\nper_device_train_batch_size: 4\noutput_dir: out\n"


def test_a_strategy_that_no_file_says_is_not_judged(tmp_path: Path) -> None:
    """The launcher's file, which was not given, may shard."""
    report = report_of(tmp_path, sft__yaml=TRAINER)
    assert accused(report) == []
    assert any("launcher's file" in each.reason for each in report.skipped)


def test_a_length_that_no_file_says_is_not_held_against_the_job(tmp_path: Path) -> None:
    zero = (
        '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    )
    run = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path meta-llama/Llama-3.1-8B\n"
    assert accused(report_of(tmp_path, ds__json=zero, run__sh=run)) == []
    larger = run.replace("8B", "70B")
    assert "more than" in titles(report_of(tmp_path, ds__json=zero, run__sh=larger)), (
        "states alone do not fit"
    )


def test_what_the_estimate_refuses_is_still_reported(tmp_path: Path) -> None:
    script = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 8 "
        "--num-layers 62 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 "
        "--micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000\n"
    )
    assert "62 layers do not divide by PP 8" in titles(report_of(tmp_path, run__sh=script))


def test_a_launcher_that_is_started_once_for_each_gpu(tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gres=gpu:8\n"
        "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 train.py\n"
    )
    assert "srun starts torchrun 8 times on each node" in titles(report_of(tmp_path, job__sbatch=script))
    once = script.replace("--ntasks-per-node=8", "--ntasks-per-node=1")
    assert "srun starts" not in titles(report_of(tmp_path, job__sbatch=once))
    asked = script.replace("srun torchrun", "srun --ntasks-per-node=1 torchrun")
    assert "srun starts" not in titles(report_of(tmp_path, job__sbatch=asked))


TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 8\nseq_len = 8192\n[parallelism]\n%s'


def test_a_local_batch_that_the_pipeline_cannot_cut(tmp_path: Path) -> None:
    uneven = TITAN % "pipeline_parallel_degree = 4\npipeline_parallel_microbatch_size = 3\n"
    assert "local batch 8 does not divide into micro-batches of 3" in titles(
        report_of(tmp_path, a__toml=uneven)
    )
    even = TITAN % "pipeline_parallel_degree = 4\npipeline_parallel_microbatch_size = 2\n"
    assert "does not divide" not in titles(report_of(tmp_path, a__toml=even))
    without = TITAN % "pipeline_parallel_degree = 1\npipeline_parallel_microbatch_size = 3\n"
    assert "does not divide" not in titles(report_of(tmp_path, a__toml=without))
