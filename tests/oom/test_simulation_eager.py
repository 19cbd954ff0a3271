"""A job that is compiled or computes in 8 bit is simulated without, and its number is called what it is."""

from __future__ import annotations

import pytest

from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.eager import as_eager, eager_words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"compiled": True}, "simulated without torch.compile, which keeps less: an upper bound"),
        ({"fp8": True}, "simulated without float8, which keeps less: an upper bound"),
        (
            {"compiled": True, "fp8": True},
            "simulated without torch.compile and float8, which keep less: an upper bound",
        ),
    ],
)
def test_what_is_left_out_is_named(said: dict[str, bool], words: str) -> None:
    job = resolve(Settings(model=preset("llama3-8b"), world_size=8, **said))  # type: ignore[arg-type]
    assert eager_words(job) == words
    assert as_eager(job) == resolve(Settings(model=preset("llama3-8b"), world_size=8))


@pytest.mark.parametrize("said", [{}, {"compiled": False, "fp8": False}])
def test_an_eager_job_is_left_as_it_is(said: dict[str, bool]) -> None:
    job = resolve(Settings(model=preset("llama3-8b"), world_size=8, **said))  # type: ignore[arg-type]
    assert eager_words(job) == ""
    assert as_eager(job) is job
