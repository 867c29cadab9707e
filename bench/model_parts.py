#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""model_parts.py - measures where the time of a whole model goes on a CPU: Llamas of
three sizes with random weights, in NVFP4 (W4A16) compared with torch.

    python bench/model_parts.py --size 0.35b --dense bfloat16,float32
    python bench/model_parts.py --size 8b --nib build/release/nib --json rows.json

The models' layers are filled with random codes and scales, because quantising 8 billion
weights takes minutes.  Rounds alternate: each measures every model's prompts and next
tokens once.  A row is the median of the rounds.  Then every model runs once more with a
clock around its modules, for the parts:

    products   the layers' matrices (q, k, v, o, gate, up, down); "of it library": in
               nibblas's C functions
    attention  rotary embedding, cache and softmax
    norms, activation (SiLU and its product), head (lm_head)
    rest       embedding, masks, sums of residuals, Python

"nvfp4" leaves the head in bfloat16, as checkpoints do; "nvfp4+head" quantises it too.
A rate in GB/s is of the weights that a token reads.  --nib compares it with the read
bandwidth that nib bench --peaks finds before and after."""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import transformers
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import nibblas
import nibblas.torch
from nibblas.torch._tensors import Cpu

# hidden, middle, layers, heads, heads of keys, vocabulary
SIZES = {"tiny": (256, 512, 2, 4, 2, 1000),
         "0.35b": (1024, 2816, 24, 16, 16, 32000),
         "1b": (2048, 8192, 16, 32, 8, 128256),
         "8b": (4096, 14336, 32, 32, 8, 128256)}
PARTS = ("products", "attention", "norms", "activation", "head", "rest")
# Copied into all weights.
RANDOM_BYTES = 1 << 24


def config_of(size):
    hidden, middle, layers, heads, key_heads, vocabulary = SIZES[size]
    return transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=middle, vocab_size=vocabulary,
        num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=key_heads, head_dim=hidden // heads,
        tie_word_embeddings=False)


def tile(tensor, source):
    """Fills a tensor with copies of source, of the same type."""
    flat = tensor.view(-1)
    for at in range(0, flat.numel(), source.numel()):
        part = flat[at:at + source.numel()]
        part.copy_(source[:part.numel()])
    return tensor


class Filler:
    """Random weights, copied: of floats with a deviation of 0.02, and of NVFP4 with
    every code and scales from 0.25 to 1."""

    def __init__(self):
        torch.manual_seed(1)
        self.codes = torch.randint(0, 256, (RANDOM_BYTES,), dtype=torch.uint8)
        self.scales = torch.randint(0x28, 0x38, (RANDOM_BYTES,), dtype=torch.uint8)
        self.floats = {torch.float32: torch.randn(RANDOM_BYTES) * 0.02}

    def dense(self, rows, cols, dtype):
        if dtype not in self.floats:
            self.floats[dtype] = self.floats[torch.float32].to(dtype)
        made = nn.Linear(cols, rows, bias=False, device="meta", dtype=dtype)
        weight = torch.empty(rows, cols, dtype=dtype)
        made.weight = nn.Parameter(tile(weight, self.floats[dtype]), False)
        return made

    def nvfp4(self, rows, cols, dtype):
        made = nibblas.torch.Linear(cols, rows, bias=False, dtype=dtype,
                                    activations="dense")
        tile(made.codes, self.codes)
        tile(made.weight_scale.view(torch.uint8), self.scales)
        made.weight_scale_2.fill_(0.01)
        made.pack()
        return made


def make(config, dtype, linear, embedding):
    """A Llama whose linear layers but the head are made by `linear`."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                shape = child.out_features, child.in_features
                if name != "lm_head":
                    setattr(parent, name, linear(*shape, dtype))
            elif "RMSNorm" in type(child).__name__:
                child.weight = nn.Parameter(torch.ones(child.weight.shape, dtype=dtype),
                                            False)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    model.model.embed_tokens.weight = nn.Parameter(embedding, False)
    model.lm_head = nn.Linear(1, 1, bias=False)
    model.lm_head.weight = nn.Parameter(embedding, False)
    return model.eval()


