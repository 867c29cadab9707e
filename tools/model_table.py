#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""model_table.py [-o cli/model_table.c] - writes the table by which nib quantize tells
linear layers from other matrices: for each model type of the installed transformers,
the tensors that cli/select.c, by name only, would take for linear layers and that
are none.

Each class is built on the meta device, so that no weights are made; its state dict gets
the names of a checkpoint by transformers' own conversion, and a name is a linear layer
if nibblas.transformers would load it in NVFP4.  What a class only builds with other
options is found in its source: attributes that are an embedding, a Conv1D or the like.
A layer whose weight the source reads outside of its forward() is left as it is, too.

Needs torch, transformers and the package nibblas:

    PYTHONPATH=python NIBBLAS_LIBRARY=build/release/libnibblas.so
    tools/model_table.py"""

import argparse
import ast
import fnmatch
import importlib.util
import re
import sys
import textwrap
import warnings
from pathlib import Path

import torch
import transformers
from torch import nn
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from nibblas.transformers import _experts, _plan

ROOT = Path(__file__).resolve().parent.parent
# Sizes that keep the models small; and what some classes do not start without.
FEW = {**dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 6),
       **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts",
                        "moe_num_experts", "depth"), 4),
       "encoder_layers": 2, "decoder_layers": 2}
NEEDED = {"head_dim": 64, "num_key_value_heads": 4, "prediction_length": 4,
          "is_decoder": True, "vocab_size": 512, "pad_token_id": 0, "hidden_size": 512,
          "intermediate_size": 512, "num_attention_heads": 8, "add_adapter": False,
          "moe_intermediate_size": 512, "image_size": 32, "dropout": 0.0,
          "layer_types": ["full_attention"] * 6}
HEADS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM",
         "SPEECH_SEQ_2_SEQ", "MASKED_LM", "CTC", "PRETRAINING")
# Functions that run before weights are loaded or when a model is changed.
SETUP = re.compile(r"^(__init__|_init_.*|init_.*|tie_.*|_tie_.*|[gs]et_.*|resize_.*|"
                   r"_resize_.*|prune_.*|reset_.*)$")
# Branches that inference does not take.
UNUSED = re.compile(r"self\.training|pretraining_tp|slow_but_exact")
# The stacks of experts that nib quantize takes apart, or quantises across.
STACK = re.compile(r"(\.experts\.(gate_up_proj|down_proj)"
                   r"|\.block_sparse_moe\.(in|out)put_linear\.weight)$")
# An end of names that so many types have for no linear layer is one for all types.
COMMON = 4
REASONS = ("embedding", "Conv1D", "tied", "read", "stack", "converted", "other")


# ---- models
# ----------------------------------------------------------------------------

def configurations(kind):
    """Configurations of a class, smallest first."""
    def small(extra):
        parts = {}
        for name, part in (getattr(kind, "sub_configs", None) or {}).items():
            try:
                parts[name] = part(**FEW, **extra).to_dict()
            except Exception:  # pylint: disable=broad-except
                pass
        return parts

    for make in (lambda: kind(**FEW, **small({})), lambda: kind(**small({})),
                 lambda: kind(**FEW), kind, lambda: kind(**FEW, **NEEDED),
                 lambda: kind(**small(NEEDED))):
        try:
            yield make()
        except Exception:  # pylint: disable=broad-except
            pass


def class_names(model_type):
    found = []
    for head in (*(f"MODEL_FOR_{x}_MAPPING_NAMES" for x in HEADS),
                 "MODEL_MAPPING_NAMES"):
        names = getattr(modeling_auto, head).get(model_type) or ()
        found += [names] if isinstance(names, str) else names
    return dict.fromkeys(found)


def build(cls, kind):
    for config in configurations(kind):
        try:
            with torch.device("meta"):
                return cls(config)
        except Exception:  # pylint: disable=broad-except
            pass
    return None


# ---- sources
# ---------------------------------------------------------------------------

def path_of(node):
    """("a", "b") of self.a.b, and whether the root is self; None for other
    expressions."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return (tuple(parts), node.id == "self") if isinstance(node, ast.Name) else None


class Source:
    """What a file of models says; module: its name, which is not imported.

    reads   {class: paths of modules whose weight it reads}; None: of any class
    kinds   {attribute: names of the classes that it is made of}
    owners  names of classes with a weight of their own, as routers have"""

    def __init__(self, module):
        path = importlib.util.find_spec(module).origin
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        self.reads, self.kinds, self.owners = {None: set()}, {}, set()
        for cls in (x for x in tree.body if isinstance(x, ast.ClassDef)):
            for function in (x for x in cls.body if isinstance(x, ast.FunctionDef)):
                if not SETUP.match(function.name):
                    self._find_reads(cls.name, function)
                self._find_kinds(function)
                if "Norm" not in cls.name and re.search(
                        r"self\.weight = (torch\.)?nn\.Parameter",
                        ast.unparse(function)):
                    self.owners.add(cls.name)

    def _find_reads(self, cls, node):
        if isinstance(node, ast.If) and UNUSED.search(ast.unparse(node.test)):
            for child in node.orelse:
                self._find_reads(cls, child)
            return
        if isinstance(node, ast.Attribute) and node.attr == "weight":
            found = path_of(node.value)
            if found and found[0]:
                self.reads.setdefault(cls if found[1] else None, set()).add(found[0])
        for child in ast.iter_child_nodes(node):
            self._find_reads(cls, child)

    def _find_kinds(self, function):
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            kind = path_of(node.value.func)
            name = (kind[0] or (node.value.func.id,))[-1] if kind else None
            for target in node.targets:
                found = path_of(target)
                if name and found and found[1] and len(found[0]) == 1:
                    self.kinds.setdefault(found[0][0], set()).add(name)


