# SPDX-License-Identifier: Apache-2.0
"""_configs.py - vLLM's configurations of ModelOpt and compressed-tensors whose NVFP4
layers are nibblas'.  vLLM loads the tensors under its own names and splits them over
processes; here they are taken over once they are loaded.  All other layers stay vLLM's.
"""

import torch
from torch.nn import Parameter
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.linear import (
    LinearBase, LinearMethodBase, UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method)
from vllm.model_executor.layers.quantization import modelopt
from vllm.model_executor.layers.quantization.compressed_tensors import (
    compressed_tensors as ct)
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w4a4_nvfp4 as ct_moe)
from vllm.model_executor.layers.quantization.modelopt import (
    ModelOptMixedPrecisionConfig, ModelOptNvFp4Config, ModelOptNvFp4FusedMoE)
from vllm.model_executor.layers.quantization.utils.quant_utils import kNvfp4Static
from vllm.model_executor.parameter import ModelWeightParameter, PerTensorScaleParameter

from nibblas import _abi as abi, _quantization
from nibblas._files import Suffixes, suffixes
from nibblas._library import UnsupportedError
from nibblas.vllm._layers import Experts, FusedLinear, check, largest


def _names(naming):
    """What vLLM calls the tensors of a layer: the Suffixes of the checkpoint without
    their dots."""
    return Suffixes(*(x[1:] if isinstance(x, str) else x for x in suffixes(naming)))


_MODELOPT = _names(abi.NIB_NAMING_MODELOPT)
_COMPRESSED = _names(abi.NIB_NAMING_COMPRESSED_TENSORS)
_EXPERTS = {MoEActivation.SILU: "swiglu", MoEActivation.GELU_TANH: "gelu"}
# vLLM's exchange of tokens that does not need a kernel of its own.
_ALL_TO_ALL = "allgather_reducescatter"


def _mark(layer, names):
    """NaN in the scales that no file may have: vLLM leaves them uninitialised."""
    for name in names:
        getattr(layer, name).data.fill_(float("nan"))


def _release(layer, names):
    """Frees what a layer was loaded into, and keeps the names."""
    for name in names:
        setattr(layer, name, Parameter(getattr(layer, name).data.new_empty(0),
                                       requires_grad=False))


def _global(layer, name, is_divisor):
    """The global scales under a name of the checkpoint, as factors."""
    stored = getattr(layer, name).data.float()
    check(_full_name(layer, name), stored)
    return 1 / stored if is_divisor else stored


def _full_name(layer, name):
    return f"{getattr(layer, 'prefix', '')}.{name}".lstrip(".")


def _finish_linear(layer, names, has_input):
    """Makes the layer ready, and frees what it was loaded into: the weights are packed
    on a CPU and kept elsewhere on a GPU.

    names      Suffixes of the layer's parameters
    has_input  False for W4A16"""
    inputs = _global(layer, names.input_global, names.is_divisor) if has_input else None
    layer.nibblas = FusedLinear(
        getattr(layer, names.codes).data, getattr(layer, names.scales).data,
        layer.logical_widths, _global(layer, names.global_scale, names.is_divisor),
        inputs)
    layer.register_buffer("nibblas_number", torch.tensor(
        layer.nibblas.number, device="cpu"), persistent=False)
    _release(layer, (names.codes, names.scales))


def _apply_linear(layer, x, bias):
    return torch.ops.nibblas._fused_linear(x, layer.nibblas_number, bias,
                                           layer.nibblas.rows)


@register_weight_loader_v2_supported_method
class NibblasModelOptLinear(LinearMethodBase):
    """A linear layer of ModelOpt in NVFP4.  Not a subclass of vLLM's, which differ
    between releases.

    has_input  True for W4A4, False for W4A16"""

    supports_pre_processed_weights = False

    def __init__(self, has_input):
        self.has_input = has_input

    def create_weights(self, layer, input_size_per_partition, output_partition_sizes,
                       input_size, output_size, params_dtype, **extra):
        rows, cols = sum(output_partition_sizes), input_size_per_partition
        layer.logical_widths = output_partition_sizes
        layer.input_size_per_partition, layer.output_size_per_partition = cols, rows

        def register(name, parameter, *shape, dtype, **dims):
            layer.register_parameter(name, parameter(
                data=torch.empty(*shape, dtype=dtype),
                weight_loader=extra.get("weight_loader"), **dims))

        dims = {"input_dim": 1, "output_dim": 0}
        register(_MODELOPT.codes, ModelWeightParameter, rows, cols // 2,
                 dtype=torch.uint8, **dims)
        register(_MODELOPT.scales, ModelWeightParameter, rows, cols // 16,
                 dtype=torch.float8_e4m3fn, **dims)
        # W4A16 too has an input scale: files of W4A4 that are run as W4A16 have it.
        names = (_MODELOPT.global_scale, _MODELOPT.input_global)
        for name in names:
            register(name, PerTensorScaleParameter, len(output_partition_sizes),
                     dtype=torch.float32)
        _mark(layer, (*names, _MODELOPT.scales))

    def process_weights_after_loading(self, layer):
        _finish_linear(layer, _MODELOPT, self.has_input)

    def apply(self, layer, x, bias=None):
        return _apply_linear(layer, x, bias)


