"""How functions, arguments and results travel between processes.

Everything goes by ``cloudpickle``, which sends what other processes cannot import (lambdas, functions and
classes of ``__main__``) by value. Plain data takes the short way through ``pickle``.

What is large (the memory of arrays above all) is written once into a segment that both processes share,
and only its descriptor travels. Whoever receives it gets memory of its own: a change stays private.

```text
b"\\x80…"                   a pickle
b"\\x00" + pickle of        (stream, [bytes, …])            what is large, beside the pickle
b"\\x01" + pickle of        (stream or length, [length, …]) the same, in a segment: stream, then buffers
```
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import mmap
import os
import pickle
import sys
import traceback
import types
from concurrent.futures import process
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Dict, Iterable, List, Optional, Protocol, Tuple, Type, Union

import cloudpickle

from loxley._core import is_plain

#: The traceback of an exception, as it was where it was raised: of the class that tools which know
#: `ProcessPoolExecutor` look for.
RemoteTraceback: Type[Exception] = getattr(
    process, "_RemoteTraceback", type("RemoteTraceback", (Exception,), {"__module__": "loxley"})
)

PROTOCOL = pickle.HIGHEST_PROTOCOL

#: Arguments of one call: a tuple and a dictionary.
CALL = 0
#: Many calls: a list of single arguments.
ITEMS = 1
#: Many calls: a list of tuples of arguments.
TUPLES = 2

#: Memory of so many bytes does not go through a line, nor does a pickle.
_LARGE_BYTES = 128 << 10
#: Where buffers begin in a segment: what vector instructions like.
_ALIGNMENT = 64

_PLAIN = frozenset([int, float, str, bytes, bool, type(None)])
_NO_MAIN = types.ModuleType("__main__")
#: How objects of some types are taken apart.
Reducers = Dict[Any, Callable[[Any], Any]]

_PICKLE, _BESIDE, _SHARED = 0x80, b"\x00", b"\x01"


class RemoteError(RuntimeError):
    """Stands for an exception that could not be brought here as it was."""


class UnpackError(BrokenProcessPool):
    """Arguments or a result could not be unpickled where they arrived. The pool goes on.

    ``__cause__`` is what was raised there. (It is a ``BrokenProcessPool`` because that is what
    ``ProcessPoolExecutor`` raises in this case, and breaks.)
    """


class Segmented(Protocol):
    """Where a segment can be had: a hub, or a worker's line."""

    def open_segment(self) -> Optional[int]:
        """The descriptor of an empty one; None when there is none to be had."""

    def drop_segment(self, segment: int) -> None:
        """It is not needed after all."""


class Packed:
    """What is to travel: bytes, and the memory of what is large in it."""

    __slots__ = ("_stream", "_buffers")

    def __init__(self, stream: bytes, buffers: List[memoryview]) -> None:
        self._stream = stream
        self._buffers = buffers

    @property
    def nbytes(self) -> int:
        """How much there is to bring over."""
        return len(self._stream) + sum(buffer.nbytes for buffer in self._buffers)

    def ship(self, place: Segmented) -> Tuple[bytes, Optional[int]]:
        """What goes over a line, and the segment that goes with it."""
        if not self._buffers and len(self._stream) < _LARGE_BYTES:
            return self._stream, None
        segment = place.open_segment()
        if segment is not None:
            try:
                return self._fill(segment), segment
            except OSError:
                # No room there. There may be some here.
                place.drop_segment(segment)
        if not self._buffers:
            return self._stream, None
        beside = [bytes(buffer) for buffer in self._buffers]
        return _BESIDE + pickle.dumps((self._stream, beside), PROTOCOL), None

    def _fill(self, segment: int) -> bytes:
        is_long = len(self._stream) >= _LARGE_BYTES
        stream: Union[bytes, int] = len(self._stream) if is_long else self._stream
        at = _write(segment, self._stream, 0) if is_long else 0
        for buffer in self._buffers:
            at = _write(segment, buffer, _aligned(at))
        sizes = [buffer.nbytes for buffer in self._buffers]
        return _SHARED + pickle.dumps((stream, sizes), PROTOCOL)


class Arrived:
    """What came over a line, not unpacked yet."""

    __slots__ = ("payload", "_memory")

    def __init__(self, payload: bytes, segment: Optional[int] = None) -> None:
        #: Its bytes.
        self.payload = payload
        self._memory = None if segment is None else _map(segment)

    def unpack(self, read: Callable[..., Any] = pickle.loads) -> Any:
        """What it was. Code of others may run, and may do anything."""
        return loads(self.payload, self._memory, read)

    def is_plain(self) -> bool:
        """Whether it is made of numbers and short texts alone."""
        if self._memory is None:
            return is_plain(self.payload)
        stream, parts = pickle.loads(memoryview(self.payload)[1:])
        return isinstance(stream, int) and not parts and is_plain(self._memory[:stream])


