# SPDX-License-Identifier: Apache-2.0
"""Experts on several devices, by torch.distributed: gloo between CPUs, NCCL between
GPUs, through the same code."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from nibblas._library import ArgumentError
from nibblas._views import choose
from nibblas.torch._experts import MoE
from nibblas.torch._moe import weighted_sum

# Its newer name, which torch 2.13 asks for.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

# "exchange" runs its experts on a multiple of so many rows.
_STEP = 64
MODES = {"exchange": 0, "gather": 1}


def expert_range(experts: int, ranks: int, rank: int) -> "tuple[int, int]":
    """Returns (first, end) of the experts of a rank: parts of nearly equal size."""
    return experts * rank // ranks, experts * (rank + 1) // ranks


class Dispatched(NamedTuple):
    """Rows that have arrived, and what combine() needs.  ids and weights are those of
    the rows; of the mode "exchange" each row has one slot."""

    x: Tensor
    x_scales: "Tensor | None"
    ids: Tensor
    weights: Tensor
    sender: Any


class _Sender(NamedTuple):
    """What the sender of an exchange keeps: where its slots' rows come back to."""

    order: Tensor
    weights: Tensor
    given: "list[int]"
    taken: "list[int]"


def _bytes(x):
    """A matrix as uint8 [rows, bytes]."""
    return x.contiguous().view(torch.uint8)


def _first(mask, count):
    """The places of the `count` True values of a mask, ascending; waits for nothing."""
    return torch.argsort(~mask.reshape(-1), stable=True)[:count]


