"""What a combination of changes costs beside memory: more computation, more traffic, waiting, memory of the host."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.search.bubble import bubble_share
from distdoctor.oom.search.change import global_batch_of
from distdoctor.oom.search.recompute import recompute_share
from distdoctor.oom.search.traffic import traffic_of
from distdoctor.oom.search.trial import Trial
from distdoctor.units import GIB

# Below this share, or so many bytes, nothing is said. Our own choice.
MIN_SHARE = 0.02
MIN_BYTES = 0.05 * GIB
# Beyond this share of difference traffic is said to change. Our own choice.
MIN_TRAFFIC_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Before and after. Shares are of a step's computation or time, bytes of the rank that sends most, in one step."""

    recompute_before: float
    recompute: float
    sent_before: float
    sent: float
    pcie: float
    bubble_before: float
    bubble: float
    host_bytes: float
    """Host memory of one rank."""
    global_batch_before: int
    global_batch: int
    accumulation_before: int
    accumulation: int
    num_gpus_before: int
    num_gpus: int
    remarks: tuple[str, ...] = ()
    numerics: tuple[str, ...] = ()

    @property
    def extra_compute(self) -> float:
        """Share of computation more than today, of today's."""
        return (1 + self.recompute) / (1 + self.recompute_before) - 1

    @property
    def extra_sent(self) -> float:
        """Bytes more than today; negative: fewer."""
        return self.sent - self.sent_before

    @property
    def keeps_batch(self) -> bool:
        """Whether a step sees as many sequences as today."""
        return self.global_batch == self.global_batch_before


def costs_of(before: Trial, after: Trial) -> Costs:
    """The costs of `after`'s changes."""
    now, then = traffic_of(before.job), traffic_of(after.job)
    return Costs(
        recompute_before=recompute_share(before.job),
        recompute=recompute_share(after.job),
        sent_before=now.network,
        sent=then.network,
        pcie=then.host,
        bubble_before=bubble_share(before.job),
        bubble=bubble_share(after.job),
        host_bytes=after.host_bytes,
        global_batch_before=global_batch_of(before.job),
        global_batch=global_batch_of(after.job),
        accumulation_before=before.job.num_micro_batches,
        accumulation=after.job.num_micro_batches,
        num_gpus_before=before.job.mesh.num_ranks,
        num_gpus=after.job.mesh.num_ranks,
        remarks=tuple(dict.fromkeys(each.remark for each in after.changes if each.remark)),
        numerics=tuple(dict.fromkeys(each.numerics for each in after.changes if each.numerics)),
    )


def cost_words(costs: Costs) -> str:
    """`a third more computation; 12 GiB more sent in a step`; `no cost in speed` where nothing is known of one."""
    words = [
        *_compute_words(costs),
        *_bubble_words(costs),
        *_sent_words(costs),
        *costs.remarks,
        *_host_words(costs),
        *_accumulation_words(costs),
        *costs.numerics,
        *_batch_words(costs),
    ]
    return "; ".join(words) or "no cost in speed"


def brief_costs(costs: Costs) -> str:
    """The same in a cell of a table: `compute +33%, sent +12 GiB`."""
    words = []
    if abs(costs.extra_compute) >= MIN_SHARE:
        words.append(f"compute {costs.extra_compute:+.0%}")
    if costs.num_gpus != costs.num_gpus_before:
        words.append(f"GPUs x {costs.num_gpus // costs.num_gpus_before}")
    if costs.numerics:
        words.append("numerics change")
    if not costs.keeps_batch:
        words.append(f"batch x {costs.global_batch / costs.global_batch_before:.3g}")
    if costs.host_bytes >= MIN_BYTES:
        words.append(f"host {_gib(costs.host_bytes)} a rank")
    if abs(costs.bubble - costs.bubble_before) >= MIN_SHARE:
        words.append(f"waiting {costs.bubble:.0%}")
    if _sent_words(costs):
        sign = "+" if costs.extra_sent > 0 else "-"
        words.append(f"sent {sign}{_gib(abs(costs.extra_sent))}")
    if costs.accumulation != costs.accumulation_before:
        words.append(f"accumulation {costs.accumulation}")
    return ", ".join(words) or "none in speed"


def _compute_words(costs: Costs) -> list[str]:
    share = costs.extra_compute
    if abs(share) < MIN_SHARE:
        return []
    if share < 0:
        return [f"{-share:.0%} less computation"]
    if abs(share - 1 / 3) < 0.03:
        return ["about a third more computation"]
    return [f"{share:.0%} more computation"]


def _bubble_words(costs: Costs) -> list[str]:
    if abs(costs.bubble - costs.bubble_before) < MIN_SHARE:
        return []
    before = f" instead of {costs.bubble_before:.0%}" if costs.bubble_before else ""
    return [f"ranks wait {costs.bubble:.0%} of a step{before}"]


def _sent_words(costs: Costs) -> list[str]:
    more = costs.extra_sent
    if abs(more) < max(MIN_BYTES, MIN_TRAFFIC_SHARE * costs.sent_before):
        return []
    return [f"{_gib(abs(more))} {'more' if more > 0 else 'less'} sent a step"]


def _host_words(costs: Costs) -> list[str]:
    if costs.host_bytes < MIN_BYTES:
        return []
    return [f"{_gib(costs.host_bytes)} of host memory for each rank"]


def _accumulation_words(costs: Costs) -> list[str]:
    if costs.accumulation == costs.accumulation_before:
        return []
    return [f"accumulation {costs.accumulation} instead of {costs.accumulation_before}"]


def _batch_words(costs: Costs) -> list[str]:
    if costs.keeps_batch:
        return []
    return [f"global batch {costs.global_batch} instead of {costs.global_batch_before}"]


def _gib(num_bytes: float) -> str:
    value = num_bytes / GIB
    return f"{value:,.0f} GiB" if value >= 9.95 else f"{value:.1f} GiB"
