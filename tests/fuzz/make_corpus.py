#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_safetensors and fuzz_index: one small file of each kind.

    python3 tests/fuzz/make_corpus.py

Files that a fuzzer found stay next to them, named after what they broke.
"""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
FOLDER = CORPUS / "fuzz_safetensors"
INDICES = CORPUS / "fuzz_index"
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
    "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


def write(name, header, data=b"", length=None):
    """A file of any header, also a wrong one."""
    if isinstance(header, str):
        header = header.encode()
    if length is None:
        length = len(header)
    (FOLDER / name).write_bytes(struct.pack("<Q", length) + header + data)


def tensors(entries, metadata=None):
    """Header and data of (name, dtype, shape, bytes or None) entries."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, values in entries:
        size = BITS[dtype]
        for n in shape:
            size *= n
        size //= 8
        if values is None:
            values = bytes(i * 7 % 127 for i in range(size))
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + size]}
        data += values
    return json.dumps(header, separators=(",", ":")), data


def entry(dtype="U8", shape="4", offsets="0,4"):
    return ('{"dtype":"%s","shape":[%s],"data_offsets":[%s]}'
            % (dtype, shape, offsets))


def f32(*values):
    return struct.pack("<%df" % len(values), *values)


def good():
    write("empty", "{}")
    write("padded", "{}      ")
    write("dtypes", *tensors([(d, d, [2, 4], None) for d in BITS]))
    write("metadata", *tensors([("é\n", "U8", [3], None)],
                               {"format": "pt", "😀": "\t"}))
    write("scalar", *tensors([("s", "F32", [], None), ("e", "I64", [0], b"")]))
    write("rank8", *tensors([("r", "U8", [1] * 8, None)]))
    write("escapes", '{"\\u00e9\\ud83d\\ude00\\"\\\\\\/\\b\\f\\n\\r\\t":%s}'
          % entry(), b"data")
    write("spaces", '{ "a" : %s ,\n\t"b" :\r %s } '
          % (entry().replace(",", " , "), entry("U8", "0", "4,4")), b"data")


def layers():
    modelopt = [("m.weight", "U8", [3, 16], None),
                ("m.weight_scale", "F8_E4M3", [3, 2], None),
                ("m.weight_scale_2", "F32", [], f32(0.5)),
                ("m.input_scale", "F32", [], f32(0.25))]
    compressed = [("c.weight_packed", "U8", [3, 16], None),
                  ("c.weight_scale", "F8_E4M3", [3, 2], None),
                  ("c.weight_global_scale", "F32", [1], f32(2)),
                  ("c.input_global_scale", "F32", [1], f32(4))]
    write("modelopt", *tensors(modelopt))
    write("compressed_tensors", *tensors(compressed))
    write("both_formats", *tensors(modelopt + [
        (n.replace("c.", "m."), d, s, v)
        for n, d, s, v in compressed if n != "c.weight_scale"]))
    write("stack", *tensors([
        ("m.weight", "U8", [2, 3, 8], None),
        ("m.weight_scale", "F8_E4M3", [2, 3, 1], None),
        ("m.weight_scale_2", "F32", [2], f32(1, 2)),
        ("m.input_scale", "F32", [2, 1], f32(1, 1))]))
    fused = [("e.gate_up_proj", "U8", [2, 3, 8], None),
             ("e.gate_up_proj_weight_scale", "F8_E4M3", [2, 3, 1], None),
             ("e.gate_up_proj_weight_scale_2", "F32", [], f32(1)),
             ("e.gate_up_proj_input_scale", "F32", [], f32(1))]
    write("fused", *tensors(fused))
    write("fused_across", *tensors([
        ("e.gate_up_proj", "U8", [2, 8, 3], None),
        ("e.gate_up_proj_weight_scale", "F8_E4M3", [2, 1, 3], None), fused[2]]))
    write("awq", *tensors(modelopt + [("m.pre_quant_scale", "F32", [2], None)]))
    for i, part in enumerate(modelopt[:3]):
        write("modelopt_without_%d" % i,
              *tensors([p for p in modelopt if p is not part]))
    write("global_nan", *tensors(modelopt[:2] + [
        ("m.weight_scale_2", "F32", [], f32(float("nan")))]))
    write("global_zero", *tensors(compressed[:2] + [
        ("c.weight_global_scale", "F32", [], f32(0))]))
    write("scales_tiled", *tensors([
        ("m.weight", "U8", [1, 8], None),
        ("m.weight_scale", "F8_E4M3", [128, 4], None),
        ("m.weight_scale_2", "F32", [], f32(1))]))
    comfy = [("m.weight", "U8", [20, 40], None),
             ("m.weight_scale", "F8_E4M3", [128, 8], None),
             ("m.weight_scale_2", "F32", [], f32(1))]
    mark = b'{"format": "nvfp4", "orig_shape": [18, 80], "convrot": false}'
    write("comfy", *tensors(comfy + [("m.comfy_quant", "U8", [len(mark)], mark)]))
    layers = json.dumps({"layers": {"x": {}, "m": {"format": "nvfp4"}}})
    write("comfy_header", *tensors(comfy, {"_quantization_metadata": layers}))
    write("comfy_modelopt", *tensors(comfy, {"_quantization_metadata": layers,
                                             "quantization_config": "{}"}))
    write("foreign", *tensors([("m.weight", "U32", [2, 2], None),
                               ("m.scales", "U8", [2, 1], None)]))
    write("scales_wrong", *tensors([
        ("m.weight", "U8", [2, 8], None),
        ("m.weight_scale", "F8_E4M3", [2, 2], None),
        ("m.weight_scale_2", "F32", [], f32(1))]))