_sources = {}


def source(name):
    if name not in _sources:
        _sources[name] = Source(name)
    return _sources[name]


def is_of_transformers(name):
    return name.startswith("transformers.models.")


def read_weights(modules):
    """Names of modules whose weights are read by the sources of a model."""
    found = set()
    for name, module in modules.items():
        if not is_of_transformers(type(module).__module__):
            continue
        prefix = name + "." if name else ""
        for cls in type(module).__mro__:
            if is_of_transformers(cls.__module__):
                paths = source(cls.__module__).reads.get(cls.__name__, ())
                found |= {prefix + ".".join(x) for x in paths}
        for path in source(type(module).__module__).reads[None]:
            found.add(prefix + ".".join(path))
    return found


# ---- tensors
# ---------------------------------------------------------------------------

def why_not_stack(module, key):
    """The reason for a tensor of three dimensions, or ""."""
    if not STACK.search(key) or not (
            _experts.is_experts(module)
            or type(module).__name__ == "Llama4TextExperts"):
        return "stack"
    is_across = (getattr(module, "is_transposed", False)
                 or type(module).__name__ == "Llama4TextExperts")
    return "" if is_across or _plan._is_mergeable(module) else "stack"


def why_not(names, modules, read, key, tensor):
    """Why nibblas.transformers would not load a tensor of a checkpoint in NVFP4, or
    ""."""
    target, pattern = names.find(key)
    name = target.rpartition(".")[0]
    module = modules.get(name)
    if target not in names.state:
        return "other"
    if pattern is not None:
        if not _plan.merges_experts(names.converter(pattern)):
            return "converted"
        is_good = _experts.is_experts(module) and not getattr(
            module, "has_post_expert_norm", False)
        return "" if is_good else "stack"
    if tensor.dim() == 3:
        return why_not_stack(module, key)
    if type(module) is nn.Linear:
        is_tied = target in (getattr(names.model, "all_tied_weights_keys", None) or ())
        return "tied" if is_tied else "read" if name in read else ""
    if isinstance(module, nn.Embedding):
        return "embedding"
    return "Conv1D" if type(module).__name__ == "Conv1D" else "other"


def module_name(key):
    return key.removesuffix(".weight")


def is_taken(key, dims):
    """Whether cli/select.c may take a tensor for a layer by its name."""
    if dims == 3 and STACK.search(key):
        return True
    return key.endswith(".weight") and (
        dims == 2 or dims == 3 and ("expert" in key or "moe" in key))


def tensors_of(model):
    """{name in a checkpoint: (dimensions, reason or "")}."""
    state = model.state_dict()
    try:
        saved = revert_weight_conversion(model, state)
    except Exception:  # pylint: disable=broad-except
        saved = state
    names, modules = _plan._Names(model), dict(model.named_modules())
    names.add(saved)
    read = read_weights(modules)
    # One layer of each kind; a number at the end tells the parts of a Sequential apart.
    return {re.sub(r"\.\d+(?=\.(?!weight$))", ".0", key): (
        x.dim(), why_not(names, modules, read, key, x))
            for key, x in saved.items()
            if x.dim() in (2, 3) and x.dtype.is_floating_point}


def made_otherwise(modules, linear):
    """{attribute: reason} of those that sources make an embedding or the like, and
    never a linear layer."""
    found = {}
    owners = {x for name in modules for x in source(name).owners}
    for name in modules:
        for attribute, kinds in source(name).kinds.items():
            others = {x for x in kinds if not x.endswith("Linear")}
            if attribute in linear or kinds - others - {"FalconLinear"}:
                continue
            if any(x.endswith("Embedding") and "Rotary" not in x for x in kinds):
                found[attribute] = "embedding"
            elif "Conv1D" in kinds:
                found[attribute] = "Conv1D"
            elif kinds & owners:
                found[attribute] = "other"
    return found


# ---- patterns
# --------------------------------------------------------------------------

def matches(pattern, name):
    return fnmatch.fnmatchcase("." + name, "*." + pattern)


