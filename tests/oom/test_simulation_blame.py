"""Which op is blamed for a simulation that came to no end."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from distdoctor.oom.simulation.child.blame import blame_of


class OfFakeTensorsError(RuntimeError):
    """As torch's exceptions of fake tensors: they carry the op."""

    def __init__(self, func: str) -> None:
        super().__init__(func)
        self.func = func


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (
            "Operator aten._fused_sgd_.default does not have a sharding strategy registered.",
            "aten._fused_sgd_",
        ),
        (
            "aten.mul.Tensor: in-place operations that require placement changes are not supported. The input has "
            "placement (_NormPartial(2),), but no valid strategy preserves this placement.",
            "aten.mul.Tensor",
        ),
    ],
)
def test_what_dtensors_cannot_do_is_told_from_what_fake_tensors_cannot(text: str, op: str) -> None:
    blame = blame_of(NotImplementedError(text))
    assert blame.refused == op
    assert blame.op is None


def test_the_op_of_fake_tensors_is_named_from_the_cause() -> None:
    try:
        try:
            raise OfFakeTensorsError("aten.nonzero.default")
        except OfFakeTensorsError as error:
            raise ValueError("forward failed") from error
    except ValueError as error:
        blame = blame_of(error)
    assert (blame.op, blame.refused) == ("aten.nonzero.default", None)


def test_nothing_is_blamed_without_a_word_of_it() -> None:
    blame = blame_of(ValueError("shapes differ"))
    assert (blame.op, blame.module, blame.refused) == (None, None, None)
