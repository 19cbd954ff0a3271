"""Where two gradients meet, a tracker adds them as autograd does when nobody watches: in place if they are free."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch")

from distdoctor.oom.job import Job, resolve  # noqa: E402
from distdoctor.oom.settings import Checkpointing, DataParallel, Precision, Settings  # noqa: E402
from distdoctor.oom.shape import Model, ModelShape  # noqa: E402
from distdoctor.oom.simulation.child.real_allocator import allocator_peaks  # noqa: E402
from distdoctor.oom.simulation.child.self_check import measured_peak, simulated_peak  # noqa: E402
from distdoctor.oom.tracking.gradient_sums import of_a_free_gradient  # noqa: E402
from distdoctor.oom.tracking.tracker import Tracker  # noqa: E402
from distdoctor.torch_private.fake_tensors import fake_tensor_mode  # noqa: E402

pytestmark = pytest.mark.skipif(
    of_a_free_gradient() is None, reason="this torch does not tell who holds a tensor"
)
SIZE = 64 << 10


def used_twice(x: torch.Tensor) -> torch.Tensor:
    """Both gradients are new, so that the first takes the second up."""
    return (x * 2) * (x * 3)


def beside_itself(x: torch.Tensor) -> torch.Tensor:
    """The gradient of a sum goes both ways: the first is held twice."""
    return x + x * x


def viewed(x: torch.Tensor) -> torch.Tensor:
    return (x.view(-1, 2) * 2).reshape(-1) * (x * 3)


def sums_in(function: object, *, fake: bool = False) -> int:
    """New storages that sums of gradients took."""
    with fake_tensor_mode() if fake else contextlib.nullcontext(), Tracker() as tracker:
        x = torch.ones(SIZE, requires_grad=True)
        function(x * 1.0).sum().backward()  # type: ignore[operator]
    log = tracker.log
    return sum(
        log.places[each.place].op == "aten.add.Tensor" and each.num_bytes == 4 * SIZE for each in log.events
    )


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("function", [used_twice, viewed])
def test_a_gradient_that_nothing_else_holds_takes_the_other_up(function: object, fake: bool) -> None:
    assert sums_in(function, fake=fake) == 0


def test_the_gradient_of_a_sum_is_held_by_both_sides() -> None:
    # One is the sum of the forward pass itself.
    assert sums_in(beside_itself) >= 2


def test_a_gradient_that_somebody_kept_is_not_written_to() -> None:
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            made = gradient * 2
            kept.append((made, made.clone()))
            return made

    with Tracker():
        x = torch.ones(8, requires_grad=True)
        y = x * 1.0
        (Keep.apply(y) * Keep.apply(y)).sum().backward()
    assert all(torch.equal(made, before) for made, before in kept)


@pytest.mark.parametrize("function", [used_twice, beside_itself, viewed])
def test_gradients_are_the_same_as_unwatched(function: object) -> None:
    def gradient() -> torch.Tensor:
        x = torch.linspace(0, 1, 64, requires_grad=True)
        function(x * 1.0).sum().backward()  # type: ignore[operator]
        assert x.grad is not None
        return x.grad

    with Tracker():
        watched = gradient()
    assert torch.equal(watched, gradient())


def tied() -> Job:
    """Its largest gradient is the sum of two, of the embedding and of the output."""
    shape = ModelShape(
        num_layers=2,
        hidden_size=128,
        num_heads=4,
        num_kv_heads=2,
        head_size=32,
        ffn_size=96,
        vocab_size=2048,
        ties_embeddings=True,
    )
    return resolve(
        Settings(
            model=Model(name="tied", source="test", shape=shape),
            world_size=1,
            strategy=DataParallel.NONE,
            precision=Precision.MIXED,
            seq_len=16,
            checkpointing=Checkpointing.FULL,
        )
    )


def test_a_tied_embeddings_gradient_is_there_once() -> None:
    measured = measured_peak(tied())
    if measured is None:
        pytest.skip("this torch's profiler does not tell allocations")
    assert simulated_peak(tied()) == pytest.approx(measured, rel=1e-3)


def test_the_allocator_itself_sees_no_third_gradient() -> None:
    def run() -> None:
        x = torch.ones(SIZE, requires_grad=True)
        used_twice(x * 1.0).sum().backward()

    with_both = allocator_peaks(run)
    if with_both is None:
        pytest.skip("this torch's profiler does not tell allocations")
    with Tracker() as tracker:
        run()
    live = peak = 0
    sizes: dict[int, int] = {}
    for each in tracker.log.events:
        live += each.num_bytes - sizes.get(each.storage, 0)
        sizes[each.storage] = each.num_bytes
        peak = max(peak, live)
    assert peak == pytest.approx(with_both.num_bytes, rel=1e-3)
