"""What configurations come to in memory: judged where they say enough, and not where they do not."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from distdoctor.cli.output import OutputOptions
from distdoctor.cli.request import make_request
from distdoctor.oom.checks.config.states import CHECK
from distdoctor.oom.configs.files import report_of_configs
from distdoctor.oom.configs.join import config_facts
from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Settings
from distdoctor.report.checking import Found, NotSeen, Outcome, Passed
from distdoctor.report.model import Severity
from distdoctor.report.request import ReportRequest

NEMO = """name: megatron_llama
trainer: {devices: 1, num_nodes: 1, precision: %s, accelerator: gpu}
model:
  micro_batch_size: 1
  global_batch_size: 1
  encoder_seq_length: 2048
  num_layers: %d
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 1
  bias: false
  activation: fast-swiglu
  tokenizer:
    library: sentencepiece
    model: ???
"""


def outcome(*texts: tuple[str, str]) -> Outcome:
    (found,) = CHECK.run(config_facts([read_config_text(name, text) for name, text in texts]))
    return found


def test_a_model_that_one_gpu_cannot_hold_is_told() -> None:
    found = outcome(("conf.yaml", NEMO % ("32", 32)))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING, "no file names the GPU"
    # 32 layers of 4 x 4096^2 + 3 x 4096 x 11008, an embedding of 32,000 words, and norms: 6.607e9 x 16 B.
    assert "model states alone take 98.5 GiB" in found.evidence[0].text
    assert "80gb" in (found.evidence[0].expected_source or "")


def test_an_unknown_vocabulary_is_asked_for() -> None:
    seen = outcome(("conf.yaml", NEMO % ("bf16", 2)))
    assert isinstance(seen, NotSeen)
    assert seen.unread.how == "give --vocab N"


def test_without_the_number_of_ranks_nothing_is_estimated() -> None:
    seen = outcome(("zero.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'))
    assert isinstance(seen, NotSeen)
    assert "no estimate" in seen.unread.reason and seen.unread.how


def test_the_model_of_another_file_completes_it() -> None:
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\n"
        "num_processes: 8\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}\n"
    )
    model = (
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4,'
        ' "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 2048, "vocab_size": 32000}'
    )
    assert isinstance(outcome(("a.yaml", accelerate)), NotSeen)
    passed = outcome(("a.yaml", accelerate), ("config.json", model))
    assert isinstance(passed, Passed)
    assert "model states" in passed.detail


def test_sizes_alone_are_not_judged_as_a_job_on_one_gpu() -> None:
    sizes = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 80,
"num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256}"""
    assert isinstance(outcome(("config.json", sizes)), NotSeen)


def test_what_it_needs_is_said_in_the_verdict(tmp_path: Path) -> None:
    file = tmp_path / "acc.yaml"
    file.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
        "num_machines: 1\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}\n"
    )
    request = ReportRequest(command="oom-config", argv=(), started=datetime.now(timezone.utc))
    given = Settings(model=preset("llama3-8b"), gpu_type="h100-80gb", micro_batch=1, seq_len=4096)
    verdict = report_of_configs(request, [str(file)], given=given).verdict
    assert verdict.status.value == "ok"
    assert "Estimated to need" in verdict.summary
    assert "h100-80gb has 79.1 GiB" in verdict.summary


def test_a_model_alone_is_called_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,'
        ' "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}'
    )
    report = report_of_configs(make_request(OutputOptions(), command="oom-config"), [str(path)])
    assert report.verdict.title == "8.03 billion parameters; no strategy is named"
