# SPDX-License-Identifier: Apache-2.0
"""Adds the errors of products to the certificate of an NVFP4 folder, and a choice of
W4A4, W4A8 or W4A16 for each layer by a budget.

    nib verify model-dir nvfp4-dir --certify
    python -m nibblas.certify model-dir nvfp4-dir --calibration text.jsonl --budget 0.12
    model = nibblas.transformers.from_pretrained("nvfp4-dir", activations="certified")

The error of a layer is sqrt(E||xW - product||^2 / E||xW||^2) over its inputs x in the
dense model for a calibration text, W being the dense weights and product the library's.
One decoder block of the dense model at a time is on the device.  Needs torch and
transformers 5.12 or later."""

import argparse
import hashlib
import math
import os
import sys
from typing import Any

from nibblas import _certificate
from nibblas._certificate import KINDS
from nibblas._files import Checkpoint
from nibblas._library import ArgumentError, Error, UnsupportedError

try:
    import torch
    from torch.nn import functional as F

    import nibblas.transformers as nt
    from nibblas.transformers._linear import CheckpointLinear
    from nibblas.gptq import _blocks, _data
except ImportError as missing:
    if __name__ != "__main__":
        raise
    print(f"nibblas.certify: {missing}: install torch and transformers",
          file=sys.stderr)
    sys.exit(1)

__all__ = ["certify"]


class _Errors:
    """Sums in fp64 over the rows of x that a layer has seen.

    signal  ||xW||^2
    noise   {kind: ||xW - product||^2} of the kinds that the device has"""

    def __init__(self):
        self.signal, self.tokens = 0.0, 0
        self.noise = dict.fromkeys(KINDS, 0.0)

    def add(self, x, weight, linear):
        x = x.reshape(-1, x.shape[-1])
        want = F.linear(x.float(), weight.float()).double()
        self.tokens += len(x)
        self.signal += want.square().sum().item()
        for kind in list(self.noise):
            linear.activations = KINDS[kind]
            try:
                made = linear(x)
            except UnsupportedError:
                del self.noise[kind]
                continue
            self.noise[kind] += (want - made.double()).square().sum().item()

    def relative(self):
        """{kind: relative error}, without those that are not finite."""
        found = {kind: math.sqrt(noise / self.signal) if noise and self.signal
                 else (math.inf if noise else 0.0)
                 for kind, noise in self.noise.items()}
        return {kind: x for kind, x in found.items() if math.isfinite(x)}


def _block_errors(block, layers, inputs, named, device):
    """({layer: _Errors}, the outputs) of a block of the dense model.

    layers  {name in the block: the quantised layer}"""
    errors = {name: _Errors() for name in layers}

    def see(name):
        def hook(module, args, kwargs):
            x = args[0] if args else next(iter(kwargs.values()))
            errors[name].add(x, module.weight, layers[name])
        return hook

    hooks = [block.get_submodule(name).register_forward_pre_hook(
        see(name), with_kwargs=True) for name in layers]
    try:
        return errors, _blocks.run(block, inputs, named, device)
    finally:
        for hook in hooks:
            hook.remove()


def _quantised_layers(path, device):
    """{module: linear layer} of the NVFP4 model, without biases."""
    model = nt.from_pretrained(path, activations="dense").to(device)
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, CheckpointLinear):
            module.bias = None
            found[name] = module
    return found


def _check_original(name, module, linear, error):
    """Refuses a dense layer that is not the one that nib verify compared.

    error  the relative error of the weights, of the certificate"""
    weight = getattr(module, "weight", None)
    if (type(module) is not torch.nn.Linear
            or weight.shape != (linear.out_features, linear.in_features)):
        raise ArgumentError(f"model: its {name} is no linear layer with the sizes of "
                            f"{linear.stored_name}: must be the original", "model")
    weight = weight.detach().float()
    found = (weight - linear.dequantize(torch.float32).cpu()).norm().item()
    whole = weight.norm().item()
    if abs(found - error * whole) > 1e-4 * (found + error * whole):
        raise ArgumentError(
            f"model: the weights of {linear.stored_name} differ from its {name} by "
            f"{found / whole if whole else found:.6f}, and by {error:.6f} from the "
            "original of the certificate", "model")


def _measure(model, quantised, entries, tokens, device, stream):
    """{layer of the checkpoint: _Errors} of the layers in the decoder blocks.

    entries  the layers of the certificate"""
    modules = dict(model.named_modules())
    for name, linear in quantised.items():
        _check_original(name, modules.get(name), linear,
                        entries[linear.stored_name]["relative_error"])
    prefix, blocks = _blocks.decoder_blocks(model)
    calls = _blocks.first_inputs(model, blocks, tokens, device)
    inputs, found = calls.inputs, {}
    for at, block in enumerate(blocks):
        start = f"{prefix}.{at}."
        layers = {name[len(start):]: one for name, one in quantised.items()
                  if name.startswith(start)}
        block.to(device)
        errors, inputs = _block_errors(block, layers, inputs, calls.named[at], device)
        block.to("cpu")
        found.update({layers[name].stored_name: one for name, one in errors.items()})
        print(f"block {at + 1}/{len(blocks)}", file=stream, flush=True)
    return found


