"""What is said of a GPU that monitoring shows unlike its peers: titles, numbers, next steps."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from distdoctor.report.model import Action, Evidence, GpuRef, Team
from distdoctor.report.names import short_host
from distdoctor.straggler.analysis.telemetry.before_and_after import Change
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.analysis.telemetry.oddity import Oddity, Sign
from distdoctor.straggler.checks.telemetry.judging import FRACTIONS, lasts
from distdoctor.straggler.facts.telemetry import Metric
from distdoctor.units import fold_ints

THRESHOLDS = "the other GPUs of this model and job; our own thresholds"

# "GPU-" and the eight digits of a UUID that people compare.
UUID_BEGIN = 12

_NAMES = {
    Metric.SM_CLOCK: ("SM clock", "MHz"),
    Metric.POWER: ("power", "W"),
    Metric.TEMPERATURE: ("temperature", "°C"),
    Metric.UTILISATION: ("utilisation", "%"),
    Metric.SM_ACTIVE: ("SM activity", "%"),
    Metric.TENSOR_ACTIVE: ("tensor core activity", "%"),
    Metric.NVLINK_ERRORS: ("NVLink errors", ""),
    Metric.PCIE_REPLAYS: ("PCIe replays", ""),
}


def title(oddities: Sequence[Oddity], gpus: Sequence[GpuRef]) -> str:
    """One line, at most 80 characters: who, and the worst that is odd."""
    worst = oddities[0]
    who = name_of(gpus)
    several = len(gpus) > 1
    is_, has, works = ("are", "have", "work") if several else ("is", "has", "works")
    what = {
        Sign.THROTTLED: f"{is_} held back{'' if lasts(worst) else ' at times'}: {worst.reason}",
        Sign.POWER_CAPPED: f"{is_} held back by a power cap, the others are not",
        Sign.SYNC_BOOST: f"{is_} tied to the clock of another GPU (sync boost)",
        Sign.LOW_CLOCK: f"{'run' if several else 'runs'} at {_value(worst)}, the others at {_peers(worst)}",
        Sign.HELD_BY_HEAT: f"{is_} held back by heat in {worst.value:.0%} of the time",
        Sign.HELD_BY_POWER: f"{is_} held back by power in {worst.value:.0%} of the time",
        Sign.HOT: f"{is_} at {_value(worst)}, the others at {_peers(worst)}",
        Sign.WORKS_MORE: f"{works} while the others seem to wait",
        Sign.WORKS_LESS: f"{'do' if several else 'does'} less than the others",
        Sign.IDLE: f"{is_} idle while the others of the job are busy",
        Sign.LINK_ERRORS: f"{'count' if several else 'counts'} {metric_name(worst.metric)}, the others do not",
        Sign.XID: f"{has} reported Xid {worst.value:.0f}",
        Sign.ROW_REMAP: f"{has} a failed row remap",
    }[worst.sign]
    return f"{who} {what}"[:80]


def name_of(gpus: Sequence[GpuRef]) -> str:
    """ "GPU 3 of host-a", "GPUs 0-7 of host-b"; without a host by the begin of its UUID."""
    host = gpus[0].host
    where = f" of {short_host(host)}" if host else ""
    indexes = [gpu.index for gpu in gpus if gpu.index is not None]
    if host is None and len(gpus) == 1 and gpus[0].uuid is not None and len(indexes) == 1:
        return f"GPU {indexes[0]} ({gpus[0].uuid[:UUID_BEGIN]}…)"
    if len(indexes) == len(gpus):
        return f"GPU{'s' if len(gpus) > 1 else ''} {fold_ints(indexes)}{where}"
    if len(gpus) > 1:
        return f"{len(gpus)} GPUs{where}"
    return f"GPU {gpus[0].pci or gpus[0].uuid or 'of unknown number'}{where}"


def evidence_of(oddity: Oddity, panel: Panel, source: str) -> Evidence:
    """The number beside that of the peers."""
    who = name_of([panel.gpus[oddity.row].gpu])
    of_time = "of the time under load" if panel.load_known else "of the time"
    lasting = f" in {oddity.share:.0%} {of_time}" if oddity.share is not None else ""
    match oddity.sign:
        case Sign.THROTTLED | Sign.POWER_CAPPED | Sign.SYNC_BOOST:
            peers = f", the others in {oddity.peers:.0%}" if not math.isnan(oddity.peers) else ""
            text = f"{who}: {oddity.reason}{lasting}{peers}"
        case Sign.HELD_BY_HEAT | Sign.HELD_BY_POWER:
            by = "heat" if oddity.sign is Sign.HELD_BY_HEAT else "power"
            text = f"{who}: held back by {by} in {oddity.value:.1%} of the time, the others in {oddity.peers:.1%}"
        case Sign.XID:
            text = f"{who}: Xid {oddity.value:.0f} came up during the recording"
        case Sign.ROW_REMAP:
            text = f"{who}: the driver says that remapping of a memory row failed"
        case Sign.LINK_ERRORS:
            text = f"{who}: {oddity.value:.0f} {metric_name(oddity.metric)} meanwhile, the others {oddity.peers:.0f}"
        case _:
            beyond = f" (unlike them{lasting})" if lasting else ""
            text = (
                f"{who}: {metric_name(oddity.metric)} {_value(oddity)}, the others {_peers(oddity)}{beyond}"
            )
    return Evidence(
        text=text,
        value=round(oddity.value, 3),
        unit=oddity.metric.value,
        expected=_peers(oddity) if oddity.metric in _NAMES else None,
        expected_source=THRESHOLDS,
        source=source,
    )


def change_evidence(change: Change, panel: Panel, source: str) -> Evidence:
    """What a GPU did before the time asked for and after it, beside the others."""
    who = name_of([panel.gpus[change.row].gpu])
    return Evidence(
        text=(
            f"{who}: {metric_name(change.metric)} was {change.before:.0%} of the others' before that time and is "
            f"{change.after:.0%} after it"
        ),
        value=round(change.after, 3),
        expected=f"{change.before:.0%}, as before",
        expected_source=THRESHOLDS,
        source=source,
    )


def explanation(oddities: Sequence[Oddity], panel: Panel) -> str:
    """What it may mean, and what it does not prove."""
    worst = oddities[0].sign
    meaning = {
        Sign.THROTTLED: "All ranks of a synchronous job wait for the slowest GPU in every step.",
        Sign.POWER_CAPPED: (
            "Either its limit is lower, or it is the one that works at full power while the others wait for it."
        ),
        Sign.LOW_CLOCK: (
            "All ranks wait for the slowest GPU. A GPU that works all the time can also clock lower than others that "
            "wait, so look for the cause before it is taken out."
        ),
        Sign.WORKS_MORE: (
            "In a synchronous job whoever is slow works all the time, and the others wait for it at 100 % utilisation "
            "and less power. More work by design (a pipeline's last stage, more experts) looks the same."
        ),
        Sign.WORKS_LESS: (
            "It waits for its data or its host, has less work by design, or waits for somebody as the others do not."
        ),
        Sign.IDLE: (
            "Nothing runs on it, not even a waiting collective: its process may have ended, or waits for data or for "
            "the host."
        ),
    }.get(worst, "It may slow its rank, and then all ranks wait.")
    unknown = unknown_job(panel)
    return f"{meaning}{unknown} Telemetry has no step times: it is a lead, and step times decide which rank is slow."


def unknown_job(panel: Panel) -> str:
    """What is not certain about who is one job; empty when the evidence tells it."""
    if panel.job is not None:
        return ""
    if panel.pods is not None:
        return f" Which GPUs are one job is taken from the names of pods ({panel.pods}-…)."
    return " The evidence does not tell which GPUs are one job."


def actions(oddities: Sequence[Oddity], gpus: Sequence[GpuRef]) -> tuple[Action, ...]:
    """Look first; who acts depends on what is odd."""
    worst = oddities[0]
    gpu = gpus[0]
    which = gpu.pci or gpu.uuid or (str(gpu.index) if gpu.index is not None else None)
    if len(gpus) > 1 and all(each.index is not None for each in gpus):
        which = ",".join(str(each.index) for each in gpus)
    chosen = f" -i {shlex.quote(which)}" if which else ""
    where = f"on {gpu.host}: " if gpu.host else ""
    if worst.sign in (Sign.WORKS_MORE, Sign.WORKS_LESS, Sign.IDLE):
        return (
            Action(
                team=Team.JOB_OWNER,
                text="Compare own times of the ranks: recordings, traces or structured logs of all ranks",
                command="distdoctor straggler analyze PATH",
            ),
        )
    topics = {
        Sign.LINK_ERRORS: f"nvidia-smi nvlink -e{chosen}"
        if worst.metric is Metric.NVLINK_ERRORS
        else f"nvidia-smi -q{chosen}",
        Sign.XID: "dmesg --ctime | grep -i xid",
        Sign.ROW_REMAP: f"nvidia-smi -q -d ROW_REMAPPER{chosen}",
    }
    text = {
        Sign.LINK_ERRORS: "link errors by link, and whether they grow",
        Sign.XID: "what the kernel log says of it",
        Sign.ROW_REMAP: "state of row remapping; failed remapping is a reason to replace the GPU",
        Sign.POWER_CAPPED: "power limit against the others",
    }.get(
        worst.sign, "clocks, reasons for low clocks, temperature and power; fans, airflow and power supplies"
    )
    return (
        Action(
            team=Team.HARDWARE,
            text=f"{where}{text}",
            command=topics.get(worst.sign, f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK{chosen}"),
        ),
    )


def metric_name(metric: Metric) -> str:
    """ "SM clock"."""
    return _NAMES[metric][0] if metric in _NAMES else metric.value


def number(metric: Metric, value: float) -> str:
    """ "1755 MHz", of metrics that have a name here."""
    _, unit = _NAMES[metric]
    digits = f"{100 * value:.0f}" if metric in FRACTIONS else f"{value:.0f}"
    return f"{digits} {unit}".strip()


def _value(oddity: Oddity) -> str:
    return number(oddity.metric, oddity.value) if oddity.metric in _NAMES else f"{oddity.value:.0f}"


def _peers(oddity: Oddity) -> str:
    return number(oddity.metric, oddity.peers) if oddity.metric in _NAMES else f"{oddity.peers:.0f}"
