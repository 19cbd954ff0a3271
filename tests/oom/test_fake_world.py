"""A rank alone: fake tensors stay on the CPU, and streams keep their numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch, which programs are written in, is absent")

from distdoctor.oom.job import resolve  # noqa: E402
from distdoctor.oom.models.presets import preset  # noqa: E402
from distdoctor.oom.settings import Settings  # noqa: E402
from distdoctor.oom.simulation.child.fake_world import fake_world  # noqa: E402
from distdoctor.oom.training.base import CannotRunError  # noqa: E402
from distdoctor.torch_private.storages import current_stream_key  # noqa: E402


def test_fake_tensors_are_refused_on_a_gpu() -> None:
    job = resolve(Settings(model=preset("tiny"), world_size=2))
    world = fake_world(job, 0, device=torch.device("cuda", 0))
    with pytest.raises(CannotRunError, match="on the CPU"), world:
        pass
    assert not torch.distributed.is_initialized()


def test_a_stream_keeps_its_number() -> None:
    first = current_stream_key("cpu")
    with torch.cpu.stream(torch.cpu.Stream()):
        assert current_stream_key("cpu") != first
    assert current_stream_key("cpu") == first


def test_a_stream_of_cuda_is_known_by_its_handle_not_by_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch makes a new object at every call."""

    class Stream:
        def __init__(self, handle: int) -> None:
            self.cuda_stream = handle

    handles = iter((0, 0, 94_000))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream(next(handles)))
    first, again, other = (current_stream_key("cuda") for _ in range(3))
    assert first == again != other