class Variant:
    """A model with one of its heads."""

    def __init__(self, model, head):
        self.model, self.head = model, head
        layers = [x for x in model.modules() if x is not model.lm_head and isinstance(
            x, (nn.Linear, nibblas.torch.Linear))]
        self.bytes = sum(map(weight_bytes, [*layers, head]))

    def run(self, tokens, cache):
        self.model.lm_head = self.head
        with torch.inference_mode():
            return self.model(tokens, past_key_values=cache, logits_to_keep=1)

    def prompt(self, count):
        """(seconds, cache, the next token)"""
        cache = transformers.DynamicCache(config=self.model.config)
        tokens = (torch.arange(count)[None] * 37 + 3) % self.model.config.vocab_size
        begin = time.perf_counter()
        out = self.run(tokens, cache)
        seconds = time.perf_counter() - begin
        return seconds, cache, out.logits[:, -1:].argmax(-1)

    def decode(self, count, cache, token):
        """Seconds of each of the next tokens."""
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            token = self.run(token, cache).logits[:, -1:].argmax(-1)
            times.append(time.perf_counter() - begin)
        return times


def weight_bytes(layer):
    if isinstance(layer, nibblas.torch.Linear):
        return layer.in_features * layer.out_features * 9 // 16
    return layer.weight.nbytes


class Clock:
    """Seconds of each part: of a module without the modules inside it."""

    def __init__(self, variant):
        self.seconds, self.open, self.kept = collections.Counter(), [], []
        self.library, self.calls = collections.Counter(), collections.Counter()
        variant.model.lm_head = variant.head
        for name, module in variant.model.named_modules():
            part = part_of(name, module)
            if part:
                self.wrap(module, part)
        self.run, Cpu.run = Cpu.run, staticmethod(self.run_library)

    def wrap(self, module, part):
        forward = module.forward

        def timed(*args, **named):
            self.open.append(0.0)
            begin = time.perf_counter()
            try:
                return forward(*args, **named)
            finally:
                took = time.perf_counter() - begin
                self.seconds[part] += took - self.open.pop()
                if self.open:
                    self.open[-1] += took
        module.forward = timed
        self.kept.append(module)

    def run_library(self, plan, work, device):
        begin = time.perf_counter()
        self.run(plan, work, device)
        p = plan.template[0]
        shape = f"{p.x.rows}x{p.c.cols}x{p.x.cols}"
        self.library[shape] += time.perf_counter() - begin
        self.calls[shape] += 1

    def stop(self):
        Cpu.run = staticmethod(self.run)
        for module in self.kept:
            del module.forward


def part_of(name, module):
    if name == "lm_head":
        return "head"
    if isinstance(module, (nn.Linear, nibblas.torch.Linear)):
        return "products"
    kind = type(module).__name__
    if "RMSNorm" in kind:
        return "norms"
    if "RotaryEmbedding" in kind or kind.endswith("Attention"):
        return "attention"
    if kind.endswith("MLP"):
        return "activation"
    return "rest" if name == "" else None


def parts_of(variant, step, times):
    """Milliseconds of the parts of one step, the mean of some."""
    clock = Clock(variant)
    try:
        for _ in range(times):
            step()
    finally:
        clock.stop()
    row = {part: clock.seconds[part] * 1e3 / times for part in PARTS}
    row["library"] = clock.library.total() * 1e3 / times
    row["calls"] = clock.calls.total() / times
    row["shapes"] = {shape: {"ms": clock.library[shape] * 1e3 / times,
                             "calls": count / times}
                     for shape, count in clock.calls.items()}
    return row


def read_gbps(nib, threads):
    """The read bandwidth that nib bench finds, or None."""
    if not nib:
        return None
    text = subprocess.run([nib, "bench", "--peaks", "--threads", str(threads),
                           "--format", "json"], text=True, stdout=subprocess.PIPE,
                          check=True).stdout
    return next(row["gbps"] for row in json.loads(text)
                if row["shape"] == "read bandwidth")


