# SPDX-License-Identifier: Apache-2.0
"""_moe.py - a layer of experts as a function of tensors, for the operator.  It calls
nib_moe_layer_run(), which does not wait for the stream."""

import ctypes as C
import weakref

import torch

from nibblas import _abi as abi
from nibblas import _plans
from nibblas import _views as views
from nibblas._library import ArgumentError, call, lib
from nibblas.torch._convert import _Call, calls
from nibblas.torch._tensors import array, dtype_name, maker, meta, usual_type
from nibblas.torch._weights import LayerWeights, layer_weights

ACTIVATIONS = {"swiglu": abi.NIB_MOE_ACTIVATION_SWIGLU,
               "swiglu_clamped": abi.NIB_MOE_ACTIVATION_SWIGLU_CLAMPED,
               "gelu": abi.NIB_MOE_ACTIVATION_GELU,
               "relu2": abi.NIB_MOE_ACTIVATION_RELU2}
# The library's names of the operator's arguments.
NAMES = {"x": "x", "a": "x", "ids": "topk_ids", "weights": "topk_weights",
         "gate": "w13", "up": "w13", "down": "w2", "y": "out"}
_POINTERS = {
    "x": ("x", "data"), "codes": ("a", "codes"), "scales": ("a", "scales"),
    "ids": ("ids",), "weights": ("weights",), "gate": ("gate", "codes"),
    "gate_scales": ("gate", "scales"), "up": ("up", "codes"),
    "up_scales": ("up", "scales"), "down": ("down", "codes"),
    "down_scales": ("down", "scales"), "gate_alpha": ("gate_alpha",),
    "up_alpha": ("up_alpha",), "down_alpha": ("down_alpha",), "x_global": ("x_global",),
    "h_global": ("h_global",), "y": ("y", "data"),
    "gate_packed": ("gate_packed",), "up_packed": ("up_packed",),
    "down_packed": ("down_packed",)}
_AT = {name: _plans.word(abi.nib_moe_layer, *path)
       for name, path in _POINTERS.items()}


class _LayerPlan(_plans.Kept):
    """A plan of nib_moe_layer_plan_create(); works hold a struct nib_moe_layer."""

    Work = _plans.Work
    is_moe, names = True, NAMES

    def __init__(self, device, template, given):
        super().__init__("nib_moe_layer_run")
        self.device, self.template, self.given = device, template, given
        self.handle = C.c_void_p()
        # Plans are cached, one for each number of tokens; workspaces are torch's.
        options = abi.nib_plan_options(
            struct_bytes=C.sizeof(abi.nib_plan_options), caller_workspace=1)
        _plans.create("nib_moe_layer_plan_create", template, NAMES, device.handle,
                      C.byref(template), C.byref(options), C.byref(self.handle))
        info = abi.nib_moe_layer_plan_info(
            struct_bytes=C.sizeof(abi.nib_moe_layer_plan_info))
        call("nib_moe_layer_plan_get_info", self.handle, C.byref(info))
        self.workspace_bytes = info.workspace_bytes
        weakref.finalize(self, lib.nib_moe_layer_plan_free,
                         self.handle).atexit = False

    pin = _plans.Plan.pin
    weights = None


# ---- arguments -------------------------------------------------------------


def _vector(name, x, count):
    if x is not None:
        views.vector(array(name, x), count)


def _check(x, x_scales, ids, weights, w13, s13, w2, s2, alpha13, alpha2, x_global,
           h_global, activation, expert_offset, experts):
    """Checks what the library does not check, or would name otherwise.  w13 .. s2: None
    if only the packed form exists."""
    views.choose("activation", activation, ACTIVATIONS)
    for name, t, dims in (("x", x, 2), ("topk_ids", ids, 2), ("w13", w13, 3),
                          ("topk_weights", weights, 2), ("w13_scales", s13, 3),
                          ("w2", w2, 3), ("w2_scales", s2, 3)):
        if t is not None and t.dim() != dims:
            array(name, t).fail(f"must have {dims} dimensions")
    if ids.dtype not in (torch.int32, torch.int64):
        array("topk_ids", ids).fail("must be int32 or int64")
    if ids.shape[0] != x.shape[0]:
        array("topk_ids", ids).fail(f"must have x's {x.shape[0]} rows")
    if weights.shape != ids.shape:
        array("topk_weights", weights).fail(
            f"must have topk_ids' shape {tuple(ids.shape)}")
    if experts == 0:
        array("w13", w13).fail("must have at least one expert")
    if activation != "relu2" and w13 is not None and w13.shape[1] % 2:
        array("w13", w13).fail("must have as many rows of gate as of up")
    if x_scales is not None and x_global is not None:
        raise ArgumentError("x_global: must be None, because x is quantised",
                            "x_global")
    if (h_global is None) != (x_global is None and x_scales is None):
        raise ArgumentError(
            "h_global: must be given with x_global or x_scales (W4A4), and only with "
            "them",
            "h_global")
    if expert_offset < 0:
        raise ArgumentError(f"expert_offset = {expert_offset}: must not be "
                            "negative", "expert_offset")
    if alpha13 is not None and alpha13.dim() == 2:
        _vector("alpha13", alpha13.reshape(-1), 2 * experts)
        if alpha13.shape[0] != 2 or not alpha13.is_contiguous():
            array("alpha13", alpha13).fail("must be [experts] or, contiguous, "
                                           "[2, experts]: gate and up")
    else:
        _vector("alpha13", alpha13, experts)
    _vector("alpha2", alpha2, experts)
    _vector("x_global", x_global, 1)
    _vector("h_global", h_global, 1)


