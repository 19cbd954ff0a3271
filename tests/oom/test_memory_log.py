"""What follows from a log of allocations: categories, peaks, and the log of many layers from that of few. By hand."""

from __future__ import annotations

import pytest

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.categories import categories_of
from distdoctor.oom.memory.log import Event, MemoryLog, Origin, Phase, Place, Storage
from distdoctor.oom.memory.peaks import as_allocated, peaks_of
from distdoctor.oom.memory.unroll import IrregularError, unroll

FORWARD, BACKWARD, STEP = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER_STEP


class Writer:
    """Writes a log as a program would: `make` returns the storage's number."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self._place = self._at(Phase.INITIALISATION, 0, None, "")

    def at(self, phase: Phase, *, step: int = 1, layer: int | None = None, module: str = "") -> Writer:
        self._place = self._at(phase, step, layer, module)
        return self

    def _at(self, phase: Phase, step: int, layer: int | None, module: str) -> Place:
        name = module or ("" if layer is None else f"layers.{layer}.mlp")
        return Place(step=step, phase=phase, micro_batch=0 if step else None, module=name, layer=layer)

    def make(
        self,
        num_bytes: int,
        *,
        origin: Origin = Origin.PROGRAM,
        label: Category | None = None,
        layer: int | None = None,
    ) -> int:
        self.log.storages.append(Storage(origin=origin, label=label, layer=layer))
        self.resize(len(self.log.storages) - 1, num_bytes)
        return len(self.log.storages) - 1

    def resize(self, number: int, num_bytes: int) -> None:
        self.log.places.append(self._place)
        self.log.events.append(Event(number, num_bytes, len(self.log.places) - 1))

    def free(self, *numbers: int) -> None:
        for number in numbers:
            self.resize(number, 0)


def stack(num_layers: int, *, last_makes: int = 0, odd_layer: int | None = None) -> MemoryLog:
    """Forward saves two tensors a layer and gathers one layer ahead; backward frees them and makes gradients; the step
    drops a layer's temporary in the turn of the next layer."""
    write = Writer()
    parameters = [write.make(100, label=Category.PARAMETERS, layer=layer) for layer in range(num_layers)]
    ahead = write.at(FORWARD, layer=0).make(50, origin=Origin.UNSHARDED)
    saved = []
    for layer in range(num_layers):
        write.at(FORWARD, layer=layer)
        gathered = ahead
        if layer + 1 < num_layers:
            ahead = write.make(50, origin=Origin.UNSHARDED)
        saved.append([write.make(7 if layer != odd_layer else 9), write.make(5)])
        write.free(gathered)
    extra = [write.make(3) for _ in range(last_makes)]
    gradients = {}
    for layer in reversed(range(num_layers)):
        write.at(BACKWARD, layer=layer)
        gradients[layer] = write.make(100, label=Category.GRADIENTS, layer=layer)
        write.free(*saved[layer])
    write.at(FORWARD, layer=0)
    write.free(*extra)
    write.at(STEP)
    before = None
    for layer in range(num_layers):
        temporary = write.make(20, layer=layer)
        if before is not None:
            write.free(before)
        before = temporary
    if before is not None:
        write.free(before)
    write.free(*gradients.values(), *parameters)
    return write.log


def course(log: MemoryLog) -> list[tuple[int, Phase, int | None]]:
    """Bytes that are alive after each event, with phase and layer."""
    sizes: dict[int, int] = {}
    found = []
    for event in log.events:
        sizes[event.storage] = event.num_bytes
        place = log.places[event.place]
        found.append((sum(sizes.values()), place.phase, place.layer))
    return found


@pytest.mark.parametrize("extra", [1, 2, 7])
def test_five_layers_unrolled_are_the_log_of_many(extra: int) -> None:
    assert course(unroll(stack(5), {2: extra})) == course(stack(5 + extra))


def test_what_the_last_layer_alone_makes_dies_once() -> None:
    few, many = unroll(stack(5, last_makes=2), {2: 4}), stack(9, last_makes=2)
    assert course(few) == course(many)
    assert course(few)[-1][0] == 0


def test_names_and_layers_count_on() -> None:
    log = unroll(stack(5), {2: 3})
    assert {place.module for place in log.places if place.layer == 7} == {"layers.7.mlp"}
    assert {storage.layer for storage in log.storages if storage.layer is not None} == set(range(8))


