"""The globals of functions that travel by value, inside a worker process.

Functions of the caller's main module have one namespace there, and so they have here: what an initializer or a
call sets is seen by whatever is called later. A function brings along the globals that it names, with the values
that they had when it was packed. They are put here before it runs, unless something here has set that name itself.
A value that comes again as it came before has not changed over there, so the one that is here stays, with all that
was changed in it here. The attributes of classes are treated in the same way.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import pickle
import types
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from loxley._main_again import Source, had_here

#: What cloudpickle calls that makes a function out of its parts, and those which tell functions and classes what
#: they hold.
_MAKE, _SET_STATE, _SET_CLASS = "_make_function", "_function_setstate", "_class_setstate"
_MAIN = b"__main__"

_NOTHING = object()
#: What comes anew each time: nobody looks for changes in it.
_MADE_ANEW = (
    *(type, types.ModuleType, types.FunctionType, property, staticmethod, classmethod),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
_FIXED = (int, float, complex, str, bytes, type(None), *_MADE_ANEW)
#: Of more than this nobody looks whether it is as before.
_COMPARED_BYTES_MAX = 16 << 20

Stream = Union[bytes, memoryview]


class Came:
    """A value that came from the caller, and how it looked then."""

    __slots__ = ("value", "_look")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._look: Optional[bytes] = None

    @property
    def is_fixed(self) -> bool:
        """Whether nothing that runs here can change it."""
        return isinstance(self.value, _FIXED)

    def look(self) -> None:
        """Takes note of how it is now, before anything runs that may change it."""
        if not self.is_fixed:
            self._look = _look(self.value)

    def looks_like(self, other: Came) -> bool:
        """Whether it came as the other one did."""
        return self._look is not None and self._look == other._look


#: What came along with something, by name.
Brought = Dict[str, Came]


class _Names:
    """Names of a module or a class, and what was put there, not set by what runs here."""

    def __init__(self, get: Callable[[str], Any], set_: Callable[[str, Any], None]) -> None:
        #: What a name stands for now, or nothing; and how that is changed.
        self._get, self._set = get, set_
        self._put: Brought = {}

    def adopt(self, values: Dict[str, Any]) -> None:
        """Takes what is there as put there."""
        for name, value in values.items():
            came = self._put[name] = Came(value)
            came.look()

    def put(self, name: str, came: Came, is_whole: bool = True) -> None:
        """Sets a name. While not everything is read that came together, a value may still be lacking a part, and
        nobody can tell whether it is as before: then what is there stays for now."""
        now, put = self._get(name), self._put.get(name)
        if now is not _NOTHING:
            if put is None or now is not put.value:
                return
            if not is_whole and not came.is_fixed:
                return
            if came.looks_like(put):
                came.value = now
                return
        self._set(name, came.value)
        self._put[name] = came

    def let_go(self, name: str, came: Came) -> bool:
        """Forgets what was put under a name, if it is this; whether it is still there."""
        put = self._put.get(name)
        if put is None or put.value is not came.value:
            return False
        del self._put[name]
        return self._get(name) is came.value


class MainGlobals:
    """What stands for the main module in a worker process."""

    def __init__(self, values: Dict[str, Any], source: Optional[Source]) -> None:
        #: How the main module is found, if it can be.
        self._source = source
        #: The namespace itself. What is in it now was there before anything ran here.
        self._values = values
        self._names = _Names(lambda name: values.get(name, _NOTHING), values.__setitem__)
        self._names.adopt(values)
        self._classes: weakref.WeakKeyDictionary[type, _Names] = weakref.WeakKeyDictionary()
        for kind in classes_of(values):
            names = self.names_of(kind)
            if names is not None:
                names.adopt({name: vars(kind)[name] for name in _own(vars(kind))})
        self._entered: Optional[Brought] = None

    def loads(self, stream: Stream, buffers: Iterable[Any] = ()) -> Tuple[Any, Brought]:
        """Unpickles something: it, and what is to be entered before it is called. The functions of the main module
        that are in it live here."""
        if not _concerns_main(stream):
            return pickle.loads(stream, buffers=buffers), {}
        reader = _Reader(io.BytesIO(stream), buffers=buffers)
        reader.space, reader.brought, reader.attributes = self, {}, []
        read = reader.load()
        for came in reader.brought.values():
            came.look()
        self._entered = None
        self.enter(reader.brought)
        for names, name, came in reader.attributes:
            came.look()
            names.put(name, came)
        return read, reader.brought

    def enter(self, brought: Brought) -> None:
        """What is called next brought these along."""
        if self._entered is not brought:
            self._entered = brought
            for name, came in brought.items():
                self._names.put(name, came)

    def begin(self, brought: Brought) -> None:
        """These are coming: what is read with them may need them already."""
        for name, came in brought.items():
            self._names.put(name, came, is_whole=False)

    def forget(self, brought: Brought) -> None:
        """Nobody calls again what brought these along."""
        self._entered = None
        for name, came in brought.items():
            if self._names.let_go(name, came):
                del self._values[name]

    def adopt(self, own: Dict[str, Any]) -> Dict[str, Any]:
        """The globals of a function that was to have these of its own: this namespace, if it is of the main
        module."""
        if own.get("__name__") != "__main__":
            return own
        self.begin({name: Came(value) for name, value in own.items()})
        return self._values

    def owns(self, function: Any) -> bool:
        """Whether the globals of a function are these."""
        return function.__globals__ is self._values

    def had_here(self, name: str) -> Any:
        """What only has a name in the main module, and no value that could travel."""
        if self._source is None:
            raise AttributeError(f"the main module has no {name} here")
        return had_here(self._source, name)

    def names_of(self, kind: type) -> Optional[_Names]:
        """The names of a class that came from the caller; None if nobody can keep a record of it."""
        try:
            if kind not in self._classes:
                self._classes[kind] = _names_of(weakref.ref(kind))
            return self._classes[kind]
        except TypeError:
            # Its metaclass does not want it to be looked up.
            return None


def _names_of(known: Callable[[], Any]) -> _Names:
    # The class itself must not be kept by the record of it.
    return _Names(
        lambda name: vars(known()).get(name, _NOTHING),
        lambda name, value: setattr(known(), name, value),
    )


class _Reader(pickle.Unpickler):
    """Gives the functions of the main module their common namespace."""

    space: MainGlobals
    brought: Brought
    #: Attributes of classes, which may have been there before.
    attributes: List[Tuple[_Names, str, Came]]

    def find_class(self, module: str, name: str) -> Any:
        try:
            found = super().find_class(module, name)
        except AttributeError:
            if module != "__main__":
                raise
            found = self.space.had_here(name)
        # What is returned must not know the reader, which keeps it: what was read would stay with them.
        if not module.startswith("cloudpickle"):
            return found
        if name == _MAKE:
            return _making(found, self.space)
        if name == _SET_STATE:
            return _setting(found, self.space, self.brought)
        if name == _SET_CLASS:
            return _setting_class(found, self.space, self.attributes)
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
            came = {name: Came(value) for name, value in mine.items() if name not in brought}
            brought.update(came)
            space.begin(came)
        set_state(function, state)

    return set_


def _setting_class(
    set_state: Callable[..., Any], space: MainGlobals, attributes: List[Tuple[_Names, str, Came]]
) -> Callable[..., Any]:
    def set_(kind: type, state: Any) -> Any:
        names, values = space.names_of(kind), state[0]
        if names is None:
            return set_state(kind, state)
        for name in _own(values):
            came = Came(values.pop(name))
            names.put(name, came, is_whole=False)
            attributes.append((names, name, came))
        return set_state(kind, state)

    return set_


def _own(attributes: Mapping[str, Any]) -> List[str]:
    """Those attributes of a class that are data of the program, and not of Python."""
    return [
        name
        for name, value in attributes.items()
        if not name.startswith("_abc_")
        and not (name.startswith("__") and name.endswith("__"))
        and not isinstance(value, _MADE_ANEW)
    ]


def classes_of(values: Dict[str, Any]) -> List[type]:
    """The classes of the main module among its globals."""
    kinds = (value for value in values.values() if isinstance(value, type))
    return [kind for kind in kinds if kind.__module__ == "__main__"]


class _Looker(pickle.Pickler):
    """Writes down how a value looks."""

    def reducer_override(self, value: Any) -> Any:
        """What stands for a class or a module. A class that comes again is the same one here."""
        if isinstance(value, type):
            return _stand_for, (id(value),)
        if isinstance(value, types.ModuleType):
            return _stand_for, (value.__name__,)
        if hasattr(value, "__qualname__") and value.__module__ == "__main__":
            raise pickle.PicklingError("a function may have another code under its old name")
        return NotImplemented


def _stand_for(_: Any) -> None:
    """Only named, never called: nobody reads what a looker writes."""


class _Digest:
    """A file that remembers nothing but a digest of what is written, and takes no more than is worth it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b()
        self._rest = _COMPARED_BYTES_MAX

    def write(self, content: Any) -> None:
        """Takes in more."""
        self._rest -= memoryview(content).nbytes
        if self._rest < 0:
            raise ValueError("too much")
        self._hash.update(content)

    def digest(self) -> bytes:
        """What it was, in short."""
        return self._hash.digest()


def _look(value: Any) -> Optional[bytes]:
    """How a value looks, in short; None if that cannot be said, or not soon."""
    digest = _Digest()
    try:
        _Looker(digest, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:
        return None
    return digest.digest()


def _concerns_main(stream: Stream) -> bool:
    """Whether there may be something of the main module in a pickle."""
    # Memory that is shared is a view of something that can be searched as it is.
    if isinstance(stream, memoryview) and isinstance(stream.obj, mmap.mmap):
        return stream.obj.find(_MAIN, 0, len(stream)) >= 0
    return _MAIN in bytes(stream)
