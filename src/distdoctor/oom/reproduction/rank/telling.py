"""Telling the store what is known of this rank's part in a combination, from the moment it is known."""

from __future__ import annotations

from typing import Any

import msgspec

from distdoctor.oom.facts.reproduced import At, RankPart
from distdoctor.oom.memory.log import Place
from distdoctor.oom.reproduction.gathered import part_name
from distdoctor.ranks.greeting import encode
from distdoctor.ranks.told import Teller, tell


class PartTeller:
    """Holds this rank's part; each change is told at once."""

    def __init__(self, teller: Teller, *, number: int, rank: int) -> None:
        self._teller = teller
        self._name = part_name(number)
        self.part = RankPart(rank=rank)
        tell(teller, self._name, rank, encode(self.part))

    def change(self, **fields: Any) -> None:
        """Any: fields of `RankPart`."""
        self.part = msgspec.structs.replace(self.part, **fields)
        self._teller.put(f"{self._name}/{self.part.rank}", encode(self.part))


def at_of(place: Place) -> At:
    """A place as it is told."""
    return At(
        step=place.step,
        phase=place.phase.value,
        micro_batch=place.micro_batch,
        module=place.module,
        layer=place.layer,
        op=place.op,
    )
