# SPDX-License-Identifier: Apache-2.0
"""GPTQ for NVFP4: quantises a model of transformers with the inputs that its layers
have for a calibration text.

    python -m nibblas.gptq model-dir nvfp4-dir --calibration text.jsonl

One decoder block at a time is on the device.  A run that was stopped continues with its
next block.  Needs torch and transformers 5.12 or later."""

import hashlib
import json
import math
import os
import sys
from typing import Any

import torch
from torch import nn

from nibblas._library import ArgumentError
from nibblas._views import SCALE_RULES, choose
from nibblas.gptq import _blocks, _data, _run, _solve, _state
from nibblas.torch._siblings import shared_scales
from nibblas.torch._swap import choose_linears, finish, replace
from nibblas.transformers import _experts, _swap
from nibblas.transformers._onload import default_ignored

__all__ = ["quantize"]
SUMMARY = "gptq.json"
_ACTIVATIONS = ("dense", "nvfp4")
_CHOOSE = ("static", "search")
_TARGETS = ("dense", "quantised")


def _check(options, target, activations, windows, length, min_tokens):
    choose("scales", options.scales, SCALE_RULES)
    for name, value, known in (("choose_scales", options.choose, _CHOOSE),
                               ("target", target, _TARGETS),
                               ("activations", activations, _ACTIVATIONS)):
        if value not in known:
            raise ArgumentError(f"{name} = {value!r}: must be one of "
                                + ", ".join(known), name)
    if not (math.isfinite(options.damping) and options.damping >= 0):
        raise ArgumentError(f"damping = {options.damping}: must be finite, and 0 or "
                            "more", "damping")
    if options.block_size < 16 or options.block_size % 16:
        raise ArgumentError(f"block_size = {options.block_size}: must be a multiple of "
                            "16", "block_size")
    for name, value in (("windows", windows), ("length", length),
                        ("min_tokens", min_tokens)):
        if value < 1:
            raise ArgumentError(f"{name} = {value}: must be 1 or more", name)


def _plan(model, prefix):
    """({name: linear}, [experts' modules], {name: reason}) of a model: what becomes
    NVFP4, and what is left."""
    ignored = default_ignored(model)
    chosen, left = choose_linears(model, lambda name, _: name in ignored, _swap)
    stacks = [name for name, module in model.named_modules()
              if name.startswith(prefix + ".") and _experts.is_experts(module)
              and not _swap.reason_left(model, name, module)]
    if not any(name.startswith(prefix + ".") for name in (*chosen, *stacks)):
        raise ArgumentError("model: its decoder blocks have no layer to quantise",
                            "model")
    return chosen, stacks, left


def _install(model, chosen, left, done, activations, rule):
    """Puts the quantised layers into the model; returns rows of the summary for those
    that are rounded to nearest because they are in no decoder block."""
    shared, rows = shared_scales({name: x for name, x in chosen.items()
                                  if name not in done}, rule), []

    def make(name, linear):
        if name in done:
            return _run.as_linear(name, linear, done[name], activations)
        rows.append({"layer": name, "method": "rounded", "tokens": 0,
                     "reason": "is in no decoder block"})
        return _run.Linear.from_linear(linear, "modelopt", None, activations,
                                       shared.get(name), rule)

    def quantise(name, w):
        if name in done:
            one = done[name]
            return one.codes, one.blocks.view(torch.float8_e4m3fn), one.scale
        rows.append({"layer": name, "method": "rounded", "tokens": 0,
                     "reason": "its experts are not dispatched by transformers"})
        return torch.ops.nibblas.quantize(w, None, "linear", "modelopt", scales=rule)

    swapped = replace(model, chosen, make)
    experts, others = _swap.swap_stacks(
        model, quantise, None if activations == "dense" else activations)
    left.update(others)
    finish(model, swapped + experts, left, _swap)
    return rows


def _origin(path, windows, settings):
    """What a run is made from: its settings, the model's files and the tokens."""
    files = sorted(x for x in os.listdir(path) if x.endswith((".safetensors", ".json")))
    found = [(x, os.stat(os.path.join(path, x))) for x in files]
    return {**settings, "tokens": hashlib.sha256(windows.numpy().tobytes()).hexdigest(),
            "model": json.dumps([(x, y.st_size, y.st_mtime_ns) for x, y in found])}


def quantize(path: str, out: str, calibration: str, *, windows: int = 128,
             length: int = 512, seed: int = 0, damping: float = 0.1,
             block_size: int = 128, act_order: bool = False,
             scales: str = "mse", choose_scales: str = "search", target: str = "dense",
             activations: str = "dense", min_tokens: int = 256,
             device: Any = "cpu", restart: bool = False,
             stream: Any = None) -> "dict[str, Any]":
    """Quantises the model in the folder `path`, writes the folder `out` in ModelOpt's
    format, and returns the summary, which is also in out/gptq.json.

    calibration  a file of JSON lines with "text"
    windows, length, seed
                 of the text: so many windows of so many tokens, at places drawn by the
                 seed
    damping, block_size, act_order, scales, choose_scales
                 see nibblas.gptq._solve.Options
    target       "dense": layers approximate their outputs in the dense model, so that
                 they make good what the layers before them lost.  "quantised": only
                 what they themselves lose; half the time
    activations  "dense" (W4A16), or "nvfp4" (W4A4, with input scales)
    min_tokens   a layer or an expert that fewer tokens reach is rounded to nearest
    device       of the computation
    restart      forgets what a stopped run has left in `out`
    stream       for the progress; None: sys.stderr

    Raises ArgumentError, FileError, DataError, SystemIOError."""
    options = _solve.Options(damping, block_size, act_order, scales, choose_scales)
    _check(options, target, activations, windows, length, min_tokens)
    texts = _data.read_texts(calibration)
    model, tokenizer = _data.load_model(path)
    tokens = _data.windows_of(texts, tokenizer, windows, length, seed)
    settings = {**options._asdict(), "windows": windows, "length": length,
                "seed": seed, "min_tokens": min_tokens, "device": str(device),
                "target": target}
    state = _state.State(out, _origin(path, tokens, settings), restart)
    prefix, blocks = _blocks.decoder_blocks(model)
    chosen, stacks, left = _plan(model, prefix)
    job = _run.Job(model, torch.device(device), options, min_tokens,
                   target == "dense", shared_scales(chosen, scales))
    calls = _blocks.first_inputs(model, blocks, tokens, job.device)
    done, rows = _run.run(job, state, prefix, blocks, calls, list(chosen), stacks,
                          _run.Progress(len(blocks), stream or sys.stderr))
    rows += _install(model, chosen, left, done, activations, scales)
    return _write(model, tokenizer, out, state, {
        "settings": {**settings, "activations": activations},
        "rounded": [x for x in rows if x["method"] == "rounded"],
        "left": left, "layers": rows})


def _write(model: nn.Module, tokenizer, out, state, summary):
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    with open(os.path.join(out, SUMMARY), "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=1)
    state.remove()
    return summary
