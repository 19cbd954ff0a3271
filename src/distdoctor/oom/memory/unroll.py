"""From the log of a few layers to that of many: what happens in a middle layer is repeated.

A deep model is a stack of equal layers, and in the middle each does what its neighbours do, one place further on: it
allocates, and frees what it or a layer at a fixed distance allocated. So the log of a middle layer stands for all. The
n-th thing that one layer allocates by an op in some part of a step corresponds to the n-th of every other layer there;
that carries frees over to the right storage. What only the first or the last layer allocates corresponds to nothing.

Whether a program really is like that is checked twice: here, that the middle layers allocate the same sizes in the same
order, and by simulating one layer more and comparing (simulation/folding.py).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from distdoctor.oom.memory.log import Event, MemoryLog, Place, Storage

# Programs look one layer ahead or back, FSDP2 two when it waits for a reduction.
_NEAR = 2
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


_Key = tuple[object, ...]
"""Step, phase, micro-batch, op, and how many storages the same layer had made there before."""


@dataclass(frozen=True, slots=True)
class _Birth:
    layer: int
    key: _Key


class _Unroller:
    def __init__(self, log: MemoryLog, template: int, extra: int) -> None:
        self._log = log
        self._template = template
        self._extra = extra
        self._descends = False
        self._births: list[_Birth | None] = [None] * len(log.storages)
        self._born_in: defaultdict[int, dict[_Key, int]] = defaultdict(dict)
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
        counts: Counter[tuple[int, _Key]] = Counter()
        born: dict[int, Place] = {}
        for event in self._log.events:
            storage, place = self._log.storages[event.storage], self._log.places[event.place]
            layer = place.layer
            if layer is None:
                birth = self._births[event.storage]
                layer = storage.layer if storage.layer is not None else birth.layer if birth else None
                if event.num_bytes == 0 and storage.label is None and _same_phase(place, born[event.storage]):
                    layer = _turn(layer, keys)
            if not seen[event.storage]:
                seen[event.storage] = 1
                born[event.storage] = place
                if layer is not None:
                    where: _Key = (place.step, place.phase, place.micro_batch, place.op)
                    key = (*where, counts[layer, where])
                    counts[layer, where] += 1
                    self._births[event.storage] = _Birth(layer, key)
                    self._born_in[layer][key] = event.storage
            keys.append(layer)
        return keys

    def _require_equal_layers(self) -> None:
        sizes = {
            layer: {key: self._sizes[number] for key, number in self._born_in[layer].items()}
            for layer in (self._template - 1, self._template, self._template + 1)
        }
        if len({len(each) for each in sizes.values()}) != 1:
            counts = ", ".join(f"layer {layer}: {len(each)}" for layer, each in sizes.items())
            raise IrregularError(f"layers make different numbers of tensors ({counts})")
        if any(each != sizes[self._template] for each in sizes.values()):
            raise IrregularError(f"layers around layer {self._template} make tensors of different sizes")

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
        at_home = self._extra if birth.layer > self._template else 0
        if layer is None or abs(birth.layer - layer) > _NEAR:
            # Outside all layers, or at the other end of the stack: what belongs to a layer behind the template is still
            # that layer's. A pipeline's next micro-batch drops in its first layer what the last layer gave before.
            target = birth.layer + at_home
        else:
            target = birth.layer + shift
        home = first if first <= target <= last else target if target < first else target - self._extra
        found = self._born_in[home].get(birth.key)
        if found is None:
            # A layer at the end makes what others do not, and it dies in somebody else's turn: still that one.
            return self._number(number, _moved(self._log.storages[number], at_home))
        original = self._log.storages[found]
        if home == first:
            copy = target - first
            return self._number((found, copy) if copy else found, _moved(original, copy))
        return self._number(found, _moved(original, self._extra if home > first else 0))

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


def _same_phase(one: Place, other: Place) -> bool:
    return (one.step, one.phase, one.micro_batch) == (other.step, other.phase, other.micro_batch)


def _turn(layer: int | None, before: list[int | None]) -> int | None:
    """In whose turn a temporary of `layer` dies. A loop drops a variable when it gets the next value, so the last one of
    a layer dies in the turn of its neighbour."""
    running = before[-1] if before else None
    is_neighbour = layer is not None and running is not None and abs(running - layer) == 1
    return running if is_neighbour else layer


def _moved(storage: Storage, shift: int) -> Storage:
    """The same, of a layer `shift` further on."""
    if not shift or storage.layer is None:
        return storage
    return replace(storage, layer=storage.layer + shift, name=_renumbered(storage.name, shift))


def _renumbered(module: str, shift: int) -> str:
    """`layers.2.attention`, three further on: `layers.5.attention`."""
    return _NUMBER.sub(lambda match: f"{match[1]}layers.{int(match[2]) + shift}", module, count=1)
