"""Globals of the main module that cannot travel: a lock, a connection, an open file, a function made of such things.

A process that needs one gets it in the way of ``multiprocessing``: the main module runs once more there, under the
name ``__mp_main__``. A program that has such globals needs its ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import io
import runpy
import sys
import types
from multiprocessing import process
from typing import Any, Callable, Dict, Optional, Tuple

from loxley._packing import PROTOCOL, ByValue

#: How the main module is found: by its name or by the path of its file, and that.
Source = Tuple[str, str]

#: What the main module was here when it ran again.
_again: Optional[types.ModuleType] = None


def dumps_without_globals(function: Callable[..., Any]) -> Optional[bytes]:
    """Packs a function but for what cannot travel: some of the main module's globals, or the function itself. None
    where that could not be had over there either."""
    source = main_source()
    if source is None:
        return None
    try:
        return _dumps(function, source)
    except Exception:
        name = getattr(function, "__qualname__", "")
        if getattr(sys.modules["__main__"], name, None) is not function:
            raise
        return _dumps(_LeftOut(source, name), source)


def _dumps(value: Any, source: Source, tried: Optional[Dict[int, bool]] = None) -> bytes:
    content = io.BytesIO()
    pickler = _Pickler(content, PROTOCOL)
    pickler.source, pickler.tried = source, {} if tried is None else tried
    pickler.dump(value)
    return content.getvalue()


def main_source() -> Optional[Source]:
    """How another process finds this one's main module; None if it cannot."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return "name", name
    path = getattr(main, "__file__", None)
    return None if path is None else ("path", path)


class _Pickler(ByValue):
    """Leaves out what cannot travel."""

    source: Source
    #: Which globals can travel, as far as that was tried, by their ids.
    tried: Dict[int, bool]

    def reducer_override(self, value: Any) -> Any:
        reduced = super().reducer_override(value)
        main = sys.modules["__main__"].__dict__
        if isinstance(value, types.FunctionType) and isinstance(reduced, tuple):
            if value.__globals__ is main and reduced[0].__name__ == "_make_function":
                self._leave_out(reduced[2][1]["__globals__"])
        return reduced

    def _leave_out(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, (types.ModuleType, type)):
                continue
            if id(value) not in self.tried:
                # One that is met again inside itself is not what is in the way.
                self.tried[id(value)] = True
                self.tried[id(value)] = self._can_travel(value)
            if not self.tried[id(value)]:
                values[name] = _LeftOut(self.source, name)

    def _can_travel(self, value: Any) -> bool:
        try:
            _dumps(value, self.source, self.tried)
        except Exception:
            return False
        return True


class _LeftOut:
    def __init__(self, source: Source, name: str) -> None:
        self._parts = source, name

    def __reduce__(self) -> Any:
        return had_here, self._parts


def had_here(source: Source, name: str) -> Any:
    """What a global of the main module is in this process."""
    here = sys.modules["__main__"].__dict__
    return here[name] if name in here else getattr(_main_again(*source), name)


def _main_again(how: str, where: str) -> types.ModuleType:
    global _again
    if _again is None:
        me: Any = process.current_process()
        # Whoever starts a process meanwhile is told that its program lacks an `if __name__ == "__main__"`.
        me._inheriting = True
        try:
            if how == "name":
                values = runpy.run_module(where, run_name="__mp_main__", alter_sys=True)
            else:
                values = runpy.run_path(where, run_name="__mp_main__")
        finally:
            del me._inheriting
        _again = sys.modules["__mp_main__"] = types.ModuleType("__mp_main__")
        _again.__dict__.update(values)
    return _again
