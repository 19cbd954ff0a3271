"""Text logs of training jobs: every format is tried on every line that may matter, and one file may hold several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from distdoctor.errors import InputError
from distdoctor.evidence_bytes import decode, looks_binary
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading, join
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import JobSeries
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_text import FileText, text_start
from distdoctor.straggler.readers.logs.deepspeed import DeepSpeed
from distdoctor.straggler.readers.logs.dlrover import DlRover
from distdoctor.straggler.readers.logs.drafts import SEVERAL
from distdoctor.straggler.readers.logs.formats import Context, FileFacts, LogFormat, RankWall
from distdoctor.straggler.readers.logs.huggingface import HuggingFace, LlamaFactory
from distdoctor.straggler.readers.logs.lightning import LightningProfiler, NeMo
from distdoctor.straggler.readers.logs.lines import line_of
from distdoctor.straggler.readers.logs.megatron import MegatronIterations
from distdoctor.straggler.readers.logs.megatron_straggler import MegatronStragglers
from distdoctor.straggler.readers.logs.megatron_timers import MegatronTimers
from distdoctor.straggler.readers.logs.mlperf import MlPerf
from distdoctor.straggler.readers.logs.nanogpt import NanoGpt
from distdoctor.straggler.readers.logs.nvrx import Nvrx
from distdoctor.straggler.readers.logs.rank_lines import RankLines, reading_of_ranks
from distdoctor.straggler.readers.logs.relevant_lines import relevant_lines
from distdoctor.straggler.readers.logs.returnn import Returnn
from distdoctor.straggler.readers.logs.torchtitan import TorchTitan
from distdoctor.straggler.readers.rank_rows import FileRows
from distdoctor.straggler.readers.rows import StepRows

# MegatronIterations comes first: it tells the others which iteration they are in.
FORMATS: tuple[type[LogFormat], ...] = (
    MegatronIterations,
    MegatronTimers,
    MegatronStragglers,
    Nvrx,
    DeepSpeed,
    TorchTitan,
    NanoGpt,
    MlPerf,
    HuggingFace,
    LlamaFactory,
    NeMo,
    LightningProfiler,
    DlRover,
    Returnn,
    RankLines,
)

KIND = "training log"

# Lines of these formats are printed by nothing else; a log that shows none in its first bytes may do so later, so
# every text is a weak lead.
SURE = 0.95
LIKELY = 0.8
A_LIMIT = 0.6
SOME_LOG = 0.2
SOME_TEXT = 0.1

_LOG_NAMES = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")


def sniff_trainer_log(path: str, head: bytes) -> float:
    """0 to 1: the first bytes of the file hold times of a training job."""
    if not head.strip() or looks_binary(head):
        return 0.0
    found = _parse(Context(path=path), iter((decode(head).encode(),)), ReadOptions())
    if any(facts.extremes or facts.claims or facts.steps or facts.walls for _, facts in found):
        return SURE
    values = sum(len(series.steps) for _, facts in found for series in facts.series)
    if values:
        return SURE if values > 1 else LIKELY
    if any(
        not facts.is_empty for _, facts in found
    ):  # also lines of ranks: a table's own reader knows it better
        return A_LIMIT
    if text_start(head)[:1] in (b"{", b"["):
        return 0.0
    return SOME_LOG if path.lower().removesuffix(".gz").endswith(_LOG_NAMES) else SOME_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneFile:
    path: str
    found: tuple[tuple[str, FileFacts], ...]
    """By name of the format."""


def read_trainer_log(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All that the logs tell. Never raises for one bad file; every path is in `inputs` once."""
    inputs: list[InputFile] = []
    notes: list[Note] = []
    files: list[_OneFile] = []
    for path in dict.fromkeys(paths):
        file = FileText(path)
        try:
            found = _parse(Context(path=path), file.text(), options)
        except InputError as error:
            inputs.append(file.input_file(KIND, error.in_one_line))
            continue
        if options.progress is not None:
            options.progress(f"read `{path}`")
        if file.note is not None:
            notes.append(Note(kind=NoteKind.CUT_SHORT, text=f"`{path}`: {file.note}"))
        if all(facts.is_empty for _, facts in found):
            inputs.append(
                file.input_file(KIND, "no line in it tells a step time or a throughput in a known form")
            )
            continue
        files.append(_OneFile(path=path, found=found))
        names = " and ".join(dict.fromkeys(each for each, facts in found if not facts.is_empty))
        inputs.append(file.input_file(names))
    files, walls = _by_rank(files)
    facts = [each for file in files for _, each in file.found]
    ranks = _of_ranks([rows for each in facts for rows in each.rows])
    notes += _one_for_all(
        files, sees_ranks=bool(walls.steps or ranks.steps) or any(each.steps for each in facts)
    )
    parts = [
        Reading(
            steps=each.steps, series=each.series, extremes=each.extremes, claims=each.claims, notes=each.notes
        )
        for each in facts
    ]
    return join([*parts, walls, ranks, Reading(notes=tuple(notes), inputs=tuple(inputs))])


