# SPDX-License-Identifier: Apache-2.0
"""_data.py - the dense model, and the calibration text: a file of JSON lines, and
windows of its tokens."""

import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from nibblas._library import ArgumentError, FileError, SystemIOError


def load_model(path):
    """(model, tokenizer) of a dense folder, in its own types, on the host."""
    if not os.path.isdir(path):
        raise SystemIOError(f"model = {path}: no such folder", "model")
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto").eval()
    if getattr(model.config, "quantization_config", None) is not None:
        raise ArgumentError(f"model = {path}: is quantised already", "model")
    return model, AutoTokenizer.from_pretrained(path)


def read_texts(path):
    """The texts of a file whose lines are objects with "text"; empty lines are left
    out."""
    texts = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    texts.append(_text_of(path, number, line))
    except OSError as error:
        raise SystemIOError(f"calibration = {path}: {error.strerror}",
                            "calibration") from None
    except UnicodeDecodeError as error:
        raise FileError(f"calibration = {path}: is not UTF-8: {error}",
                        "calibration") from None
    if not any(texts):
        raise FileError(f"calibration = {path}: has no text", "calibration")
    return texts


def _text_of(path, number, line):
    try:
        text = json.loads(line).get("text")
    except (ValueError, AttributeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise FileError(f"calibration = {path}, line {number}: must be a JSON object "
                        'with a string "text"', "calibration")
    return text


def windows_of(texts, tokenizer, count, length, seed):
    """int64 [count, length]: windows at random places of the texts, which follow each
    other; the same ones for the same seed."""
    ids = []
    for text in texts:
        ids += tokenizer(text)["input_ids"]
    if len(ids) < length:
        raise FileError(f"calibration: has {len(ids)} tokens: must have at least "
                        f"length = {length}", "calibration")
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(ids) - length + 1, (count,), generator=generator)
    ids = torch.tensor(ids)
    return torch.stack([ids[x:x + length] for x in starts.tolist()])