def variants_of(given, filler):
    """{name: Variant}, in the order in which they are measured."""
    config = config_of(given.size)
    hidden, vocabulary = config.hidden_size, config.vocab_size
    heads, made = {}, {}
    types = [getattr(torch, x) for x in given.dense.split(",") if x]
    for dtype in dict.fromkeys([getattr(torch, given.dtype), *types]):
        heads[dtype] = filler.dense(vocabulary, hidden, dtype)
    own = getattr(torch, given.dtype)
    begin = time.perf_counter()
    model = make(config, own, filler.nvfp4, heads[own].weight)
    made["nvfp4"] = Variant(model, heads[own])
    made["nvfp4+head"] = Variant(model, filler.nvfp4(vocabulary, hidden, own))
    for dtype in types:
        model = make(config, dtype, filler.dense, heads[dtype].weight)
        made[str(dtype).removeprefix("torch.")] = Variant(model, heads[dtype])
    print(f"models made in {time.perf_counter() - begin:.1f} s", flush=True)
    return made


def measure(variants, given, prompts):
    """{name: {prompt: [seconds], "decode": [seconds]}}; the first round warms up."""
    found = {name: collections.defaultdict(list) for name in variants}
    end = time.monotonic() + given.seconds
    for at in range(given.rounds + 1):
        for name, one in variants.items():
            for count in prompts:
                seconds, cache, token = one.prompt(count)
                if count == prompts[0]:
                    rest = one.decode(given.new if at else 2, cache, token)
                if at:
                    found[name][count].append(seconds)
                    if count == prompts[0]:
                        found[name]["decode"] += rest
        if at and time.monotonic() > end:
            break
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--size", choices=SIZES, default="0.35b")
    parser.add_argument("--dtype", default="bfloat16", help="of the NVFP4 model")
    parser.add_argument("--dense", default="bfloat16", help="types of torch's models")
    parser.add_argument("--prompts", default="64,512")
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9,
                        help="begin no round after this time")
    parser.add_argument("--nib", help="the program that measures the read bandwidth")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    prompts = [int(x) for x in given.prompts.split(",")]
    threads = torch.get_num_threads()
    print(f"{nibblas.device('cpu')}, {threads} threads, torch {torch.__version__}, "
          f"transformers {transformers.__version__}, Llama {given.size}, NVFP4 in "
          f"{given.dtype}", flush=True)
    variants = variants_of(given, Filler())
    before = read_gbps(given.nib, threads)
    found = measure(variants, given, prompts)
    after = read_gbps(given.nib, threads)
    limit = before and max(before, after)
    if limit:
        print(f"read bandwidth: {before:.1f} GB/s before, {after:.1f} after")
    rows = []
    for name, one in variants.items():
        times = {key: statistics.median(x) for key, x in found[name].items()}
        rate = one.bytes / times["decode"] / 1e9
        share = f", {rate / limit:.0%} of the limit" if limit else ""
        token_ms = times["decode"] * 1e3
        print(f"{name:11}{one.bytes / 1e6:8.0f} MB  token {token_ms:7.2f} ms "
              f"({1e3 / token_ms:.1f}/s, {rate:.1f} GB/s{share})" + "".join(
                  f"  prompt {n} {times[n] * 1e3:8.1f} ms ({n / times[n]:.1f}/s)"
                  for n in prompts), flush=True)
        rows.append({"model": name, "bytes": one.bytes,
                     "seconds": {str(k): v for k, v in found[name].items()}})
    print(f"{'ms':34}" + "".join(f"{part:>12}" for part in PARTS)
          + "   of it library (calls)", flush=True)
    for row, (name, one) in zip(rows, variants.items()):
        row["parts"] = {}
        for step in ("token", *prompts):
            if step == "token":
                state = list(one.prompt(prompts[0])[1:])
                found_parts = parts_of(one, lambda: one.decode(1, *state), given.new)
            else:
                found_parts = parts_of(one, lambda: one.prompt(step), 1)
            row["parts"][str(step)] = found_parts
            print(f"{name:16}{'prompt of ' if step != 'token' else ''}{step!s:18}"[:34]
                  .ljust(34) + "".join(f"{found_parts[p]:12.2f}" for p in PARTS)
                  + f"   {found_parts['library']:8.2f} ({found_parts['calls']:.0f})",
                  flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"size": given.size, "threads": threads, "read": [before, after],
                       "rows": rows}, file)


if __name__ == "__main__":
    sys.exit(main())