class _NoKernel:
    """What vLLM asks of a kernel while it creates weights."""

    @staticmethod
    def input_quant_key():
        return None


class NibblasCompressedTensorsLinear(ct.CompressedTensorsW4A4Fp4):
    """A linear layer of compressed-tensors in NVFP4, W4A4 or W4A16."""

    def __init__(self, use_a16):
        # Not the class's own, which chooses a kernel among vLLM's.
        self.use_a16, self.kernel, self.group_size = use_a16, _NoKernel, 16

    def create_weights(self, layer, *args, **named):
        super().create_weights(layer, *args, **named)
        _mark(layer, [_COMPRESSED.global_scale] + [_COMPRESSED.input_global] * (
            not self.use_a16))

    def process_weights_after_loading(self, layer):
        _finish_linear(layer, _COMPRESSED, not self.use_a16)

    def apply_weights(self, layer, x, bias=None):
        return _apply_linear(layer, x, bias)


class _ExpertsMethod:
    """What the experts of both formats share.  names: of the parameters after w13_ and
    w2_."""

    names = _MODELOPT
    use_global_sf = False
    is_monolithic = False
    supports_pre_processed_weights = False
    supports_eplb = False

    def create_weights(self, layer, *args, **named):
        rule = _refusal(layer, self.moe)
        if rule:
            raise UnsupportedError(f"experts of {getattr(layer, 'layer_name', layer)}: "
                                   f"{rule}", "experts")
        super().create_weights(layer, *args, **named)
        parts = (self.names.global_scale, self.names.input_global)[:2 - self.use_a16]
        _mark(layer, [f"w{n}_{part}" for n in (13, 2) for part in parts])

    def process_weights_after_loading(self, layer):
        names = self.names

        def global_scales(n):
            return _global(layer, f"w{n}_{names.global_scale}", names.is_divisor)

        def stack(n):
            return (getattr(layer, f"w{n}_{names.codes}").data,
                    getattr(layer, f"w{n}_{names.scales}").data)

        def given(n):
            name = f"w{n}_{names.input_global}"
            stored = getattr(layer, name).data.float()
            return largest(_full_name(layer, name),
                           1 / stored if names.is_divisor else stored)

        # One scale for all experts of this process: a token is quantised once here,
        # whichever of them it goes to.
        x_global, h_global = (None, None) if self.use_a16 else (
            given(n) for n in (13, 2))
        layer.nibblas = Experts(
            stack(13), global_scales(13), stack(2), global_scales(2),
            x_global, h_global, _EXPERTS[self.moe.activation])
        if not layer.nibblas.has_scales:
            _release(layer, [f"w{n}_{names.scales}" for n in (13, 2)])

    def get_fused_moe_quant_config(self, layer):
        return None

    def maybe_make_prepare_finalize(self, routing_tables=None):
        """Asked before 0.32 where the experts are split over processes.  None: vLLM
        keeps this method, and adds the results of apply() up over the processes.  Its
        own methods, which have made a kernel by then, raise."""
        return None

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts=None,
              shared_experts_input=None):
        return layer.nibblas.run(x, topk_ids, topk_weights, layer.expert_map)


def _refusal(layer, moe):
    """Why nibblas does not run such experts, or nothing."""
    if layer.apply_router_weight_on_input:
        return ("apply_router_weight_on_input = True: nibblas scales what the experts "
                "return")
    if moe.activation not in _EXPERTS:
        return (f"activation = {moe.activation.value}: must be "
                f"{' or '.join(one.value for one in _EXPERTS)}")
    if moe.swiglu_limit is not None:
        return f"swiglu_limit = {moe.swiglu_limit}: clamped experts are not supported"
    if moe.has_bias:
        return "biases are not supported"
    return _refusal_of_processes(moe.moe_parallel_config,
                                 moe.intermediate_size_per_partition)


def _refusal_of_processes(parallel, cols):
    """The same for how they are split over processes; cols: of w2 in each."""
    if cols % 16:
        return (f"tensor_parallel_size = {parallel.tp_size}: leaves {cols} columns of "
                "w2 to each process, which must be a multiple of 16")
    if parallel.dp_size > 1 and not (
            parallel.use_ep and parallel.all2all_backend == _ALL_TO_ALL):
        return (f"data_parallel_size = {parallel.dp_size}: needs expert parallelism "
                f"and all2all_backend = {_ALL_TO_ALL}")
    return ""


# vLLM's loader looks for "ModelOpt" in the name.
class NibblasModelOptExperts(_ExpertsMethod, ModelOptNvFp4FusedMoE):
    """Experts of ModelOpt in NVFP4."""

    def __init__(self, quant_config, moe_config):
        # Not the class's own, which chooses among vLLM's kernels.
        FusedMoEMethodBase.__init__(self, moe_config)
        self.quant_config = quant_config
        self.use_a16 = quant_config.quant_method == "W4A16_NVFP4"


