# SPDX-License-Identifier: Apache-2.0
"""_run.py - quantises the blocks of a model one after the other: each block's layers
in the order of its calls, on the outputs of the blocks that are quantised already."""

import copy
import itertools
import time
from typing import NamedTuple

import torch
from torch import nn

from nibblas._files import Layer
from nibblas._library import DataError
from nibblas.gptq import _blocks, _rounding as rounding, _solve
from nibblas.torch import Linear
from nibblas.torch._convert import LARGEST, amax_on_device, global_of


class Hessians:
    """Sums over the inputs of one matrix: H = X X^T, the largest |x| and tokens.

    Where dense inputs are given too, also (D - X) X^T, D being the inputs in the model
    that is not quantised."""

    def __init__(self, k, device):
        self.h = torch.zeros(k, k, device=device)
        self.cross = None
        self.amax, self.tokens = torch.zeros((), device=device), 0

    def add(self, x, dense=None):
        if not x.numel():
            return
        self.amax = torch.maximum(self.amax, x.abs().amax().float())
        x = x.float()
        self.h += x.t() @ x
        self.tokens += len(x)
        if dense is not None:
            made = (dense.float() - x).t() @ x
            self.cross = made if self.cross is None else self.cross + made


class Done(NamedTuple):
    """A quantised matrix on the host: codes uint8 [rows, K/2], blocks uint8 [rows,
    K/16], global scale, largest |x|."""

    codes: torch.Tensor
    blocks: torch.Tensor
    scale: torch.Tensor
    amax: torch.Tensor


class Job:
    """How blocks are quantised.

    scales  {name: global scale} of layers that share one
    dense   True: layers approximate the outputs of the model that is not quantised,
            not those of the quantised model's inputs"""

    def __init__(self, model, device, options, min_tokens, dense, scales):
        self.model, self.device, self.options = model, device, options
        self.min_tokens, self.dense, self.scales = min_tokens, dense, scales
        self.grid = rounding.Grid(device)

    def matrix(self, name, w, sums, scale):
        """(Rounded, row of the summary) of a matrix w of float32.

        sums  its Hessians, or None: nothing is known of its inputs"""
        options, row = self.options, {"layer": name, "method": "gptq",
                                      "tokens": sums.tokens if sums else 0}
        if not bool(torch.isfinite(w).all()):
            raise DataError(f"{name}: its weights have an inf or NaN", name)
        nearest = _solve.round_nearest(self.grid, w, scale, options)
        if row["tokens"] < self.min_tokens:
            row.update(method="rounded", reason=(
                f"{row['tokens']} tokens reached it, fewer than min-tokens = "
                f"{self.min_tokens}"))
            return nearest, row
        h = _solve.damped(name, sums.h, options.damping)
        wanted = w
        if sums.cross is not None:
            wanted = w + w @ torch.linalg.solve(h, sums.cross.double().t()).t().float()
        found = _solve.solve(self.grid, name, wanted, scale, h, options)
        whole = _solve.output_error(w, sums.h) or 1.0
        row["error"] = _solve.output_error(wanted - found.values, sums.h) / whole
        row["error_rounded"] = _solve.output_error(w - nearest.values, sums.h) / whole
        return found, row

    def done(self, found, scale, sums):
        return Done(rounding.pack(found.codes).cpu(), found.blocks.cpu(), scale.cpu(),
                    sums.amax.cpu() if sums else torch.zeros(()))

    def sums_of(self, block, stage, inputs, named, other):
        """The Hessians of a stage: one, or one an expert.

        other  (dense block, its inputs), or None"""
        sums = {}

        def at(key, k):
            if key not in sums:
                sums[key] = Hessians(k, self.device)
            return sums[key]

        for i, x in enumerate(inputs):
            seen = _blocks.input_of(block, stage, x.to(self.device), named)
            if stage.leaf is not None:
                for e, rows in seen:
                    at(e, rows.shape[-1]).add(rows)
            elif seen is not None:
                dense = other and _blocks.input_of(
                    other[0], stage, other[1][i].to(self.device), named)
                at(None, seen.shape[-1]).add(seen, dense)
        return sums

    def linears(self, prefix, block, stage, sums):
        """Quantises the linear layers of a stage; their weights become the values of
        the codes."""
        made = {}
        for name in stage.names:
            whole, linear = f"{prefix}.{name}", block.get_submodule(name)
            w = linear.weight.detach().float()
            scale = self.scales.get(whole)
            if scale is None:
                scale = global_of(amax_on_device(w), self.options.scales)
            scale = scale.to(w.device)
            found, row = self.matrix(whole, w, sums.get(None), scale)
            linear.weight.data = found.values.to(linear.weight.dtype)
            made[whole] = self.done(found, scale, sums.get(None)), [row]
        return made

    def experts(self, prefix, block, stage, sums):
        """The same for one stack of a module of experts."""
        whole, module = f"{prefix}.{stage.names[0]}", block.get_submodule(
            stage.names[0])
        stack = getattr(module, stage.leaf)
        scale = global_of(amax_on_device(stack.detach()), self.options.scales)
        each, rows = [], []
        for e in range(len(stack)):
            w = stack[e].detach().float()
            w = w.t().contiguous() if module.is_transposed else w
            found, row = self.matrix(f"{whole}.{e}.{stage.leaf}", w, sums.get(e), scale)
            values = found.values.t() if module.is_transposed else found.values
            stack.data[e] = values.to(stack.dtype)
            each.append(self.done(found, scale, sums.get(e)))
            rows.append(row)
        return {f"{whole}.{stage.leaf}": (Done(
            torch.stack([x.codes for x in each]), torch.stack([x.blocks for x in each]),
            scale.cpu(), torch.stack([x.amax for x in each])), rows)}

    def block(self, prefix, block, names, experts, inputs, named, dense_inputs):
        """{name: (Done, rows of the summary)} of a block, whose weights become those of
        the codes."""
        made = {}
        other = (copy.deepcopy(block), dense_inputs) if self.dense else None
        for stage in _blocks.stages(block, names, experts, inputs[0].to(self.device),
                                    named):
            sums = self.sums_of(block, stage, inputs, named, other)
            fill = self.linears if stage.leaf is None else self.experts
            made.update(fill(prefix, block, stage, sums))
        reached = set(made)
        unused = tuple(x for x in names if f"{prefix}.{x}" not in reached)
        if unused:
            made.update(self.linears(prefix, block, _blocks.Stage(unused, None), {}))
        return made, other

    def restore(self, prefix, block, tensors):
        """Gives a block the weights of a finished run."""
        for name, one in unpack_state(tensors).items():
            path = name[len(prefix) + 1:].split(".")
            *_, parent, found = itertools.accumulate(path, getattr, initial=block)
            w = found.weight if isinstance(found, nn.Linear) else found
            d = rounding.exact_scales(one.blocks, one.scale).repeat_interleave(
                rounding.BLOCK, -1)
            codes = torch.stack([one.codes & 15, one.codes >> 4], -1).flatten(-2)
            values = rounding.Grid("cpu").dequantize(codes.long(), d)
            if w is found and parent.is_transposed:
                values = values.transpose(1, 2)
            w.data = values.to(w.dtype).to(w.device).contiguous()