def _write(segment: int, content: Union[bytes, memoryview], at: int) -> int:
    rest = memoryview(content)
    while rest.nbytes:
        count = os.pwrite(segment, rest, at)
        at, rest = at + count, rest[count:]
    return at


def _aligned(at: int) -> int:
    return -(-at // _ALIGNMENT) * _ALIGNMENT


def _map(segment: int) -> mmap.mmap:
    try:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(segment, 0, flags=mmap.MAP_PRIVATE, prot=protection)
    finally:
        os.close(segment)


def loads(
    payload: Union[bytes, memoryview],
    memory: Optional[mmap.mmap] = None,
    read: Callable[..., Any] = pickle.loads,
) -> Any:
    """What bytes were packed from, as ``read`` takes it out of a pickle."""
    if payload[0] == _PICKLE:
        return read(payload)
    stream, parts = pickle.loads(memoryview(payload)[1:])
    if memory is None:
        return read(stream, buffers=parts)
    whole, at = memoryview(memory), 0
    if isinstance(stream, int):
        at, stream = stream, whole[:stream]
    buffers = []
    for size in parts:
        at = _aligned(at)
        buffers.append(whole[at : at + size])
        at += size
    return read(stream, buffers=buffers)


class _Large:
    """Tells a pickler which memory to leave out, and keeps it."""

    __slots__ = ("buffers",)

    def __init__(self) -> None:
        self.buffers: List[memoryview] = []

    def __call__(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            memory = buffer.raw()
        except BufferError:
            return True
        if memory.nbytes < _LARGE_BYTES:
            return True
        self.buffers.append(memory)
        return False


def _reduce_array(array: Any) -> Any:
    # The memory of one that must not be changed would arrive as such. What arrives is the receiver's own, and can be.
    return array.__reduce_ex__(PROTOCOL if array.flags.writeable else 4)


def _reduce_cached(function: Any) -> Any:
    # Such a function says that it is found by its name, also where it is not.
    if is_importable(function):
        return function.__reduce__()
    parameters = function.cache_parameters()
    return _cached, (function.__wrapped__, parameters["maxsize"], parameters["typed"])


def _cached(function: Callable[..., Any], maxsize: Optional[int], typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_cached_property(made: Any) -> Any:
    # Before Python 3.12 it has a lock.
    return _cached_property, (made.func, made.attrname)


def _cached_property(function: Callable[[Any], Any], name: Optional[str]) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _reduce_file(file: Any) -> Any:
    for name in ("stdin", "stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    # Refused: cloudpickle would send what is in it, and whoever gets that believes to have the file.
    return file.__reduce_ex__(PROTOCOL)


#: How objects are taken apart that `pickle` cannot take apart, or not for a process with another main module.
_BY_TYPE: Reducers = {
    **cloudpickle.Pickler._dispatch_table,
    io.TextIOWrapper: _reduce_file,
    type(functools.lru_cache(abs)): _reduce_cached,
    functools.cached_property: _reduce_cached_property,
}


class _Table:
    """One table out of several. (A chain of them is searched in Python, for each object; and to put them together for
    each pickle takes longer than most pickles.)"""

    def __init__(self, own: Reducers) -> None:
        self._own = own
        self._numpy: Any = None
        self._common: Reducers = {}
        self._whole: Reducers = own

    def __call__(self) -> Reducers:
        """As it is now: modules may have been imported, and have told `copyreg` of their types."""
        common, numpy = copyreg.dispatch_table, sys.modules.get("numpy")
        if self._common != common or self._numpy is not numpy:
            arrays = {} if numpy is None else {numpy.ndarray: _reduce_array}
            self._whole = {**common, **self._own, **arrays}
            self._common, self._numpy = dict(common), numpy
        return self._whole


class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends what cannot be imported by value."""

    @property
    def dispatch_table(self) -> Any:
        """How objects are taken apart, by their type."""
        return _by_value_table()

    def dump(self, value: Any) -> None:
        """Packs a value."""
        # Not that of cloudpickle, which has another name for a recursion that is too deep than `pickle` has.
        pickle.Pickler.dump(self, value)

    def reducer_override(self, value: Any) -> Any:
        """How functions and classes are taken apart."""
        is_class = issubclass(type(value), type)
        if not is_class and type(value) is not types.FunctionType:
            return NotImplemented
        reduced = super().reducer_override(value)
        slots = vars(value).get("__slots__") if is_class else None
        if slots and isinstance(reduced, tuple) and reduced[0].__name__ == "_make_skeleton_class":
            # Else objects of the class would have no slots over there, and could not come back.
            reduced[1][3]["__slots__"] = slots
        return reduced


_by_value_table, _by_name_table = _Table(_BY_TYPE), _Table({})


def _by_value(value: Any, large: Optional[_Large] = None) -> bytes:
    content = io.BytesIO()
    ByValue(content, PROTOCOL, buffer_callback=large).dump(value)
    return content.getvalue()


def dumps(value: Any) -> bytes:
    """Bytes for any value that can travel."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, PROTOCOL)
    return _by_value(value)


def pack(value: Any) -> Packed:
    """Packs any value that can travel."""
    large = _Large()
    return Packed(_by_value(value, large), large.buffers)


def pack_call(arguments: Tuple[Any, ...], keywords: Any) -> Packed:
    """Packs the arguments of one call."""
    if not keywords and all(type(argument) in _PLAIN for argument in arguments):
        return Packed(pickle.dumps((arguments, keywords), PROTOCOL), [])
    return pack((arguments, keywords))


def pack_result(value: Any) -> Packed:
    """Packs a result. What only this process finds by its name is sent by value."""
    if type(value) in _PLAIN:
        return Packed(pickle.dumps(value, PROTOCOL), [])
    large = _Large()
    try:
        return Packed(_by_name(value, large), large.buffers)
    except Exception:
        return pack(value)


def dumps_result(value: Any) -> bytes:
    """Bytes for a result. What only this process finds by its name is sent by value."""
    try:
        return _by_name(value)
    except Exception:
        return _by_value(value)


def _by_name(value: Any, large: Optional[_Large] = None) -> bytes:
    content = io.BytesIO()
    pickler = pickle.Pickler(content, PROTOCOL, buffer_callback=large)
    pickler.dispatch_table = _by_name_table()
    # The main module of whoever wants it may be another one, or none at all: nothing is found in this one.
    main, sys.modules["__main__"] = sys.modules["__main__"], _NO_MAIN
    try:
        pickler.dump(value)
    finally:
        sys.modules["__main__"] = main
    return content.getvalue()


def know_classes(kinds: Iterable[type]) -> None:
    """Has processes that are forked from now on know these classes when they come by value."""
    # It is recognized by what cloudpickle writes of a class.
    for kind in kinds:
        cloudpickle.cloudpickle._get_or_create_tracker_id(kind)


def is_importable(function: Callable[..., Any]) -> bool:
    """Whether another process finds the function by its name."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in (None, "__main__") or name is None:
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def dumps_exception(error: BaseException) -> bytes:
    """Bytes for an exception, with its traceback as text."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:
        # Not even its text can be had.
        text = "".join(traceback.format_tb(error.__traceback__))
    # Who says how it travels is not taken apart in another way.
    is_simple = type(error).__reduce__ is BaseException.__reduce__
    for form in (error, _TakenApart(error)) if is_simple else (error,):
        with contextlib.suppress(BaseException):
            packed = dumps_result(form)
            if isinstance(pickle.loads(packed), BaseException):
                break
    else:
        packed = dumps_result(RemoteError(describe(error)))
    return pickle.dumps((packed, text), PROTOCOL)


class _TakenApart:
    """An exception whose class wants other arguments than those that it keeps, and so cannot be made out of them:
    it is put together without its class being called."""

    def __init__(self, error: BaseException) -> None:
        self._parts = type(error), error.args, error.__dict__

    def __reduce__(self) -> Any:
        return _put_together, self._parts


def _put_together(kind: Type[BaseException], args: Tuple[Any, ...], state: Dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def loads_exception(payload: bytes) -> BaseException:
    """The exception, with the traceback from where it was raised as its cause."""
    packed, text = pickle.loads(payload)
    try:
        error = pickle.loads(packed)
    except BaseException as problem:
        error = RemoteError(f"an exception could not be brought here: {describe(problem)}")
    error.__cause__ = RemoteTraceback(f'\n"""\n{text}"""')
    return error  # type: ignore[no-any-return]


def unpack_error(what: str, problem: BaseException) -> UnpackError:
    """Says that something could not be unpickled, and why."""
    error = UnpackError(f"{what} could not be unpickled: {describe(problem)}")
    error.__cause__ = problem
    return error


def describe(error: BaseException) -> str:
    """An exception in a line, whatever its own methods do."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__
