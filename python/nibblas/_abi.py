# SPDX-License-Identifier: Apache-2.0
"""_abi.py - the headers in include/ as ctypes; written by tools/python_abi.py."""

import ctypes as C

NIB_VERSION_MAJOR = 0
NIB_VERSION_MINOR = 2
NIB_VERSION_PATCH = 0
NIB_NVFP4_BLOCK = 16
NIB_MAX_K = 1048576
NIB_MAX_RANK = 8
NIB_MAX_TILE_SIZES = 32

# enum nib_status
NIB_STATUS_OK = 0
NIB_STATUS_BAD_ARGUMENT = 1
NIB_STATUS_UNSUPPORTED = 2
NIB_STATUS_OUT_OF_MEMORY = 3
NIB_STATUS_NO_DEVICE = 4
NIB_STATUS_BAD_DATA = 5
NIB_STATUS_BAD_FILE = 6
NIB_STATUS_IO = 7
NIB_STATUS_DEVICE_FAILED = 8

# enum nib_dtype
NIB_DTYPE_FP32 = 0
NIB_DTYPE_FP16 = 1
NIB_DTYPE_BF16 = 2

# enum nib_scale_layout
NIB_SCALE_LAYOUT_LINEAR = 0
NIB_SCALE_LAYOUT_TILED_128X4 = 1

# enum nib_fp4_format
NIB_FP4_FORMAT_NVFP4 = 0
NIB_FP4_FORMAT_MXFP4 = 1

# enum nib_code_order
NIB_CODE_ORDER_LOW_FIRST = 0
NIB_CODE_ORDER_HIGH_FIRST = 1

# enum nib_arithmetic
NIB_ARITHMETIC_BLOCKS = 0
NIB_ARITHMETIC_FP16_TENSOR = 1
NIB_ARITHMETIC_FP4_TENSOR = 2

# enum nib_op
NIB_OP_GEMM = 0
NIB_OP_DUAL_GEMM = 1
NIB_OP_GEMV = 2

# enum nib_activations
NIB_ACTIVATIONS_NVFP4 = 0
NIB_ACTIVATIONS_DENSE = 1
NIB_ACTIVATIONS_INT8 = 2

# enum nib_moe_activation
NIB_MOE_ACTIVATION_SWIGLU = 0
NIB_MOE_ACTIVATION_SWIGLU_CLAMPED = 1
NIB_MOE_ACTIVATION_GELU = 2
NIB_MOE_ACTIVATION_RELU2 = 3

# enum nib_zero_scale
NIB_ZERO_SCALE_MODELOPT = 0
NIB_ZERO_SCALE_COMPRESSED_TENSORS = 1
NIB_ZERO_SCALE_GGML = 2

# enum nib_scales
NIB_SCALES_AMAX = 0
NIB_SCALES_FOUR_SIX = 1
NIB_SCALES_MSE = 2

# enum nib_naming
NIB_NAMING_MODELOPT = 0
NIB_NAMING_COMPRESSED_TENSORS = 1
NIB_NAMING_MODELOPT_STACK = 2
NIB_NAMING_COMPRESSED_TENSORS_STACK = 3
NIB_NAMING_FP8 = 4
NIB_NAMING_FP8_BLOCKS = 5

# enum nib_checkpoint
NIB_CHECKPOINT_MODELOPT = 0
NIB_CHECKPOINT_COMPRESSED_TENSORS = 1
NIB_CHECKPOINT_COMFY = 2

# enum nib_probe
NIB_PROBE_READ = 0
NIB_PROBE_MULTIPLY = 1
NIB_PROBE_CYCLES = 2

nib_parallel_for = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_void_p, C.c_void_p)


class nib_error(C.Structure):
    _fields_ = [
        ("status", C.c_int),
        ("argument", C.c_char * 64),
        ("message", C.c_char * 252),
        ("reserved", C.c_uint64 * 4),
    ]


class nib_fp4(C.Structure):
    _fields_ = [
        ("codes", C.c_void_p),
        ("scales", C.c_void_p),
        ("rows", C.c_int64),
        ("k", C.c_int64),
        ("batch", C.c_int64),
        ("row_stride_bytes", C.c_int64),
        ("batch_stride_bytes", C.c_int64),
        ("scale_layout", C.c_int),
        ("code_order", C.c_int),
        ("format", C.c_int),
        ("scale_row_stride_bytes", C.c_int64),
        ("scale_batch_stride_bytes", C.c_int64),
        ("reserved", C.c_uint64 * 4),
    ]


