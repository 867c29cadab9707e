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

# The newer name, which torch 2.13 recommends.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

# In the mode "exchange" the number of rows is rounded up to a multiple of this, or of
# about an eighth of it if that is more, so that sizes recur and have plans.
_STEP = 64
# The alignment of rows in bytes, which GPUs need for codes.
_ALIGN = 16
# The most buffers that an object keeps between calls without a capacity, one for each
# number of tokens.
_MOST_KEPT = 64
MODES = {"exchange": 0, "gather": 1}


def expert_range(experts: int, ranks: int, rank: int) -> "tuple[int, int]":
    """Returns (first, end) of the experts of a rank: parts of nearly equal size."""
    return experts * rank // ranks, experts * (rank + 1) // ranks


class Dispatched(NamedTuple):
    """Received rows, and what combine() needs.  ids and weights are those of the rows;
    in the mode "exchange" each row has one slot."""

    x: Tensor
    x_scales: "Tensor | None"
    ids: Tensor
    weights: Tensor
    sender: Any


class _Sender(NamedTuple):
    """What the sender of an exchange keeps: the numbers of slots sent to and received
    from each rank, and the returned row of each of its own slots, or -1."""

    slot_rows: Tensor
    weights: Tensor
    given: "list[int]"
    taken: "list[int]"