def halves(w13, activation, interleaved):
    """Gate and up of w13, its scales or its products; up is None without one."""
    if w13 is None or activation == "relu2":
        return w13, None
    if interleaved:
        return w13[:, 0::2], w13[:, 1::2]
    half = w13.shape[1] // 2
    return w13[:, :half], w13[:, half:]


def _alphas(alpha13):
    """Those of gate and of up."""
    if alpha13 is not None and alpha13.dim() == 2:
        return alpha13[0], alpha13[1]
    return alpha13, alpha13


# ---- by the library --------------------------------------------------------


def _view(name, codes, scales):
    return views.nvfp4(array(name, codes), array(name + "_scales", scales),
                       "linear")[0]


def _template(tensors, ids, out_dtype, shape, activation, limit, swiglu_alpha, up_bias,
              expert_offset):
    """The struct of a layer without pointers; tensors: as _layer() has them."""
    t = tensors
    layer = abi.nib_moe_layer(
        ids_bytes=ids.element_size(), top_k=ids.shape[1],
        expert_offset=expert_offset, activation=ACTIVATIONS[activation],
        limit=limit, swiglu_alpha=swiglu_alpha, up_bias=up_bias,
        activations=abi.NIB_ACTIVATIONS_NVFP4,
        y=abi.nib_dense(dtype=views.choose("out_dtype", dtype_name(out_dtype),
                                           views.DENSE),
                        rows=shape[0], cols=shape[1], batch=1))
    for name, argument in (("gate", "w13"), ("up", "w13"), ("down", "w2")):
        if t[name] is not None:
            setattr(layer, name, _view(argument, t[name], t[name + "_scales"]))
    if t["codes"] is not None:
        layer.is_quantized = 1
        layer.a = _view("x", t["codes"], t["scales"])
        return layer
    x = array("x", t["x"])
    if x.dtype not in views.DENSE:
        x.fail("must be float32, float16 or bfloat16, or codes with x_scales")
    layer.x, _ = views.dense(x)
    if t["x_global"] is None:
        layer.activations = abi.NIB_ACTIVATIONS_DENSE
    return layer


def _packed(numbers, tensors):
    """The packed forms of gate, up and down, or nothing: numbers of LayerWeights that
    have other tensors, or belong to another process, are ignored."""
    found = [tensors[name] is not None and layer_weights(
        number, tensors[name], tensors[name + "_scales"])
        for number, name in zip(numbers, ("gate", "up", "down"))]
    return found if all(w or w is False for w in found) else []


def _only_packed(numbers, activation):
    """The packed forms of gate, up and down, the only form of the weights."""
    gate, up, down = numbers
    return [layer_weights(gate, None, None),
            activation != "relu2" and layer_weights(up, None, None),
            layer_weights(down, None, None)]


def _layer(backend, tensors, weights, out_dtype, activation, limit, swiglu_alpha,
           up_bias, expert_offset, cols=None):
    """Runs the library's layer; tensors: by the names of _POINTERS; weights: those of
    _packed(), the first of which holds the plans.  cols: of y, or those of down."""
    first = tensors["ids"]
    device = backend.device_of(first)
    shape = (first.shape[0], cols or tensors["down"].shape[1])
    options = (activation, limit, swiglu_alpha, up_bias, expert_offset)
    key = ("layer", device, out_dtype, *options,
           *[w and w.number for w in weights],
           *[None if t is None else meta(t) for t in tensors.values()])
    plans = weights[0].plans if weights else _plans.cache
    plan = plans.get(key)
    if plan is None:
        template = _template(tensors, first, out_dtype, shape, *options)
        for name, w in zip(("gate", "up", "down"), weights):
            if w:
                setattr(template, name + "_packed", w.handle)
        plan = plans.add(key, _LayerPlan(backend.open(device), template, maker(
            shape, out_dtype, first.device)))
    return _run(backend, plan, device, [(_AT[name], 0 if t is None else t.data_ptr())
                                        for name, t in tensors.items()])