def pack_state(made):
    # Cloned, because layers share scales.
    return {f"{name}|{field}": getattr(one, field).clone()
            for name, (one, _) in made.items() for field in Done._fields}


def unpack_state(tensors):
    names = dict.fromkeys(x.rpartition("|")[0] for x in tensors)
    return {name: Done(*(tensors[f"{name}|{field}"] for field in Done._fields))
            for name in names}


def as_linear(name, linear, one, activations):
    """The nibblas.torch.Linear of a quantised matrix."""
    scale = one.amax.item() / LARGEST if activations == "nvfp4" else 0.0
    made = Linear.from_layer(
        Layer(name, "modelopt", one.codes.numpy(), one.blocks.numpy(), one.scale.item(),
              scale), linear.bias, "cpu", activations)
    made.compute_dtype = linear.weight.dtype
    made.train(linear.training)
    return made


class Progress:
    """Lines on a stream, with the time that is left."""

    def __init__(self, blocks, stream):
        self.blocks, self.stream = blocks, stream
        self.begun, self.finished = time.monotonic(), 0

    def put(self, block, rows, resumed):
        text = f"block {block + 1}/{self.blocks}: "
        if resumed:
            self.begun = time.monotonic()
            text += "finished before"
        else:
            self.finished += 1
            errors = [x for x in rows if "error" in x]
            if errors:
                mean = [sum(x[key] for x in errors) / len(errors)
                        for key in ("error", "error_rounded")]
                text += f"error {mean[0]:.3g} (rounded {mean[1]:.3g}), "
            each = (time.monotonic() - self.begun) / self.finished
            left = each * (self.blocks - block - 1)
            text += f"{each:.1f} s a block, {left / 60:.1f} min left"
        print(text, file=self.stream, flush=True)


def run(job, state, prefix, blocks, calls, chosen, stacks, progress):
    """Quantises all blocks.  Returns ({name: Done}, rows of the summary).

    chosen, stacks  names of linear layers and of experts' modules, of the model"""
    done, summary = {}, []
    inputs, dense_inputs = calls.inputs, calls.inputs
    for at, block in enumerate(blocks):
        here = f"{prefix}.{at}"
        names, experts = (tuple(x[len(here) + 1:] for x in every
                                if x.startswith(here + "."))
                          for every in (chosen, stacks))
        block.to(job.device)
        found, named, other = state.load(at), calls.named[at], None
        if found:
            tensors, rows = found
            if job.dense:
                other = copy.deepcopy(block), dense_inputs
            job.restore(here, block, tensors)
        else:
            made, other = job.block(here, block, names, experts, inputs, named,
                                    dense_inputs)
            tensors, rows = pack_state(made), [x for _, part in made.values()
                                               for x in part]
            state.save(at, tensors, rows)
        if other:
            dense_inputs = _blocks.run(other[0], dense_inputs, named, job.device)
        inputs = _blocks.run(block, inputs, named, job.device)
        block.to("cpu")
        done.update(unpack_state(tensors))
        summary += rows
        progress.put(at, rows, found is not None)
    return done, summary
