# SPDX-License-Identifier: Apache-2.0
"""_experts.py - the experts of a mixture of experts (MoE) with NVFP4 weights.  The
module stays the model's own; its parameters become codes and scales, and transformers
calls experts_forward() by its registry of experts' implementations.  Routing stays the
model's."""

import functools
from typing import NamedTuple

import torch
from torch import nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from nibblas._library import UnsupportedError
from nibblas.torch._linear import _must_quantize
from nibblas.torch._tensors import check_meta
from nibblas.transformers._linear import (TYPES, check_block_scales, check_factors,
                                           factor, is_usable)

try:
    from torch.distributed.tensor import DTensor
except ImportError:
    DTensor = ()

IMPLEMENTATION = "nibblas"


class Projection(NamedTuple):
    """One stack of an experts' module, by the names of the module's parameters.

    factors, inputs  one name, or one for the gate and one for the other half of rows;
                     no inputs where the checkpoint has none
    transposed       stored as [experts, K, rows]; turned when it is loaded, and turned
                     back when it is saved
    unusable         names in the files of input scales that are missing, 0, inf or NaN:
                     the largest of the others is used for all
    is_dynamic       whether no input scale is usable: x is quantised by its largest
                     value"""

    codes: str
    scales: str
    factors: tuple
    inputs: tuple
    is_divisor: bool
    transposed: bool
    unusable: tuple = ()
    is_dynamic: bool = False

    def names(self):
        return self.codes, self.scales, *self.factors, *self.inputs

    @property
    def has_input_scale(self):
        """Whether x is quantised by a scale of the checkpoint."""
        return bool(self.inputs) and not self.is_dynamic


class Stacks(NamedTuple):
    """The attribute `nibblas` of an experts' module; first is gate and up, or
    only up."""

    first: Projection
    down: Projection
    activations: str | None

    def both(self):
        return self.first, self.down


def projection(leaf, roles, with_inputs=(), is_divisor=False):
    """The Projection of a stack of single experts.  Prefixes, not suffixes: patterns of
    transformers 5.12 match the beginnings of names.

    roles        of its sources, such as ["gate", "up"]
    with_inputs  those of them that have input scales"""
    return Projection(leaf, "scale_" + leaf, tuple(f"factor_{x}_proj" for x in roles),
                      tuple(f"input_{x}_proj" for x in with_inputs), is_divisor, False)


def roles_of(leaf, sources):
    """What the sources of a stack are: gate and up, or what its name says."""
    return ["gate", "up"] if sources == 2 else [leaf.removesuffix("_proj")]


def is_experts(module):
    """Whether a module dispatches by transformers' registry of implementations."""
    return hasattr(module, "is_concatenated") and hasattr(module, "down_proj")


def is_stacked(module):
    """Whether a module of experts has stacks in NVFP4, and is dispatched so."""
    return hasattr(module, "nibblas") and is_experts(module)


def add_parameters(module, shapes):
    """Gives a module parameters on the meta device; shapes: {name: (shape, type of
    safetensors)}."""
    for name, (shape, dtype) in shapes.items():
        module._parameters.pop(name, None)
        module.register_parameter(name, nn.Parameter(
            torch.empty(shape, dtype=TYPES[dtype], device="meta"),
            requires_grad=False))


def _transpose(module, state, prefix, *_others):
    """A hook of state_dict(), which has the tensors as the files do, and of
    load_state_dict(), which is given them so."""
    for one in module.nibblas.both():
        for name in (one.codes, one.scales) if one.transposed else ():
            if prefix + name in state:
                state[prefix + name] = state[prefix + name].transpose(
                    1, 2).contiguous()


def _apply_and_keep(module, fn, recurse=True):
    """Module._apply() that moves scales and keeps their types."""
    kept = {name: getattr(module, name).detach()
            for one in module.nibblas.both() for name in one.names()}
    type(module)._apply(module, fn, recurse)
    for name, old in kept.items():
        moved = getattr(module, name)
        if moved.dtype != old.dtype:
            setattr(module, name, nn.Parameter(old.to(moved.device),
                                               requires_grad=False))
    return module


def complete(module):
    """What an experts' module needs besides its parameters: half() and to(bfloat16)
    keep the type of scales, and state_dict() and load_state_dict() turn what is stored
    transposed."""
    module._apply = functools.partial(_apply_and_keep, module)
    if any(one.transposed for one in module.nibblas.both()):
        module.register_state_dict_post_hook(_transpose)
        module.register_load_state_dict_pre_hook(_transpose)