class nib_dense(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("dtype", C.c_int),
        ("rows", C.c_int64),
        ("cols", C.c_int64),
        ("batch", C.c_int64),
        ("row_stride_elems", C.c_int64),
        ("batch_stride_elems", C.c_int64),
        ("reserved", C.c_uint64 * 4),
    ]


class nib_device_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("threads", C.c_int),
        ("parallel_for", nib_parallel_for),
        ("pool", C.c_void_p),
        ("isa", C.c_char_p),
        ("openmp", C.c_char_p),
    ]


class nib_device_info(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("name", C.c_char_p),
        ("backend", C.c_char_p),
        ("hardware", C.c_char * 64),
        ("features", C.c_char * 128),
        ("threads", C.c_int),
        ("multiprocessors", C.c_int),
        ("l1_bytes", C.c_int64),
        ("l2_bytes", C.c_int64),
        ("memory_bytes", C.c_int64),
        ("driver_version", C.c_int),
        ("compute_capability", C.c_int),
        ("clock_khz", C.c_int),
        ("memory_clock_khz", C.c_int),
        ("memory_bus_bits", C.c_int),
        ("arithmetic", C.c_int),
    ]


class nib_call_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("stream", C.c_void_p),
    ]


class nib_backend_info(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("backend", C.c_char_p),
        ("is_open", C.c_int),
        ("reason", C.c_char * 128),
    ]


class nib_problem(C.Structure):
    _fields_ = [
        ("a", nib_fp4),
        ("b", nib_fp4),
        ("b2", nib_fp4),
        ("b_packed", C.c_void_p),
        ("b2_packed", C.c_void_p),
        ("alpha", C.c_void_p),
        ("alpha2", C.c_void_p),
        ("c", nib_dense),
        ("x", nib_dense),
        ("activations", C.c_int),
        ("reserved", C.c_uint64 * 4),
    ]


class nib_moe_problem(C.Structure):
    _fields_ = [
        ("problem", nib_problem),
        ("row_offsets", C.c_void_p),
        ("scale_rows", C.c_void_p),
        ("scale_rows_total", C.c_int64),
        ("reserved", C.c_uint64 * 4),
    ]


class nib_plan_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("caller_workspace", C.c_int),
    ]


class nib_plan_info(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("op", C.c_int),
        ("count", C.c_int64),
        ("backend", C.c_char_p),
        ("workspace_bytes", C.c_size_t),
        ("flop", C.c_double),
        ("bytes", C.c_double),
        ("tasks", C.c_int64),
        ("threads", C.c_int),
        ("explanation", C.c_char_p),
        ("k_slices", C.c_int),
    ]


class nib_run_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("workspace", C.c_void_p),
        ("workspace_bytes", C.c_size_t),
        ("check_data", C.c_int),
        ("stream", C.c_void_p),
    ]


class nib_moe_layer(C.Structure):
    _fields_ = [
        ("x", nib_dense),
        ("a", nib_fp4),
        ("is_quantized", C.c_int),
        ("activations", C.c_int),
        ("ids", C.c_void_p),
        ("ids_bytes", C.c_int),
        ("top_k", C.c_int64),
        ("expert_offset", C.c_int64),
        ("weights", C.c_void_p),
        ("gate", nib_fp4),
        ("up", nib_fp4),
        ("down", nib_fp4),
        ("gate_packed", C.c_void_p),
        ("up_packed", C.c_void_p),
        ("down_packed", C.c_void_p),
        ("gate_alpha", C.c_void_p),
        ("up_alpha", C.c_void_p),
        ("down_alpha", C.c_void_p),
        ("x_global", C.c_void_p),
        ("h_global", C.c_void_p),
        ("activation", C.c_int),
        ("limit", C.c_float),
        ("swiglu_alpha", C.c_float),
        ("up_bias", C.c_float),
        ("y", nib_dense),
        ("reserved", C.c_uint64 * 4),
    ]


class nib_moe_layer_plan_info(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("backend", C.c_char_p),
        ("workspace_bytes", C.c_size_t),
        ("explanation", C.c_char_p),
    ]


class nib_check_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("sample_rows", C.c_int64),
        ("seed", C.c_uint64),
        ("arithmetic", C.c_int),
    ]