def bad():
    write("bad_length_100mb", "{}", length=100000001)
    write("bad_length_max", "{}", length=2**64 - 1)
    write("bad_truncated", '{"x":%s}' % entry(), b"dat")
    write("bad_trailing", '{"x":%s}' % entry(), b"data!")
    write("bad_hole", '{"x":%s,"y":%s}' % (entry(), entry("U8", "1", "5,6")),
          b"data!!")
    write("bad_overlap", '{"x":%s,"y":%s}' % (entry(), entry("U8", "2", "3,5")),
          b"data!")
    write("bad_range", '{"x":%s}' % entry("U8", "4", "4,8"), b"data")
    write("bad_backwards", '{"x":%s}' % entry("U8", "4", "4,0"), b"data")
    write("bad_shape_overflow",
          '{"x":%s}' % entry("F64", "4294967296,4294967296", "0,0"))
    write("bad_integer", '{"x":%s}' % entry("U8", "9223372036854775808"),
          b"data")
    write("bad_negative", '{"x":%s}' % entry("U8", "-4"), b"data")
    write("bad_float", '{"x":%s}' % entry("U8", "4.0"), b"data")
    write("bad_exponent", '{"x":%s}' % entry("U8", "4e0"), b"data")
    write("bad_rank", '{"x":%s}' % entry("U8", "1,1,1,1,1,1,1,1,4"), b"data")
    write("bad_half_byte", '{"x":%s}' % entry("F4", "7"), b"data")
    write("bad_dtype", '{"x":%s}' % entry("F33"), b"data")
    write("bad_duplicate", '{"x":%s,"x":%s}'
          % (entry(), entry("U8", "0", "4,4")), b"data")
    write("bad_duplicate_field", '{"x":{"dtype":"U8","dtype":"U8"}}')
    write("bad_duplicate_metadata", '{"__metadata__":{"a":"1","a":"2"}}')
    write("bad_metadata", '{"__metadata__":{"a":1}}')
    write("bad_unknown_field", '{"x":{"dtype":"U8","more":[]}}')
    write("bad_deep", '{"x":' + "[" * 200)
    write("bad_nul", '{"\\u0000":%s}' % entry(), b"data")
    write("bad_surrogate", '{"\\ud800":%s}' % entry(), b"data")
    write("bad_utf8", b'{"\xed\xa0\x80":' + entry().encode() + b"}", b"data")
    write("bad_start", " {}")


def indices():
    """Indices of a.safetensors (x.weight, norm) and b.safetensors (y)."""
    def put(name, text):
        (INDICES / name).write_text(text, encoding="utf-8")

    def weight_map(**shards):
        return '"weight_map":' + json.dumps(shards)
    both = weight_map(**{"x.weight": "a.safetensors"}, norm="a.safetensors",
                      y="b.safetensors")
    put("good", '{"metadata": {"total_size": 6}, %s}' % both)
    put("some", "{%s}" % weight_map(y="b.safetensors"))
    put("skipped", '{"a":[1,-2.5e+3,{"b":[true,false,null]},"\\u00e9"],%s,"c":{}} '
        % both)
    put("bad_outside", "{%s}" % weight_map(y="../b.safetensors"))
    put("bad_escaped", '{"weight_map":{"y":"..\\u002fb.safetensors"}}')
    put("bad_other_shard", "{%s}" % weight_map(y="a.safetensors"))
    put("bad_missing_shard", "{%s}" % weight_map(y="c.safetensors"))
    put("bad_itself", "{%s}" % weight_map(y="m.safetensors.index.json"))
    put("bad_twice", '{"weight_map":{"y":"b.safetensors","y":"b.safetensors"}}')
    put("bad_two_maps", "{%s,%s}" % (both, both))
    put("bad_empty", '{"weight_map":{}}')
    put("bad_none", "{}")
    put("bad_value", '{"weight_map":{"y":1}}')
    put("bad_deep", '{"a":%s' % (200 * "["))
    put("bad_end", "{%s}x" % both)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    INDICES.mkdir(parents=True, exist_ok=True)
    indices()
    good()
    layers()
    bad()