def _run(backend, plan, device, pointers):
    """y of a plan; pointers: (word of the struct, address)."""
    y = plan.given()
    work = plan.take()
    words = work.words
    for at, address in pointers:
        words[at] = address
    words[_AT["y"]] = y.data_ptr()
    if backend.own_workspace:
        workspace = torch.empty(plan.workspace_bytes + 64, dtype=torch.uint8,
                                device="cpu")
        work.options.workspace = (workspace.data_ptr() + 63) // 64 * 64
        work.options.workspace_bytes = plan.workspace_bytes
    backend.run(plan, work, device)
    return y


# ---- with tensors that stay ------------------------------------------------

# A short number for what plans depend on in the tensors of a FixedLayer.
_kinds = {}


def _pack(weights):
    """{name: Packed} of gate, up and down, whose tensors weights has; {} if one of them
    cannot be packed without a copy of its codes."""
    found = {name: LayerWeights().get(weights[name], weights[name + "_scales"])
             for name in ("gate", "up", "down") if weights[name] is not None}
    return found if all(found.values()) else {}


class FixedLayer:
    """moe() for weights that stay where they are: what it derives from them, which is
    most of a call's time on the host, is made once.  Layers of the same sizes share
    plans.

    packed  Packed of gate, up (None without one) and down.  On a GPU they have the
            scales in the order of its fastest kernels, and the codes of the tensors;
            the scales given are not kept.  Empty: not asked for, or not possible"""

    def __init__(self, backend, w13, w13_scales, w2, w2_scales, alpha13, alpha2,
                 x_global, h_global, activation, pack=False):
        self.backend = backend
        (gate, up), (gate_scales, up_scales) = (
            halves(t, activation, False) for t in (w13, w13_scales))
        weights = {"gate": gate, "gate_scales": gate_scales, "up": up,
                   "up_scales": up_scales, "down": w2, "down_scales": w2_scales}
        self.packed = _pack(weights) if pack else {}
        alpha, alpha_up = _alphas(alpha13)
        others = {"gate_alpha": alpha, "up_alpha": alpha_up, "down_alpha": alpha2,
                  "x_global": x_global, "h_global": h_global}
        self.kind = _kinds.setdefault(
            (activation, bool(self.packed), *[
                None if t is None else meta(t)
                for t in (*weights.values(), *others.values())]), len(_kinds))
        self.sizes = w13.shape[0], w2.shape[1]
        if self.packed:
            w13 = w13_scales = w2 = w2_scales = None
            weights = dict.fromkeys(weights)
        self.given = (w13, w13_scales, w2, w2_scales, alpha13, alpha2, x_global,
                      h_global, activation)
        self.tensors = {**weights, **others}
        self.pointers = [(_AT[name], 0 if t is None else t.data_ptr())
                         for name, t in self.tensors.items()] + [
            (_AT[name + "_packed"], one.handle.value)
            for name, one in self.packed.items()]

    def _plan(self, key, device, x, ids, weights):
        experts, cols = self.sizes
        _check(x, None, ids, weights, *self.given, 0, experts)
        tensors = {**self.tensors, "codes": None, "scales": None, "x": x, "ids": ids,
                   "weights": weights}
        shape = x.shape[0], cols
        template = _template(tensors, ids, x.dtype, shape, self.given[-1], 7.0, 1.702,
                             1.0, 0)
        for name, one in self.packed.items():
            setattr(template, name + "_packed", one.handle)
        return _plans.cache.add(key, _LayerPlan(
            self.backend.open(device), template, maker(shape, x.dtype, ids.device)))

    def run(self, x, ids, weights):
        """[tokens, rows of w2] of x's type: moe() of x, topk_ids and topk_weights."""
        ids, weights = ids.contiguous(), weights.float().contiguous()
        device = self.backend.device_of(x, "x")
        key = ("fixed layer", self.kind, device, x.shape,
               x.is_contiguous() or x.stride(), x.dtype, ids.shape, ids.dtype,
               weights.shape)
        plan = _plans.cache.get(key) or self._plan(key, device, x, ids, weights)
        return _run(self.backend, plan, device, [
            *self.pointers, (_AT["x"], x.data_ptr()), (_AT["ids"], ids.data_ptr()),
            (_AT["weights"], weights.data_ptr())])


