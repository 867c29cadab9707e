#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""moe.py - a layer of experts (MoE) in NVFP4 as one call, compared with the same layer
in bfloat16: its error and its time, with x as it is (W4A16) and quantised (W4A4).

    pip install . torch
    python examples/moe.py                     # on a GPU if there is one
    python examples/moe.py --hidden 2048 --width 768 --experts 128 --slots 8

examples/generate.py --experts 8 runs a whole model with such layers, and
examples/expert_parallel.py shares the experts among processes."""

import argparse
import statistics
import time

import torch

import nibblas
import nibblas.torch

parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--width", type=int, default=256, help="of an expert")
parser.add_argument("--experts", type=int, default=16)
parser.add_argument("--slots", type=int, default=4, help="experts of a token")
parser.add_argument("--tokens", type=int, nargs="+", default=[1, 64])
parser.add_argument("--rounds", type=int, default=20)
given = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"{nibblas.device(device)}, torch {torch.__version__}")

# Weights as a model has them: gate above up for each expert, and down.
torch.manual_seed(0)
w13 = (torch.randn(given.experts, 2 * given.width, given.hidden)
       * given.hidden ** -0.5).bfloat16().to(device)
w2 = (torch.randn(given.experts, given.hidden, given.width)
      * given.width ** -0.5).bfloat16().to(device)


def reference(x, ids, weights):
    """The layer in the type of the weights, one expert after the other."""
    y = torch.zeros_like(x)
    for expert in range(given.experts):
        token, slot = (ids == expert).nonzero(as_tuple=True)
        if len(token):
            gate, up = (x[token] @ w13[expert].t()).chunk(2, -1)
            h = torch.nn.functional.silu(gate) * up
            y.index_add_(0, token, (h @ w2[expert].t()) * weights[token, slot, None])
    return y


# Scales for W4A4: the largest |x| that is expected over 6 * 448, here 5 of them.
layers = {"W4A16": nibblas.torch.MoE.from_weights(w13, w2),
          "W4A4": nibblas.torch.MoE.from_weights(w13, w2, input_scale=5 / 2688,
                                                 hidden_scale=5 / 2688)}


def milliseconds(function, *arguments):
    """The median time of a call."""
    times = []
    for _ in range(given.rounds + 2):
        begin = time.perf_counter()
        function(*arguments)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times[2:])


for tokens in given.tokens:
    x = torch.randn(tokens, given.hidden, device=device).bfloat16()
    # Routing stays with the model: ids and weights of each token's experts.
    scores = torch.randn(tokens, given.experts, device=device).softmax(1)
    weights, ids = scores.topk(given.slots)
    with torch.inference_mode():
        want = reference(x, ids, weights.bfloat16())
        print(f"{tokens:5} tokens  bfloat16 "
              f"{milliseconds(reference, x, ids, weights.bfloat16()):8.3f} ms", end="")
        for name, layer in layers.items():
            error = (layer(x, ids, weights) - want).float().norm() / want.float().norm()
            print(f"   {name} {milliseconds(layer, x, ids, weights):8.3f} ms, error "
                  f"{error:.3f}", end="")
    print()
