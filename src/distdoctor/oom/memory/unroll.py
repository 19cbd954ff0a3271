"""From the log of a few layers to that of many: what happens in a middle layer is repeated.

A deep model is a stack of equal layers, and in the middle each does what its neighbours do, one place further on: it
allocates, and frees what it or a layer at a fixed distance allocated. So the log of a middle layer stands for all. The
n-th thing that one layer allocates corresponds to the n-th of every other; that carries frees over to the right storage.

Whether a program really is like that is checked twice: here, that the middle layers allocate the same sizes in the same
order, and by simulating one layer more and comparing (simulation/folding.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from distdoctor.oom.memory.log import Event, MemoryLog, Place, Storage

_NUMBER = re.compile(r"(^|\.)layers\.(\d+)")


class IrregularError(Exception):
    """The layers around a template do different things; the text says where."""


def unroll(log: MemoryLog, extra: Mapping[int, int]) -> MemoryLog:
    """The log as if template layer `t` stood there `1 + extra[t]` times. Layers are counted as in `Place.layer`; both
    neighbours of a template must do what it does. Raises IrregularError."""
    result = log
    # From the last to the first, so that templates before keep their numbers.
    for template in sorted(extra, reverse=True):
        if extra[template]:
            result = _Unroller(result, template, extra[template]).run()
    return result


@dataclass(frozen=True, slots=True)
class _Birth:
    layer: int
    order: int
    """How many storages the same layer had made before."""


class _Unroller:
    def __init__(self, log: MemoryLog, template: int, extra: int) -> None:
        self._log = log
        self._template = template
        self._extra = extra
        self._descends = False
        self._births: list[_Birth | None] = [None] * len(log.storages)
        self._born_in: defaultdict[int, list[int]] = defaultdict(list)
        self._keys = self._key_of_events()
        self._out = MemoryLog()
        self._sizes: dict[int, int] = {}
        for event in log.events:
            self._sizes.setdefault(event.storage, event.num_bytes)
        self._numbers: dict[int | tuple[int, int], int] = {}
        self._places: dict[Place, int] = {}

    def run(self) -> MemoryLog:
        self._require_equal_layers()
        for layer, events in self._windows():
            if layer != self._template:
                beyond = layer is not None and layer > self._template
                self._emit(events, layer, self._extra if beyond else 0)
                continue
            copies: Iterator[int] | range = range(self._extra + 1)
            if self._descends:
                copies = reversed(range(self._extra + 1))
            for copy in copies:
                self._emit(events, layer, copy)
        return self._out

    def _key_of_events(self) -> list[int | None]:
        """The layer that each event belongs to: where it happened, else the layer of what it happened to."""
        keys: list[int | None] = []
        seen = bytearray(len(self._log.storages))
        for event in self._log.events:
            storage = self._log.storages[event.storage]
            key = self._log.places[event.place].layer
            if key is None:
                birth = self._births[event.storage]
                key = storage.layer if storage.layer is not None else birth.layer if birth else None
            if not seen[event.storage]:
                seen[event.storage] = 1
                if key is not None:
                    self._births[event.storage] = _Birth(key, len(self._born_in[key]))
                    self._born_in[key].append(event.storage)
            keys.append(key)
        return keys

    def _require_equal_layers(self) -> None:
        sizes = {
            layer: [self._first_size(number) for number in self._born_in[layer]]
            for layer in (self._template - 1, self._template, self._template + 1)
        }
        if len({len(each) for each in sizes.values()}) != 1:
            counts = ", ".join(f"layer {layer}: {len(each)}" for layer, each in sizes.items())
            raise IrregularError(f"layers make different numbers of tensors ({counts})")
        if len({tuple(each) for each in sizes.values()}) != 1:
            raise IrregularError(f"layers around layer {self._template} make tensors of different sizes")

    def _first_size(self, number: int) -> int:
        return self._sizes[number]

    def _windows(self) -> Iterator[tuple[int | None, list[Event]]]:
        """Runs of events of one layer. While a window is out, `_descends` says whether layers go down around it."""
        runs: list[tuple[int | None, list[Event]]] = []
        for key, event in zip(self._keys, self._log.events, strict=True):
            if not runs or runs[-1][0] != key:
                runs.append((key, []))
            runs[-1][1].append(event)
        before: int | None = None
        for number, (key, events) in enumerate(runs):
            if key == self._template:
                after = next((layer for layer, _ in runs[number + 1 :] if layer is not None), None)
                self._descends = (before is not None and before > key) or (
                    before is None and after is not None and after < key
                )
            if key is not None:
                before = key
            yield key, events

    def _emit(self, events: list[Event], layer: int | None, shift: int) -> None:
        """The events once more, `shift` layers further on."""
        for event in events:
            self._out.events.append(
                Event(
                    self._storage(event.storage, layer, shift),
                    event.num_bytes,
                    self._place(event.place, shift),
                )
            )

    def _storage(self, number: int, layer: int | None, shift: int) -> int:
        """The storage that stands to a window `shift` layers further on as `number` stands to the window."""
        birth = self._births[number]
        if birth is None:
            return self._number(number, self._log.storages[number])
        first, last = self._template, self._template + self._extra
        if layer is None:
            # Outside all layers: a storage of a layer behind the template is still that one.
            target = birth.layer + (self._extra if birth.layer > self._template else 0)
        else:
            target = birth.layer + shift
        if first <= target <= last:
            born = self._born_in[self._template]
            if birth.order >= len(born):
                raise IrregularError(f"layer {birth.layer} makes tensors that layer {first} does not make")
            original = self._log.storages[born[birth.order]]
            copy = target - first
            moved = _moved(original, copy)
            key: int | tuple[int, int] = (born[birth.order], copy) if copy else born[birth.order]
            return self._number(key, moved)
        home = target if target < first else target - self._extra
        born = self._born_in[home]
        if birth.order >= len(born):
            raise IrregularError(f"layer {birth.layer} makes tensors that layer {home} does not make")
        original = self._log.storages[born[birth.order]]
        return self._number(born[birth.order], _moved(original, self._extra if home > self._template else 0))

    def _number(self, key: int | tuple[int, int], storage: Storage) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._out.storages)
            self._out.storages.append(storage)
        return number

    def _place(self, number: int, shift: int) -> int:
        place = self._log.places[number]
        if shift and place.layer is not None:
            place = replace(place, layer=place.layer + shift, module=_renumbered(place.module, shift))
        index = self._places.get(place)
        if index is None:
            index = self._places[place] = len(self._out.places)
            self._out.places.append(place)
        return index


def _moved(storage: Storage, shift: int) -> Storage:
    """The same, of a layer `shift` further on."""
    if not shift or storage.layer is None:
        return storage
    return replace(storage, layer=storage.layer + shift, name=_renumbered(storage.name, shift))


def _renumbered(module: str, shift: int) -> str:
    """`layers.2.attention`, three further on: `layers.5.attention`."""
    return _NUMBER.sub(lambda match: f"{match[1]}layers.{int(match[2]) + shift}", module, count=1)