class NibblasCompressedTensorsExperts(_ExpertsMethod,
                                      ct_moe.CompressedTensorsW4A4Nvfp4MoEMethod):
    """Experts of compressed-tensors in NVFP4."""

    names = _COMPRESSED

    def __init__(self, moe, use_a16):
        FusedMoEMethodBase.__init__(self, moe)
        self.group_size, self.use_a16 = 16, use_a16


def _ours(method):
    """A linear method of vLLM, or nibblas' in its place."""
    kind, spec = type(method).__name__, getattr(method, "spec", None)
    if kind == "ModelOptLinearMethod" and spec.weight == kNvfp4Static:
        return NibblasModelOptLinear(spec.activation is not None)
    # Before 0.32 (0.24 is tested) there was a class for each algorithm.
    if kind in ("ModelOptNvFp4LinearMethod", "ModelOptNvFp4W4A16LinearMethod"):
        return NibblasModelOptLinear(kind == "ModelOptNvFp4LinearMethod")
    return method


# Not a lambda: vLLM pickles configurations for the processes that it starts.
def _modelopt_linear(config):
    return NibblasModelOptLinear(config.quant_method == "NVFP4")


class _Checked:
    """Refuses a malformed configuration, which vLLM meets with a TypeError, and
    patterns that it would match for years."""

    @classmethod
    def from_config(cls, config):
        _quantization.check("quantization_config", config, by_re=True)
        return super().from_config(config)


class NibblasModelOptConfig(_Checked, ModelOptNvFp4Config):
    """ModelOpt with NVFP4 or W4A16_NVFP4 for all layers."""

    FusedMoEMethodCls = NibblasModelOptExperts

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        # Read before 0.32 only.  vLLM's class finds no kernel on a CPU.
        self.LinearMethodCls = _modelopt_linear

    def get_supported_act_dtypes(self):
        return [torch.bfloat16, torch.half, torch.float32]

    def get_quant_method(self, layer, prefix):
        return _ours(super().get_quant_method(layer, prefix))


class NibblasModelOptMixedConfig(_Checked, ModelOptMixedPrecisionConfig):
    """ModelOpt with an algorithm for each layer."""

    def get_supported_act_dtypes(self):
        return [torch.bfloat16, torch.half, torch.float32]

    def get_quant_method(self, layer, prefix):
        if isinstance(layer, RoutedExperts) and not self.is_layer_excluded(prefix):
            algo = self._resolve_quant_algo(prefix)
            if algo in ("NVFP4", "W4A16_NVFP4"):
                config = (self.nvfp4_config if algo == "NVFP4"
                          else self.w4a16_nvfp4_config)
                return NibblasModelOptExperts(config, layer.moe_config)
        found = super().get_quant_method(layer, prefix)
        # vLLM 0.24 has a method for this algorithm, and does not use it here.
        if (type(found) is UnquantizedLinearMethod and isinstance(layer, LinearBase)
                and not self.is_layer_excluded(prefix)
                and self._resolve_quant_algo(prefix) == "FP8_PER_CHANNEL_PER_TOKEN"):
            return modelopt.ModelOptFp8PcPtLinearMethod(self.fp8_config)
        return _ours(found)


class NibblasCompressedTensorsConfig(_Checked, ct.CompressedTensorsConfig):
    """compressed-tensors; its NVFP4 groups are nibblas'."""

    def _get_scheme_from_parts(self, weight_quant, input_quant, *args, **named):
        if self._is_nvfp4_format(weight_quant) and (
                input_quant is None or self._is_nvfp4_format(input_quant)):
            return NibblasCompressedTensorsLinear(input_quant is None)
        return super()._get_scheme_from_parts(weight_quant, input_quant, *args, **named)

    def get_quant_method(self, layer, prefix):
        found = self._experts(layer, prefix) if isinstance(layer,
                                                           RoutedExperts) else None
        return found or super().get_quant_method(layer, prefix)

    def _experts(self, layer, prefix):
        """Nibblas' method if all projections of the experts are NVFP4; None: vLLM's."""
        self._add_fused_moe_to_target_scheme_map()
        # Before 0.32 the layer did not have the names.
        names = (getattr(layer, f"ckpt_{name}_proj_name", f"{name}_proj")
                 for name in ("gate", "up", "down"))
        found = [self.get_scheme_dict(layer, f"{prefix}.0.{name}") for name in names]
        if not all(one and self._is_nvfp4_format(one.get("weights")) for one in found):
            return None
        inputs = [one.get("input_activations") for one in found]
        if all(one is None for one in inputs):
            return NibblasCompressedTensorsExperts(layer.moe_config, True)
        if all(one is not None and self._is_nvfp4_format(one) for one in inputs):
            return NibblasCompressedTensorsExperts(layer.moe_config, False)
        return None


CONFIGS = {"modelopt_fp4": NibblasModelOptConfig,
           "modelopt_mixed": NibblasModelOptMixedConfig,
           "compressed-tensors": NibblasCompressedTensorsConfig}
