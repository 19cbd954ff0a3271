"""Experts in programs of torch: where tokens go, what is kept of them, and ranks that share experts among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from distdoctor.oom.estimate import estimate
from distdoctor.oom.parameters import layer_groups
from distdoctor.oom.settings import Checkpointing, DataParallel, Precision
from distdoctor.oom.shape import MixtureOfExperts
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.training.base import Kernels, NoObserver
from distdoctor.oom.training.build import build_program, why_not
from distdoctor.oom.training.experts import MixtureOfExpertsLayer
from distdoctor.oom.training.grouped_linear import grouped_linear
from distdoctor.oom.training.model import ModelOptions
from forkpool import ForkPool
from oom.test_training_models import peak_bytes, two_steps, with_shape
from oom.training_scenarios import SHAPES, job_of

SCENARIOS = Path(__file__).with_name("training_scenarios.py")
FSDP: dict[str, Any] = {"strategy": DataParallel.FSDP, "precision": Precision.MIXED}

# What rounding in another order may change: a few units in the last of fp32's 24 bits, summed over a few thousand
# terms. Our own threshold.
TOLERANCE = 1e-4

WITHOUT_SEQUENCE_PARALLELISM = {"sequence_parallel": False, "loss_parallel": False}

ON_TWO: list[dict[str, Any]] = [
    *({"shape": shape, "strategy": "none", "tp": 2} for shape in SHAPES),
    *(
        {"shape": shape, "strategy": "none", "tp": 2, **WITHOUT_SEQUENCE_PARALLELISM}
        for shape in ("experts", "experts with biases", "gated shared experts")
    ),
    {"shape": "latent", "strategy": "none", "tp": 2, **WITHOUT_SEQUENCE_PARALLELISM},
    {"shape": "experts", "strategy": "none", "tp": 2, "ep": 2},
    {"shape": "llama", "strategy": "none", "tp": 2, "fused_loss": True},
    {"shape": "llama", "strategy": "none", "tp": 2, "fused_loss": True, "loss_parallel": False},
    {"shape": "four norms, tied", "strategy": "ddp", "dp_replicate": 2, "fused_loss": True},
]
ON_FOUR: list[dict[str, Any]] = [
    {"shape": "learned positions, tied", "strategy": "fsdp2", "dp_shard": 2, "tp": 2},
    {"shape": "gated shared experts", "strategy": "fsdp2", "dp_shard": 2, "tp": 2},
    {
        "shape": "experts with biases",
        "strategy": "fsdp2",
        "dp_shard": 2,
        "tp": 2,
        **WITHOUT_SEQUENCE_PARALLELISM,
    },
    {"shape": "latent", "strategy": "none", "tp": 4},
    {"shape": "experts", "strategy": "fsdp2", "dp_shard": 2, "tp": 2, "accumulation_steps": 2},
    {"shape": "experts with biases", "strategy": "fsdp2", "dp_shard": 4, "ep": 2, "accumulation_steps": 2},
    {"shape": "experts", "strategy": "fsdp2", "dp_shard": 4, "ep": 4, "fused_loss": True},
    {"shape": "experts", "strategy": "fsdp2", "dp_replicate": 2, "dp_shard": 2, "ep": 2},
    {"shape": "latent", "strategy": "fsdp2", "dp_shard": 2, "tp": 2, "ep": 2},
    {"shape": "latent", "strategy": "fsdp2", "dp_shard": 2, "tp": 2, "ep": 4},
    {"shape": "experts", "strategy": "ddp", "dp_replicate": 4, "ep": 2, "accumulation_steps": 2},
    {"shape": "llama", "strategy": "fsdp2", "dp_shard": 2, "tp": 2, "fused_loss": True},
]


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    with ForkPool(torch=True, scenarios=SCENARIOS) as warm:
        yield warm


@pytest.mark.ranks
@pytest.mark.parametrize(("world_size", "cases"), [(2, ON_TWO), (4, ON_FOUR)])
def test_ranks_compute_the_gradients_that_one_rank_computes_alone(
    pool: ForkPool, world_size: int, cases: list[dict[str, Any]]
) -> None:
    outcomes = pool.run("differences", world_size=world_size, args={"cases": cases}, limit_s=300, store=True)

    assert [each.ending for each in outcomes] == ["returned"] * world_size, outcomes[0].value
    for rank, outcome in enumerate(outcomes):
        for case, found in zip(cases, outcome.value, strict=True):
            assert found["loss"] < TOLERANCE, (rank, case, found)
            assert found["gradient"] < TOLERANCE, (rank, case, found)


@pytest.mark.parametrize(
    "said",
    [
        {"dp_shard": 4, "ep": 2, **FSDP},
        {"dp_shard": 2, "tp": 2, "ep": 4, **FSDP},
        {"dp_replicate": 2, "dp_shard": 2, "ep": 2, "checkpointing": Checkpointing.SELECTIVE, **FSDP},
        {"dp_shard": 16, "ep": 2, "checkpointing": Checkpointing.FULL, **FSDP},
        {"pp": 2, "dp_shard": 2, "ep": 2, **FSDP},
        {"tp": 2, "ep": 2},
        {"dp_shard": 2, "tp": 2, **FSDP},
        {"tp": 2, "sequence_parallel": False, "checkpointing": Checkpointing.SELECTIVE},
        {"dp_replicate": 4, "ep": 2, "strategy": DataParallel.DDP},
    ],
    ids=[
        "FSDP2",
        "FSDP2 x tp",
        "HSDP",
        "more shards than experts",
        "pipeline",
        "tp x ep",
        "FSDP2, cut over tp",
        "cut over tp",
        "DDP",
    ],
)
def test_fake_and_real_tensors_of_experts_on_many_ranks_take_the_same_bytes(said: dict[str, Any]) -> None:
    job = job_of("experts", **said)

    assert peak_bytes(two_steps(job)) == peak_bytes(two_steps(job, fake_tensors=False))


def test_a_crowded_rank_needs_more_than_a_balanced_one() -> None:
    peaks = [
        peak_bytes(
            two_steps(job_of("experts", dp_shard=4, ep=4, seq_len=256, expert_imbalance=factor, **FSDP))
        )
        for factor in (1.0, 2.0, 4.0)
    ]

    assert peaks[0] < peaks[1] < peaks[2]
    # Each further load brings the same again.
    assert peaks[2] - peaks[1] == pytest.approx(2 * (peaks[1] - peaks[0]), rel=0.05)


@pytest.mark.parametrize(
    ("said", "share"),
    [
        ({}, 1),
        ({"tp": 2}, 2),
        ({"tp": 2, "sequence_parallel": False}, 2),
        ({"dp_shard": 4, "tp": 2, **FSDP}, 8),
        ({"tp": 2, "ep": 2}, 2),
        ({"dp_shard": 4, "ep": 2, **FSDP}, 4),
    ],
)
def test_a_rank_holds_its_share_of_the_experts(said: dict[str, Any], share: int) -> None:
    job = job_of("experts", **said)
    routed = sum(
        group.numel for group in layer_groups(SHAPES["experts"], with_experts=True) if group.is_expert
    )
    with fake_world(job, 0) as world:
        parameters = list(build_program(world, NoObserver()).parameters())

    held = sum(_local_numel(each) for each in parameters if each.dim() == 3)
    assert held == routed // share


def test_a_width_that_tp_does_not_divide_is_refused_unless_experts_are_spread() -> None:
    odd = replace(SHAPES["experts"], moe=replace(SHAPES["experts"].moe, expert_ffn_size=49))

    assert why_not(with_shape(job_of("experts", tp=2, ep=2), odd)) is None
    assert (
        why_not(with_shape(job_of("experts", tp=2), odd)) == "tp=2 does not divide the width of an expert, 49"
    )


@pytest.mark.parametrize(
    "said",
    [{}, {"sequence_parallel": False}, {"ep": 2}],
    ids=["parts of the sequence", "whole sequences", "ep"],
)
def test_the_formula_of_experts_under_tp_says_what_the_program_takes(said: dict[str, Any]) -> None:
    moe = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=2048, shared_ffn_size=1024)
    wide = replace(SHAPES["llama"], hidden_size=1024, head_size=256, ffn_size=2048, vocab_size=8192, moe=moe)
    job = with_shape(job_of("experts", dp_shard=2, tp=2, seq_len=4096, **said, **FSDP), wide)

    simulated = peak_bytes(two_steps(job, kernels=Kernels.LIKE_CUDA))

    assert estimate(job).worst.peak.num_bytes == pytest.approx(simulated, rel=0.05)


def test_true_routing_is_what_a_loop_over_tokens_computes() -> None:
    torch.manual_seed(0)
    shape = SHAPES["gated shared experts"]
    layer = MixtureOfExpertsLayer(shape, ModelOptions(seq_len=8))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 8, shape.hidden_size)

    found = layer(x)

    scores = torch.softmax(layer.router(x), dim=-1)
    w1, w2, w3 = layer.experts.w1, layer.experts.w2, layer.experts.w3
    expected = torch.sigmoid(layer.shared_gate(x)) * layer.shared_experts(x)
    for batch in range(2):
        for token in range(8):
            row = x[batch, token]
            for weight, expert in zip(*scores[batch, token].topk(layer.top_k), strict=True):
                inside = torch.nn.functional.silu(w1[expert] @ row) * (w3[expert] @ row)
                expected[batch, token] += weight * (w2[expert] @ inside)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 0, 5), (0, 0, 9), (2, 2, 5)])
def test_a_grouped_layer_is_a_linear_layer_for_each_expert(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rows = torch.randn(9, 4, requires_grad=True)
    weight, bias = torch.randn(3, 5, 4, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    parts = [
        torch.nn.functional.linear(part, weight[expert], bias[expert])
        for expert, part in enumerate(rows.split(list(sizes)))
    ]
    expected = torch.cat(parts)
    into = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (rows, weight, bias), into)

    found = grouped_linear(rows, weight, bias, sizes)

    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, (rows, weight, bias), into), gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_grouped_layer_keeps_its_input_and_its_weights_once() -> None:
    kept: list[int] = []
    rows, weight = torch.randn(9, 4, requires_grad=True), torch.randn(3, 5, 4, requires_grad=True)

    def pack(tensor: Any) -> Any:
        kept.append(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        grouped_linear(rows, weight, None, (2, 3, 4))

    assert sorted(kept) == sorted([rows.data_ptr(), weight.data_ptr()])


def _local_numel(parameter: Any) -> int:
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return int(local.numel())