def _parse(
    context: Context, chunks: Iterator[bytes], options: ReadOptions
) -> tuple[tuple[str, FileFacts], ...]:
    """What each format finds in one text."""
    formats = [form(context) for form in FORMATS]
    triggers = tuple(dict.fromkeys(trigger for form in formats for trigger in form.triggers))
    of_trigger = [(trigger, [form for form in formats if trigger in form.triggers]) for trigger in triggers]
    with_blocks = [form for form in formats if form.has_blocks]

    def wants_next() -> bool:
        for form in with_blocks:  # noqa: SIM110 - a generator for each line would cost more than the line
            if form.in_block:
                return True
        return False

    for number, raw in relevant_lines(chunks, triggers, wants_next):
        if b"\0" in raw:  # two halves of lines, between them what a power cut left
            continue
        concerned = {form: None for form in with_blocks if form.in_block}
        for trigger, forms in of_trigger:
            if trigger in raw:
                concerned.update(dict.fromkeys(forms))
        line = line_of(number, raw)
        for form in formats if len(concerned) > 1 else concerned:
            if form in concerned:
                form.feed(line)
    found = [(form.name, form.finish(options)) for form in formats]
    if any(facts.has_times for name, facts in found if name != RankLines.name):
        # Words of a tool that is known better: they are not read a second time as somebody's own.
        found = [(name, facts) for name, facts in found if name != RankLines.name]
    return tuple(found)


def _of_ranks(files: Sequence[FileRows]) -> Reading:
    try:
        return reading_of_ranks(files)
    except InputError as error:
        return Reading(notes=(Note(kind=NoteKind.CUT_SHORT, text=error.message, how=error.hint),))


def _one_for_all(files: Sequence[_OneFile], *, sees_ranks: bool) -> list[Note]:
    """One note for all logs in which one rank printed for all."""
    hows = dict.fromkeys(facts.how for file in files for _, facts in file.found if facts.how)
    if not hows or sees_ranks:
        return []
    alone = [file.path for file in files if any(facts.how for _, facts in file.found)]
    named = f"log `{alone[0]}`" if len(alone) == 1 else f"{len(alone)} logs (the first: `{alone[0]}`)"
    return [
        Note(
            kind=NoteKind.LIMITED,
            text=f"{named}: {_who_prints(files)}, so a change over time can be seen, a slow rank cannot",
            how=next(iter(hows)),
        )
    ]


def _who_prints(files: Sequence[_OneFile]) -> str:
    series = [each for file in files for _, facts in file.found for each in facts.series]
    several = next((each.printed_by for each in series if (each.printed_by or "").startswith(SEVERAL)), None)
    return "one rank prints for all" if several is None else f"{several} prints a number of the whole job"


def _by_rank(files: Sequence[_OneFile]) -> tuple[list[_OneFile], Reading]:
    """Formats in which each rank prints: their series become times of ranks when there are several ranks."""
    readings = []
    kept = list(files)
    for name in dict.fromkeys(form for file in files for form, facts in file.found if facts.walls):
        tellers = [
            (file.path, wall)
            for file in files
            for form, facts in file.found
            if form == name
            for wall in facts.walls
        ]
        ranks = [wall.rank for _, wall in tellers]
        if len(set(ranks)) < 2:
            continue
        if len(set(ranks)) < len(ranks):
            note = Note(
                kind=NoteKind.MIXED_RUNS,
                text=f"{name}: {len(ranks) - len(set(ranks))} rank numbers are told by several files, as by several hosts "
                "or attempts; ranks are not compared",
                how="give the files of one attempt, with global ranks in their names",
            )
            readings.append(Reading(notes=(note,)))
            continue
        readings.append(_as_steps(name, [wall for _, wall in tellers]))
        kept = [
            replace(
                file,
                found=tuple(
                    (
                        form,
                        replace(facts, series=_without_steps(facts.series), how=None)
                        if form == name
                        else facts,
                    )
                    for form, facts in file.found
                ),
            )
            for file in kept
        ]
    return kept, join(readings)


def _without_steps(series: tuple[JobSeries, ...]) -> tuple[JobSeries, ...]:
    """Series of checkpoints stay: they are no step times."""
    return tuple(each for each in series if each.name.startswith("checkpoint"))


def _as_steps(name: str, walls: Sequence[RankWall]) -> Reading:
    rows = StepRows()
    for wall in walls:
        rows.add(wall.rank, wall.steps, {Section.STEP: wall.times_ms}, started_s=wall.utc_s)
        rows.place(Place(rank=wall.rank))
    rows.note(
        NoteKind.LIMITED,
        f"{name}: every rank tells the time of its whole step, which holds the waiting for others and is equal on all "
        "ranks of a synchronous job; it names nobody",
        how="record the parts of a step: `torchrun … -m distdoctor straggler record -- train.py`",
    )
    try:
        timings, notes = rows.build(name)
    except InputError as error:
        return Reading(
            notes=(Note(kind=NoteKind.CUT_SHORT, text=f"{name}: {error.message}", how=error.hint),)
        )
    return Reading(steps=(timings,) if timings is not None else (), notes=notes)


TRAINER_LOG = Reader(name="training logs", sniff=sniff_trainer_log, read=read_trainer_log)