def forget(module):
    """Leaves nothing of NVFP4 at an experts' module whose parameters are floats
    again."""
    del module.nibblas, module._apply
    for hooks in module._state_dict_hooks, module._load_state_dict_pre_hooks:
        for key, hook in list(hooks.items()):
            # torch wraps those of load_state_dict().
            if getattr(hook, "hook", hook) is _transpose:
                del hooks[key]


def _is_sharded(value):
    """Whether a parameter is a part by experts, as _parallel.py has it."""
    return isinstance(value, DTensor) and [
        x.is_shard(0) for x in value.placements] == [True]


def _sharded_as(given, value):
    """The value of this process as a parameter that is sharded as `given` is."""
    if _is_sharded(given):
        value = DTensor.from_local(value, given.device_mesh, given.placements,
                                   run_check=False)
    return nn.Parameter(value, requires_grad=False)


def _finish_part(name, one, part, given, origin):
    """A parameter of a Projection, checked and turned; given: as it was loaded."""
    sharded = _is_sharded(given)
    value = given.to_local() if sharded else given
    if type(value) is not torch.Tensor:
        raise UnsupportedError(f"{name}.{part}: is sharded; nibblas loads only "
                               "whole experts")
    if one.transposed and part in (one.codes, one.scales):
        value = value.transpose(1, 2).contiguous()
    first = given.device_mesh.get_local_rank() * value.shape[0] if sharded else 0
    if part in one.factors:
        check_factors(origin, value, one.is_divisor, first)
    if part == one.scales:
        check_block_scales(origin, value, first)
    return _sharded_as(given, value)


def _finish_inputs(module, one, origins):
    """Finds the input scales that cannot be used, and gives experts that have none the
    largest of the others, which save_pretrained() writes.  Returns the Projection."""
    values = [getattr(module, part).detach() for part in one.inputs]
    usable = [is_usable(factor(x, one.is_divisor)) for x in values]
    good = torch.cat([x[y] for x, y in zip(values, usable)] or [torch.empty(0)])
    fill = (good.min() if one.is_divisor else good.max()) if good.numel() else 0.0
    unusable = []
    for part, value, is_good in zip(one.inputs, values, usable):
        missing = origins[part].missing
        if missing:
            experts = len(value) + len(missing)
            present = [i for i in range(experts) if i not in missing]
            whole, marks = (x.new_zeros(experts, *x.shape[1:])
                            for x in (value, is_good))
            whole[present], marks[present] = value, is_good
            whole[list(missing)], is_good = fill, marks
            setattr(module, part, nn.Parameter(whole, requires_grad=False))
        unusable += [origins[part].at(i).name for i in (~is_good).nonzero().tolist()]
    return one._replace(unusable=tuple(unusable),
                        is_dynamic=bool(one.inputs) and not good.numel())


def finish(name, module, origins):
    """Makes an experts' module ready, when its tensors are loaded.

    origins  {parameter: Origin}"""
    for one in module.nibblas.both():
        for part in one.codes, one.scales, *one.factors, *one.inputs:
            given = getattr(module, part).detach()
            setattr(module, part, _finish_part(name, one, part, given, origins[part]))
        codes, scales = getattr(module, one.codes), getattr(module, one.scales)
        if codes.shape[:2] != scales.shape[:2]:
            origins[one.scales].at().fail(f"must be of as many experts and rows as "
                                          f"{list(codes.shape)}")
    module.nibblas = module.nibblas._replace(
        first=_finish_inputs(module, module.nibblas.first, origins),
        down=_finish_inputs(module, module.nibblas.down, origins))
    complete(module)


def _factors(module, names, is_divisor, experts):
    """[experts] for each name; one scalar may stand for all experts."""
    return [factor(getattr(module, name), is_divisor).reshape(-1).expand(experts)
            for name in names]


def factors_of(module, one):
    """Global scales [experts] of the parts of the rows of a Projection."""
    return _factors(module, one.factors, one.is_divisor,
                    getattr(module, one.codes).shape[0])


class _Rows(NamedTuple):
    """x sorted by expert: as it is, or quantised (scales, and the factor)."""

    data: torch.Tensor
    scales: torch.Tensor | None
    factor: torch.Tensor | None
    activations: str | None


