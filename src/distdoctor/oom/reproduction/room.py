"""Would a combination take more memory than its host has? Then it is not begun: the kernel would end somebody else's job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from distdoctor.oom.estimate import estimate
from distdoctor.oom.job import resolve
from distdoctor.oom.reproduction.combinations import Combination
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.ranks.greeting import Hello
from distdoctor.units import format_bytes

# Of what the host has left; the rest is for what communication and the C library take beside tensors. Our own choice.
_SHARE = 0.7


def why_no_room(combination: Combination, ranks: Sequence[Hello], options: ReproduceOptions) -> str:
    """Why a host of these ranks has no room for it, by formula; an empty text where it has, or on GPUs.

    A GPU is the rank's own: what does not fit there ends this rank alone, as was asked.
    """
    role = estimate(resolve(combination.settings)).worst
    need = role.peak.num_bytes + role.host_bytes
    if options.memory_limit_bytes is not None:
        need = min(need, options.memory_limit_bytes)
    num_here = Counter((each.host, each.node_rank) for each in ranks)
    for each in ranks:
        if each.device != "cpu" or each.memory_bytes is None:
            continue
        count = num_here[each.host, each.node_rank]
        if need * count > _SHARE * each.memory_bytes:
            return (
                f"{count} ranks on {each.host} would need {format_bytes(need * count)}, "
                f"{format_bytes(each.memory_bytes)} are left there; take a smaller model or --memory-limit"
            )
    return ""
