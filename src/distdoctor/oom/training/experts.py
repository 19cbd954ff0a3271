"""Mixture of experts without dropped tokens: router, routed experts as grouped weights, shared experts, and the way of
a token to its experts and back, as TorchTitan does it (torchtitan/models/common/moe).

How many tokens an expert gets is known only once the router has run. Where no value may be read, or no rank answers,
tokens are spread evenly, or `expert_imbalance` times as many arrive on this rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from distdoctor.oom.shape import MixtureOfExperts, ModelShape
from distdoctor.oom.training.expert_width import CutWidth
from distdoctor.oom.training.feed_forward import FeedForward, make_mlp
from distdoctor.oom.training.grouped_linear import grouped_linear
from distdoctor.torch_private.distributed import all_to_all_rows

if TYPE_CHECKING:
    from distdoctor.oom.training.model import ModelOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How many rows go where. Rows are copies of tokens, one for each expert that a token visits."""

    per_expert: Sequence[int]
    """Rows that each expert of this rank gets."""
    sent: Sequence[int] = ()
    """Rows to each rank of the expert-parallel group."""
    received: Sequence[int] = ()
    """Rows from each rank."""
    by_expert: torch.Tensor | None = None
    """int64: received rows come rank by rank; in this order they lie expert by expert."""


class GroupedExperts(nn.Module):
    """The routed experts of one rank: w1, w3 (experts, width, hidden), w2 (experts, hidden, width)."""

    def __init__(self, shape: ModelShape, moe: MixtureOfExperts) -> None:
        super().__init__()
        count, hidden, width = moe.num_experts, shape.hidden_size, moe.expert_ffn_size
        self.mesh: DeviceMesh | None = None
        """With expert parallelism: pp, dp_replicate, dp_shard_mod_ep, ep; this rank has its part of the experts."""
        self.cut: CutWidth | None = None
        """With tensor parallelism but no expert parallelism: this rank has a part of the width of all of them."""
        self.is_gated = shape.is_gated
        sizes = {"w1": (width, hidden), "w2": (hidden, width), "w3": (width, hidden)}
        for name, (rows, columns) in sizes.items():
            if name == "w3" and not shape.is_gated:
                continue
            self.register_parameter(name, nn.Parameter(torch.empty(count, rows, columns)))
            bias = nn.Parameter(torch.empty(count, rows)) if shape.has_mlp_bias else None
            self.register_parameter(f"{name}_bias", bias)

    def forward(self, rows: torch.Tensor, per_expert: Sequence[int]) -> torch.Tensor:
        """(rows, hidden), sorted by expert, to the same."""
        gate = self._linear("w1", rows, per_expert)
        inside = F.silu(gate) * self._linear("w3", rows, per_expert) if self.is_gated else F.gelu(gate)
        return self._linear("w2", inside, per_expert)

    def _linear(self, name: str, rows: torch.Tensor, per_expert: Sequence[int]) -> torch.Tensor:
        weight, bias, dtype = getattr(self, name), getattr(self, f"{name}_bias"), rows.dtype
        own_bias = None if bias is None else own(bias).to(dtype)
        if own_bias is not None and name == "w2" and self.cut is not None:
            # Whole on every rank, and added up with what they compute.
            own_bias = own_bias / self.cut.mesh.size()
        return grouped_linear(rows, own(weight).to(dtype), own_bias, per_expert)

    def keep(self, first: int, count: int) -> None:
        """Only experts `first` to `first + count` stay."""
        for name, parameter in list(self.named_parameters(recurse=False)):
            self.register_parameter(name, nn.Parameter(parameter.detach()[first : first + count].clone()))


class Gate(nn.Linear):
    """Scores of tokens; called as a module, so that whoever gathers parameters before a call (ZeRO-3) sees it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden) to (…, scores)."""
        return F.linear(x, own(self.weight), None if self.bias is None else own(self.bias))