class ExpertParallel:
    """The layer of experts whose parts the ranks of a group have: rank r of R has the
    experts expert_range(total, R, r).

    group   of torch.distributed; None: all processes
    mode    "exchange"  tokens go to the ranks of their experts, one row for each rank,
                        and a row for each slot comes back, whose weighted sum the
                        token's own rank makes: the same bits on any number of ranks,
                        where the product of a row has the same bits among any others
                        (nib_run() in nibblas.h).  Waits once for the host, which must
                        know how many
            "gather"    all ranks get all tokens and send partial sums back, which are
                        added in the order of ranks.  Sizes are fixed: nothing waits,
                        and CUDA graphs can capture it.  The bits depend on the number
                        of ranks
    capacity
            "gather": tokens of a rank, the same for all; a rank with fewer sends empty
            rows.  None: all ranks have as many tokens
    rows    "quantized"  in W4A4 tokens travel as codes and scales, 0.5625 bytes a value
            "dense"      they travel as they are, and are quantised where they arrive:
                         the same bits, more bytes.  W4A16 always does

    Ranks may have different numbers of tokens, and none.  A rank that fails leaves the
    others in a collective: they end with torch.distributed's error once the connection
    is lost, or the group's timeout is over (init_process_group(timeout=...))."""

    def __init__(self, group: Any = None, mode: str = "exchange",
                 capacity: "int | None" = None, rows: str = "quantized") -> None:
        choose("mode", mode, MODES)
        choose("rows", rows, {"quantized": 0, "dense": 1})
        if capacity is not None and (mode != "gather" or capacity < 1):
            raise ArgumentError(f"capacity = {capacity}: must be positive, and only "
                                "with mode = 'gather'", "capacity")
        self.group, self.mode, self.capacity = group, mode, capacity
        self.rows = rows
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.bounds: "dict[Any, Tensor]" = {}

    def shard(self, experts: MoE) -> MoE:
        """Returns this rank's part of a layer that has all experts."""
        if experts.experts < self.ranks:
            raise ArgumentError(f"experts: {experts.experts} for {self.ranks} ranks: "
                                "each must have at least one", "experts")
        return experts.part(*expert_range(experts.experts, self.ranks, self.rank))

    def __call__(self, experts: MoE, x: Tensor, topk_ids: Tensor,
                 topk_weights: Tensor, total: int) -> Tensor:
        """Returns y [tokens, cols] of x's type.

        experts  this rank's part, of `total` experts of all ranks
        x        [tokens, k]; topk_ids, topk_weights [tokens, slots]; ids outside
                 0 .. total-1 are left out"""
        got = self.dispatch(experts, x, topk_ids, topk_weights, total)
        return self.combine(got, self.compute(experts, got, x.dtype), x.dtype,
                            x.shape[0])

    # ---- the three parts, for those who overlap or measure them

    def dispatch(self, experts: MoE, x: Tensor, topk_ids: Tensor,
                 topk_weights: Tensor, total: int) -> Dispatched:
        """Sends the rows of x to where their experts are."""
        self._check(experts, x, topk_ids, topk_weights, total)
        weights = topk_weights.float()
        packed = [x]
        if self._is_narrow(experts):
            packed = list(experts.quantize(x))
        if self.mode == "gather":
            return self._gather(packed, topk_ids, weights)
        return self._exchange(packed, topk_ids, weights, total)

    def compute(self, experts: MoE, got: Dispatched, dtype: torch.dtype) -> Tensor:
        """Runs the experts that are here on the rows that have arrived."""
        return experts(got.x, got.ids, got.weights, got.x_scales,
                       out_dtype=dtype)

    def combine(self, got: Dispatched, y: Tensor, dtype: torch.dtype,
                tokens: int) -> Tensor:
        """Sends results back and adds them up."""
        if self.mode == "gather":
            parts = torch.empty_like(y)
            self._all_to_all(parts, y, None, None)
            ones = torch.ones(1, self.ranks, device=y.device)
            parts = parts.view(self.ranks, -1, y.shape[1]).transpose(0, 1)
            return weighted_sum(parts, ones, dtype)[:tokens]
        sender = got.sender
        back = y.new_empty(sum(sender.given), y.shape[1])
        self._all_to_all(back, y[:sum(sender.taken)], sender.given, sender.taken)
        slots = y.new_zeros(sender.weights.numel(), y.shape[1])
        slots[sender.order] = back
        # Slots that no expert takes add nothing, whatever their weights are.
        weights = torch.zeros_like(sender.weights,
                                   memory_format=torch.contiguous_format)
        weights.view(-1)[sender.order] = sender.weights.reshape(-1)[sender.order]
        return weighted_sum(slots.view(*weights.shape, y.shape[1]), weights, dtype)

    # ---- how

    def _check(self, experts, x, ids, weights, total):
        first, end = expert_range(total, self.ranks, self.rank)
        if (experts.expert_offset, experts.experts) != (first, end - first):
            raise ArgumentError(
                f"experts: {experts.experts} from {experts.expert_offset} on; rank "
                f"{self.rank} of {self.ranks} must have {first} .. {end - 1} of "
                f"{total}", "experts")
        if x.dim() != 2 or ids.dim() != 2 or ids.shape != weights.shape or (
                ids.shape[0] != x.shape[0]):
            raise ArgumentError(
                f"topk_ids: {tuple(ids.shape)}, with weights "
                f"{tuple(weights.shape)}: must both be [tokens, slots] for x "
                f"{tuple(x.shape)}", "topk_ids")
        if self.capacity is not None and x.shape[0] > self.capacity:
            raise ArgumentError(f"x: {x.shape[0]} tokens; must be at most capacity = "
                                f"{self.capacity}", "x")

    def _is_narrow(self, experts):
        return experts.is_quantized and self.rows == "quantized"

    def _all_to_all(self, out, x, given, taken):
        """Any type as bytes: gloo has not all of torch's types."""
        dist.all_to_all_single(out.view(torch.uint8), x.view(torch.uint8), given,
                               taken, group=self.group)

    def _owners(self, ids, total):
        """The rank of each slot's expert; `ranks` for ids that no rank has."""
        key = total, ids.device
        if key not in self.bounds:
            self.bounds[key] = torch.tensor(
                [expert_range(total, self.ranks, r)[1] for r in range(self.ranks)],
                device=ids.device)
        owner = torch.searchsorted(self.bounds[key], ids.long(), right=True)
        return torch.where(ids < 0, self.ranks, owner)

    def _exchange(self, packed, ids, weights, total):
        owner, slots = self._owners(ids, total), ids.shape[1]
        each = owner[:, :, None] == torch.arange(self.ranks, device=ids.device)
        need = each.any(1)
        counts = torch.stack([need.sum(0), each.sum((0, 1))], 1)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        # The one wait for the host: rows and slots that go to and come from each rank.
        rows, given, rows_here, taken = torch.cat(
            [counts, theirs], 1).t().tolist()
        pair = _first(need.t(), sum(rows))
        rank_of, token = pair // max(len(ids), 1), pair % max(len(ids), 1)
        mine = torch.where(owner[token] == rank_of[:, None], ids[token].int(), -1)
        sent = torch.cat([_bytes(t)[token] for t in packed] + [_bytes(mine)], 1)
        got = sent.new_empty(sum(rows_here), sent.shape[1])
        dist.all_to_all_single(got, sent, rows_here, rows, group=self.group)
        parts = _split(got, packed, [mine])
        local = parts.pop()
        # Places without a slot fill up the last ones: sizes that come again have plans.
        slot = _first(local >= 0, -(-sum(taken) // _STEP) * _STEP)
        row = slot // max(slots, 1)
        x, x_scales = _rows(parts, row)
        order = torch.argsort(owner.reshape(-1), stable=True)[:sum(given)]
        return Dispatched(
            x, x_scales, local.reshape(-1)[slot][:, None],
            torch.ones(len(slot), 1, device=ids.device),
            _Sender(order, weights, given, taken))

    def _gather(self, packed, ids, weights):
        capacity = self.capacity or ids.shape[0]
        # What int32 does not hold is no expert's.
        routes = [ids.long().clamp(-1, 2**31 - 1).int(), weights]
        sent = torch.cat([_bytes(t) for t in (*packed, *routes)], 1)
        if capacity != len(ids):
            # Rows without a token: zeros, whose ids are nobody's.
            empty = sent.new_zeros(capacity - len(ids), sent.shape[1])
            width = 8 * ids.shape[1]
            empty[:, empty.shape[1] - width:empty.shape[1] - width // 2] = 255
            sent = torch.cat([sent, empty])
        every = sent.new_empty(self.ranks * capacity, sent.shape[1])
        _all_gather(every, sent, group=self.group)
        *parts, ids, weights = _split(every, packed, routes)
        return Dispatched(*_rows(parts, None), ids, weights, None)


def _split(received, *like):
    """The tensors that rows of bytes are made of, of the types and widths of those
    that were sent."""
    parts, at = [], 0
    for tensors in like:
        for t in tensors:
            width = t.shape[1] * t.element_size()
            # A copy, even of one row: views of a type begin at its multiples.
            part = received[:, at:at + width].clone(
                memory_format=torch.contiguous_format)
            parts.append(part.view(t.dtype))
            at += width
    return parts


def _rows(parts, row):
    """(x, its scales or None), all rows or those chosen."""
    chosen = [t if row is None else t.view(torch.uint8)[row].view(t.dtype)
              for t in parts]
    return chosen[0], chosen[1] if len(chosen) > 1 else None