def shortest(name, linear):
    """The shortest end of a module's name that no linear layer has."""
    parts = name.split(".")
    for n in range(1, len(parts) + 1):
        end = parts[-n:]
        if end[0].isdigit() and n < len(parts):
            continue
        stars = ["*" if x.isdigit() else x for x in end]
        for pattern in (".".join(stars), ".".join(stars[:-1] + end[-1:])):
            if not any(matches(pattern, x) for x in linear):
                return pattern
    return None


class Type:
    """What the classes of a model type have.

    linear    names of modules that are loaded in NVFP4
    others    {name of a module that has a matrix and is not: reason}
    made      {attribute: reason}, of the source
    patterns  {reason: patterns}, which find_patterns() finds
    failed    names of classes that were not built"""

    def __init__(self, model_type):
        self.patterns, self.failed, self.linear, self.others = {}, [], set(), {}
        kind = CONFIG_MAPPING[model_type]
        files = {kind.__module__.replace(".configuration_", ".modeling_")}
        for name in class_names(model_type):
            cls = getattr(transformers, name, None)
            model = build(cls, kind) if cls else None
            if model is None:
                self.failed.append(name)
                continue
            files |= {type(x).__module__ for x in model.modules()
                      if is_of_transformers(type(x).__module__)}
            for key, (dims, reason) in tensors_of(model).items():
                if reason and is_taken(key, dims):
                    self.others[module_name(key)] = reason
                elif not reason:
                    self.linear.add(module_name(key))
        files = {x for x in files if importlib.util.find_spec(x)}
        self.made = made_otherwise(
            files, {x.rpartition(".")[2] for x in self.linear})

    def find_patterns(self, common):
        known = set(common)
        made = {x: x for x in self.made}
        for name, pattern in {**{x: shortest(x, self.linear) for x in self.others},
                              **made}.items():
            if pattern and not any(matches(x, pattern) or matches(x, name)
                                   for x in known):
                known.add(pattern)
                reason = self.others.get(name) or self.made[name]
                self.patterns.setdefault(reason, set()).add(pattern)


def find_common(types):
    """{pattern: reason} of ends of names that many types have and no linear layer
    has."""
    found = {}
    for one in types.values():
        ends = {x.rpartition(".")[2]: reason for x, reason in one.others.items()}
        for end, reason in {**ends, **one.made}.items():
            if not end.isdigit():
                found.setdefault(end, []).append(reason)
    linear = {x.rpartition(".")[2] for one in types.values() for x in one.linear}
    return {end: reasons[0] for end, reasons in found.items()
            if len(reasons) >= COMMON and len(set(reasons)) == 1 and end not in linear}


# ---- the file
# --------------------------------------------------------------------------

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_table.c - which matrices of the models of transformers {version} are no linear
 * layers that NVFP4 is loaded for, though their names look so.  Written by
 * tools/model_table.py; see models.h.
 */
#include "models.h"

/* clang-format off */
const char model_table_version[] = "{version}";

const struct model_rule model_table[] = {{
"""


def text_of(words, indent):
    """C strings of words, in lines of at most 88 columns."""
    lines = textwrap.wrap(" ".join(sorted(words)), 82 - indent, break_long_words=False,
                          break_on_hyphens=False)
    return ("\n" + " " * indent).join(f'"{x} "' for x in lines)


def row_of(reason, names, patterns):
    """A row of the table: one line, or a new line for each field."""
    fields = f"MODEL_{reason.upper()}", text_of(names, 5), text_of(patterns, 5)
    row = "    {" + ", ".join(fields) + "},\n"
    if row.count("\n") == 1 and len(row) <= 89:
        return row
    return "    {" + ",\n     ".join(fields) + "},\n"


def write(types, file):
    common = find_common(types)
    rows = {}
    for pattern, reason in common.items():
        rows.setdefault((reason, ("*",)), set()).add(pattern)
    merged = {}
    for name, one in types.items():
        one.find_patterns(common)
        for reason, patterns in one.patterns.items():
            merged.setdefault((reason, tuple(sorted(patterns))), []).append(name)
    for (reason, patterns), names in merged.items():
        rows[reason, tuple(names)] = patterns
    file.write(HEAD.format(version=transformers.__version__))
    for reason, names in sorted(rows, key=lambda x: (REASONS.index(x[0]), x[1])):
        file.write(row_of(reason, names, rows[reason, names]))
    file.write("    {0},\n};\n\nconst char *const model_table_types[] = {\n    "
               + text_of(types, 4).replace('"\n', '",\n') + ",\n    NULL};\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("-o", default=ROOT / "cli/model_table.c", metavar="FILE")
    parser.add_argument("types", nargs="*",
                        help="print the rows of these types instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    types = {}
    for name in options.types or sorted(CONFIG_MAPPING):
        types[name] = Type(name)
        if types[name].failed:
            print(f"{name}: not built: {', '.join(types[name].failed)}",
                  file=sys.stderr)
    if options.types:
        write(types, sys.stdout)
        return
    with open(options.o, "w", encoding="utf-8") as file:
        write(types, file)


if __name__ == "__main__":
    main()
