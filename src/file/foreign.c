/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.c - layouts of 4-bit floats that are recognised and refused: see
 * foreign.h.  The names are from
 *
 *   MLX           python/mlx/nn/layers/quantized.py, mode "nvfp4" or "mxfp4"
 *   nunchaku      nunchaku/models/linear.py, SVDQW4A4Linear
 *   TensorRT-LLM  tensorrt_llm/quantization/layers.py, FP4Linear
 *   torchao       torchao/prototype/safetensors/safetensors_support.py
 */
#include "foreign.h"

#define EXPORT "export as ModelOpt's or compressed-tensors' NVFP4"
#define TORCHAO                                                                        \
	"torchao's tensor subclass, whose header says how to read it: "                \
	"save the dense model and quantise that"

const struct nib_foreign nib_foreign[NIB_FOREIGN] = {
    {".scales", "U8", ".weight", "U32",
     "MLX's layout, of 32-bit words and no global scale: " EXPORT},
    {".wscales", 0, ".qweight", "I8",
     "nunchaku's SVDQuant, in its kernels' order and with a product of low "
     "rank: quantise the original model"},
    {".weights_block_scaling_factor", 0, ".weight", 0,
     "TensorRT-LLM's converted checkpoint: use the folder that it was "
     "converted from"},
    {"._weight_qdata", "U8", "._weight_scale", "F8_E4M3", TORCHAO},
    {".weight:qdata", "U8", ".weight:scale", "F8_E4M3", TORCHAO},
};