def _prepare(module, one, x, at, activations):
    """Rows `at` of x; NVFP4 is made once a row, however many experts it goes to, with
    the largest input scale of the layer."""
    if activations != "nvfp4":
        return _Rows(x if at is None else x[at], None, None, activations)
    if isinstance(x, _Rows):
        codes, scales, scale = x[:3]
    else:
        codes, scales, scale = torch.ops.nibblas.quantize(
            x, input_scale(module, one), "linear", "modelopt", x.is_cuda)
        scales = scales.view(torch.uint8)
    if at is not None:
        codes, scales = codes[at], scales[at]
    return _Rows(codes, scales, scale, None)


def input_scale(module, one):
    """The largest one of all experts, also of those that other processes have; None:
    there is none that can be used."""
    if not one.has_input_scale:
        return None
    scales = [factor(getattr(module, name), one.is_divisor) for name in one.inputs]
    if one.unusable:
        scales = [x.nan_to_num(0.0, 0.0, 0.0) for x in scales]
    return torch.stack([x.amax() for x in scales]).amax()


def quantized(module, codes, scales):
    """x that _prepare() has quantised, here or in another process."""
    return _Rows(codes, scales.view(torch.uint8),
                 input_scale(module, module.nibblas.first), None)


def _multiply(module, one, rows, offsets, dtype, is_silu=False):
    """The product of each expert's rows; is_silu: silu(gate) * up of it."""
    codes, scales = getattr(module, one.codes), getattr(module, one.scales)
    factors = factors_of(module, one)
    if rows.factor is not None:
        factors = [x * rows.factor for x in factors]
    if is_silu and len(factors) == 1:
        factors = factors * 2
    factors = [x.contiguous() for x in factors]
    parts = list(zip(codes.chunk(len(factors), 1), scales.chunk(len(factors), 1),
                     factors))
    common = dtype, "linear", "linear", rows.activations
    ops = torch.ops.nibblas
    if is_silu:
        (gate, gate_scales, alpha), (up, up_scales, alpha2) = parts
        return ops.moe_dual_gemm(rows.data, rows.scales, gate, gate_scales, up,
                                 up_scales, offsets, None, alpha, alpha2, *common)
    made = [ops.moe_gemm(rows.data, rows.scales, b, b_scales, offsets, None, alpha,
                         *common) for b, b_scales, alpha in parts]
    return made[0] if len(made) == 1 else torch.cat(made, -1)


