#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nvfp4_gguf.py - converts the matrices of a GGUF file to NVFP4, for llama.cpp and the
ggml plug-in (docs/ggml.md).

    pip install . gguf==0.19.0
    python examples/nvfp4_gguf.py model-bf16.gguf model-nvfp4.gguf
    # And the same values in fp32, to see what the rounding of activations costs:
    python examples/nvfp4_gguf.py model-bf16.gguf model-nvfp4.gguf --expanded fp32.gguf

Projections of attention and of feed-forward layers, of experts too, are converted where
k is a multiple of 64, the block of ggml's type.  Each matrix has a global scale, which
llama.cpp reads as NAME.scale.  Embeddings, the head and norms are copied."""

import argparse
import re

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import nibblas

CONVERTED = re.compile(r"blk\.\d+\.(attn_(q|k|v|qkv|output)"
                       r"|ffn_(gate|up|down)(_exps|_shexp)?)\.weight")
FILE_TYPE = "general.file_type"


def ggml_blocks(codes, scales):
    """ggml's blocks of 64 values: four scales, and for each 16 values 8 bytes, whose
    low halves are values 0 to 7.  codes: two neighbours a byte; scales: linear."""
    rows, groups = scales.shape
    values = np.stack([codes & 15, codes >> 4], -1).reshape(rows, groups, 16)
    halves = values[..., :8] | values[..., 8:] << 4
    return np.concatenate([scales.reshape(rows, groups // 4, 4),
                           halves.reshape(rows, groups // 4, 32)],
                          -1).reshape(rows, groups * 9)


def quantize(weights):
    """Blocks, global scales and fp32 values of matrices [..., rows, k]."""
    blocks, scales, values = [], [], []
    for matrix in weights.reshape(-1, *weights.shape[-2:]):
        q = nibblas.quantize(matrix, layout="linear", zero_scale="ggml")
        blocks.append(ggml_blocks(q.codes, q.scales))
        scales.append(q.global_scale)
        values.append(nibblas.dequantize(q.codes, q.scales, q.global_scale,
                                         layout="linear"))
    shape = weights.shape[:-1]
    return (np.stack(blocks).reshape(*shape, -1), np.array(scales, np.float32),
            np.stack(values).reshape(weights.shape))


class Output:
    """A GGUF file with the metadata of another, of another type."""

    def __init__(self, path, source, file_type):
        architecture = source.get_field("general.architecture").contents()
        self.writer = gguf.GGUFWriter(path, architecture)
        for field in source.fields.values():
            if field.name.startswith("GGUF.") or field.name in (
                    FILE_TYPE, "general.architecture"):
                continue
            self.writer.add_key_value(
                field.name, field.contents(), field.types[0],
                field.types[-1] if len(field.types) > 1 else None)
        self.writer.add_file_type(file_type)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--expanded", help="a second file, in fp32")
    given = parser.parse_args()
    source = gguf.GGUFReader(given.source)
    target = Output(given.target, source, gguf.LlamaFileType.MOSTLY_NVFP4)
    expanded = given.expanded and Output(given.expanded, source,
                                         gguf.LlamaFileType.ALL_F32)
    converted = 0
    for tensor in source.tensors:
        # The reader has the sizes as ggml does, k first.
        shape = tuple(int(n) for n in tensor.shape[::-1])
        if not CONVERTED.fullmatch(tensor.name) or shape[-1] % 64:
            for output in filter(None, (target, expanded)):
                output.writer.add_tensor(tensor.name, tensor.data,
                                         raw_dtype=tensor.tensor_type)
            continue
        blocks, scales, values = quantize(np.ascontiguousarray(
            gguf.dequantize(tensor.data, tensor.tensor_type).reshape(shape)))
        target.writer.add_tensor(tensor.name, blocks, raw_dtype=Type.NVFP4)
        target.writer.add_tensor(tensor.name.replace(".weight", ".scale"), scales)
        if expanded:
            expanded.writer.add_tensor(tensor.name, values)
        converted += 1
    for output in filter(None, (target, expanded)):
        output.close()
    print(f"{given.target}: {converted} of {len(source.tensors)} tensors are NVFP4")


if __name__ == "__main__":
    main()
