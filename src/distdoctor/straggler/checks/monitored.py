"""What monitoring says of the GPU of a slow rank, where both are in the evidence."""

from __future__ import annotations

from distdoctor.report.model import Evidence, GpuRef
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.checks.base import Found
from distdoctor.straggler.checks.telemetry.findings import telemetry_outcomes
from distdoctor.straggler.facts.places import Place


def monitoring_of_rows(facts: Analysed, judged: Judged) -> dict[int, tuple[Evidence, ...]]:
    """Row → what is odd about its GPU, with the title first; rows whose GPU is like its peers, or not there, are absent.

    A GPU is found by UUID, or by host and index. Where the evidence of timing tells no index, the local rank is taken for
    it, and the line says so.
    """
    if not facts.reading.telemetry:
        return {}
    odd: list[Found] = [
        each
        for each in telemetry_outcomes(facts.reading.telemetry, around_s=facts.around_s)
        if isinstance(each, Found) and each.scope.gpus
    ]
    found: dict[int, tuple[Evidence, ...]] = {}
    for row, place in enumerate(judged.timings.places):
        for each in odd:
            if any(_is_of(gpu, place) for gpu in each.scope.gpus):
                found[row] = (_headline(each, place), *each.evidence[:2])
                break
    return found


def _headline(found: Found, place: Place) -> Evidence:
    guessed = place.gpu is None or (place.gpu.index is None and place.gpu.uuid is None)
    by = f" (GPU {place.local_rank} by its local rank)" if guessed else ""
    return Evidence(text=f"monitoring agrees{by}: {found.title}")


def _is_of(gpu: GpuRef, place: Place) -> bool:
    known = place.gpu
    if known is not None and known.uuid and gpu.uuid:
        return known.uuid == gpu.uuid
    if place.host is None or gpu.host != place.host or gpu.index is None:
        return False
    index = known.index if known is not None and known.index is not None else place.local_rank
    return index == gpu.index