# ---- the sum of slots ------------------------------------------------------


def _sum_call(backend, device, rows, slot_rows, weights):
    for name, t in (("rows", rows), ("slot_rows", slot_rows), ("weights", weights)):
        if t.dim() != 2:
            array(name, t).fail("must have 2 dimensions")
    if slot_rows.shape != weights.shape:
        array("slot_rows", slot_rows).fail(
            f"must have weights' shape {tuple(weights.shape)}")
    views.vector(array("slot_rows", slot_rows), slot_rows.numel(), "int32")
    views.vector(array("weights", weights), weights.numel())
    shape = slot_rows.shape[0], rows.shape[1]
    view = views.dense(array("rows", rows))[0]
    view.row_stride_elems = rows.shape[1]
    y = abi.nib_dense(dtype=view.dtype, rows=shape[0], cols=shape[1], batch=1)
    options = abi.nib_call_options(struct_bytes=C.sizeof(abi.nib_call_options))
    return _Call(backend, device, "nib_moe_sum_slots", (
        view, C.c_void_p(), C.c_void_p(), C.c_int64(slot_rows.shape[1]), y, options),
        maker(shape, rows.dtype, rows.device), 0 in shape)


def sum_slots(backend, rows, slot_rows, weights):
    """[tokens, cols], of rows' type: the sum over slots of rows[slot_rows] times
    weights in fp32, slot after slot, as a layer adds them.  slot_rows int32, weights
    float32 [tokens, slots]; a negative row is left out."""
    device = backend.device_of(rows, "rows")
    rows = rows.contiguous()
    # The number of rows changes with every call.
    key = ("sum_slots", device, rows.shape[1:], rows.dtype, meta(slot_rows),
           meta(weights))
    known = calls.get(key) or calls.add(key, _sum_call(
        backend, device, rows, slot_rows, weights))
    y = known.given()
    if known.is_empty:
        return y
    work = known.take()
    view, places, factors, _, to, options = work.own
    view.rows, view.data = rows.shape[0], rows.data_ptr()
    places.value, factors.value = slot_rows.data_ptr(), weights.data_ptr()
    to.data = y.data_ptr()
    options.stream = backend.stream(device)
    known.run(work)
    return y


# ---- the operator ----------------------------------------------------------


def moe(backend, x, topk_ids, topk_weights, w13, w13_scales, w2, w2_scales,
        alpha13=None, alpha2=None, x_global=None, h_global=None, activation="swiglu",
        expert_offset=0, x_scales=None, limit=7.0, swiglu_alpha=1.702, up_bias=1.0,
        interleaved=False, out_dtype=None, packed=(), cols=None):
    """[tokens, rows of w2]: the layer of struct nib_moe_layer.  packed: numbers of
    LayerWeights of gate, up and down, or nothing; if w13 is None, they are the only
    form of the weights."""
    is_only_packed = w13 is None
    if is_only_packed and not packed:
        raise ArgumentError("w13: must be a tensor, or packed numbers of layers", "w13")
    only_packed = _only_packed(packed, activation) if is_only_packed else []
    _check(x, x_scales, topk_ids, topk_weights, w13, w13_scales, w2, w2_scales,
           alpha13, alpha2, x_global, h_global, activation, expert_offset,
           only_packed[0].sizes.batch if is_only_packed else w13.shape[0])
    ids, weights = topk_ids.contiguous(), topk_weights.float().contiguous()
    out_dtype = out_dtype or usual_type(x)
    (gate, up), (gate_scales, up_scales) = (
        halves(t, activation, interleaved) for t in (w13, w13_scales))
    alpha, alpha_up = _alphas(alpha13)
    tensors = {"x": None, "codes": None, "scales": x_scales, "ids": ids,
               "weights": weights, "gate": gate, "gate_scales": gate_scales,
               "up": up, "up_scales": up_scales, "down": w2,
               "down_scales": w2_scales, "gate_alpha": alpha,
               "up_alpha": alpha_up, "down_alpha": alpha2,
               "x_global": x_global, "h_global": h_global}
    tensors["x" if x_scales is None else "codes"] = x
    weights = only_packed or (_packed(packed, tensors) if packed else [])
    return _layer(backend, tensors, weights, out_dtype, activation, limit,
                  swiglu_alpha, up_bias, expert_offset,
                  only_packed[2].sizes.rows if is_only_packed else None)