def test_layers_of_different_sizes_are_refused() -> None:
    with pytest.raises(IrregularError, match="different sizes"):
        unroll(stack(5, odd_layer=3), {2: 4})


def test_nothing_to_repeat_leaves_a_log_as_it_is() -> None:
    log = stack(3)
    assert unroll(log, {}) is log
    assert unroll(log, {1: 0}) is log


def test_a_tensor_of_forward_that_outlives_it_is_an_activation_and_another_a_temporary() -> None:
    write = Writer()
    write.at(FORWARD, layer=0)
    kept, dropped = write.make(8), write.make(4)
    write.free(dropped)
    write.at(BACKWARD, layer=0)
    passing = write.make(4)
    write.free(passing, kept)
    assert categories_of(write.log) == [Category.ACTIVATIONS, Category.TEMPORARIES, Category.TEMPORARIES]


def test_labels_and_origins_come_before_where_a_storage_lived() -> None:
    write = Writer()
    parameter = write.make(8, label=Category.PARAMETERS)
    write.at(FORWARD, layer=0)
    gathered, sent = write.make(4, origin=Origin.UNSHARDED), write.make(2, origin=Origin.COLLECTIVE)
    write.free(gathered, sent, parameter)
    assert categories_of(write.log) == [Category.PARAMETERS, Category.GATHERED, Category.COMMUNICATION]


def test_output_and_loss_are_logits_in_backward_too() -> None:
    write = Writer()
    write.at(FORWARD, module="output").make(8)
    write.at(Phase.LOSS).make(8)
    write.at(BACKWARD, module="output").make(8)
    write.at(BACKWARD, module="layers.0.output_gate").make(8)
    assert categories_of(write.log) == [Category.LOGITS] * 3 + [Category.TEMPORARIES]
    assert categories_of(write.log, output_modules=("vocabulary",))[0] is Category.ACTIVATIONS


def test_what_a_pipeline_stage_without_a_loss_hands_on_is_no_logits() -> None:
    write = Writer()
    write.at(FORWARD, layer=0).make(10)
    write.at(BACKWARD).make(20)
    assert categories_of(write.log)[1] is Category.TEMPORARIES


def test_a_step_s_data_are_inputs() -> None:
    write = Writer()
    write.at(Phase.DATA).make(8)
    assert categories_of(write.log) == [Category.INPUTS]


def test_the_peak_names_the_phase_the_event_and_what_it_was_made_of() -> None:
    write = Writer()
    write.make(1000, label=Category.PARAMETERS)
    write.at(FORWARD, layer=0)
    saved = write.make(300)
    write.at(BACKWARD, layer=0)
    gradient = write.make(1000, label=Category.GRADIENTS)
    write.free(saved)
    write.at(STEP)
    write.free(gradient)
    peaks = peaks_of(write.log, categories_of(write.log))
    assert peaks is not None
    assert peaks.overall.num_bytes == 2300
    assert peaks.overall.place.phase is BACKWARD
    assert peaks.overall.event == 2
    assert peaks.overall.by_category == {
        Category.PARAMETERS: 1000,
        Category.ACTIVATIONS: 300,
        Category.GRADIENTS: 1000,
    }
    assert peaks.second is not None
    assert (peaks.second.place.phase, peaks.second.num_bytes) == (FORWARD, 1300)
    assert peaks.by_phase[1, STEP].num_bytes == 1000


def test_cuda_counts_in_blocks_of_512_bytes() -> None:
    write = Writer()
    write.make(1)
    write.make(513)
    peaks = peaks_of(write.log, categories_of(write.log), counted=as_allocated)
    assert peaks is not None
    assert peaks.overall.num_bytes == 512 + 1024


def test_what_came_before_counts_but_is_not_looked_at() -> None:
    write = Writer()
    whole, kept = write.make(5000), write.make(100)
    write.free(whole)
    write.at(FORWARD).make(10)
    peaks = peaks_of(write.log, categories_of(write.log), first_event=3)
    assert peaks is not None
    assert peaks.overall.num_bytes == 110
    assert kept == 1


def test_a_resized_storage_counts_with_its_new_size() -> None:
    write = Writer()
    number = write.make(100)
    write.resize(number, 400)
    write.resize(number, 50)
    peaks = peaks_of(write.log, categories_of(write.log))
    assert peaks is not None
    assert peaks.overall.num_bytes == 400


def test_nothing_allocated_has_no_peak() -> None:
    assert peaks_of(MemoryLog(), []) is None