@torch.library.custom_op("nibblas::_experts_gradient", mutates_args=())
def _gradient(gradient: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor,
              factors: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The gradient of rows that are sorted by expert, by weights dequantised one expert
    after the other.  factors [parts of the rows of a matrix, experts]."""
    out = gradient.new_zeros(gradient.shape[0], 2 * codes.shape[2])
    ends = offsets.tolist()
    for e, (begin, end) in enumerate(zip(ends, ends[1:])):
        if begin < end:
            parts = zip(codes[e].chunk(len(factors)), scales[e].chunk(len(factors)),
                        factors[:, e])
            w = torch.cat([torch.ops.nibblas.dequantize(
                *part, torch.float32, "linear") for part in parts])
            out[begin:end] = gradient[begin:end] @ w.to(gradient.dtype)
    return out


@_gradient.register_fake
def _(gradient, codes, scales, factors, offsets):
    check_meta(torch.ops.nibblas._experts_gradient.default,
               (gradient, codes, scales, factors, offsets), {})
    return gradient.new_empty(gradient.shape[0], 2 * codes.shape[2])


class _StraightThrough(torch.autograd.Function):
    """A product of sorted rows; their gradient is that of the weights dequantised, as
    if x had not been quantised."""

    @staticmethod
    def forward(ctx, x, module, one, offsets, dtype, activations):
        ctx.save_for_backward(getattr(module, one.codes), getattr(module, one.scales),
                              torch.stack(_factors(module, one.factors, one.is_divisor,
                                                   module.num_experts)), offsets)
        ctx.dtype = x.dtype
        return _multiply(module, one, _prepare(module, one, x, None, activations),
                         offsets, dtype)

    @staticmethod
    def backward(ctx, gradient):
        made = _gradient(gradient, *ctx.saved_tensors).to(ctx.dtype)
        return made, None, None, None, None, None


def _product(module, one, x, at, offsets, dtype, is_silu=False):
    """The product of each expert with its rows: rows `at` of x, sorted by expert;
    is_silu: silu(gate) * up of it."""
    activations = activations_of(module)
    if isinstance(x, _Rows) or not (x.requires_grad and torch.is_grad_enabled()):
        return _multiply(module, one, _prepare(module, one, x, at, activations),
                         offsets,
                         dtype, is_silu)
    y = _StraightThrough.apply(x if at is None else x[at], module, one, offsets, dtype,
                               activations)
    if not is_silu:
        return y
    gate, up = y.chunk(2, -1)
    return nn.functional.silu(gate) * up


def _is_plain_swiglu(module):
    """Whether silu(gate) * up is all that stands between the two products."""
    gate = getattr(type(module), "_apply_gate", None)
    return (module.has_gate and module.is_concatenated and not module.has_bias
            and getattr(gate, "__name__", "") == "_default_apply_gate"
            and isinstance(module.act_fn, nn.SiLU))


def activations_of(module):
    """How x is used: as in nibblas.torch.Linear."""
    wanted = module.nibblas.activations
    if wanted is None and _must_quantize(getattr(module, module.nibblas.down.codes)):
        return "nvfp4"
    return wanted


def experts_forward(self: nn.Module, hidden_states: torch.Tensor,
                    top_k_index: torch.Tensor, top_k_weights: torch.Tensor
                    ) -> torch.Tensor:
    """All experts of a layer: rows sorted by expert, two products, and each token's
    results added in the order of its choices, in float32.  Indices of num_experts and
    more, other processes', count as 0."""
    if not hasattr(self, "nibblas"):
        # A layer of the same model that was not swapped.
        return ALL_EXPERTS_FUNCTIONS["grouped_mm"](
            self, hidden_states, top_k_index, top_k_weights)
    y, back, chosen = slot_rows(self, hidden_states, top_k_index,
                                hidden_states.dtype)
    y = torch.where((chosen < self.num_experts)[:, None], y, 0)
    y = y[back].view(*top_k_index.shape, y.shape[-1])
    y = (y * top_k_weights.float()[..., None]).sum(1)
    return y.to(hidden_states.dtype)


def slot_rows(self, x, index, dtype):
    """(rows of float32 sorted by expert, the row of each slot, the expert of each row)
    of experts index [tokens, choices] of a module; dtype: of what lies between."""
    experts, choices = self.num_experts, index.shape[1]
    chosen, order = torch.sort(index.reshape(-1).clamp(max=experts), stable=True)
    offsets = torch.searchsorted(chosen, torch.arange(
        experts + 1, device=chosen.device, dtype=chosen.dtype), out_int32=True)
    stacks = self.nibblas
    # The row of bias; for other processes' indices any.
    own = chosen.clamp(max=experts - 1)
    swiglu = _is_plain_swiglu(self)
    middle = _product(self, stacks.first, x, order // choices, offsets, dtype, swiglu)
    if self.has_bias:
        middle = middle + getattr(self, stacks.first.codes + "_bias")[own]
    if self.has_gate and not swiglu:
        middle = self._apply_gate(middle)
    elif not self.has_gate:
        middle = self.act_fn(middle)
    if getattr(self, "_is_expert_parallel", False):
        # Products leave the rows of other processes' experts as they are.
        middle = torch.where((chosen < experts)[:, None], middle, 0)
    y = _product(self, stacks.down, middle, None, offsets, torch.float32)
    if self.has_bias:
        y = y + self.down_proj_bias[own].float()
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return y, back, chosen


class Llama4Experts(nn.Module):
    """Llama 4's experts, each of which gets all tokens, scaled by the router."""

    def __init__(self, old):
        super().__init__()
        self.num_experts, self.act_fn = old.num_experts, old.act_fn
        self.hidden_size, self.is_transposed = old.hidden_size, True

    def forward(self, hidden_states):
        experts = self.num_experts
        x = hidden_states.reshape(-1, self.hidden_size)
        if not hasattr(self, "nibblas"):
            x = x.view(experts, -1, self.hidden_size)
            gate, up = (x @ self.gate_up_proj).chunk(2, -1)
            return ((up * self.act_fn(gate)) @ self.down_proj).view(-1,
                                                                    self.hidden_size)
        offsets = torch.arange(experts + 1, device=x.device,
                               dtype=torch.int32) * (x.shape[0] // experts)
        first, down = self.nibblas.both()
        gate, up = _product(self, first, x, None, offsets, x.dtype).chunk(2, -1)
        return _product(self, down, up * self.act_fn(gate), None, offsets, x.dtype)
