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

# Its newer name, which torch 2.13 asks for.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

# "exchange" runs its experts on a multiple of so many rows, and of an eighth of them:
# sizes that come again have plans.
_STEP = 64
# Rows begin at multiples of so many bytes, as GPUs ask of codes.
_ALIGN = 16
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
    """What the sender of an exchange keeps: slots that go to and come from each rank,
    and the row that comes back for each of its own, or -1."""

    slot_rows: Tensor
    weights: Tensor
    given: "list[int]"
    taken: "list[int]"


def _padded(rows):
    """A multiple of _STEP, one of eight between a power of two and the next."""
    step = max(_STEP, (1 << max(rows - 1, 1).bit_length()) >> 4)
    return -(-rows // step) * step


def _join(parts):
    """Rows of bytes, of the rows of each part one after another."""
    parts = [p.contiguous().view(torch.uint8) for p in parts]
    width = sum(p.shape[1] for p in parts)
    if width % _ALIGN:
        parts.append(parts[0].new_zeros(1, _ALIGN - width % _ALIGN).expand(
            parts[0].shape[0], -1))
    return torch.cat(parts, 1)


def _split(received, like):
    """The parts that rows of bytes were made of, as views of the types and widths of
    those that were sent."""
    parts, at = [], 0
    for t in like:
        width = t.shape[1] * t.element_size()
        parts.append(received[:, at:at + width].view(t.dtype))
        at += width
    return parts


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

    # ---- the three parts, for those who overlap or measure them

    def dispatch(self, experts: MoE, x: Tensor, topk_ids: Tensor,
                 topk_weights: Tensor, total: int) -> Dispatched:
        """Sends the rows of x to where their experts are."""
        self._check(experts, x, topk_ids, topk_weights, total)
        weights = topk_weights.float().contiguous()
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

    def _is_narrow(self, experts):
        return experts.is_quantized and self.rows == "quantized"

    def _all_to_all(self, out, x, given, taken):
        """Any type as bytes: gloo has not all of torch's types."""
        dist.all_to_all_single(out.view(torch.uint8), x.view(torch.uint8), given,
                               taken, group=self.group)

    def _keep(self, key, make):
        """make(), or what it made before."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

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
            first = torch.arange(tokens, dtype=torch.int32, device=device)
            step = torch.arange(self.ranks, dtype=torch.int32, device=device)
            return (first[:, None] + step * capacity,
                    torch.ones(tokens, self.ranks, device=device))
        return self._keep((tokens, capacity, device), make)

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

    def _exchange(self, packed, ids, weights, total):
        ranks, (tokens, slots) = self.ranks, ids.shape
        owned = self._owners(ids, total)
        # Rows and slots are sent by rank, then by token: where one goes to is how many
        # there are up to it.
        rows_to = owned.any(2).view(-1).cumsum(0, dtype=torch.int32)
        slots_to = owned.view(-1).cumsum(0, dtype=torch.int32)
        every = rows_to.new_zeros(2 * ranks, ranks)
        ends = every[:2] if ids.numel() == 0 else torch.stack(
            [rows_to.view(ranks, -1)[:, -1], slots_to.view(ranks, -1)[:, -1]])
        all_gather(every, ends.contiguous(), group=self.group)
        mine = torch.where(owned, ids.int(), -1).view(-1, slots)
        slot_rows = (slots_to.view(owned.shape) * owned).sum(0, dtype=torch.int32) - 1
        # The one wait for the host: rows and slots of each rank for each rank.
        counts = [[end - begin for begin, end in zip([0, *line], line)]
                  for line in every.tolist()]
        rows, given = counts[2 * self.rank:2 * self.rank + 2]
        rows_here, taken = ([line[self.rank] for line in counts[i::2]]
                            for i in (0, 1))
        pair = torch.searchsorted(rows_to, self._numbers(sum(rows), ids.device))
        token = pair % max(tokens, 1)
        sent = _join([packed[0].index_select(0, token), mine.index_select(0, pair),
                      *(t.index_select(0, token) for t in packed[1:])])
        # A row more, which has no slots.
        got = sent.new_empty(sum(rows_here) + 1, sent.shape[1])
        dist.all_to_all_single(got[:-1], sent, rows_here, rows, group=self.group)
        got[-1:].fill_(255)
        parts, local = self._expand(got, [packed[0], mine, *packed[1:]], sum(taken))
        return Dispatched(*parts, local, self._ones(len(local), ids.device),
                          _Sender(slot_rows, weights, given, taken))

    def _expand(self, got, like, count):
        """((x, its scales or None), ids): a row for each slot that rows have, in their
        order, and rows without one up to a size with a plan."""
        ids = _split(got, like[:2])[1]
        slots, ids = ids.shape[1], ids.reshape(-1)
        before = (ids[:len(ids) - slots] >= 0).cumsum(0, dtype=torch.int32)
        # Beyond the last slot: the first one of the last row.
        slot = torch.searchsorted(before, self._numbers(_padded(count), got.device))
        row = torch.div(slot, max(slots, 1), rounding_mode="floor")
        x, _, *scales = _split(got.index_select(0, row), like)
        return (x, *scales, None)[:2], ids.index_select(0, slot)[:, None]

    def _gather(self, packed, ids, weights):
        capacity = self.capacity or ids.shape[0]
        # What int32 does not hold is no expert's.
        if ids.dtype != torch.int32:
            ids = ids.clamp(-1, 2**31 - 1).int()
        parts = [packed[0], ids, weights, *packed[1:]]
        sent = _join(parts)
        if capacity != len(ids):
            # Rows without a token: zeros, whose ids are nobody's.
            empty = sent.new_zeros(capacity - len(ids), sent.shape[1])
            _split(empty, parts[:2])[1].fill_(-1)
            sent = torch.cat([sent, empty])
        every = sent.new_empty(self.ranks * capacity, sent.shape[1])
        all_gather(every, sent, group=self.group)
        x, ids, weights, *scales = _split(every, parts)
        return Dispatched(x, *scales, *[None] * (not scales), ids, weights, None)
