# SPDX-License-Identifier: Apache-2.0
"""gpu_marlin.py - vLLM's Marlin as a baseline: fp16 activations by NVFP4 weights, by
mma.sync on every GPU from sm_80.  tools/get_marlin.sh builds its library.

Marlin reads the codes in the order of its fragments and the scales as S0E5M3, which is
128 times an E4M3 scale without its sign.  That is exact for scales of at least 1/64.
Smaller ones, which are subnormal in E4M3, become 0, and negative ones are not
supported.  Products of codes and scales are exact in fp16 and summed in fp32."""

import ctypes as C
import os

NAME = "libmarlin.so"
# Marlin multiplies this by what the exponents of its codes and scales lack in fp16.
GLOBAL_SCALE = 2.0 ** 7
SMALLEST_NORMAL = 0x08  # e4m3 of 1/64
MOST_COLUMNS, MOST_CTAS = 256, 4  # of a CTA; for each multiprocessor


class Product(C.Structure):
    """struct marlin_product of gpu_marlin.cu."""

    _fields_ = [(name, C.c_void_p) for name in
                ("a", "codes", "scales", "global_scales", "c", "sums", "locks")]
    _fields_ += [(name, C.c_int) for name in ("m", "n", "k")]
    _fields_ += [(name, C.c_void_p) for name in
                 ("sorted_rows", "experts_of_blocks", "padded_rows")]
    _fields_ += [("block_rows", C.c_int), ("experts", C.c_int), ("stream", C.c_void_p)]


def path():
    """$NIB_MARLIN, else the library next to this script, else the built one."""
    here = os.path.dirname(os.path.abspath(__file__))
    near = os.path.join(here, NAME)
    built = os.path.join(here, "..", "build", "marlin", NAME)
    return os.environ.get("NIB_MARLIN") or (near if os.path.exists(near) else built)


def load():
    """The library; raises if it is not built."""
    if not os.path.exists(path()):
        raise FileNotFoundError(f"{NAME} is not built: run tools/get_marlin.sh, or set "
                                "NIB_MARLIN")
    library = C.CDLL(path())
    library.marlin_version.restype = C.c_char_p
    for name, arguments in (
            ("marlin_dense", [C.POINTER(Product)]),
            ("marlin_experts", [C.POINTER(Product)]),
            ("marlin_repack", [C.c_void_p, C.c_void_p, C.c_int, C.c_int, C.c_void_p])):
        getattr(library, name).restype = C.c_char_p
        getattr(library, name).argtypes = arguments
    return library


def version():
    """Where the built kernels are from, or None."""
    try:
        return "Marlin of " + load().marlin_version().decode()
    except OSError:
        return None


def check(message):
    if message:
        raise RuntimeError(message.decode())


# ---- weights and rows in Marlin's order --------------------------------------


def scales_of(torch, scales):
    """S0E5M3 of e4m3 bytes [n, k / 16], as uint8 [k / 16, n]: in each run of 64 columns
    the 8 x 8 block is transposed, and the middle two of four columns are exchanged."""
    wide = torch.where(scales >= SMALLEST_NORMAL, scales + 0x78, 0).to(torch.uint8)
    blocks = wide.t().reshape(-1, 8, 8).transpose(1, 2)
    return blocks.reshape(-1, 2, 2).transpose(1, 2).reshape(wide.t().shape).contiguous()


def codes_of(torch, library, codes):
    """Marlin's codes int32 [k / 16, 2 n] of uint8 [n, k / 2]."""
    n, k = len(codes), 2 * codes.shape[1]
    words = codes.view(torch.int32).t().contiguous()
    out = torch.empty((k // 16, 2 * n), dtype=torch.int32, device=codes.device)
    check(library.marlin_repack(words.data_ptr(), out.data_ptr(), n, k,
                                torch.cuda.current_stream().cuda_stream))
    return out


def block_rows(rows, experts):
    """How many rows vLLM gives to a block: the first size that they fill to 90 %."""
    sizes = (8, 16, 32, 48, 64)
    return next((size for size in sizes if rows / experts / size < 0.9), sizes[-1])


def blocks_of(offsets, size):
    """(rows by block, a block's expert) of experts whose rows begin at offsets; a block
    is filled with the number of all rows."""
    rows, experts = [], []
    for expert, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        count = -(-(end - begin) // size)
        rows += [*range(begin, end)] + [offsets[-1]] * (count * size - (end - begin))
        experts += [expert] * count
    return rows, experts


# ---- products ----------------------------------------------------------------


class Scratch:
    """What the products of a device share, as in vLLM: partial sums and locks."""

    def __init__(self, torch, device):
        if torch.device(device).type != "cuda":
            raise RuntimeError("Marlin needs a GPU")
        self.torch, self.device = torch, device
        self.ctas = MOST_CTAS * torch.cuda.get_device_properties(
            device).multi_processor_count
        self.locks = torch.zeros(self.ctas, dtype=torch.int32, device=device)
        self.sums = {}

    def sums_for(self, rows):
        """fp32 for CTAs of this many rows; those of 8 rows need twice as many."""
        rows = max(rows, 16)
        if rows not in self.sums:
            self.sums[rows] = self.torch.empty(
                self.ctas * rows * MOST_COLUMNS, device=self.device)
        return self.sums[rows]


def product(torch, codes, scales, scratch, library=None):
    """Returns a function of x, fp16 [rows, k], and, for experts, the first row of each,
    on the host.  codes: uint8 [n, k / 2] or [experts, n, k / 2]; scales: e4m3 bytes
    [..., k / 16]."""
    library = library or load()
    experts = len(codes) if codes.dim() == 3 else 0
    n, k = codes.shape[-2], 2 * codes.shape[-1]
    if experts:
        packed = torch.stack([codes_of(torch, library, c) for c in codes])
        wide = torch.stack([scales_of(torch, s) for s in scales])
    else:
        packed, wide = codes_of(torch, library, codes), scales_of(torch, scales)
    ones = torch.full((max(experts, 1),), GLOBAL_SCALE, device=codes.device)
    lists = {}  # of blocks, by offsets: Marlin takes them from another kernel

    def lists_of(offsets, size):
        if offsets not in lists:
            rows, owners = blocks_of(offsets, size)
            lists[offsets] = [
                torch.tensor(numbers, dtype=torch.int32, device=codes.device)
                for numbers in (rows, owners, [len(rows)])]
        return [numbers.data_ptr() for numbers in lists[offsets]]

    def multiply(x, offsets=None):
        m = len(x)
        c = torch.empty((m, n), dtype=torch.float16, device=x.device)
        size = block_rows(m, experts) if experts else min(-(-m // 16) * 16, 64)
        call = Product(a=x.data_ptr(), codes=packed.data_ptr(), scales=wide.data_ptr(),
                       global_scales=ones.data_ptr(), c=c.data_ptr(),
                       sums=scratch.sums_for(size).data_ptr(),
                       locks=scratch.locks.data_ptr(), m=m, n=n, k=k,
                       stream=torch.cuda.current_stream().cuda_stream)
        if not experts:
            check(library.marlin_dense(C.byref(call)))
            return c
        (call.sorted_rows, call.experts_of_blocks,
         call.padded_rows) = lists_of(tuple(offsets), size)
        call.block_rows, call.experts = size, experts
        check(library.marlin_experts(C.byref(call)))
        return c

    return multiply
