"""Globals of the main module that cannot travel: a lock, a connection, an open file.

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
    """Packs a function but for those globals of the main module that cannot travel; None where they could not be
    had over there either."""
    source = _source()
    if source is None:
        return None
    content = io.BytesIO()
    pickler = _Pickler(content, PROTOCOL)
    pickler.source = source
    pickler.dump(function)
    return content.getvalue()


def _source() -> Optional[Source]:
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return "name", name
    path = getattr(main, "__file__", None)
    return None if path is None else ("path", path)


class _Pickler(ByValue):
    """Leaves out what cannot travel."""

    source: Source

    def reducer_override(self, value: Any) -> Any:
        reduced = super().reducer_override(value)
        main = sys.modules["__main__"].__dict__
        if isinstance(value, types.FunctionType) and isinstance(reduced, tuple):
            if value.__globals__ is main and reduced[0].__name__ == "_make_function":
                self._leave_out(reduced[2][1]["__globals__"])
        return reduced

    def _leave_out(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, (types.FunctionType, types.ModuleType, type)):
                # Taken apart in its turn.
                continue
            trial = _Pickler(io.BytesIO(), PROTOCOL)
            trial.source = self.source
            try:
                trial.dump(value)
            except Exception:
                values[name] = _LeftOut(self.source, name)


class _LeftOut:
    def __init__(self, source: Source, name: str) -> None:
        self._parts = source, name

    def __reduce__(self) -> Any:
        return _had_here, self._parts


def _had_here(source: Source, name: str) -> Any:
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
