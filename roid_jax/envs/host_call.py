"""Functions of the host that compiled code on a CPU calls by name, in place.

JAX's own callbacks put the address of a Python object into the program, so a program that has one
cannot be kept on disk: every start compiles it again, which for a whole online phase takes longer
than everything else. Here the program has a name, and what it stands for is registered when the
process starts. XLA's foreign-function interface is a C interface; this is the part of it (version
0.3) that is needed, by `ctypes`. Where JAX has another version, its callbacks are used.
"""

import ctypes
import functools
import pathlib
import re
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from roid_jax.types import Array

Function = Callable[[np.ndarray], np.ndarray]  # `[..., W]` uint32 -> `[..., V]` uint32

_VERSION = (0, 3)
_INTERNAL = 13  # XLA's code of an error inside


def call(name: str, function: Function, words: Array, width: int) -> Array:
    """Returns `[..., width]` what the host makes of `[..., W]` words.

    Under vmap the function gets all of them at once. It must touch neither JAX nor its input.

    Args:
      name: of the function, the same in every process that is to share compiled programs. What was
        first called by a name goes on to be.
      function: a function of its argument alone.
      words: uint32.
      width: of each row of the result.
    """
    out = jax.ShapeDtypeStruct((*words.shape[:-1], width), jnp.uint32)

    def by_address(_: Any, target: Any, words: Any) -> None:
        np.asarray(target)[...] = function(np.asarray(words))

    if _version() == _VERSION:
        _register(name, function)
        on_cpu = jax.ffi.ffi_call(name, out, vmap_method="expand_dims")
    else:
        on_cpu = buffer_callback(by_address, out, vmap_method="expand_dims")
    return jax.lax.platform_dependent(
        words,
        cpu=on_cpu,
        default=lambda words: jax.pure_callback(function, out, words, vmap_method="expand_dims"),
    )


@functools.cache
def _version() -> tuple[int, int]:
    """Returns the version of the interface that the installed JAX speaks."""
    header = pathlib.Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    try:
        text = header.read_text(encoding="utf-8")
    except OSError:
        return (-1, -1)
    found = re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", text)
    return (int(found[0]), int(found[1])) if len(found) == 2 else (-1, -1)


class _Version(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("version", _Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    )


class _Extension(ctypes.Structure):
    """The question which version a handler is of."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    )

    def words(self) -> np.ndarray:
        """Returns the memory itself."""
        shape = self.dims[: self.rank]
        memory = (ctypes.c_uint32 * int(np.prod(shape))).from_address(self.data)
        return np.frombuffer(memory, np.uint32).reshape(shape)


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("buffers", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )


class _Failure(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


class _Api(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("fail", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Failure))),
    )


class _Frame(ctypes.Structure):
    """One call: what is asked, or what goes in and where the result belongs."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_Extension)),
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("inputs", _Buffers),
        ("outputs", _Buffers),
    )


_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
_registered: dict[str, Any] = {}  # kept alive as long as programs may call them
_registering = threading.Lock()


def _register(name: str, function: Function) -> None:
    """Makes the function known to XLA by its name, once."""
    with _registering:  # programs for several devices are traced in several threads
        if name in _registered:
            return
        handler = _Handler(functools.partial(_answer, function))
        address = ctypes.cast(handler, ctypes.c_void_p)
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
        _registered[name] = handler


def _answer(function: Function, frame: Any) -> int | None:
    """Answers one call; what it returns is XLA's error, None for none."""
    frame = frame.contents
    if frame.extension:
        metadata = frame.extension.contents.metadata.contents
        metadata.version.major, metadata.version.minor = _VERSION
        metadata.traits, metadata.state_type = 0, 0
        return None
    try:
        target = frame.outputs.buffers[0].contents.words()
        target[...] = function(frame.inputs.buffers[0].contents.words())
        return None
    except BaseException as error:  # nothing may be raised into C
        text = f"{type(error).__name__}: {error}".encode(errors="replace")
        failure = _Failure(size=ctypes.sizeof(_Failure), message=text, code=_INTERNAL)
        return frame.api.contents.fail(ctypes.byref(failure))
