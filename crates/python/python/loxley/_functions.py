"""The functions that an executor's processes have, by number."""

from __future__ import annotations

import collections
from typing import Any, Callable, Collection, Dict, Optional

from loxley._core import Hub
from loxley._main_again import dumps_without_globals
from loxley._packing import dumps, is_importable

#: So many functions that travel by value are kept, and so many bytes of them.
_KEPT_MAX = 64
_KEPT_BYTES_MAX = 64 << 20


class FunctionTable:
    """Gives functions numbers. What others can import is packed once and kept; what travels by value may
    have changed since the last call, is packed each time, and kept for a while in case it has not."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._imported: Dict[Any, int] = {}
        #: By what they are packed to, the latest last.
        self._valued: collections.OrderedDict[bytes, int] = collections.OrderedDict()
        self._bytes = 0

    def packed(self, function: Callable[..., Any]) -> Optional[bytes]:
        """What must be packed before a function gets its number. Code of others may run."""
        try:
            if function in self._imported:
                return None
        except TypeError:
            # It cannot be looked up; what can be imported could.
            pass
        try:
            return dumps(function)
        except Exception:
            packed = dumps_without_globals(function)
            if packed is None:
                raise
            return packed

    def number(
        self, function: Callable[..., Any], packed: Optional[bytes], in_use: Collection[int]
    ) -> int:
        """The number of a function. Those in use are not forgotten to make room for it."""
        if packed is None:
            return self._imported[function]
        if not is_importable(function):
            return self._number_of_value(packed, in_use)
        number = self._imported[function] = self._hub.define(packed)
        return number

    def _number_of_value(self, packed: bytes, in_use: Collection[int]) -> int:
        number = self._valued.get(packed)
        if number is not None:
            self._valued.move_to_end(packed)
            return number
        number = self._valued[packed] = self._hub.define(packed)
        self._bytes += len(packed)
        for packed, old in list(self._valued.items())[:-1]:
            if len(self._valued) <= _KEPT_MAX and self._bytes <= _KEPT_BYTES_MAX:
                break
            if old not in in_use:
                del self._valued[packed]
                self._bytes -= len(packed)
                self._hub.forget(old)
        return number
