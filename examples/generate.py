#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generate.py - loads an NVFP4 model into transformers, generates, and measures tokens
a second, compared with the same model in bfloat16.

    # without an NVIDIA GPU; with one: pip install torch==2.13.0
    pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
    pip install . transformers==5.23.0
    python examples/generate.py                  # random weights: needs no network
    python examples/generate.py --size 1b        # the layers of a model of 1.2 billion
    python examples/generate.py --experts 8      # a mixture of experts
    python examples/generate.py --calibrate      # W4A4 with input scales
    python examples/generate.py --keep /tmp/m    # keeps the random models, to be used
    again python examples/generate.py DIRECTORY        # a checkpoint of your own

The random model is quantised, saved as ModelOpt saves it, and loaded by the line that
loads any NVFP4 model.  Rounds of both models alternate, so that a busy machine is fair
to both.  Cells of "# %%" are cells of a notebook too."""

# %% What to run.
import argparse
import copy
import json
import os
import statistics
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

import nibblas
import nibblas.torch
import nibblas.transformers as nt

SIZES = {"tiny": (256, 512, 2, 4), "small": (1024, 4096, 8, 16),
         "1b": (2048, 8192, 16, 32), "8b": (4096, 14336, 32, 32)}
parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
parser.add_argument("directory", nargs="?")
parser.add_argument("--size", choices=SIZES, default="small")
parser.add_argument("--experts", type=int, default=0, help="of a Mixtral; 0: a Llama")
parser.add_argument("--activations", choices=("nvfp4", "int8", "dense"))
parser.add_argument("--calibrate", action="store_true",
                    help="gives the random model input scales, and so W4A4")
parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
parser.add_argument("--new", type=int, default=32, help="tokens to generate")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--keep", metavar="FOLDER",
                    help="where both random models are kept, and taken from")
parser.add_argument("--json", action="store_true", help="the last line is JSON")
parser.add_argument("--compile", action="store_true",
                    help="static cache and torch.compile, on a GPU CUDA graphs")
given = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
print(f"{nibblas.device(device)}, {torch.get_num_threads()} threads, torch "
      f"{torch.__version__}, transformers {transformers.__version__}")


# %% A model with random weights, and its NVFP4 directory.
def random_model():
    hidden, middle, layers, heads = SIZES[given.size]
    sizes = {"hidden_size": hidden, "intermediate_size": middle, "vocab_size": 32000,
             "num_hidden_layers": layers, "num_attention_heads": heads,
             "num_key_value_heads": heads // 4, "head_dim": hidden // heads,
             "tie_word_embeddings": False}
    if given.experts:
        config = transformers.MixtralConfig(**sizes, num_local_experts=given.experts)
    else:
        config = transformers.LlamaConfig(**sizes)
    torch.manual_seed(1)
    with torch.device(device):  # a GPU fills and quantises 8 billion in seconds
        return transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16).eval()


def quantised(model):
    """A copy with NVFP4 in the place of all linear layers but the head, and of
    experts."""
    model = copy.deepcopy(model)
    nibblas.torch.swap_linears(model, keep=lambda name, _: name == "lm_head")
    nt.swap_experts(model)
    if given.calibrate:
        nt.calibrate(model, [torch.randint(3, 32000, (1, given.prompt),
                                           device=device)])
    return model


# %% The line that loads an NVFP4 model.
def load(folder):
    return nt.from_pretrained(folder, activations=given.activations, dtype="auto")


def random_models(folder):
    """The random model and its NVFP4 version, which is loaded from a folder."""
    dense, nvfp4 = os.path.join(folder, "bfloat16"), os.path.join(folder, "nvfp4")
    if os.path.exists(os.path.join(nvfp4, "config.json")):
        model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype="auto")
    else:
        model = random_model()
        quantised(model).save_pretrained(nvfp4)
        if given.keep:
            model.save_pretrained(dense)
    return {"bfloat16": model.eval(), "NVFP4": load(nvfp4)}


if given.directory:
    models = {"NVFP4": load(given.directory)}
elif given.keep:
    models = random_models(given.keep)
else:
    with tempfile.TemporaryDirectory() as scratch:
        models = random_models(scratch)
for model in models.values():
    model.to(device)
print("NVFP4:", ", ".join(f"{n} layers {kind}" for kind, n in
                          nt.report(models["NVFP4"]).counts().items()))

# %% It generates.
vocabulary = models["NVFP4"].config.get_text_config().vocab_size
prompt = torch.randint(3, vocabulary, (1, given.prompt), device=device)
with torch.inference_mode():
    tokens = models["NVFP4"].generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8,
        min_new_tokens=8, do_sample=False, pad_token_id=0)
print("the next tokens:", tokens[0, given.prompt:].tolist())


# %% Tokens a second: of the prompt, and of those that follow one by one.
def now():
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(model, step):
    """Seconds for the prompt, and for one token after it."""
    cache = transformers.StaticCache(
        config=model.config, max_cache_len=given.prompt + given.new
    ) if given.compile else transformers.DynamicCache(config=model.config)
    times = [now()]
    with torch.inference_mode():
        out = model(prompt, past_key_values=cache, logits_to_keep=1)
        times.append(now())
        for _ in range(given.new):
            token = out.logits[:, -1:].argmax(-1)
            out = step(token, past_key_values=cache)
            times.append(now())
    first, *rest = (b - a for a, b in zip(times, times[1:]))
    return first, statistics.median(rest)


steps = {name:
         torch.compile(model, mode="reduce-overhead" if device == "cuda" else None)
         if given.compile else model for name, model in models.items()}
seconds = {name: [] for name in models}
for _ in range(given.rounds + 1):
    for name, model in models.items():
        seconds[name].append(measure(model, steps[name]))
rates = {}
for name, model in models.items():
    # The first round warms up; the best of the others was disturbed least.
    first, rest = (min(x) for x in zip(*seconds[name][1:]))
    rates[name] = {"prompt": given.prompt / first, "decode": 1 / rest}
    size = sum(x.nbytes for x in model.state_dict().values())
    print(f"{name:9}{size / 1e6:7.0f} MB   prompt of {given.prompt}: "
          f"{given.prompt / first:8.1f} tokens/s   then {1 / rest:7.1f} tokens/s")
if given.json:
    print(json.dumps({"threads": torch.get_num_threads(), "tokens_per_s": rates}))
