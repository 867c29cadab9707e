# SPDX-License-Identifier: Apache-2.0
"""gpu_humming.py - Humming (humming-kernels on PyPI) as a baseline: fp16 activations
by NVFP4 weights that have the codes and scales of nibblas's.

Releases before OLDEST have another interface and are refused.  Humming compiles a
kernel for each layer and number of rows with NVRTC, into $HUMMING_CACHE_DIR.  It
chooses kernels by the GPU's architecture; with is_sm80 it multiplies by those that it
would choose on an A100 with as many multiprocessors: mma.sync, no TMA."""

import concurrent.futures
import importlib.metadata
import json
import os
import re

PACKAGE = "humming-kernels"
OLDEST = "0.1.19"

WEIGHTS = {"quant_method": "humming", "dtype": "float4e2m1", "group_size": 16,
           "scale_dtype": "float8e4m3"}
INPUTS = {"quant_method": "humming", "dtype": "float16", "group_size": 0}


def version():
    """The installed release, or None."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def require():
    """Raises unless a supported release is installed."""
    def numbers(text):
        return [int(n) for n in re.findall(r"\d+", text)[:3]]

    found = version()
    if found is None:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed")
    if numbers(found) < numbers(OLDEST):
        raise NotImplementedError(f"{PACKAGE} {found} is older than {OLDEST}, the "
                                  "oldest supported release")


def weight_config(has_global):
    return {**WEIGHTS, **({"scale_2_type": "tensor"} if has_global else {})}


def sm80_config(config, rows, kind, compute):
    """The tuning that get_heuristics_config() returns on a GPU of sm_80."""
    from humming.config import GemmType, MmaType
    from humming.tune import Sm80Heuristics
    from humming.tune.raster import raster_group_m_for_config

    tuning = Sm80Heuristics.get_config(layer_config=config, shape_m=rows,
                                       gemm_type=kind, **compute)
    tuning["mma_type"] = MmaType.MMA.value
    if kind == GemmType.DENSE:
        tuning.setdefault("raster_group_m", raster_group_m_for_config(
            config, tuning["block_shape"]))
    return tuning


def choices(config, rows, experts, is_sm80=False):
    """(compute, tuning): the configurations, as JSON, that Humming chooses for this
    many rows.  Accumulators are fp32, as in nibblas."""
    from humming.config import GemmType
    from humming.tune import get_heuristics_config

    kind = GemmType.GROUPED_CONTIGUOUS if experts else GemmType.DENSE
    compute = {"use_f16_accum": False, "use_m_major_input_scale": False}
    if is_sm80:
        tuning = sm80_config(config, rows, kind, compute)
    else:
        tuning = get_heuristics_config(config, shape_m=rows, gemm_type=kind, **compute)
    return (json.dumps({**compute, "gemm_type": kind.value}),
            json.dumps(tuning))


def product(torch, codes, scales, global_scale=None, is_sm80=False):
    """Returns a function of x, fp16 [rows, k], and, for experts, the first row of each.
    codes: uint8 [n, k / 2] or [experts, n, k / 2]; scales: e4m3 [..., k / 16];
    global_scale: fp32, one for each matrix; None: 1."""
    require()
    from humming.layer import HummingLayer

    experts = len(codes) if codes.dim() == 3 else 0
    with torch.device(codes.device):
        layer = HummingLayer(
            shape_n=codes.shape[-2], shape_k=2 * codes.shape[-1], num_experts=experts,
            weight_config=weight_config(global_scale is not None),
            input_config=dict(INPUTS), torch_dtype=torch.float16)
    tensors = {"weight": codes.view(torch.int32),
               "weight_scale": scales.view(torch.float8_e4m3fn)}
    if global_scale is not None:
        tensors["weight_scale_2"] = global_scale.float().reshape(-1)
    layer.load_from_tensors(tensors)
    layer.transform()
    chosen = {}

    def multiply(x, offsets=None):
        rows = len(x)
        if rows not in chosen:
            chosen[rows] = choices(layer.humming_config, rows, experts, is_sm80)
        compute, tuning = chosen[rows]
        return layer(inputs=x, expert_layout=offsets, compute_config=compute,
                     tuning_config=tuning)

    return multiply


def swiglu(x, alpha=1.0):
    """silu(alpha * left half) * (alpha * right half) of each row, by Humming's kernel
    for the inputs of its second product."""
    from humming import ops

    gate, up = f"(a * {alpha!r}f)", f"(b * {alpha!r}f)"
    return ops.process_input(
        x, activation_type="binary_split",
        activation_impl=f"{gate} / (1.0f + __expf(-{gate})) * {up}")[0]


def compile_ahead(torch, wanted):
    """Compiles the kernels of wanted, [(experts, n, k, rows, has_global, is_sm80)], on
    all processors at once.  Returns how many could not be compiled: their calls say
    why."""
    require()
    from humming.kernel.humming import HummingKernel
    from humming.schema import BaseInputSchema, BaseWeightSchema
    from humming.transform import prepare_layer_config

    def compile_one(experts, n, k, rows, has_global, is_sm80=False):
        config = prepare_layer_config(
            shape_n=n, shape_k=k, num_experts=experts, torch_dtype=torch.float16,
            weight_schema=BaseWeightSchema.from_config(weight_config(has_global)),
            input_schema=BaseInputSchema.from_config(dict(INPUTS)))
        HummingKernel.prepare_kernels(config.to_str(),
                                      *choices(config, rows, experts, is_sm80))

    threads = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        done = [pool.submit(compile_one, *item) for item in dict.fromkeys(wanted)]
    return sum(job.exception() is not None for job in done)
