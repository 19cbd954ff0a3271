"""One trace file: its rank, the times of its steps, its collectives. Only sums and rows of collectives are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.file_bytes import FileBytes
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.readers.kineto.blocks import Blocks
from distdoctor.straggler.readers.kineto.collect import Labels, Took, collect_rows, places_of
from distdoctor.straggler.readers.kineto.decode import decode_events, is_list
from distdoctor.straggler.readers.kineto.gather import (
    P2P_OPS,
    Activities,
    Floats,
    Gatherer,
    Ints,
)
from distdoctor.straggler.readers.kineto.groups import Registry, name_groups
from distdoctor.straggler.readers.kineto.header import Header, parse_header
from distdoctor.straggler.readers.kineto.match import Rows
from distdoctor.straggler.readers.kineto.mesh import coordinates
from distdoctor.straggler.readers.kineto.sections import (
    Sections,
    device_sections,
    host_only_sections,
    host_sections,
)
from distdoctor.straggler.readers.kineto.windows import Windows, steps_of_work, windows_of

KIND = "Kineto trace"

# With fewer broken events than this the sums of a step are too small by less than any difference between ranks that
# counts. Our own threshold.
MAX_LOST_SHARE = 0.005

# `ts` beyond this counts from 1970: it is 2001 then. Hosts that are up for 31 years are not.
MIN_EPOCH_US = 1e15


@dataclass(slots=True, kw_only=True)
class Trace:
    """One file, read. `rank` is None where neither the trace nor its name tells it."""

    input_file: InputFile
    header: Header
    rank: int | None
    steps: Ints
    started_s: Floats
    sections: Sections
    rows: Rows | None
    device: int | None
    coords: Mapping[str, int]
    has_marks: bool
    has_device: bool
    num_events: int
    num_lost: int
    was_cut: bool
    stub: int | None
    num_foreign: int
    """Activities of other devices than `device`, which are left out."""
    num_unpaired: int
    """Point-to-point calls whose peer is not told."""
    num_left_out: int
    """Collectives of later steps for which there was no room."""
    hidden: float
    """Share of its median step in sends and receives during which it worked: neither waiting nor own work for sure."""
    begin_s: float
    """When its first step began, seconds since 1970 UTC; NaN: not known."""
    end_s: float
    """When its last step ended, of all steps, wanted or not."""
    first_step: int
    last_step: int
    """0 and 0 where it has no steps."""
    path: str = field(default="")

    @property
    def is_whole(self) -> bool:
        """Whether sums over its events can be trusted: those of a step stand anywhere in the file."""
        return not self.was_cut and self.num_lost <= MAX_LOST_SHARE * self.num_events


def read_trace(
    path: str, rank_of_name: int | None, options: ReadOptions, registry: Registry, *, max_rows: int
) -> Trace:
    """Reads one file from start to end. Raises InputError when nothing of it can be used.

    max_rows: so many collectives are kept of it.
    """
    file = FileBytes(path)
    blocks = Blocks(file, is_list)
    gatherer = Gatherer()
    num_lost = 0
    for block in blocks.events():
        events, lost = decode_events(block)
        num_lost += lost
        gatherer.take(events)
        if gatherer.is_full:
            break
    if num_lost and not gatherer.num_torch_events:
        raise InputError(f"`{path}`: none of its events can be read")
    if not gatherer.num_torch_events or not text_start(blocks.head).startswith(b"{"):
        raise InputError(f"`{path}` is no trace of PyTorch's profiler")
    header = parse_header(blocks.head, blocks.tail)
    rank = header.rank if header.rank is not None else rank_of_name
    trace = _digest(
        gatherer,
        header,
        file.input_file(KIND),
        rank=rank,
        options=options,
        registry=registry,
        max_rows=max_rows,
    )
    # Half an event at the cut is no loss beyond the cut.
    trace.num_lost = max(0, num_lost - int(blocks.was_cut)) + gatherer.num_absurd
    # A broken end of the compressed data behind the last event is none.
    trace.was_cut = blocks.was_cut or gatherer.is_full
    trace.path = path
    return trace


def _digest(
    gatherer: Gatherer,
    header: Header,
    input_file: InputFile,
    *,
    rank: int | None,
    options: ReadOptions,
    registry: Registry,
    max_rows: int,
) -> Trace:
    everything = gatherer.activities()
    device = _main_device(everything)
    is_mine = everything.device == device
    work = _select(everything, is_mine)
    windows, stub = windows_of(gatherer.step_numbers, *gatherer.steps.arrays())
    has_marks = len(windows.numbers) > 0
    if not has_marks:
        windows = _one_window(gatherer, work)
    step_of = steps_of_work(work, *gatherer.launches(), windows)
    gloo = gatherer.gloo_spans.arrays()
    hidden = 0.0
    sections = dict(host_sections(gatherer.loader.arrays(), gatherer.gc.arrays(), windows))
    if len(work.start_us):
        sections.update(device_sections(work, step_of, windows))
    elif len(gloo[0]):
        is_p2p = np.array([op in P2P_OPS for op in gatherer.gloo.op], dtype=bool)
        host_only, shares = host_only_sections(
            (gloo[0][~is_p2p], gloo[1][~is_p2p]),
            (gloo[0][is_p2p], gloo[1][is_p2p]),
            gatherer.op_starts(),
            windows,
            sections.get(Section.DATA),
        )
        sections.update(host_only)
        hidden = float(np.nanmedian(shares)) if np.isfinite(shares).any() else 0.0
    base_s = _base_s(header, windows)
    rows, num_unpaired, num_left_out = None, 0, 0
    if rank is not None:
        if len(work.start_us):
            took = Took(
                gatherer.nccl,
                work.start_us,
                work.dur_us.astype(np.float64),
                step_of,
                places_of(gatherer.nccl, is_mine),
            )
        else:
            at = np.arange(len(gloo[0]), dtype=np.int64)
            took = Took(gatherer.gloo, *gloo, windows.at(gloo[0]), at)
        labels = Labels(name_groups(took.told.group, header, rank), registry, windows.numbers, base_s)
        rows, num_unpaired, num_left_out = collect_rows(
            took, labels, options, has_p2p_calls=gatherer.has_p2p_calls, max_rows=max_rows
        )
    wanted = options.wants_each(windows.numbers)
    return Trace(
        input_file=input_file,
        # Groups of thousands of ranks are not kept for each of a thousand traces.
        header=replace(header, groups=()),
        rank=rank,
        steps=windows.numbers[wanted],
        started_s=base_s + windows.start_us[wanted] / 1e6,
        sections={section: values[wanted] for section, values in sections.items()},
        rows=rows,
        device=device,
        coords=coordinates(rank, header.groups, header.world_size) if rank is not None else {},
        has_marks=has_marks,
        has_device=bool(len(work.start_us)),
        num_events=gatherer.num_events,
        num_lost=0,
        was_cut=False,
        stub=stub,
        num_foreign=len(everything.start_us) - len(work.start_us),
        num_unpaired=num_unpaired,
        num_left_out=num_left_out,
        hidden=hidden,
        begin_s=float(base_s + windows.start_us[0] / 1e6) if len(windows.numbers) else float("nan"),
        end_s=float(base_s + windows.end_us.max() / 1e6) if len(windows.numbers) else float("nan"),
        first_step=int(windows.numbers.min()) if len(windows.numbers) else 0,
        last_step=int(windows.numbers.max()) if len(windows.numbers) else 0,
    )


def _main_device(work: Activities) -> int | None:
    """The device with most work: a rank uses one."""
    if not len(work.device):
        return None
    devices, counts = np.unique(work.device, return_counts=True)
    return int(devices[np.argmax(counts)])


def _select(work: Activities, chosen: NDArray[np.bool_]) -> Activities:
    if not len(work.start_us) or chosen.all():
        return work
    return Activities(*(getattr(work, name)[chosen] for name in Activities.__slots__))


def _one_window(gatherer: Gatherer, work: Activities) -> Windows:
    """The whole trace as step 0: as long as the profiler says it recorded, else from first to last work."""
    spans = [gatherer.recording.arrays()]
    if not len(spans[0][0]):
        spans = [
            gatherer.gloo_spans.arrays(),
            gatherer.loader.arrays(),
            (work.start_us, work.dur_us.astype(np.float64)),
        ]
    start = np.concatenate([each for each, _ in spans])
    if not len(start):
        return Windows(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    end = start + np.concatenate([dur for _, dur in spans])
    return Windows(np.zeros(1, dtype=np.int64), np.array([start.min()]), np.array([end.max()]))


def _base_s(header: Header, windows: Windows) -> float:
    if header.base_s is not None:
        return header.base_s
    return 0.0 if len(windows.numbers) and windows.start_us[0] >= MIN_EPOCH_US else float("nan")