def _padded(rows):
    """rows, rounded up to a multiple of _STEP, and to one of at most eight sizes
    between two powers of two."""
    step = max(_STEP, (1 << max(rows - 1, 1).bit_length()) >> 4)
    return -(-rows // step) * step


def _split(received, like):
    """Splits rows of bytes into their parts: views with the types and widths of those
    that were sent."""
    parts, at = [], 0
    for t in like:
        width = t.shape[1] * t.element_size()
        parts.append(received[:, at:at + width].view(t.dtype))
        at += width
    return parts


def _operand(rows, k, is_narrow):
    """(x or its codes, its scales or None) of received rows."""
    if not is_narrow:
        return rows, None
    return rows[:, :k // 2], rows[:, k // 2:k // 2 + k // 16].view(torch.float8_e4m3fn)


class ExpertParallel:
    """A layer of experts that is divided among the ranks of a group: rank r of R has
    the experts expert_range(total, R, r).

    group   of torch.distributed; None: all processes
    mode    "exchange"  a row for each slot goes to the rank of its expert and comes
                        back, and the token's own rank makes the weighted sum: the
                        same bits on any number of ranks, where the product of a row
                        has the same bits among any others (nib_run() in nibblas.h).
                        Waits once for the host, which must know how many
            "gather"    all ranks get all tokens and send partial sums back, which are
                        added in the order of ranks.  Sizes are fixed: nothing waits,
                        and CUDA graphs can capture it; a graph reads what this object
                        keeps, which must live as long.  The bits depend on the number
                        of ranks
    capacity
            "gather": tokens of a rank, the same for all; a rank with fewer sends empty
            rows.  None: all ranks have as many tokens
    rows    "quantized"  in W4A4 tokens travel as codes and scales, 0.5625 bytes a value
            "dense"      they travel as they are, and are quantised where they arrive:
                         the same bits, more bytes.  W4A16 always does

    Ranks may have different numbers of tokens, and none.  A rank that fails leaves the
    others in a collective: they end with torch.distributed's error when the connection
    has been lost or the group's timeout (init_process_group(timeout=...)) has
    passed."""

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
        self.kept: "dict[Any, Tensor]" = {}

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

    # ---- the three parts, for callers that overlap or measure them

    def dispatch(self, experts: MoE, x: Tensor, topk_ids: Tensor,
                 topk_weights: Tensor, total: int) -> Dispatched:
        """Sends the rows of x to the ranks of their experts."""
        self._check(experts, x, topk_ids, topk_weights, total)
        if x.stride(1) != 1:
            x = x.contiguous()
        weights = topk_weights.float().contiguous()
        is_narrow = experts.is_quantized and self.rows == "quantized"
        rows = (torch.ops.nibblas._quantize_joined(x, experts.input_scale) if is_narrow
                else x)
        send = self._gather if self.mode == "gather" else self._exchange
        rows, ids, weights, sender = send(rows, topk_ids, weights, total)
        return Dispatched(*_operand(rows, x.shape[1], is_narrow), ids, weights, sender)

    def compute(self, experts: MoE, got: Dispatched, dtype: torch.dtype) -> Tensor:
        """Runs this rank's experts on the received rows."""
        return experts(got.x, got.ids, got.weights, got.x_scales,
                       out_dtype=dtype)

    def combine(self, got: Dispatched, y: Tensor, dtype: torch.dtype,
                tokens: int) -> Tensor:
        """Sends results back and adds them up."""
        if self.mode == "gather":
            parts = torch.empty_like(y)
            self._all_to_all(parts, y, None, None)
            return torch.ops.nibblas.sum_slots(parts, *self._ranks_of(
                tokens, len(y) // self.ranks, y.device))
        sender = got.sender
        back = y.new_empty(sum(sender.given), y.shape[1])
        self._all_to_all(back, y[:sum(sender.taken)], sender.given, sender.taken)
        return torch.ops.nibblas.sum_slots(back, sender.slot_rows, sender.weights)

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

    def _join(self, parts):
        """Rows of bytes: each is the concatenation of a row of each part."""
        parts = [p.contiguous().view(torch.uint8) for p in parts]
        count, gap = parts[0].shape[0], -sum(p.shape[1] for p in parts) % _ALIGN
        if gap:
            device = parts[0].device
            parts.append(self._keep(("gap", gap, device), lambda: torch.zeros(
                1, gap, dtype=torch.uint8, device=device)).expand(count, -1))
        return torch.cat(parts, 1)

    def _all_to_all(self, out, x, given, taken):
        """Any type as bytes, because gloo does not support all of torch's types."""
        dist.all_to_all_single(out.view(torch.uint8), x.view(torch.uint8), given,
                               taken, group=self.group)

    def _keep(self, key, make):
        """Returns make() or its earlier result.  What is kept stays, because graphs
        read it.  When the cache is full, make() is called each time."""
        found = self.kept.get(key)
        if found is None:
            found = make()
            if len(self.kept) < _MOST_KEPT:
                self.kept[key] = found
        return found

    def _numbers(self, count, device):
        """1 .. count."""
        found = self.kept.get(device)
        if found is None or found.numel() < count:
            found = self.kept[device] = torch.arange(
                1, 2 * count + 1, dtype=torch.int32, device=device)
        return found[:count]

    def _ones(self, count, device):
        """[count, 1] of 1.0."""
        found = self.kept.get((device,))
        if found is None or found.shape[0] < count:
            found = self.kept[device,] = torch.ones(2 * count, 1, device=device)
        return found[:count]

    def _ranks_of(self, tokens, capacity, device):
        """Rows of a token, and their weights, of the sum over ranks."""
        def make():
            first = torch.arange(capacity, dtype=torch.int32, device=device)
            step = torch.arange(self.ranks, dtype=torch.int32, device=device)
            return (first[:, None] + step * capacity,
                    torch.ones(capacity, self.ranks, device=device))
        rows, ones = self._keep(("ranks", capacity, device), make)
        return rows[:tokens], ones[:tokens]

    def _owners(self, ids, total):
        """bool [ranks, tokens, slots]: whether the rank has the slot's expert."""
        def make():
            ends = [expert_range(total, self.ranks, r)[0]
                    for r in range(self.ranks)] + [total]
            return (torch.tensor(ends, dtype=ids.dtype, device=ids.device),
                    torch.arange(1, self.ranks + 1, dtype=torch.int32,
                                 device=ids.device)[:, None, None])
        ends, numbers = self._keep((total, ids.dtype, ids.device), make)
        return torch.bucketize(ids, ends, out_int32=True, right=True) == numbers

    def _exchange(self, rows, ids, weights, total):
        ranks, (tokens, slots) = self.ranks, ids.shape
        owned = self._owners(ids, total)
        # Slots are sent by rank, then by token.  Counts the slots up to each one.
        sent_to = owned.view(-1).cumsum(0, dtype=torch.int32)
        ends = (sent_to.new_zeros(ranks) if ids.numel() == 0
                else sent_to.view(ranks, -1)[:, -1].contiguous())
        every = sent_to.new_empty(ranks * ranks)
        all_gather(every, ends, group=self.group)
        # The only wait of the host: the number of slots from each rank to each rank.
        every = every.view(ranks, ranks).tolist()
        counts = [[end - begin for begin, end in zip([0, *line], line)]
                  for line in every]
        given, taken = counts[self.rank], [line[self.rank] for line in counts]
        numbers = self._numbers(sum(given), ids.device)
        slot = torch.searchsorted(sent_to, numbers) % max(tokens * slots, 1)
        token = torch.div(slot, max(slots, 1), rounding_mode="floor")
        parts = [rows.index_select(0, token),
                 ids.reshape(-1).index_select(0, slot).int()[:, None]]
        sent, count = self._join(parts), sum(taken)
        got = sent.new_empty(_padded(count), sent.shape[1])
        self._all_to_all(got[:count], sent, taken, given)
        if len(got) > count:
            got[count:].fill_(255)
        # Rows are returned in this order, except those without an expert.
        slot_rows = torch.full((tokens * slots,), -1, dtype=torch.int32,
                               device=ids.device)
        slot_rows.scatter_(0, slot, numbers - 1)
        return (*_split(got, parts), self._ones(len(got), ids.device),
                _Sender(slot_rows.view(tokens, slots), weights, given, taken))

    def _gather(self, rows, ids, weights, _total):
        capacity = self.capacity or ids.shape[0]
        # A number beyond int32 is not the id of an expert.
        if ids.dtype != torch.int32:
            ids = ids.clamp(-1, 2**31 - 1).int()
        parts = [rows, ids, weights]
        sent = self._join(parts)
        if capacity != len(ids):
            # Rows without a token: zeros, with an id that no expert has.
            empty = sent.new_zeros(capacity - len(ids), sent.shape[1])
            _split(empty, parts)[1].fill_(-1)
            sent = torch.cat([sent, empty])
        every = sent.new_empty(self.ranks * capacity, sent.shape[1])
        all_gather(every, sent, group=self.group)
        return (*_split(every, parts), None)
