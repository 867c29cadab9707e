# SPDX-License-Identifier: Apache-2.0
"""_library.py - opens libnibblas, and turns its errors into exceptions."""

import ctypes as C
import ctypes.util
import os
import re

from nibblas import _abi as abi


class Error(RuntimeError):
    """An error of the library; the message says the argument, its value and the rule.

    status    its number in enum nib_status
    argument  the argument that it is about, as the call names it ("a_scales",
              "b[3]"); "" if it is about no single one"""

    status: int | None = None
    argument: str = ""

    def __init__(self, message: str = "", argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class ArgumentError(Error, ValueError):
    """An argument breaks a rule; nothing was done."""

    status = abi.NIB_STATUS_BAD_ARGUMENT


class UnsupportedError(Error, NotImplementedError):
    """Valid, but this build or device cannot do it."""

    status = abi.NIB_STATUS_UNSUPPORTED


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory; nothing was done, nothing is held."""

    status = abi.NIB_STATUS_OUT_OF_MEMORY


class NoDeviceError(Error):
    """The requested device does not exist."""

    status = abi.NIB_STATUS_NO_DEVICE


class DataError(Error, ValueError):
    """Values that cannot be used: inf or NaN to quantise, a scale's sign bit."""

    status = abi.NIB_STATUS_BAD_DATA


class FileError(Error, ValueError):
    """A file's contents break its format."""

    status = abi.NIB_STATUS_BAD_FILE


class SystemIOError(Error, OSError):
    """The operating system refused."""

    status = abi.NIB_STATUS_IO


class DeviceFailedError(Error):
    """A launch or the device failed."""

    status = abi.NIB_STATUS_DEVICE_FAILED


ERRORS = {kind.status: kind for kind in (
    ArgumentError, UnsupportedError, OutOfMemoryError, NoDeviceError, DataError,
    FileError, SystemIOError, DeviceFailedError)}


def library_path():
    """Returns the path in NIBBLAS_LIBRARY, else the wheel's library, else the
    system's."""
    given = os.environ.get("NIBBLAS_LIBRARY")
    if given:
        return given
    own = os.path.join(os.path.dirname(__file__), "lib", "libnibblas.so")
    if os.path.exists(own):
        return own
    found = ctypes.util.find_library("nibblas")
    if found:
        return found
    raise ImportError(
        f"nibblas: no library: {own} is not there (pip install builds it), "
        "NIBBLAS_LIBRARY is not set, and the system has no libnibblas")


def load(path):
    """Opens the library and sets the types of its functions; refuses a library of
    another version."""
    library = C.CDLL(path)
    for name, (result, arguments) in abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}()") from None
        function.restype, function.argtypes = result, arguments
    want = (f"{abi.NIB_VERSION_MAJOR}.{abi.NIB_VERSION_MINOR}."
            f"{abi.NIB_VERSION_PATCH}")
    got = library.nib_version().decode()
    if got != want:
        raise ImportError(f"{path} is libnibblas {got}; this package is "
                          f"{want}'s")
    return library


lib = load(library_path())

# The library calls an argument problems[0].b2.k; here it is b2.k for a single product,
# and problems[3].b2.k is b2[3].k for the fourth product of a group.  Its a and x are
# both called a.
NAMES = re.compile(r"\b(?:problems\[(\d+)\]|moe\.problem|moe|layer)\.(\w+)")
GLOBAL = re.compile(r"\*?options\.global(_pointer)?\b")


def translate(text, count=1, names=None):
    """Returns the text with this package's names of arguments."""
    names = {"x": "a", **(names or {})}

    def rename(match):
        index, field = match.groups()
        field = names.get(field, field)
        return f"{field}[{index}]" if index and count > 1 else field

    return GLOBAL.sub("global_scale", NAMES.sub(rename, text))


def fail(status, error, count=1, names=None):
    """Raises the exception of a failed call."""
    argument = error.argument.decode(errors="replace")
    # The message begins with the argument; others may follow in it.
    rest = error.message.decode(errors="replace")[len(argument):]
    argument = "global_scale" if argument == "global" else translate(
        argument, count, names)
    raise ERRORS.get(status, Error)(argument + translate(rest, count, names),
                                    argument)


def call(name, *arguments, count=1, names=None):
    """Calls a function whose last argument is a struct nib_error; raises its error."""
    error = abi.nib_error()
    status = getattr(lib, name)(*arguments, C.byref(error))
    if status:
        fail(status, error, count, names)


def c_string(name, text):
    """text, a str or os.PathLike, as bytes for a function of C, which would end it at a
    NUL byte; name: the argument."""
    found = os.fsencode(text)
    if b"\0" in found:
        raise ArgumentError(f"{name} = {os.fsdecode(found)!r}: has a NUL byte, where C "
                            "would end it", name)
    return found


def version() -> str:
    """Returns the library's version, as "0.2.0"."""
    return lib.nib_version().decode()
