"""Every gate: a rank that passes it, and one that does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from distdoctor.straggler.analysis.ranks.gates import FEW_STEPS, MIN_STEPS, failed_gates
from distdoctor.straggler.analysis.ranks.judgement import Gate
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.threshold import Threshold


@dataclass(frozen=True)
class Seen:
    """A rank that is 20 % slower in 100 steps, beyond doubt."""

    values: tuple[float, ...] = (0.2,) * 100
    standard_error: float = 0.002
    excess_ms: float = 60.0
    wait_deficit_ms: float | None = 58.0
    wait_is_derived: bool = False
    step_ms: float | None = 350.0
    num_peers: int = 8
    basis: Basis = Basis.SECTIONS
    usual_error: float = 0.002

    def failed(self) -> tuple[Gate, ...]:
        values = np.array(self.values, dtype=np.float32)
        return failed_gates(
            values,
            effect=float(np.median(values)),
            standard_error=self.standard_error,
            excess_ms=self.excess_ms,
            wait_deficit_ms=self.wait_deficit_ms,
            wait_is_derived=self.wait_is_derived,
            step_ms=self.step_ms,
            num_peers=self.num_peers,
            basis=self.basis,
            threshold=Threshold(
                value=0.03, scale=0.006, critical=4.5, spread=0.005, noise=0.02, rank_error=1e-4
            ),
            usual_error=self.usual_error,
        )


CLEAR = Seen()


def test_a_rank_that_is_slow_beyond_doubt_passes_every_gate() -> None:
    assert CLEAR.failed() == ()


@pytest.mark.parametrize(
    ("gate", "fails", "passes"),
    [
        (Gate.STEPS, {"values": (0.5,) * (MIN_STEPS - 1)}, {"values": (0.5,) * MIN_STEPS}),
        (Gate.STEPS, {"values": (0.08,) * (FEW_STEPS - 1)}, {"values": (0.08,) * FEW_STEPS}),
        (Gate.STEPS, {"values": (0.4, 0.4, 0.1, 0.4, 0.4, 0.4)}, {"values": (0.4, 0.4, 0.3, 0.4, 0.4, 0.4)}),
        (
            Gate.STEPS,
            {"values": (0.2,) * 6, "standard_error": 0.05},
            {"values": (0.2,) * 6, "standard_error": 0.03},
        ),
        (Gate.PEERS, {"num_peers": 3}, {"num_peers": 4}),
        (Gate.NOISE, {"standard_error": 0.07}, {"standard_error": 0.04}),
        (Gate.NOISE, {"values": (0.028,) * 100}, {"values": (0.031,) * 100}),
        (
            Gate.NOISE,
            {"values": (0.09,) * 100, "basis": Basis.WALL_ONLY},
            {"values": (0.11,) * 100, "basis": Basis.WALL_ONLY},
        ),
        (
            Gate.LASTING,
            {"values": (0.2,) * 60 + (0.05,) * 40},
            {"values": (0.2,) * 60 + (0.15,) * 40},
        ),
        (Gate.WAIT, {"wait_deficit_ms": 17.0}, {"wait_deficit_ms": 19.0}),
        (Gate.WAIT, {"wait_deficit_ms": -60.0}, {"wait_deficit_ms": None}),
        (Gate.WAIT, {"wait_deficit_ms": 0.0}, {"wait_deficit_ms": 0.0, "wait_is_derived": True}),
        (
            Gate.SHARE,
            {"excess_ms": 3.4, "wait_deficit_ms": 3.4},
            {"excess_ms": 3.6, "wait_deficit_ms": 3.6},
        ),
        (
            Gate.SHARE,
            {"excess_ms": 1.0, "wait_deficit_ms": 1.0},
            {"excess_ms": 1.0, "wait_deficit_ms": 1.0, "step_ms": None},
        ),
    ],
)
def test_one_gate_alone_decides(gate: Gate, fails: dict[str, object], passes: dict[str, object]) -> None:
    assert replace(CLEAR, **fails).failed() == (gate,)
    assert replace(CLEAR, **passes).failed() == ()


def test_a_rank_noisier_than_the_others_needs_more() -> None:
    noisy = replace(CLEAR, values=(0.05,) * 100, standard_error=0.014)
    assert noisy.failed() == (Gate.NOISE,)
    assert replace(noisy, usual_error=0.014).failed() == ()


def test_several_gates_are_told_each_once() -> None:
    bad = replace(CLEAR, num_peers=2, wait_deficit_ms=0.0, basis=Basis.WALL_ONLY, values=(0.01,) * 100)
    assert bad.failed() == (Gate.PEERS, Gate.NOISE, Gate.WAIT)
