# SPDX-License-Identifier: Apache-2.0
"""_plans.py - caches the library's plans by what they were made for.

A key holds everything that validation looks at: operation, kind and index of the
device, shapes, strides, types, layouts.  A call with a known key needs no checks but
the library's own, and only writes pointers into problems that were filled before."""

import ctypes as C
import itertools
import threading
import weakref

from nibblas import _abi as abi
from nibblas import _views as views
from nibblas._library import UnsupportedError, call, fail, lib

WORD = C.sizeof(C.c_void_p)


def word(struct, *path):
    """The offset of a pointer in a struct, in words: word(nib_problem, "a",
    "codes")."""
    at = 0
    for name in path:
        at += getattr(struct, name).offset
        struct = dict(struct._fields_)[name]
    assert at % WORD == 0
    return at // WORD


class Work:
    """The problems and options of one call at a time."""

    __slots__ = ("problems", "words", "options", "error", "arguments")

    def __init__(self, plan):
        size = C.sizeof(plan.template)
        self.problems = type(plan.template).from_buffer_copy(plan.template)
        self.words = memoryview(self.problems).cast("B").cast("Q")
        assert self.words.nbytes == size
        self.options = abi.nib_run_options(
            struct_bytes=C.sizeof(abi.nib_run_options))
        self.error = abi.nib_error()
        count = () if plan.is_moe else (C.c_int64(plan.count),)
        self.arguments = (plan.handle, C.byref(self.problems), *count,
                          C.byref(self.options), C.byref(self.error))


class Kept:
    """A function of the library whose arguments were checked once and that is called
    often.  Each call takes a Work, which holds the function's arguments.  A cache
    looks at the stamp."""

    Work = Work
    count, names = 1, None

    def __init__(self, function):
        self.function = lib[function]
        # The arguments are of the right types already.
        self.function.restype = C.c_int
        self.is_pinned, self.stamp, self.idle = False, 0, []

    def take(self):
        """Returns a Work that no other call uses."""
        try:
            return self.idle.pop()
        except IndexError:
            return self.Work(self)

    def run(self, work):
        """Calls the function; another call may take the work then."""
        status = self.function(*work.arguments)
        if status:
            fail(status, work.error, self.count, self.names)
        self.idle.append(work)


def create(function, template, names, *arguments):
    """Makes a plan; a device that does not take such an A says so of this package's
    arguments, and what to do."""
    problems = list(template) if isinstance(template, C.Array) else [template]
    try:
        call(function, *arguments, count=len(problems), names=names)
    except UnsupportedError as error:
        if not problems or not error.argument.startswith("activations"):
            raise
        raise _advice(error, problems[0], (names or {}).get("x", "a")) from None


def _advice(error, problem, name):
    """What is said of A that a device does not take.  name: this call's for A."""
    rule = "must be " + str(error).partition("must be ")[2]
    if problem.activations == abi.NIB_ACTIVATIONS_INT8:
        return UnsupportedError(f"activations = 'int8': {rule}", "activations")
    kind = next(key for key, value in views.DENSE.items()
                if value == problem.x.dtype)
    to_do = "quantise it"
    if kind == "float32" and "bf16" in rule:
        to_do = f"{name}.to(torch.bfloat16), or quantise it"
    return UnsupportedError(f"{name}: {kind} as it is: {rule}: {to_do}", name)


class Plan(Kept):
    """A plan of the library.  template is a struct nib_moe_problem for a mixture of
    experts, else an array of struct nib_problem."""

    # names: this call's names of C's views.  given: what the caller wants to find
    # with the plan.  weights: a Packed that the plan reads.
    def __init__(self, device, op, template, names=None, given=None,
                 caller_workspace=False, weights=None):
        self.device, self.template = device, template
        self.names, self.given = names, given
        # Weak, because the weights hold their plans.
        self.weights = weights and weakref.ref(weights)
        self.is_moe = isinstance(template, abi.nib_moe_problem)
        super().__init__("nib_moe_run" if self.is_moe else "nib_run")
        self.count = 1 if self.is_moe else len(template)
        self.handle = C.c_void_p()
        options = abi.nib_plan_options(
            struct_bytes=C.sizeof(abi.nib_plan_options),
            caller_workspace=caller_workspace)
        if self.is_moe:
            create("nib_moe_plan_create", template, names, device.handle, op,
                   C.byref(template), C.byref(options), C.byref(self.handle))
        else:
            create("nib_plan_create", template, names, device.handle, op,
                   template, self.count, C.byref(options), C.byref(self.handle))
        # At the end of the process the system frees everything.
        weakref.finalize(self, lib.nib_plan_free, self.handle).atexit = False
        self.workspace_bytes = self.info().workspace_bytes

    def pin(self):
        """Keeps the plan, and weights that it reads, until the end of the process:
        a CUDA graph may be replayed at any time.  No cache needs to have the plan
        still: another thread may have made it drop the plan since get()."""
        if not self.is_pinned:
            weights = self.weights and self.weights()
            # A graph that reads shared codes is valid as long as these exist,
            # and their owner keeps the rest.
            _pinned[self] = None if weights and weights.is_shared else weights
            self.is_pinned = True

    def info(self):
        info = abi.nib_plan_info(struct_bytes=C.sizeof(abi.nib_plan_info))
        call("nib_plan_get_info", self.handle, C.byref(info))
        return info


# Plans that graphs use, and the weights that those read.
_pinned = {}


class Cache:
    """The plans used last, at most `limit` (pinned ones are not counted)."""

    def __init__(self, limit=256):
        self.limit = limit
        self.plans = {}
        self.lock = threading.Lock()
        self.clock = itertools.count(1).__next__

    def get(self, key):
        """The plan of key, or None."""
        plan = self.plans.get(key)
        if plan is not None:
            plan.stamp = self.clock()
        return plan

    def add(self, key, plan):
        """Keeps plan, unless another thread was first; returns the kept one."""
        plan.stamp = self.clock()
        with self.lock:
            kept = self.plans.setdefault(key, plan)
            self.shrink()
        return kept

    def shrink(self):
        """Drops the plans that were used longest ago; the caller holds the lock.  A
        thread that runs one of them has a reference until it is done."""
        loose = [key for key, plan in self.plans.items() if not plan.is_pinned]
        excess = len(loose) - self.limit
        if excess > 0:
            loose.sort(key=lambda key: self.plans[key].stamp)
            for key in loose[:excess]:
                del self.plans[key]

    def clear(self):
        with self.lock:
            for key in [key for key, plan in self.plans.items()
                        if not plan.is_pinned]:
                del self.plans[key]


cache = Cache()


def plan_cache_limit(limit: int | None = None) -> int:
    """Returns how many plans are kept for calls of the same sizes (256), and sets it
    if limit is given, at least 1 (else ValueError).  The plans used longest ago go;
    those that a CUDA graph uses stay and are not counted."""
    if limit is not None:
        if limit < 1:
            raise ValueError(f"limit = {limit}: must be at least 1")
        with cache.lock:
            cache.limit = limit
            cache.shrink()
    return cache.limit
