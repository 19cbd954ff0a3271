"""What of the job's own memory it is: parameters, the optimizer's states, the key-value cache; and what helps there."""

from __future__ import annotations

from datetime import datetime, timezone

from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.messages.from_files import events_from_text
from distdoctor.report.model import Confidence, Report
from distdoctor.report.request import ReportRequest
from oom.oom_texts import IN_MLP, modern

FULL = modern("448.00 MiB", "79.15 GiB", "220.56 MiB", "78.02 GiB", "1.05 MiB", process="78.92 GiB")


def report_of(*frames: tuple[str, str, str], message: str = FULL, before: str = "") -> Report:
    lines = [before, "Traceback (most recent call last):"]
    for file, function, code in frames:
        lines += [f'  File "{file}", line 10, in {function}', f"    {code}"]
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    return explain_report(request, events_from_text("job.log", "\n".join([*lines, message])))


def actions_of(report: Report) -> str:
    return "\n".join(
        f"{each.text} {each.command or ''}" for found in report.findings for each in found.actions
    )


MOVE = ("transformers/trainer.py", "__init__", "self._move_model_to_device(model, args.device)")
CONVERT = ("torch/nn/modules/module.py", "convert", "return t.to(device)")
LOAD = (
    "optim/optimizer.py",
    "_process_value_according_to_param_policy",
    "return value.to(device=param.device)",
)
RESUME = ("train.py", "resume", "optimizer.load_state_dict(state)")
SAMPLE = ("transformers/generation/utils.py", "_sample", "outputs = self(**inputs)")
UPDATE = ("transformers/cache_utils.py", "update", "self.keys = torch.cat([self.keys, key_states], dim=-2)")
STEP = ("train.py", "main", "optimizer.step()")
STATES = ("torch/optim/adam.py", "_init_group", 'state["exp_avg_sq"] = torch.zeros_like(')
CLIP = (
    "torch/nn/utils/clip_grad.py",
    "clip_grad_norm_",
    "norms.extend(torch._foreach_norm(tensors, norm_type))",
)


def test_a_model_that_is_placed_whole() -> None:
    report = report_of(MOVE, CONVERT)
    assert report.verdict.cause_class == "capacity:parameters"
    assert "micro-batch" not in actions_of(report)
    sharded = report_of(
        ("train.py", "main", "model = FSDP(model, device_id=rank)"), CONVERT, before="strategy: FSDP"
    )
    assert sharded.verdict.cause_class == "not-sharded:parameters"


def test_a_small_model_in_a_full_pool_is_not_named() -> None:
    little = modern("448.00 MiB", "79.15 GiB", "220.56 MiB", "20.02 GiB", "58.05 GiB", process="78.92 GiB")
    assert report_of(MOVE, CONVERT, message=little).verdict.cause_class == "fragmentation"


def test_states_at_a_resume_are_no_step() -> None:
    report = report_of(RESUME, LOAD)
    assert report.verdict.cause_class == "capacity:optimizer-state"
    assert "foreach" not in actions_of(report)


def test_states_that_deepspeed_loads_are_no_unsharded_model() -> None:
    engine = ("deepspeed/runtime/engine.py", "_load_zero_checkpoint", "self.optimizer.load_state_dict(")
    cast = ("torch/optim/optimizer.py", "_cast", "return value.to(device=param.device)")
    report = report_of(engine, cast, before='{"zero_optimization": {"stage": 3}}')
    assert report.verdict.cause_class == "capacity:optimizer-state"


def test_states_of_the_first_step_are_the_first_whatever_the_log_counts() -> None:
    report = report_of(STEP, STATES, before="step 0 | loss 11.9")
    assert report.verdict.cause_class == "optimizer-step"
    assert "first optimizer step" in report.verdict.summary
    assert "second step" not in report.verdict.title


def test_clipping_is_not_helped_by_smaller_states() -> None:
    report = report_of(("train.py", "main", "clip_grad_norm_(model.parameters(), 1.0)"), CLIP)
    assert report.verdict.cause_class == "optimizer-step"
    assert "8 bit" not in actions_of(report)
    assert "clip" in actions_of(report)


def test_the_cache_of_keys_and_values() -> None:
    assert report_of(SAMPLE, UPDATE).verdict.cause_class == "capacity:kv-cache"
    assert report_of(*IN_MLP).verdict.cause_class != "capacity:kv-cache"
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    text = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    server = explain_report(request, events_from_text("vllm.log", text))
    assert server.verdict.cause_class == "capacity:kv-cache"
    assert "max-model-len" in actions_of(server)


def test_little_idle_memory_that_would_have_been_enough_is_told() -> None:
    brim = modern("20.00 MiB", "79.15 GiB", "5.12 MiB", "77.52 GiB", "590.40 MiB", process="79.11 GiB")
    verdict = report_of(message=brim).verdict
    assert (verdict.cause_class, verdict.confidence) == ("capacity", Confidence.MEDIUM)
    assert "fragmentation" in verdict.summary
