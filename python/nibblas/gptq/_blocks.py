# SPDX-License-Identifier: Apache-2.0
"""_blocks.py - runs a model of transformers one decoder block at a time: the inputs of
the first block, the inputs of each layer within a block, and the outputs that are the
next block's inputs."""

import contextlib
from typing import Any, NamedTuple

import torch
from torch import nn

from nibblas._library import UnsupportedError
from nibblas.transformers import _experts

# Windows that run at once.
MOST_WINDOWS = 8


class _Stop(Exception):
    """Ends a forward pass whose rest is not needed."""


def decoder_blocks(model):
    """(name, ModuleList) of the decoder blocks of a model: the longest ModuleList of
    its decoder whose members are of one base."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    lists = [(name, one) for name, one in decoder.named_modules()
             if isinstance(one, nn.ModuleList) and len(one)]
    if not lists:
        raise UnsupportedError(f"{type(model).__name__}: has no list of decoder blocks",
                               "model")
    # The outermost of equally long ones: experts are within blocks.
    name, found = lists[0]
    for whole, one in model.named_modules():
        if one is found:
            return whole, found
    return name, found


class Calls(NamedTuple):
    """inputs  [batches] of tensors [windows, tokens, hidden], on the host
    named   [blocks] of the other arguments of each block, on the device"""

    inputs: "list[torch.Tensor]"
    named: "list[dict[str, Any]]"


def _batches(windows):
    """Windows in equal batches, because the other arguments of a block are those of the
    first batch."""
    count = len(windows)
    return windows.view(-1, max(x for x in range(1, MOST_WINDOWS + 1)
                                if count % x == 0), windows.shape[1])


def first_inputs(model, blocks, windows, device):
    """The Calls of a model: its embedding runs, and no block does.

    windows  int64 [windows, tokens]"""
    inputs, named = [], [None] * len(blocks)

    def record(at):
        def forward(hidden_states, *args, **kwargs):
            if args:
                raise UnsupportedError(
                    f"{type(blocks[at]).__name__}: takes positional arguments", "model")
            if at == 0:
                inputs.append(hidden_states.cpu())
            if named[at] is None:
                named[at] = kwargs
            if at == len(blocks) - 1:
                raise _Stop
            return hidden_states
        return forward

    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    others = [x for x in decoder.children() if x is not blocks]
    try:
        for at, block in enumerate(blocks):
            block.forward = record(at)
        for one in others:
            one.to(device)
        with torch.no_grad():
            for batch in _batches(windows):
                with contextlib.suppress(_Stop):
                    decoder(input_ids=batch.to(device), use_cache=False)
    finally:
        for block in blocks:
            block.__dict__.pop("forward", None)
        for one in others:
            one.to("cpu")
    return Calls(inputs, named)


def experts_rows(module, hidden_states, index, leaf):
    """(expert, its rows of x) of the stack `leaf` of an experts' module, for the tokens
    that the router sends to each."""
    first = "gate_up_proj" if module.has_gate else "up_proj"
    x = hidden_states.reshape(-1, hidden_states.shape[-1])
    for e in range(module.num_experts):
        rows = x[(index == e).any(-1)]
        if leaf != first and len(rows):
            w = getattr(module, first)[e]
            rows = rows @ w if module.is_transposed else rows @ w.t()
            if module.has_bias:
                rows = rows + getattr(module, first + "_bias")[e]
            rows = module._apply_gate(rows) if module.has_gate else module.act_fn(rows)
        yield e, rows


class Stage(NamedTuple):
    """Layers that are quantised together, because they have the same input.

    names  of linear layers, or of one experts' module
    leaf   the stack of an experts' module, or None"""

    names: "tuple[str, ...]"
    leaf: "str | None"


def stages(block, names, experts, x, named):
    """The Stages of a block in the order of its calls, found by a run of it.

    names    of the linear layers of the block that are quantised
    experts  of its experts' modules that are quantised"""
    order, kept, hooks = {}, [], []

    def see(name):
        def hook(module, args, kwargs):
            given = args[0] if args else next(iter(kwargs.values()))
            # Kept, so that no two inputs have one address.
            kept.append(given)
            key = (given.data_ptr(), tuple(given.shape)) if name in names else name
            order.setdefault(key, []).append(name)
        return hook

    for name in (*names, *experts):
        hooks.append(block.get_submodule(name).register_forward_pre_hook(
            see(name), with_kwargs=True))
    try:
        with torch.no_grad():
            block(x, **named)
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for members in order.values():
        members = tuple(dict.fromkeys(members))
        if members[0] in experts:
            module = block.get_submodule(members[0])
            found += [Stage(members, "gate_up_proj" if module.has_gate else "up_proj"),
                      Stage(members, "down_proj")]
        else:
            found.append(Stage(members, None))
    return found


def input_of(block, stage, x, named):
    """The input of a stage for a block's input x: [tokens, K], or for experts a list of
    (expert, rows)."""
    seen = []

    def hook(module, args, kwargs):
        if stage.leaf is None:
            given = args[0] if args else next(iter(kwargs.values()))
            seen.append(given.reshape(-1, given.shape[-1]))
        else:
            bound = dict(zip(("hidden_states", "top_k_index"), args))
            bound.update(kwargs)
            seen.extend(experts_rows(module, bound["hidden_states"],
                                     bound["top_k_index"], stage.leaf))
        raise _Stop

    handle = block.get_submodule(stage.names[0]).register_forward_pre_hook(
        hook, with_kwargs=True)
    try:
        with torch.no_grad(), contextlib.suppress(_Stop):
            block(x, **named)
    finally:
        handle.remove()
    if stage.leaf is None:
        return seen[0] if seen else None
    return seen


def run(block, inputs, named, device):
    """The outputs of a block, on the host."""
    out = []
    with torch.no_grad():
        for x in inputs:
            y = block(x.to(device), **named)
            out.append((y[0] if isinstance(y, tuple) else y).cpu())
    return out
