#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""accuracy.py MODEL_DIR NVFP4_DIR... - what quantised folders lose compared with their
dense model: perplexity of a text, and the Kullback-Leibler divergence of the
predictions to those of the dense model in bfloat16, in nats a token.

accuracy.py --write-text FILE - writes a calibration text for python -m nibblas.gptq:
docstrings of the installed numpy and torch, as JSON lines.

The text to be measured is Python's documentation, which differs between versions of
Python, or --text."""

import argparse
import ast
import json
import math
import os
import pathlib
import sys
from importlib.util import find_spec
from pydoc_data import topics

os.environ.setdefault("HF_HUB_OFFLINE", "1")
KINDS = {"W4A16": "dense", "W4A8": "int8", "W4A4": "nvfp4"}
LEAST_CHARACTERS = 600


def docstrings(package):
    """The long docstrings of a package's files, without those of its tests."""
    root = find_spec(package).submodule_search_locations[0]
    for path in sorted(pathlib.Path(root).rglob("*.py"),
                       key=lambda x: (str(x.parent), x.name)):
        if "test" in str(path.relative_to(root).parent):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                yield ast.get_docstring(node) or ""


def write_text(path):
    texts = dict.fromkeys(x for package in ("numpy", "torch")
                          for x in docstrings(package) if len(x) >= LEAST_CHARACTERS)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": x}) + "\n" for x in texts)


class Measure:
    """The windows of a text, and the dense model's predictions for them."""

    def __init__(self, path, text, count, length, device):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.torch, self.device = torch, device
        ids = torch.tensor(AutoTokenizer.from_pretrained(path)(text)["input_ids"])
        starts = torch.linspace(0, len(ids) - length, count).long()
        self.windows = [ids[x:x + length] for x in starts]
        dense = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
        dense = dense.to(device).eval()
        self.predicted = [None] * count
        self.predicted = list(self._logits(dense))
        self.dense = self.of(dense)

    def _logits(self, model):
        where = next(model.parameters()).device
        with self.torch.inference_mode():
            for window in self.windows:
                yield model(window[None].to(where)).logits[0, :-1].half().cpu()

    def of(self, model):
        """(perplexity, divergence, its standard error over the windows)."""
        losses, divergences = [], []
        for window, own, dense in zip(self.windows, self._logits(model),
                                      self.predicted):
            own, dense = own.float().log_softmax(-1), dense.float().log_softmax(-1)
            losses.append(-own.gather(1, window[1:, None]).mean().item())
            divergences.append((dense.exp() * (dense - own)).sum(-1).mean().item())
        d = self.torch.tensor(divergences)
        error = (d.std() / len(d) ** 0.5).item() if len(d) > 1 else math.nan
        return math.exp(sum(losses) / len(losses)), d.mean().item(), error


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--write-text", metavar="FILE")
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--windows", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["W4A16", "W4A4"])
    parser.add_argument("--device", default="cpu", help="of all kinds but W4A8")
    given = parser.parse_args()
    if given.write_text:
        return write_text(given.write_text)
    if len(given.folders) < 2:
        parser.error("needs a dense folder and a quantised one")
    text = (pathlib.Path(given.text).read_text(encoding="utf-8") if given.text else
            "\n\n".join(topics.topics[x] for x in sorted(topics.topics)))
    import torch
    import nibblas.transformers as nt
    dense, *others = given.folders
    measure = Measure(dense, text, given.windows, given.length, given.device)
    print(f"{'bfloat16':8} perplexity {measure.dense[0]:7.3f}  {dense}", flush=True)
    for folder in others:
        for kind in given.kinds:
            model = nt.from_pretrained(folder, activations=KINDS[kind],
                                       dtype=torch.bfloat16).eval()
            model = model.to("cpu" if kind == "W4A8" else given.device)
            found = measure.of(model)
            print(f"{kind:8} perplexity {found[0]:7.3f}  divergence {found[1]:.4f} "
                  f"+- {found[2]:.4f}  {folder}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
