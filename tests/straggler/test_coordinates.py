"""What `--mesh` means."""

from __future__ import annotations

import pytest

from distdoctor.errors import UsageError
from distdoctor.straggler.coordinates import parse_mesh


def test_usual_names_of_dimensions_are_recognised_for_what_they_are() -> None:
    assert parse_mesh("stage=4,data=2") == (("pp", 4), ("dp", 2))
    assert parse_mesh("pipe=2,replicate=2,shard=4,tensor=8") == (
        ("pp", 2),
        ("dp_replicate", 2),
        ("dp_shard", 4),
        ("tp", 8),
    )
    # Tensor or pipeline parallel: nobody can say.
    assert parse_mesh("data=2,model=4") == (("dp", 2), ("model", 4))


def test_a_dimension_by_two_names_is_a_slip() -> None:
    with pytest.raises(UsageError, match="each dimension once"):
        parse_mesh("pp=2,stage=2")