def _check(budget, calibration, windows, length):
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        raise ArgumentError(f"budget = {budget}: must be finite and more than 0",
                            "budget")
    if budget is None and calibration is None:
        raise ArgumentError("calibration: must be given, unless budget only makes the "
                            "choice again", "calibration")
    for name, value in (("windows", windows), ("length", length)):
        if value < 1:
            raise ArgumentError(f"{name} = {value}: must be 1 or more", name)


def certify(path: str, nvfp4: str, calibration: "str | None" = None, *,
            budget: "float | None" = None, windows: int = 16, length: int = 512,
            seed: int = 0, device: Any = "cpu", stream: Any = None) -> "dict[str, Any]":
    """Measures the layers of the folder nvfp4, adds their errors to its certificate,
    which nib verify --certify wrote, and returns the certificate.

    path         the folder of the dense model
    calibration  a file of JSON lines with "text"; None: the errors are those of an
                 earlier run, and only the choice is made again
    budget       the largest error of a layer's products; None: makes no choice
    windows, length, seed
                 of the text: so many windows of so many tokens, at places drawn by the
                 seed
    device       of the computation
    stream       for the progress; None: sys.stderr

    Raises ArgumentError, FileError, DataError, SystemIOError."""
    _check(budget, calibration, windows, length)
    file = os.path.join(nvfp4, _certificate.FILE)
    found = _certificate.read(file)
    with Checkpoint(nvfp4) as checkpoint:
        _certificate.check(file, found, checkpoint)
    if calibration is not None:
        model, tokenizer = _data.load_model(path)
        tokens = _data.windows_of(_data.read_texts(calibration), tokenizer, windows,
                                  length, seed)
        device = torch.device(device)
        errors = _measure(model, _quantised_layers(nvfp4, device),
                          found["layers"], tokens, device, stream or sys.stderr)
        for name, entry in found["layers"].items():
            one = errors.get(name)
            entry["tokens"] = one.tokens if one else 0
            entry["product_errors"] = one.relative() if one and one.tokens else {}
            entry["activations"] = None
        found["calibration"] = {
            "tokens": hashlib.sha256(tokens.numpy().tobytes()).hexdigest(),
            "windows": windows, "length": length, "seed": seed, "device": str(device)}
    elif not any(x.get("product_errors") for x in found["layers"].values()):
        raise ArgumentError(f"calibration: must be given, because {file} has no errors "
                            "of products", "calibration")
    if budget is not None:
        _certificate.choose(found, budget)
    found["budget"] = budget
    _certificate.write(file, found)
    return found


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m nibblas.certify", formatter_class=argparse.RawTextHelpFormatter,
        description="Adds the errors of products to the certificate of NVFP4_DIR, and "
        "a choice\nof W4A4, W4A8 or W4A16 for each layer.")
    add = parser.add_argument
    add("model", metavar="MODEL_DIR")
    add("nvfp4", metavar="NVFP4_DIR")
    add("--calibration", metavar="FILE", help="""\
JSON lines with "text"; without it the choice is made from the
errors of an earlier run""")
    add("--budget", type=float, metavar="E",
        help="the largest relative error of a layer's products")
    add("--windows", type=int, default=16, help="windows of the text (16)")
    add("--length", type=int, default=512, help="tokens of each (512)")
    add("--seed", type=int, default=0, help="of the windows' places (0)")
    add("--device", default="cpu", help="cpu (the default), cuda, ...")
    return parser


def _summary(found):
    """Lines of text: for each kind the errors and the number of layers that have it."""
    entries = found["layers"].values()
    for kind, activations in KINDS.items():
        errors = sorted(x["product_errors"][kind] for x in entries
                        if kind in (x.get("product_errors") or {}))
        chosen = sum(x.get("activations") == activations for x in entries)
        text = f"{kind:5}  " + (
            f"error {errors[0]:.4f} to {errors[-1]:.4f}, median "
            f"{errors[len(errors) // 2]:.4f}" if errors else "not measured")
        yield text + ("" if found["budget"] is None else f"  chosen for {chosen}")
    unmeasured = sum(not x.get("product_errors") for x in entries)
    if unmeasured:
        yield f"not measured: {unmeasured} of {len(entries)} layers"


def main(arguments: "list[str] | None" = None) -> int:
    """The command's exit status."""
    given = _parser().parse_args(arguments)
    try:
        found = certify(given.model, given.nvfp4, given.calibration,
                        budget=given.budget, windows=given.windows,
                        length=given.length, seed=given.seed, device=given.device)
    except Error as error:
        print(f"nibblas.certify: {error}", file=sys.stderr)
        return 1
    print("\n".join(_summary(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
