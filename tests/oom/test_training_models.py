"""Models of all shapes as programs of torch: parameters, cuts over ranks, losses; fake tensors beside real ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from distdoctor.oom.job import Job
from distdoctor.oom.memory.log import MemoryLog, Phase
from distdoctor.oom.models.presets import find_preset, preset_names
from distdoctor.oom.parameters import count_parameters
from distdoctor.oom.settings import DataParallel, Precision
from distdoctor.oom.simulation.child.fake_world import fake_world
from distdoctor.oom.tracking.tracker import Tracker
from distdoctor.oom.training.base import CannotRunError, Kernels, NoObserver
from distdoctor.oom.training.build import build_program, why_not
from distdoctor.oom.training.chunked_loss import Output
from distdoctor.oom.training.loss import cross_entropy
from distdoctor.oom.training.model import ModelOptions, Transformer
from oom.training_scenarios import SHAPES, job_of

ALONE: dict[str, Any] = {}
FSDP_TP: dict[str, Any] = {
    "strategy": DataParallel.FSDP,
    "dp_shard": 2,
    "tp": 2,
    "precision": Precision.MIXED,
}
TP_ONLY: dict[str, Any] = {"tp": 2, "sequence_parallel": False, "loss_parallel": False}


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_built_with_exactly_the_parameters_that_are_counted(name: str) -> None:
    preset = find_preset(name)
    assert preset is not None
    shape = preset.shape
    kinds = [shape.has_experts(layer) for layer in range(shape.num_layers)]
    with torch.device("meta"):
        # One layer of each kind: the others are made by the same lines.
        model = Transformer(
            shape, ModelOptions(seq_len=16), layers=[kinds.index(kind) for kind in set(kinds)]
        )

    built = sum(each.numel() for each in model.parameters())
    for layer, block in model.layers.items():
        others = kinds.count(kinds[int(layer)]) - 1
        built += others * sum(each.numel() for each in block.parameters())
    assert built == count_parameters(shape)


@pytest.mark.parametrize(
    "shape", ["llama", "gated shared experts", "four norms, tied", "one norm", "no norms"]
)
def test_fake_and_real_tensors_of_a_model_take_the_same_bytes(shape: str) -> None:
    job = job_of(shape)

    assert peak_bytes(two_steps(job)) == peak_bytes(two_steps(job, fake_tensors=False))


@pytest.mark.parametrize("shape", ["experts with biases", "latent", "learned positions, tied"])
def test_fake_and_real_tensors_of_a_model_that_is_cut_and_sharded_take_the_same_bytes(shape: str) -> None:
    job = job_of(shape, **FSDP_TP)

    assert peak_bytes(two_steps(job)) == peak_bytes(two_steps(job, fake_tensors=False))


@pytest.mark.parametrize("shape", ["latent"])
def test_a_model_is_cut_over_tp_with_whole_tokens_too(shape: str) -> None:
    job = job_of(shape, **TP_ONLY)

    assert peak_bytes(two_steps(job)) == peak_bytes(two_steps(job, fake_tensors=False))


@pytest.mark.parametrize("shape", ["latent", "gated shared experts", "learned positions, tied"])
def test_kernels_like_cudas_have_shapes_and_gradients_for_every_model(shape: str) -> None:
    assert peak_bytes(two_steps(job_of(shape, **FSDP_TP), kernels=Kernels.LIKE_CUDA)) > 0


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"strategy": DataParallel.DDP, "dp_replicate": 2},
        {"strategy": DataParallel.FSDP, "dp_shard": 4, "precision": Precision.MIXED},
        {"tp": 2},
    ],
    ids=["alone", "DDP", "FSDP2", "tp"],
)
def test_a_loss_in_chunks_takes_the_same_bytes_fake_and_real(said: dict[str, Any]) -> None:
    job = job_of("four norms, tied", fused_loss=True, **said)

    assert peak_bytes(two_steps(job)) == peak_bytes(two_steps(job, fake_tensors=False))


def test_a_loss_in_chunks_needs_less_than_all_logits() -> None:
    shape = replace(SHAPES["llama"], vocab_size=1024)

    plain, in_chunks = (
        peak_bytes(two_steps(with_shape(job_of("llama", seq_len=512, fused_loss=fused), shape)))
        for fused in (False, True)
    )

    logits = 2 * 512 * 1024 * 4
    assert plain - in_chunks > logits


def test_a_loss_in_chunks_is_the_loss_at_once() -> None:
    torch.manual_seed(0)
    output = Output(16, 64, bias=False)
    hidden = torch.randn(2, 12, 16, requires_grad=True)
    labels = torch.randint(64, (2, 12))
    at_once = cross_entropy(output(hidden), labels) * 3
    expected = torch.autograd.grad(at_once, (hidden, output.weight))

    in_chunks = output(hidden, labels) * 3
    found = torch.autograd.grad(in_chunks, (hidden, output.weight))

    torch.testing.assert_close(in_chunks, at_once)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("said", [ALONE, FSDP_TP])
def test_tied_embeddings_stay_one_parameter(said: dict[str, Any]) -> None:
    job = job_of("learned positions, tied", **said)
    with fake_world(job, 0) as world:
        names = len(list(build_program(world, NoObserver()).parameters()))
        untied = job_of("learned positions, tied", **said)
        untied = with_shape(untied, replace(untied.known_shape, ties_embeddings=False))
    with fake_world(untied, 0) as world:
        assert len(list(build_program(world, NoObserver()).parameters())) == names + 1


@pytest.mark.parametrize(
    ("shape", "said", "words"),
    [
        ("llama", {"tp": 4}, "2 key-value heads"),
        ("llama", {"tp": 2, "seq_len": 33}, "sequence parallelism needs tokens"),
        ("latent", {"cp": 2, "strategy": DataParallel.FSDP, "dp_shard": 1}, "values as wide as keys"),
        ("experts", {"tp": 2, "etp": 2}, "inside experts"),
        ("experts", {"ep": 2, **TP_ONLY}, "send the same tokens"),
    ],
)
def test_what_torch_cannot_cut_is_said_in_words(shape: str, said: dict[str, Any], words: str) -> None:
    reason = why_not(job_of(shape, **said))

    assert reason is not None
    assert words in reason


def test_models_that_no_program_is_written_for_are_refused() -> None:
    shape = SHAPES["llama"]

    for odd in (replace(shape, num_mtp_layers=1), replace(shape, norms_per_layer=3)):
        job = with_shape(job_of("llama"), odd)
        with fake_world(job, 0) as world, pytest.raises(CannotRunError, match="estimated only"):
            build_program(world, NoObserver())


def test_the_loss_in_chunks_is_told_as_the_loss() -> None:
    log = two_steps(with_shape(job_of("llama", fused_loss=True), replace(SHAPES["llama"], vocab_size=4096)))

    in_loss = [event.num_bytes for event in log.events if log.places[event.place].phase is Phase.LOSS]
    one_chunk = 2 * 32 * 4096 * 4 // 8
    assert in_loss.count(one_chunk) >= 8


def with_shape(job: Job, shape: Any) -> Job:
    return replace(job, model=replace(job.model, shape=shape))


def two_steps(
    job: Job, *, rank: int = 0, fake_tensors: bool = True, kernels: Kernels = Kernels.NATIVE
) -> MemoryLog:
    with fake_world(job, rank, fake_tensors=fake_tensors, kernels=kernels) as world, Tracker() as tracker:
        program = build_program(world, tracker)
        for number in (1, 2):
            program.step(number, tracker)
        program.close()
    return tracker.log


def peak_bytes(log: MemoryLog) -> int:
    sizes: dict[int, int] = {}
    live = peak = 0
    for event in log.events:
        live += event.num_bytes - sizes.get(event.storage, 0)
        sizes[event.storage] = event.num_bytes
        peak = max(peak, live)
    return peak