class nib_check_result(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("checked", C.c_int64),
        ("failed", C.c_int64),
        ("worst_error", C.c_double),
        ("worst_bound", C.c_double),
        ("worst_fraction", C.c_double),
        ("problem", C.c_int64),
        ("batch", C.c_int64),
        ("row", C.c_int64),
        ("col", C.c_int64),
        ("got", C.c_double),
        ("want", C.c_double),
    ]


class nib_quantize_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("zero_scale", C.c_int),
        ("global", C.c_float),
        ("saturate", C.c_int),
        ("stream", C.c_void_p),
        ("global_pointer", C.c_void_p),
        ("scales", C.c_int),
        ("column_weights", C.c_void_p),
    ]


class nib_dequantize_options(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("stream", C.c_void_p),
        ("global_pointer", C.c_void_p),
    ]


class nib_file_tensor(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("dtype", C.c_char_p),
        ("rank", C.c_int),
        ("shape", C.c_int64 * 8),
        ("data", C.c_void_p),
        ("bytes", C.c_uint64),
        ("shard", C.c_int64),
    ]


class nib_layer_suffixes(C.Structure):
    _fields_ = [
        ("codes", C.c_char_p),
        ("scales", C.c_char_p),
        ("global", C.c_char_p),
        ("input_global", C.c_char_p),
        ("pre_quant_scale", C.c_char_p),
        ("is_reciprocal", C.c_int),
    ]


class nib_layer_tensors(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("naming", C.c_int),
        ("is_transposed", C.c_int),
        ("codes", C.c_void_p),
        ("scales", C.c_void_p),
        ("global", C.c_void_p),
        ("input_global", C.c_void_p),
        ("pre_quant_scale", C.c_void_p),
        ("comfy_quant", C.c_void_p),
        ("batch", C.c_int64),
        ("rows", C.c_int64),
        ("k", C.c_int64),
        ("block_rows", C.c_int64),
        ("block_k", C.c_int64),
    ]


class nib_layer(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("format", C.c_int),
        ("weight", nib_fp4),
        ("globals", C.c_void_p),
        ("input_globals", C.c_void_p),
        ("pre_quant_scale", C.c_void_p),
        ("tensors", C.c_void_p),
    ]


class nib_layer_defect(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("format", C.c_int),
        ("reason", C.c_char * 160),
        ("tensors", C.c_void_p),
    ]


class nib_costs(C.Structure):
    _fields_ = [
        ("struct_bytes", C.c_size_t),
        ("revision", C.c_int),
        ("sizes", C.c_int),
        ("tile_rows", C.c_int * 32),
        ("step_cycles", C.c_int * 32),
        ("tile_cycles", C.c_int),
        ("split_cycles", C.c_int),
        ("tile_cols", C.c_int),
        ("tiles_at_once", C.c_int),
    ]


