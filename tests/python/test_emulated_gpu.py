# SPDX-License-Identifier: Apache-2.0
"""The package on the software GPU: arrays in its memory by DLPack, and the operators'
code for CUDA tensors (streams, workspaces, plans).  Stand-ins replace the tensors,
because torch does not support this GPU.  NIBEMU_DEVICE selects it: b200, otherwise an
H200.  Skipped in builds without kernels."""

import contextlib
import ctypes as C
import gc
import json
import os
import tempfile
import threading
import unittest
import weakref
from unittest import mock

import nibblas
import numpy as np
from common import (Floats, OracleTest, blocked, decode, needs_torch, random_codes,
                    random_scales)

from nibblas import _abi as abi
from nibblas import _device
from nibblas import _numpy
from nibblas import _packed
from nibblas import _plans
from nibblas import _tuning
from nibblas._arrays import CUDA, _Device, _Tensor, _Type, array
from nibblas._library import call, lib

EMULATOR = os.path.join(os.path.dirname(os.environ["NIBBLAS_LIBRARY"]),
                        "libnibemu.so")
TYPES = {"uint8": _Type(1, 8, 1), "float32": _Type(2, 32, 1),
         "float16": _Type(2, 16, 1), "int32": _Type(0, 32, 1)}
# Both GPUs need a workspace for it: a B200 copies operands of such k.
K = 144
# More rows than the kernels of few rows take, which need none.
M = 66
_new_capsule = C.pythonapi.PyCapsule_New
_new_capsule.restype = C.py_object
_new_capsule.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p]


class Managed(C.Structure):
    _fields_ = [("tensor", _Tensor), ("context", C.c_void_p),
                ("deleter", C.c_void_p)]


