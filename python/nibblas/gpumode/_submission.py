# SPDX-License-Identifier: Apache-2.0
"""_submission.py - the part of a submission that is the same in all of them; _bundle.py
puts the structs of nibblas.h, the functions of _tuples.py and the library's bytes
before it.  Not a module of the package: it is read as text, from the line of dashes
on."""
# ruff: noqa: F821

# ---- the library, from memory --------------------------------------------------


def _load(code):
    """ctypes' library of bytes, in a file without a name, or a temporary one."""
    try:
        file = os.memfd_create("nibblas")
        path = f"/proc/self/fd/{file}"
    except (AttributeError, OSError):
        file, path = tempfile.mkstemp(suffix=".so")
    is_unnamed = path.startswith("/proc")
    try:
        # It stays open: the loader knows a library by its path, and another
        # submission of the process must not get the same one.
        with os.fdopen(file, "wb", closefd=not is_unnamed) as out:
            out.write(code)
            out.flush()
            return C.CDLL(path)
    finally:
        if not is_unnamed:
            os.unlink(path)


def _open_library():
    """The library with its kernels; the buffer must stay."""
    raw = lzma.decompress(base64.b85decode(DATA.replace(b"\n", b"")))
    buffer = C.create_string_buffer(raw, len(raw))
    begin = C.addressof(buffer)
    library = _load(raw[:LIBRARY_BYTES])
    library.buffer = buffer
    for words, code in IMAGES:
        library.nib_submission_add(words, C.c_void_p(begin + code))
    return library


_lib = _open_library()


def _call(name, *arguments):
    error = nib_error()
    if getattr(_lib, name)(*arguments, C.byref(error)):
        _fail_with(error)


def _fail_with(error):
    text = error.message.decode(errors="replace")
    kind = ArgumentError if error.status == NIB_STATUS_BAD_ARGUMENT else RuntimeError
    raise kind(f"nibblas {VERSION}, {PROBLEM}: {text}")


_devices = {}


def _device(index):
    if index < 0:
        raise ArgumentError("data: on the CPU; must be on a GPU", "data")
    if index not in _devices:
        handle = C.c_void_p()
        _call("nib_device_open", f"cuda:{index}".encode(), None,
              C.byref(handle))
        _devices[index] = handle
    return _devices[index]


# ---- tensors as the structs of nibblas.h -----------------------------------------


def _stride(x, i):
    """The stride of dimension i; 0 if it has one element and the stride is unused."""
    return x.stride(i) if x.shape[i] > 1 else 0


def _stack(x, dense):
    """[batch, rows, cols]; vectors get their row."""
    x = x[:, None] if x.dim() == 2 else x
    if x.shape[2] > 1 and x.stride(2) != 1:
        _fail(dense, x, "the last dimension must be contiguous")
    return x


def _operand(codes, tiles):
    for x in (codes, tiles):
        if x.element_size() != 1:
            _fail("data", x, f"{x.dtype}: must be of bytes")
    codes = _stack(codes, "codes")
    batch, rows, half = codes.shape
    return nib_fp4(
        rows=rows, k=2 * half, batch=batch, row_stride_bytes=_stride(codes, 1),
        batch_stride_bytes=_stride(codes, 0), scale_layout=NIB_SCALE_LAYOUT_TILED_128X4,
        scale_batch_stride_bytes=_stride(tiles, 0))


def _result(c):
    if c.dtype != torch.float16:
        _fail("c", c, f"{c.dtype}: must be float16")
    c = _stack(c, "c")
    batch, rows, cols = c.shape
    return nib_dense(dtype=NIB_DTYPE_FP16, rows=rows, cols=cols, batch=batch,
                     row_stride_elems=_stride(c, 1),
                     batch_stride_elems=_stride(c, 0))


def _problem(c, a, a_tiles, b, b_tiles, *more):
    problem = nib_problem(a=_operand(a, a_tiles), b=_operand(b, b_tiles),
                          c=_result(c))
    if more:
        problem.b2 = _operand(*more)
    return problem


# ---- plans, by shape ---------------------------------------------------------------


def _words(struct, paths):
    """The offsets of pointers in a struct, in words."""
    out = []
    for path in paths:
        at, kind = 0, struct
        for name in path.split("."):
            at += getattr(kind, name).offset
            kind = dict(kind._fields_).get(name)
        out.append(at // 8)
    return out


class _Plan:
    """A plan and the structs of its calls, ready but for the pointers."""

    def __init__(self, index, queue, data, tensors):
        problems = [_problem(*(view for _, view in product))
                    for product in products_of(data)]
        count = len(problems)
        self.problems = (nib_problem * count)(*problems)
        self.words = memoryview(self.problems).cast("B").cast("Q")
        one = _words(nib_problem, POINTERS)
        step = C.sizeof(nib_problem) // 8
        self.where = [i * step + at for i in range(count) for at in one]
        self.point(tensors)
        self.handle, self.error = C.c_void_p(), nib_error()
        count = C.c_int64(count)
        _call("nib_plan_create", _device(index), OP, self.problems, count,
              C.byref(nib_plan_options(
                  struct_bytes=C.sizeof(nib_plan_options))),
              C.byref(self.handle))
        self.options = nib_run_options(struct_bytes=C.sizeof(nib_run_options),
                                       queue=queue)
        self.arguments = (self.handle, C.byref(self.problems), count,
                          C.byref(self.options), C.byref(self.error))

    def point(self, tensors):
        words = self.words
        for at, x in zip(self.where, tensors):
            words[at] = x.data_ptr()


# All plans are kept: a problem has few shapes.
_plans = {}
_run = _lib.nib_run


def _queue(_index):
    """Where work is launched: the default queue of the device."""
    return None


def custom_kernel(data):
    """Computes the c of data, and returns it."""
    tensors = tensors_of(data)
    index = tensors[-1].get_device()
    queue = _queue(index)
    key = [index, queue, sizes_of(data)]
    for x in tensors:
        key += x.shape, x.stride(), x.dtype
    key = tuple(key)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _Plan(index, queue, data, tensors)
    else:
        plan.point(tensors)
    if _run(*plan.arguments):
        _fail_with(plan.error)
    return result_of(tensors)