# name: (result, arguments)
FUNCTIONS = {
    "nib_version": (C.c_char_p, []),
    "nib_status_name": (C.c_char_p, [C.c_int]),
    "nib_scales_bytes": (C.c_size_t, [C.c_int, C.c_int64, C.c_int64]),
    "nib_dtype_bytes": (C.c_size_t, [C.c_int]),
    "nib_device_open": (C.c_int, [C.c_char_p, C.POINTER(nib_device_options),
        C.POINTER(C.c_void_p), C.POINTER(nib_error)]),
    "nib_device_close": (None, [C.c_void_p]),
    "nib_device_get_info": (C.c_int, [C.c_void_p, C.POINTER(nib_device_info),
        C.POINTER(nib_error)]),
    "nib_device_alloc": (C.c_int, [C.c_void_p, C.c_size_t,
        C.POINTER(C.c_void_p), C.POINTER(nib_error)]),
    "nib_device_free": (None, [C.c_void_p, C.c_void_p]),
    "nib_device_copy": (C.c_int, [C.c_void_p, C.c_void_p, C.c_void_p,
        C.c_size_t, C.POINTER(nib_call_options), C.POINTER(nib_error)]),
    "nib_device_wait": (C.c_int, [C.c_void_p, C.c_void_p,
        C.POINTER(nib_error)]),
    "nib_backend_count": (C.c_int, []),
    "nib_backend_get_info": (C.c_int, [C.c_int, C.POINTER(nib_backend_info),
        C.POINTER(nib_error)]),
    "nib_pack": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4),
        C.POINTER(nib_call_options), C.POINTER(C.c_void_p),
        C.POINTER(nib_error)]),
    "nib_pack_shared": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4),
        C.POINTER(nib_call_options), C.POINTER(C.c_void_p),
        C.POINTER(nib_error)]),
    "nib_pack_shares": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4)]),
    "nib_packed_update": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4),
        C.POINTER(nib_call_options), C.POINTER(nib_error)]),
    "nib_unpack": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4),
        C.POINTER(nib_call_options), C.POINTER(nib_error)]),
    "nib_packed_free": (None, [C.c_void_p]),
    "nib_packed_bytes": (C.c_size_t, [C.c_void_p]),
    "nib_plan_create": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(nib_problem),
        C.c_int64, C.POINTER(nib_plan_options), C.POINTER(C.c_void_p),
        C.POINTER(nib_error)]),
    "nib_moe_plan_create": (C.c_int, [C.c_void_p, C.c_int,
        C.POINTER(nib_moe_problem), C.POINTER(nib_plan_options),
        C.POINTER(C.c_void_p), C.POINTER(nib_error)]),
    "nib_plan_free": (None, [C.c_void_p]),
    "nib_plan_get_info": (C.c_int, [C.c_void_p, C.POINTER(nib_plan_info),
        C.POINTER(nib_error)]),
    "nib_run": (C.c_int, [C.c_void_p, C.POINTER(nib_problem), C.c_int64,
        C.POINTER(nib_run_options), C.POINTER(nib_error)]),
    "nib_moe_run": (C.c_int, [C.c_void_p, C.POINTER(nib_moe_problem),
        C.POINTER(nib_run_options), C.POINTER(nib_error)]),
    "nib_multiply": (C.c_int, [C.c_void_p, C.c_int, C.POINTER(nib_problem),
        C.c_int64, C.POINTER(nib_error)]),
    "nib_moe_layer_plan_create": (C.c_int, [C.c_void_p,
        C.POINTER(nib_moe_layer), C.POINTER(nib_plan_options),
        C.POINTER(C.c_void_p), C.POINTER(nib_error)]),
    "nib_moe_layer_plan_free": (None, [C.c_void_p]),
    "nib_moe_layer_plan_get_info": (C.c_int, [C.c_void_p,
        C.POINTER(nib_moe_layer_plan_info), C.POINTER(nib_error)]),
    "nib_moe_layer_run": (C.c_int, [C.c_void_p, C.POINTER(nib_moe_layer),
        C.POINTER(nib_run_options), C.POINTER(nib_error)]),
    "nib_moe_expert_rows": (C.c_int, [C.c_void_p, C.c_void_p, C.c_int64,
        C.POINTER(C.c_int32), C.POINTER(C.c_int32), C.POINTER(nib_call_options),
        C.POINTER(nib_error)]),
    "nib_moe_sum_slots": (C.c_int, [C.c_void_p, C.POINTER(nib_dense),
        C.c_void_p, C.c_void_p, C.c_int64, C.POINTER(nib_dense),
        C.POINTER(nib_call_options), C.POINTER(nib_error)]),
    "nib_reference": (C.c_int, [C.c_int, C.POINTER(nib_problem), C.c_int64,
        C.POINTER(nib_error)]),
    "nib_moe_reference": (C.c_int, [C.c_int, C.POINTER(nib_moe_problem),
        C.POINTER(nib_error)]),
    "nib_check": (C.c_int, [C.c_int, C.POINTER(nib_problem), C.c_int64,
        C.POINTER(nib_check_options), C.POINTER(nib_check_result),
        C.POINTER(nib_error)]),
    "nib_moe_check": (C.c_int, [C.c_int, C.POINTER(nib_moe_problem),
        C.POINTER(nib_check_options), C.POINTER(nib_check_result),
        C.POINTER(nib_error)]),
    "nib_quantize": (C.c_int, [C.c_void_p, C.POINTER(nib_dense),
        C.POINTER(nib_fp4), C.POINTER(nib_quantize_options),
        C.POINTER(C.c_float), C.POINTER(nib_error)]),
    "nib_amax": (C.c_int, [C.c_void_p, C.POINTER(nib_dense), C.c_int,
        C.POINTER(nib_call_options), C.POINTER(C.c_float),
        C.POINTER(nib_error)]),
    "nib_dequantize": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4), C.c_float,
        C.POINTER(nib_dense), C.POINTER(nib_dequantize_options),
        C.POINTER(nib_error)]),
    "nib_convert_scales": (C.c_int, [C.c_void_p, C.POINTER(nib_fp4),
        C.POINTER(nib_fp4), C.POINTER(nib_call_options), C.POINTER(nib_error)]),
    "nib_file_open": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p),
        C.POINTER(nib_error)]),
    "nib_file_open_memory": (C.c_int, [C.c_void_p, C.c_size_t, C.c_char_p,
        C.POINTER(C.c_void_p), C.POINTER(nib_error)]),
    "nib_file_open_shards": (C.c_int, [C.POINTER(C.c_char_p), C.c_int64,
        C.POINTER(C.c_void_p), C.POINTER(nib_error)]),
    "nib_file_close": (None, [C.c_void_p]),
    "nib_file_shard_count": (C.c_int64, [C.c_void_p]),
    "nib_file_shard_at": (C.c_char_p, [C.c_void_p, C.c_int64]),
    "nib_file_tensor_count": (C.c_int64, [C.c_void_p]),
    "nib_file_tensor_at": (C.POINTER(nib_file_tensor), [C.c_void_p, C.c_int64]),
    "nib_file_find": (C.POINTER(nib_file_tensor), [C.c_void_p, C.c_char_p]),
    "nib_file_metadata_count": (C.c_int64, [C.c_void_p]),
    "nib_file_metadata_at": (None, [C.c_void_p, C.c_int64,
        C.POINTER(C.c_char_p), C.POINTER(C.c_char_p)]),
    "nib_naming_suffixes": (C.POINTER(nib_layer_suffixes), [C.c_int]),
    "nib_file_layer_tensors_count": (C.c_int64, [C.c_void_p]),
    "nib_file_layer_tensors_at": (C.POINTER(nib_layer_tensors), [C.c_void_p,
        C.c_int64]),
    "nib_file_layer_tensors_of": (C.POINTER(nib_layer_tensors), [C.c_void_p,
        C.POINTER(nib_file_tensor)]),
    "nib_file_layer_count": (C.c_int64, [C.c_void_p]),
    "nib_file_layer_at": (C.POINTER(nib_layer), [C.c_void_p, C.c_int64]),
    "nib_file_find_layer": (C.POINTER(nib_layer), [C.c_void_p, C.c_char_p]),
    "nib_layer_read_rows": (C.c_int, [C.POINTER(nib_layer), C.c_int64,
        C.c_int64, C.c_void_p, C.c_void_p, C.POINTER(nib_error)]),
    "nib_file_layer_defect_count": (C.c_int64, [C.c_void_p]),
    "nib_file_layer_defect_at": (C.POINTER(nib_layer_defect), [C.c_void_p,
        C.c_int64]),
    "nib_writer_open": (C.c_int, [C.c_char_p, C.POINTER(C.c_void_p),
        C.POINTER(nib_error)]),
    "nib_writer_metadata": (C.c_int, [C.c_void_p, C.c_char_p, C.c_char_p,
        C.POINTER(nib_error)]),
    "nib_writer_declare": (C.c_int, [C.c_void_p, C.c_char_p, C.c_char_p,
        C.c_int, C.c_void_p, C.POINTER(nib_error)]),
    "nib_writer_declare_layer": (C.c_int, [C.c_void_p, C.c_int, C.c_char_p,
        C.c_int64, C.c_int64, C.c_int, C.POINTER(nib_error)]),
    "nib_writer_declare_stack": (C.c_int, [C.c_void_p, C.c_int, C.c_char_p,
        C.c_int64, C.c_int64, C.c_int64, C.c_int, C.POINTER(nib_error)]),
    "nib_writer_write": (C.c_int, [C.c_void_p, C.c_void_p, C.c_size_t,
        C.POINTER(nib_error)]),
    "nib_writer_write_layer": (C.c_int, [C.c_void_p, C.c_int,
        C.POINTER(nib_fp4), C.c_float, C.c_float, C.POINTER(nib_error)]),
    "nib_writer_commit": (C.c_int, [C.c_void_p, C.POINTER(nib_error)]),
    "nib_writer_discard": (None, [C.c_void_p]),
    "nib_device_probe": (C.c_int, [C.c_void_p, C.c_int, C.c_void_p, C.c_int64,
        C.POINTER(C.c_int64), C.POINTER(nib_call_options),
        C.POINTER(nib_error)]),
    "nib_device_get_costs": (C.c_int, [C.c_void_p, C.POINTER(nib_costs),
        C.POINTER(nib_error)]),
    "nib_device_set_costs": (C.c_int, [C.c_void_p, C.POINTER(nib_costs),
        C.POINTER(nib_error)]),
}
