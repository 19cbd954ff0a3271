"""What an op would allocate is known before it runs, for all that a training step does."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from distdoctor.oom.tracking.foreseeing import foreseen_bytes  # noqa: E402


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: torch.ops.aten.mm.default(x, x), 64 * 64 * 4),
        (lambda x: torch.ops.aten.view.default(x, [-1]), 0),
        (lambda x: torch.ops.aten._unsafe_view.default(x, [4096]), 0),
        (lambda x: torch.ops.aten.add_.Tensor(x, x), 0),
        (lambda x: torch.ops.aten._to_copy.default(x, dtype=torch.bfloat16), 64 * 64 * 2),
        (
            lambda x: torch.ops.aten.native_layer_norm.default(x, [64], None, None, 1e-5),
            64 * 64 * 4 + 2 * 64 * 4,
        ),
        (lambda x: torch.ops.aten._foreach_mul.Scalar([x, x], 2.0), 2 * 64 * 64 * 4),
        (torch.ops.aten.nonzero.default, None),
    ],
    ids=["mm", "view", "unsafe view", "in place", "copy", "three results", "foreach", "by value"],
)
def test_bytes_of_an_op_are_known_before_it_runs(call: Any, expected: int | None) -> None:
    asked: list[int | None] = []

    class Asking(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(foreseen_bytes(func, args, kwargs or {}))
            return func(*args, **(kwargs or {}))

    matrix = torch.zeros(64, 64)
    with Asking():
        call(matrix)
    assert asked[0] == expected


def test_what_is_built_without_memory_allocates_nothing() -> None:
    on_meta = torch.empty(64, 64, device="meta")
    assert foreseen_bytes(torch.ops.aten.mm.default, (on_meta, on_meta), {}) == 0
    empty = torch.ops.aten.empty.memory_format
    assert foreseen_bytes(empty, ([64, 64],), {"device": torch.device("meta")}) == 0
    assert (
        foreseen_bytes(empty, ([64, 64],), {"device": torch.device("cpu"), "dtype": torch.float32})
        == 64 * 64 * 4
    )