class MixtureOfExpertsLayer(FeedForward):
    """Each token visits the experts that the router gives the highest scores, and the shared experts."""

    def __init__(self, shape: ModelShape, options: ModelOptions) -> None:
        super().__init__()
        moe = shape.moe
        if moe is None:
            raise ValueError("this model has no experts")
        self.num_experts = moe.num_experts
        self.top_k = moe.experts_per_token
        self.is_balanced = options.balanced_routing
        self.imbalance = options.expert_imbalance
        self.router = Gate(shape.hidden_size, moe.num_experts, bias=shape.has_mlp_bias)
        self.experts = GroupedExperts(shape, moe)
        self.shared_experts = make_mlp(shape, moe.shared_ffn_size) if moe.shared_ffn_size else None
        self.shared_gate = Gate(shape.hidden_size, 1, bias=False) if moe.has_shared_gate else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) to the same. Under sequence parallelism each rank routes its own tokens, or, where
        experts are cut over the same ranks, those of all of them."""
        cut = self.experts.cut
        entered = x if cut is None else cut.enter(x)
        tokens = entered.reshape(-1, x.shape[-1])
        weights, chosen = self._route(tokens)
        order = torch.argsort(chosen.flatten(), stable=True)
        rows = tokens[order // self.top_k].to(_compute_dtype(x))
        routed = self._through_experts(rows, self._way(chosen))
        shared = self._shared(x)
        # Back in the order of the tokens; fp32 where they are weighed, which keeps an fp32 copy of every row.
        unsorted = torch.zeros_like(routed)
        unsorted[order] = routed
        unsorted = unsorted.view(-1, self.top_k, x.shape[-1])
        with torch.autocast(x.device.type, enabled=False):
            out = torch.bmm(weights.unsqueeze(1), unsorted.float()).to(routed.dtype).view(entered.shape)
        out = out if cut is None else cut.leave(out)
        return out if shared is None else shared + out

    def _route(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights, fp32, and numbers of the experts of each token: (tokens, experts per token)."""
        scores = self.router(tokens)
        top = torch.softmax(scores.float(), dim=-1).topk(self.top_k, dim=-1)
        return top.values, top.indices

    def _shared(self, x: torch.Tensor) -> torch.Tensor | None:
        if self.shared_experts is None:
            return None
        out: torch.Tensor = self.shared_experts(x)
        if self.shared_gate is not None:
            out = torch.sigmoid(self.shared_gate(x)) * out
        return out

    def _through_experts(self, rows: torch.Tensor, way: Way) -> torch.Tensor:
        """Rows sorted by expert, through the experts wherever they are, and back in the same order."""
        mesh = self.experts.mesh
        if mesh is None or way.by_expert is None:
            out: torch.Tensor = self.experts(rows, way.per_expert)
            return out
        group = mesh["ep"].get_group()
        arrived = all_to_all_rows(rows, way.received, way.sent, group)
        sorted_out: torch.Tensor = self.experts(arrived[way.by_expert], way.per_expert)
        out = torch.empty_like(sorted_out)
        out[way.by_expert] = sorted_out
        return all_to_all_rows(out, way.sent, way.received, group)

    def _way(self, chosen: torch.Tensor) -> Way:
        mesh = self.experts.mesh
        num_ranks = 1 if mesh is None else mesh["ep"].size()
        local = self.num_experts // num_ranks
        if self.is_balanced:
            arriving = chosen.numel() if mesh is None else round(chosen.numel() * self.imbalance)
            return Way(
                per_expert=_evenly(arriving, local),
                sent=_evenly(chosen.numel(), num_ranks),
                received=_evenly(arriving, num_ranks),
                by_expert=None if mesh is None else torch.arange(arriving, device=chosen.device),
            )
        with torch.no_grad():
            counts = torch.bincount(chosen.flatten(), minlength=self.num_experts)
            if mesh is None:
                return Way(per_expert=counts.tolist())
            arriving_counts = all_to_all_rows(counts, None, None, mesh["ep"].get_group())
            matrix = arriving_counts.view(num_ranks, local).tolist()
            return Way(
                per_expert=[sum(row[expert] for row in matrix) for expert in range(local)],
                sent=counts.view(num_ranks, local).sum(1).tolist(),
                received=[sum(row) for row in matrix],
                by_expert=_expert_by_expert(matrix).to(chosen.device),
            )


def own(parameter: torch.Tensor) -> torch.Tensor:
    """What this rank has of a parameter, as a plain tensor. Where it is whole on every rank of tp, each sees its own
    tokens, or a part of what is computed of them: gradients are added up over tp."""
    if not isinstance(parameter, DTensor):
        return parameter
    if any(placement.is_shard() for placement in parameter.placements):
        return parameter.to_local()
    whole = parameter.redistribute(placements=[Replicate()] * parameter.device_mesh.ndim)
    return whole.to_local(grad_placements=[Partial()] * parameter.device_mesh.ndim)


def _compute_dtype(x: torch.Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _evenly(total: int, parts: int) -> list[int]:
    """`total` in `parts` that differ by one at most, the larger ones first."""
    each, rest = divmod(total, parts)
    return [each + (number < rest) for number in range(parts)]


def _expert_by_expert(matrix: list[list[Any]]) -> torch.Tensor:
    """Positions of rows that lie rank by rank, sorted by expert. `matrix[rank][expert]` rows come from each rank."""
    start, starts = 0, []
    for row in matrix:
        starts.append([start + sum(row[:expert]) for expert in range(len(row))])
        start += sum(row)
    spans = [
        torch.arange(starts[rank][expert], starts[rank][expert] + matrix[rank][expert])
        for expert in range(len(matrix[0]))
        for rank in range(len(matrix))
    ]
    return torch.cat(spans)
