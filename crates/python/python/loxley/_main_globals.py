"""The globals of functions that travel by value, inside a worker process.

Functions of the caller's main module have one namespace there, and so they have here: what an initializer or a
call sets is seen by whatever is called later. A function brings along the globals that it names, with the values
that they had when it was packed. They are put here before it runs, unless something here has set that name itself.
"""

from __future__ import annotations

import io
import mmap
import pickle
from typing import Any, Callable, Dict, Iterable, Optional, Tuple, Union

#: What cloudpickle calls that makes a function out of its parts, and that which tells it its globals. A packed
#: function names both.
_MAKE, _SET_STATE = "_make_function", "_function_setstate"
_MAKE_BYTES = _MAKE.encode()

_NOTHING = object()

#: Globals that came along with something, by name.
Brought = Dict[str, Any]
Stream = Union[bytes, memoryview]


class MainGlobals:
    """What stands for the main module in a worker process."""

    def __init__(self, values: Dict[str, Any]) -> None:
        #: The namespace itself. What is in it now was there before anything ran here.
        self._values = values
        #: The values that were put there, not set by what runs here.
        self._put = dict(values)
        self._entered: Optional[Brought] = None

    def loads(self, stream: Stream, buffers: Iterable[Any] = ()) -> Tuple[Any, Brought]:
        """Unpickles something: it, and what is to be entered before it is called. The functions of the main module
        that are in it live here."""
        if not _has_functions(stream):
            return pickle.loads(stream, buffers=buffers), {}
        reader = _Reader(io.BytesIO(stream), buffers=buffers)
        reader.space, reader.brought = self, {}
        self._entered = reader.brought
        return reader.load(), reader.brought

    def enter(self, brought: Brought) -> None:
        """What is called next brought these along."""
        if self._entered is not brought:
            self._entered = brought
            self.put(brought)

    def put(self, brought: Brought) -> None:
        """Sets globals, but for those that were set by what runs here."""
        for name, value in brought.items():
            now = self._values.get(name, _NOTHING)
            if now is _NOTHING or now is self._put.get(name, _NOTHING):
                self._values[name] = self._put[name] = value

    def forget(self, brought: Brought) -> None:
        """Nobody calls again what brought these along."""
        self._entered = None
        for name, value in brought.items():
            if self._put.get(name, _NOTHING) is value:
                del self._put[name]
                if self._values.get(name, _NOTHING) is value:
                    del self._values[name]

    def adopt(self, own: Dict[str, Any]) -> Dict[str, Any]:
        """The globals of a function that was to have these of its own: this namespace, if it is of the main
        module."""
        if own.get("__name__") != "__main__":
            return own
        self.put(own)
        return self._values

    def owns(self, function: Any) -> bool:
        """Whether the globals of a function are these."""
        return function.__globals__ is self._values


class _Reader(pickle.Unpickler):
    """Gives the functions of the main module their common namespace."""

    space: MainGlobals
    brought: Brought

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        # What is returned must not know the reader, which keeps it: what was read would stay with them.
        if name == _MAKE and module.startswith("cloudpickle"):
            return _making(found, self.space)
        if name == _SET_STATE and module.startswith("cloudpickle"):
            return _setting(found, self.space, self.brought)
        return found


def _making(make: Callable[..., Any], space: MainGlobals) -> Callable[..., Any]:
    return lambda code, own, *rest: make(code, space.adopt(own), *rest)


def _setting(
    set_state: Callable[..., Any], space: MainGlobals, brought: Brought
) -> Callable[..., Any]:
    def set_(function: Any, state: Any) -> None:
        slots = state[1]
        if space.owns(function):
            mine, slots["__globals__"] = slots["__globals__"], {}
            brought.update(mine)
            space.put(mine)
        set_state(function, state)

    return set_


def _has_functions(stream: Stream) -> bool:
    """Whether there may be functions in a pickle that travel by value."""
    # Memory that is shared is a view of something that can be searched as it is.
    if isinstance(stream, memoryview) and isinstance(stream.obj, mmap.mmap):
        return stream.obj.find(_MAKE_BYTES, 0, len(stream)) >= 0
    return _MAKE_BYTES in bytes(stream)