class Array:
    """An array in the GPU's memory; speaks DLPack, and as much of torch's tensors
    as the operators ask."""

    is_cpu, is_cuda, index = False, True, 0

    def __init__(self, gpu, data):
        self.gpu, self.data = gpu, np.ascontiguousarray(data)
        self.shape = self.data.shape
        self.pointer = C.c_void_p()
        call("nib_device_alloc", gpu.handle, self.data.nbytes,
             C.byref(self.pointer))
        self.copy(self.pointer, self.data.ctypes.data)
        self.streams = []

    def copy(self, to, source):
        call("nib_device_copy", self.gpu.handle, to, source, self.data.nbytes,
             None)

    def numpy(self):
        self.copy(self.data.ctypes.data, self.pointer)
        return self.data

    def __del__(self):
        lib.nib_device_free(self.gpu.handle, self.pointer)

    # DLPack

    def __dlpack_device__(self):
        return CUDA, self.index

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        self.sizes = (C.c_int64 * len(self.shape))(*self.shape)
        self.managed = Managed(tensor=_Tensor(
            self.pointer, _Device(CUDA, 0), len(self.shape),
            TYPES[self.data.dtype.name], self.sizes, None, 0))
        return _new_capsule(C.addressof(self.managed), b"dltensor", None)

    # torch

    @property
    def dtype(self):
        import torch
        return getattr(torch, self.data.dtype.name)

    def stride(self):
        return tuple(n // self.data.itemsize for n in self.data.strides)

    def is_contiguous(self):
        return True

    def numel(self):
        return self.data.size

    def element_size(self):
        return self.data.itemsize

    def data_ptr(self):
        return self.pointer.value or 0

    def get_device(self):
        return self.index

    @property
    def device(self):
        return f"cuda:{self.index}"


@contextlib.contextmanager
def pack_calls():
    """What pack() asks of the library; streams need not exist."""
    calls = []

    def call_(name, *args):
        waits = name == "nib_device_wait"
        calls.append(f"wait for {args[1]}" if waits else name)
        if not waits:
            call(name, *args)
    with mock.patch.object(_packed, "call", call_):
        yield calls


class EmulatedTest(OracleTest):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(EMULATOR):
            raise unittest.SkipTest("no " + EMULATOR)
        os.environ.update(NIB_CUDA_LIBRARY=EMULATOR, NIBEMU_SMS="16",
                          NIB_TUNING="off")
        try:
            cls.gpu = nibblas.device("cuda")
        except nibblas.Error as error:
            raise unittest.SkipTest(str(error)) from None
        cls.arithmetic = cls.gpu.info()["arithmetic"]
        cls.rng = np.random.default_rng(4)

    def operand(self, *shape):
        """Arrays of the GPU (scales tiled), and the linear ones of the host."""
        codes = random_codes(self.rng, *shape[:-1], shape[-1] // 2)
        scales = random_scales(self.rng, *shape[:-1], shape[-1] // 16)
        return (Array(self.gpu, codes), Array(self.gpu, blocked(scales))), (
            codes, scales)

    def output(self, *shape, dtype=np.float32):
        return Array(self.gpu, np.full(shape, np.nan, dtype))

    def assert_right(self, op, a, b, c, **kwargs):
        super().assert_right(op, a, b, c.numpy(), **kwargs)


class ByDlpack(EmulatedTest):
    def test_products(self):
        a, left = self.operand(9, 128)
        b, right = self.operand(130, 128)
        c = self.output(9, 130)
        self.assertIs(nibblas.gemm(*a, *b, out=c), c)
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)
        # 1 is DLPack's name of the default stream.
        self.assertEqual(a[0].streams, [1])
        alpha = np.float32([2.0 ** -6])
        factor = Array(self.gpu, alpha)
        half = self.output(9, 130, dtype=np.float16)
        nibblas.dual_gemm(*a, *b, *b, alpha=factor, alpha2=factor, out=half)
        self.assert_right(abi.NIB_OP_DUAL_GEMM, left, right, half, b2=right,
                          alpha=alpha, alpha2=alpha)

    def test_floats_as_a(self):
        """float16 as it is, if the GPU has kernels for it; float32 and 8 bits are
        refused with what to do."""
        b, right = self.operand(130, 128)
        x = self.rng.standard_normal((9, 128))
        c = self.output(9, 130)
        for dtype, kind, pattern in (
                (np.float32, None, "^a: float32 as it is: must be NVFP4"),
                (np.float16, "int8", "^activations = 'int8': must be NVFP4")):
            with self.assertRaisesRegex(nibblas.UnsupportedError, pattern):
                nibblas.gemm(Array(self.gpu, x.astype(dtype)), None, *b, out=c,
                             activations=kind)
        half = x.astype(np.float16)
        a = Array(self.gpu, half)
        try:
            nibblas.gemm(a, None, *b, out=c)
        except nibblas.UnsupportedError as error:
            self.assertRegex(str(error), "^a: float16 as it is: must be NVFP4 on "
                             "this GPU: quantise it")
            return
        left = Floats(half, abi.NIB_DTYPE_FP16, abi.NIB_ACTIVATIONS_DENSE)
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)
        nibblas.gemm(a, None, nibblas.pack(*b), out=c)
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_costs_of_nib_tune(self):
        """A device has them from its opening; of a wrong file, none."""
        def costs(gpu):
            got = abi.nib_costs(struct_bytes=C.sizeof(abi.nib_costs))
            call("nib_device_get_costs", gpu.handle, C.byref(got))
            return got
        built_in, info = costs(self.gpu), self.gpu.info()
        n = built_in.sizes
        right = {"device": info["hardware"],
                 "multiprocessors": info["multiprocessors"],
                 "version": nibblas.__version__,
                 "revision": built_in.revision,
                 "tile_rows": built_in.tile_rows[:n],
                 "step_cycles": list(range(1000, 1000 + n)),
                 "tile_cycles": 7, "split_cycles": 8}
        wrongs = [{key: None} for key in right] + [
            {"device": "another"}, {"revision": built_in.revision - 1},
            {"step_cycles": [1] * (n - 1)}, {"step_cycles": [2**33 + 5] * n},
            {"tile_cycles": 0}, {"split_cycles": 1.5}]
        texts = [json.dumps({**right, **wrong}) for wrong in wrongs]
        texts += ["", "[]", json.dumps(right)[:-1],
                  json.dumps(right) + 4096 * " "]
        with tempfile.TemporaryDirectory() as folder:
            name = _tuning.path(info["hardware"], info["multiprocessors"])
            self.assertIsNone(name)      # NIB_TUNING is "off"
            with mock.patch.dict(os.environ, NIB_TUNING="",
                                 XDG_CACHE_HOME=folder):
                name = _tuning.path(info["hardware"], info["multiprocessors"])
                self.assertRegex(name, f"^{folder}/nibblas/tune-[-.0-9A-Za-z]+"
                                 r"-\d+-[0-9.]+\.json$")
                os.mkdir(os.path.dirname(name))
                for text in [json.dumps(right), *texts]:
                    with open(name, "w", encoding="ascii") as file:
                        file.write(text)
                    got = costs(_device.Device("cuda:0"))
                    want = [*right["step_cycles"], 7, 8]
                    if text in texts:
                        want = [*built_in.step_cycles[:n],
                                built_in.tile_cycles, built_in.split_cycles]
                    self.assertEqual([*got.step_cycles[:n], got.tile_cycles,
                                      got.split_cycles], want, text)

    def test_packed_codes_may_be_shared(self):
        """Only scales are copied then, and an update packs into the same memory."""
        a, left = self.operand(9, 128)
        b, right = self.operand(130, 128)
        c = self.output(9, 130)
        packed = nibblas.pack(*b, copy=False)
        self.assertTrue(packed.is_shared)
        self.assertEqual(packed.bytes, 2 * 128 * 8)
        self.assertFalse(nibblas.pack(*b).is_shared)
        nibblas.gemm(*a, packed, out=c)
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)
        scales = random_scales(self.rng, 130, 8)
        other = array("b", b[0]), array("b_scales", Array(self.gpu, blocked(scales)))
        packed.update(*other, "tiled")
        nibblas.gemm(*a, packed, out=c)
        self.assert_right(abi.NIB_OP_GEMM, left, (right[0], scales), c)
        codes = array("b", Array(self.gpu, right[0]))
        with self.assertRaisesRegex(nibblas.ArgumentError, "^b.codes = 0x[0-9a-f]+: "
                                    "must be the codes 0x[0-9a-f]+ that packed shares"):
            packed.update(codes, other[1], "tiled")

    def test_packed_weights_are_written_back(self):
        """Copied and shared codes, both layouts of scales."""
        for rows, k in ((33, 48), (130, 128)):
            codes = self.rng.integers(0, 256, (rows, k // 2), np.uint8)
            scales = random_scales(self.rng, rows, k // 16)
            b = Array(self.gpu, codes), Array(self.gpu, blocked(scales))
            for copy in (True, False):
                packed = nibblas.pack(*b, copy=copy)
                for layout, want in (("linear", scales),
                                     ("tiled", blocked(scales, padding=0))):
                    got = (Array(self.gpu, np.full_like(codes, 0x7b)),
                           Array(self.gpu, np.full_like(want, 0x7b)))
                    packed.unpack(array("to", got[0]), array("to_scales", got[1]),
                                  layout)
                    self.assertTrue(np.array_equal(got[0].numpy(), codes))
                    self.assertTrue(np.array_equal(got[1].numpy(), want))
                if packed.is_shared:
                    with self.assertRaisesRegex(nibblas.ArgumentError, "^to.codes"):
                        packed.unpack(array("to", b[0]), array("to_scales", got[1]),
                                      "tiled")

    def test_shared_codes_are_kept(self):
        b, _ = self.operand(130, 128)
        kept, packed = weakref.ref(b[0]), nibblas.pack(*b, copy=False)
        del b
        gc.collect()
        self.assertIsNotNone(kept())
        del packed
        gc.collect()
        self.assertIsNone(kept())

    def test_codes_that_lie_apart_are_copied(self):
        """Rows of k = 48 (not a multiple of 32); torch layers call shares() first."""
        for k, shares in ((48, False), (64, True)):
            b, _ = self.operand(130, k)
            self.assertEqual(nibblas.pack(*b, copy=False).is_shared, shares)
            given = array("b", b[0]), array("b_scales", b[1]), "tiled"
            self.assertEqual(_packed.shares(_device.Device("cuda:0"), *given), shares)

    def test_pack_waits_for_the_stream(self):
        """nib_pack() reads on the default stream, whatever stream has b."""
        b, _ = self.operand(33, 64)
        with pack_calls() as calls:
            nibblas.pack(*b, stream=7)
            nibblas.pack(*b)
        self.assertEqual(b[0].streams, [7, 1])
        self.assertEqual(calls, ["wait for 7", "nib_pack", "nib_pack"])

    def test_formats(self):
        x = self.rng.standard_normal((9, 64)).astype(np.float32)
        out = (Array(self.gpu, np.zeros((9, 32), np.uint8)),
               Array(self.gpu, np.zeros((128, 4), np.uint8)))
        got = nibblas.quantize(Array(self.gpu, x), out=out)
        want = nibblas.quantize(x)
        self.assertEqual(got.global_scale, want.global_scale)
        self.assertTrue(np.array_equal(out[0].numpy(), want.codes))
        self.assertTrue(np.array_equal(out[1].numpy(), want.scales))
        y = self.output(9, 64)
        nibblas.dequantize(*got, out=y)
        self.assertTrue(np.array_equal(y.numpy(), nibblas.dequantize(*want)))

    def test_refusals(self):
        a, _ = self.operand(9, 64)
        b, right = self.operand(33, 64)
        with self.assertRaisesRegex(ValueError, "^out = None: on cuda:0"):
            nibblas.gemm(*a, *b)
        with self.assertRaisesRegex(ValueError, "^b: .*is on cpu; must be on"):
            nibblas.gemm(*a, right[0], b[1], out=self.output(9, 33))
        with self.assertRaisesRegex(ValueError, "^out: .*is on cpu"):
            nibblas.gemm(*a, *b, out=np.zeros((9, 33), np.float32))


class Driver:
    """Streams and graphs of the software GPU's driver."""

    def __init__(self):
        self.library = C.CDLL(EMULATOR)
        device, context = C.c_int(), C.c_void_p()
        self("cuDeviceGet", C.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", C.byref(context), device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, (name, status)

    def stream(self):
        out = C.c_void_p()
        self("cuStreamCreate", C.byref(out), 1)
        return out.value

    def begin(self, stream):
        self("cuStreamBeginCapture_v2", C.c_void_p(stream), 0)

    def end(self, stream):
        """What was captured, ready to be launched."""
        graph, ready = C.c_void_p(), C.c_void_p()
        self("cuStreamEndCapture", C.c_void_p(stream), C.byref(graph))
        self("cuGraphInstantiateWithFlags", C.byref(ready), graph,
             C.c_ulonglong(0))
        return ready

    def launch(self, ready, stream):
        self("cuGraphLaunch", ready, C.c_void_p(stream))
        self("cuStreamSynchronize", C.c_void_p(stream))


class Streams(EmulatedTest):
    """The functions for DLPack on streams, and captured in CUDA graphs."""

    def setUp(self):
        self.driver = Driver()
        # Those that other tests pinned, too.
        _plans.cache.plans.clear()

    def test_a_graph_keeps_its_plan_and_workspace(self):
        a, left = self.operand(M, K)
        b, right = self.operand(130, K)
        c, stream = self.output(M, 130), self.driver.stream()
        kw = {"out": c, "stream": stream}
        nibblas.gemm(*a, *b, **kw)
        made = [weakref.ref(plan) for plan in _plans.cache.plans.values()]
        self.assertEqual(len(made), 1)
        self.driver.begin(stream)
        nibblas.gemm(*a, *b, **kw)
        graph = self.driver.end(stream)
        # Another size makes the cache drop the plan; calls that follow on the
        # stream have another workspace than the graph.
        _plans.cache.plans.clear()
        gc.collect()
        self.assertIsNotNone(made[0]())
        of_graph = _numpy._workspaces.of_graphs["cuda:0", stream]
        nibblas.gemm(*a, *b, **kw)
        mine = _numpy._workspaces.kept["cuda:0", stream]
        self.assertNotEqual(of_graph.address, mine.address)
        codes = random_codes(self.rng, M, K // 2)
        # The copy runs in another stream than the product that reads a.
        call("nib_device_wait", self.gpu.handle, stream)
        a[0].copy(a[0].pointer, codes.ctypes.data)
        self.driver.launch(graph, stream)
        self.assert_right(abi.NIB_OP_GEMM, (codes, left[1]), right, c)

    def test_an_unknown_size_in_a_graph(self):
        a, _ = self.operand(M, K)
        b, _ = self.operand(33, K)
        c, stream = self.output(M, 33), self.driver.stream()
        self.driver.begin(stream)
        try:
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "run it once before"):
                nibblas.gemm(*a, *b, out=c, stream=stream)
            # Known, but not on this stream.
            nibblas.gemm(*a, *b, out=c)
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "on the same stream"):
                nibblas.gemm(*a, *b, out=c, stream=stream)
        finally:
            self.driver.end(stream)

    def test_streams_do_not_share_a_workspace(self):
        a, left = self.operand(M, K)
        b, right = self.operand(130, K)
        seen, run = [], _plans.Plan.run

        def watch(plan, work):
            seen.append(work.options.workspace)
            run(plan, work)
        with mock.patch.object(_plans.Plan, "run", watch):
            for stream in (None, self.driver.stream(), self.driver.stream()):
                for _ in range(2):
                    c = self.output(M, 130)
                    nibblas.gemm(*a, *b, out=c, stream=stream)
                    call("nib_device_wait", self.gpu.handle, stream)
                    self.assert_right(abi.NIB_OP_GEMM, left, right, c)
        self.assertNotIn(None, seen)
        self.assertEqual(seen[::2], seen[1::2])
        self.assertEqual(len(set(seen)), 3)
        self.assertEqual(len(_plans.cache.plans), 1)


class AsTensors(EmulatedTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.torch = needs_torch()
        import nibblas.torch
        cls.package = nibblas.torch
        from nibblas.torch import _convert, _multiply, _tensors
        cls.convert, cls.multiply = _convert, _multiply
        cls.cpu, cls.cuda = _tensors.Cpu, _tensors.Cuda

    def setUp(self):
        self.capturing, self.workspaces = False, []

        def workspace(n_bytes, index):
            self.workspaces.append(Array(self.gpu, np.zeros(n_bytes,
                                                            np.uint8)))
            return self.workspaces[-1]
        for name, value in (("raw_stream", lambda index: 0),
                            ("is_capturing", lambda: self.capturing),
                            ("workspaces", _numpy.Workspaces()),
                            ("workspace", workspace)):
            patch = mock.patch.object(self.cuda, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def gemm(self, c, a, b):
        self.multiply.simple(self.cuda, abi.NIB_OP_GEMM)(
            c, *a, *b, None, c.dtype, "tiled", "tiled")

    def test_gemm_and_groups(self):
        a, left = self.operand(M, K)
        b, right = self.operand(130, K)
        for _ in range(2):
            c = self.output(M, 130)
            self.gemm(c, a, b)
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)
        # The second run has the first one's workspace, after it in the stream.
        self.assertEqual(len(self.workspaces), 0)
        self.assertEqual(len(self.cuda.workspaces.kept), 1)
        many = [self.output(M, 130, dtype=np.float16) for _ in range(3)]
        self.multiply.group_gemm(self.cuda, many, *([x] * 3 for x in (*a, *b)),
                                 None, self.torch.float16, "tiled", "tiled")
        for c in many:
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_workspaces(self):
        """One for each thread and stream, growing; a graph, a large product and
        one for which there is no memory take torch's."""
        from nibblas import _workspaces
        from nibblas.torch import _tensors
        a, left = self.operand(M, K)
        b, right = self.operand(130, K)

        def run(of_torch):
            c = self.output(M, 130)
            self.gemm(c, a, b)
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)
            self.assertEqual(len(self.workspaces), of_torch)
            return self.cuda.workspaces.kept["cuda:0", 0]
        first, others = run(0), []
        self.assertIs(run(0), first)
        other = threading.Thread(target=lambda: others.append(run(0)))
        other.start()
        other.join()
        self.assertNotEqual(others[0].address, first.address)
        self.capturing = True
        run(1)
        self.capturing = False
        run(1)
        with mock.patch.object(_tensors, "MOST_KEPT_BYTES", 1):
            run(2)
        kept = self.cuda.workspaces.get
        self.assertIs(kept(self.gpu, 0, 1), first)
        grown = kept(self.gpu, 0, first.bytes + 1)
        self.assertEqual(grown.bytes, 2 * first.bytes)
        self.assertIs(kept(self.gpu, 0, 1), grown)
        self.assertNotEqual(kept(self.gpu, 7, 1).address, grown.address)
        for stream in range(100):
            kept(self.gpu, stream, 1)
        self.assertLessEqual(len(self.cuda.workspaces.kept),
                             _workspaces.MOST_KEPT)
        with self.assertRaises(nibblas.OutOfMemoryError):
            kept(self.gpu, 0, 1 << 60)
        with mock.patch.object(self.cuda.workspaces, "get",
                               side_effect=nibblas.OutOfMemoryError):
            self.gemm(self.output(M, 130), a, b)
        self.assertEqual(len(self.workspaces), 3)

    def test_floats_as_a(self):
        from nibblas.torch import _linear
        b, right = self.operand(130, K)
        half = self.rng.standard_normal((9, K)).astype(np.float16)
        a, c = Array(self.gpu, half), self.output(9, 130)
        self.multiply.takes_floats.cache_clear()
        takes = self.multiply.takes_floats(0)
        weight = mock.Mock(is_cuda=True, get_device=lambda: 0)
        self.assertEqual(_linear._must_quantize(weight), not takes)
        multiply = self.multiply.simple(self.cuda, abi.NIB_OP_GEMM)
        args = (c, a, None, *b, None, c.dtype, "tiled", "tiled")
        if not takes:
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "^a: float16 as it is: must be NVFP4"):
                multiply(*args)
            return
        for _ in range(2):
            multiply(*args)
            self.assert_right(abi.NIB_OP_GEMM, Floats(
                half, abi.NIB_DTYPE_FP16, abi.NIB_ACTIVATIONS_DENSE), right, c)

    def test_experts(self):
        a, left = self.operand(9, 64)
        b, right = self.operand(2, 33, 64)
        c = self.output(9, 33)
        offsets = Array(self.gpu, np.int32([0, 4, 9]))
        self.multiply.moe_gemm(self.cuda, c, *a, *b, offsets, None, None,
                               c.dtype, "tiled", "tiled")
        got = c.numpy()
        x = decode(*left)
        for e, rows in enumerate((slice(0, 4), slice(4, 9))):
            want = x[rows] @ decode(right[0][e], right[1][e]).T
            self.assertLess(np.abs(got[rows] - want).max(), 1e-2)

    def layer(self, activation, is_dense, tokens=3, experts=4, k=64, width=32,
              cols=48):
        """(tensors by the names of _moe._layer, y by the CPU's layer)."""
        from nibblas.torch import _moe
        t, rng = self.torch, self.rng
        up = activation != "relu2"
        host = {"x": t.randn(tokens, k).half(), "codes": None, "scales": None,
                "ids": t.from_numpy(rng.integers(0, experts + 1, (tokens, 2))).int(),
                "weights": t.rand(tokens, 2)}
        for name, shape in (("gate", (width, k)), ("up", (width, k)),
                            ("down", (cols, width))):
            there = up or name != "up"
            host[name] = t.from_numpy(random_codes(
                rng, experts, shape[0], shape[1] // 2)) if there else None
            host[name + "_scales"] = t.from_numpy(random_scales(
                rng, experts, shape[0], shape[1] // 16)) if there else None
        for name in ("gate_alpha", "up_alpha", "down_alpha"):
            host[name] = (t.full((experts,), 2.0 ** -8)
                          if up or "up" not in name else None)
        host["x_global"] = None if is_dense else t.tensor([2.0 ** -9])
        host["h_global"] = None if is_dense else t.tensor([2.0 ** -12])
        for name in ("gate_alpha", "up_alpha"):
            if host[name] is not None and not is_dense:
                host[name] *= 2.0 ** -9
        if not is_dense:
            host["down_alpha"] *= 2.0 ** -12
        want = _moe._layer(self.cpu, host, [], t.float32, activation, 7.0, 1.702, 1.0,
                           0)
        here = {name: x if x is None else Array(self.gpu, x.numpy())
                for name, x in host.items()}
        return here, want.numpy()

    def run_layer(self, tensors, activation):
        from nibblas.torch import _moe
        with mock.patch.object(_moe, "maker",
                               lambda shape, *_: lambda: self.output(*shape)):
            return _moe._layer(self.cuda, tensors, [], self.torch.float32, activation,
                               7.0, 1.702, 1.0, 0).numpy()

    def test_layers_of_experts(self):
        """One call of the library; h quantised makes a step of a code from a last
        bit, so that few values may differ by more than rounding."""
        from nibblas.torch import _moe
        dense = self.multiply.takes_floats(0)
        for activation in _moe.ACTIVATIONS:
            for is_dense in (False, True) if dense else (False,):
                here, want = self.layer(activation, is_dense)
                for _ in range(2):
                    got = self.run_layer(here, activation)
                    self.assertGreater(np.abs(want).max(), 0)
                    error = np.abs(got - want) / np.abs(want).max()
                    self.assertLess(error.max(), 2.0 ** -4, (activation, is_dense))
                    self.assertLess(np.median(error), 2.0 ** -9)
        if not dense:
            here, _ = self.layer("swiglu", False)
            here["x_global"] = here["h_global"] = None
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "^x: float16 as it is: must be NVFP4"):
                self.run_layer(here, "swiglu")

    def test_graphs_keep_the_plans_of_layers(self):
        here, want = self.layer("relu2", False)
        key, self.capturing = len(_plans._pinned), True
        self.run_layer(here, "relu2")
        self.assertEqual(len(_plans._pinned), key + 1)

    def test_packed(self):
        from nibblas.torch._tensors import array
        a, left = self.operand(9, 64)
        b, right = self.operand(33, 64)
        weights = _packed.pack_arrays(self.gpu, array("b", b[0]),
                                      array("b_scales", b[1]), "tiled")
        with mock.patch.object(
                self.multiply, "maker",
                lambda shape, *_: lambda: self.output(*shape)):
            c = self.multiply.gemm_packed(
                self.cuda, *a, weights.number, 33, None, self.torch.float32,
                "tiled")
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_dequantize(self):
        """The global scale stays on the device, whatever the result's type."""
        from nibblas.torch import _convert
        a, left = self.operand(9, 64)
        values = np.float32([0.37])
        scale = Array(self.gpu, values)
        self.capturing = True
        for dtype in (self.torch.float32, self.torch.float16):
            name = str(dtype).removeprefix("torch.")
            y = self.output(9, 64, dtype=getattr(np, name))
            with mock.patch.object(_convert, "maker",
                                   lambda *_: lambda: y):  # noqa: B023
                self.assertIs(_convert.dequantize(
                    self.cuda, *a, scale, dtype, "tiled"), y)
            want = nibblas.dequantize(left[0], left[1], 0.37, layout="linear",
                                      out_dtype=name)
            self.assertTrue(np.array_equal(y.numpy(), want))

    def test_capture(self):
        a, left = self.operand(7, 64)
        b, right = self.operand(35, 64)
        c = self.output(7, 35)
        self.capturing = True
        with self.assertRaisesRegex(NotImplementedError, "run it once before"):
            self.gemm(c, a, b)
        self.capturing = False
        self.gemm(c, a, b)
        self.capturing = True
        self.gemm(c, a, b)
        newest = max(_plans.cache.plans.values(), key=lambda plan: plan.stamp)
        self.assertTrue(newest.is_pinned)

    def test_a_plan_that_went_while_it_was_captured(self):
        """The cache of another thread may drop it after this one has found it."""
        a, left = self.operand(6, 64)
        b, right = self.operand(37, 64)
        c = self.output(6, 37)
        _plans.cache.clear()
        self.gemm(c, a, b)
        newest = max(_plans.cache.plans.values(), key=lambda plan: plan.stamp)
        plan = weakref.ref(newest)
        del newest

        def is_capturing():
            _plans.cache.clear()
            return True
        with mock.patch.object(self.cuda, "is_capturing", is_capturing):
            self.gemm(c, a, b)
        gc.collect()
        self.assertIsNotNone(plan())

    def test_devices_do_not_meet_in_a_cache(self):
        """One thread and the GPU of index 1 have the same number."""
        t = self.torch
        threads = t.get_num_threads()
        self.addCleanup(t.set_num_threads, threads)
        t.set_num_threads(1)
        (a, left), (b, right) = self.operand(9, 64), self.operand(33, 64)
        host = [t.from_numpy(x) for x in (left[0], blocked(left[1]), right[0],
                                          blocked(right[1]))]
        linear = Array(self.gpu, left[1])
        for x in (*a, *b, linear):
            x.index = 1
        c, y = self.output(9, 33), self.output(9, 64)
        want = t.zeros(9, 33)
        self.multiply.simple(self.cpu, abi.NIB_OP_GEMM)(
            want, *host, None, want.dtype, "tiled", "tiled")
        self.multiply.group_gemm(self.cpu, [want], *([x] for x in host), None,
                                 want.dtype)
        tiled = self.convert.to_blocked(self.cpu, t.from_numpy(left[1]))
        self.convert.dequantize(self.cpu, host[0], tiled, None, t.float32)
        weights = self.package.pack(*host[2:])
        self.multiply.gemm_packed(self.cpu, *host[:2], weights.number, 33)
        out = Array(self.gpu, np.zeros((128, 4), np.uint8))
        made = iter((out, y))
        with mock.patch.object(self.cuda, "open", lambda _: self.gpu), \
                mock.patch.object(self.convert, "maker",
                                  lambda *_: lambda: next(made)):
            self.gemm(c, a, b)
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)
            c = self.output(9, 33)
            self.multiply.group_gemm(self.cuda, [c], *([x] for x in (*a, *b)),
                                     None, c.dtype)
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)
            self.convert.to_blocked(self.cuda, linear)
            self.assertTrue(np.array_equal(out.numpy(), tiled.numpy()))
            self.convert.dequantize(self.cuda, *a, None, t.float32)
            self.assertTrue(np.array_equal(y.numpy(), nibblas.dequantize(
                *left, layout="linear")))
            with self.assertRaisesRegex(ValueError, "^b: packed on cpu"):
                self.multiply.gemm_packed(self.cuda, *a, weights.number, 33)

    def test_probes(self):
        """The rates that bench compares results with on a GPU."""
        from nibblas.gpumode import _limits
        x = Array(self.gpu, np.zeros(4096, np.uint8))
        done = _limits.launch_probe(self.gpu, abi.NIB_PROBE_READ, x.pointer, 4096)
        self.assertGreaterEqual(done, 4096)

        def timed(probe, data):
            return lambda _: (_limits.launch_probe(self.gpu, probe, data, 1), 1)
        rate, note = _limits.multiply_rate(timed)
        call("nib_device_wait", self.gpu.handle, None)
        self.assertGreaterEqual(rate, 1)
        self.assertEqual(note, "")
        rates = iter((1, 7, 5, 9, 6, 8))
        self.assertEqual(_limits.probe_rate(lambda n: (n, n / next(rates)), 64),
                         7)

    def test_memory_of_the_host_is_refused(self):
        a, _ = self.operand(9, 64)
        b, _ = self.operand(33, 64)
        host = self.torch.zeros(33, 32, dtype=self.torch.uint8)
        with self.assertRaisesRegex(ValueError,
                                    "^b: .*is on cpu|^b.codes .*host memory"):
            self.gemm(self.output(9, 33), a, (host, b[1]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
