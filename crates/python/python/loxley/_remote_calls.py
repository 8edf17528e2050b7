"""How calls travel to an agent of a server.

A function travels once for all items of a map: it is the input of an array of tasks, and the arguments of
each call are its entry, which the agent puts behind it.

```text
flags  function's length  dependencies  their numbers …  function   arguments
1 byte 4 bytes            2 bytes       8 bytes each     a pickle   a pickle, or one as base64
```

A future anywhere in what is packed stands for its result: the task depends on the future's, and the agent
brings the result before it unpacks the arguments.
"""

from __future__ import annotations

import base64
import struct
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from loxley._packing import dumps, loads

if TYPE_CHECKING:
    from loxley._client import RemoteFuture

#: What agents that run any Python call offer.
PYTHON = "loxley.python"

_HEAD = struct.Struct("<BIH")
#: The arguments are text.
_AS_TEXT = 1


class Packing(threading.local):
    """Whether a call is being packed in this thread, and on which tasks it was found to depend."""

    dependencies: Optional[List[RemoteFuture[Any]]] = None


_packing = Packing()


class Unpacking(threading.local):
    """What a call that is being unpacked in this thread depends on, by the numbers of tasks."""

    results: Dict[int, bytes] = {}


_unpacking = Unpacking()


class PackedFunction(NamedTuple):
    """A function that can travel, and the futures whose results are in it."""

    function: bytes
    dependencies: Tuple[RemoteFuture[Any], ...]

    def head(self) -> bytes:
        """What comes before the arguments, as text, of every call of an array."""
        return _HEAD.pack(_AS_TEXT, len(self.function), 0) + self.function


class PackedArguments(NamedTuple):
    """Arguments that can travel, and the futures whose results are among them."""

    arguments: bytes
    dependencies: Tuple[RemoteFuture[Any], ...]

    def entry(self) -> str:
        """The same as the entry of an array."""
        return base64.b64encode(self.arguments).decode()


def pack_function(function: Callable[..., Any]) -> PackedFunction:
    """Packs a function."""
    return PackedFunction(*_packed(function))


def pack_arguments(call: Tuple[Tuple[Any, ...], Dict[str, Any]]) -> PackedArguments:
    """Packs the arguments of one call."""
    return PackedArguments(*_packed(call))


def _packed(value: Any) -> Tuple[bytes, Tuple[RemoteFuture[Any], ...]]:
    _packing.dependencies = []
    try:
        return dumps(value), tuple(dict.fromkeys(_packing.dependencies))
    finally:
        _packing.dependencies = None


def whole_call(function: PackedFunction, arguments: PackedArguments) -> bytes:
    """One call with everything it needs."""
    needs = dict.fromkeys(f.task for f in (*function.dependencies, *arguments.dependencies))
    head = _HEAD.pack(0, len(function.function), len(needs))
    numbers = struct.pack(f"<{len(needs)}Q", *needs)
    return b"".join([head, numbers, function.function, arguments.arguments])


def stand_in(future: RemoteFuture[Any]) -> Tuple[Callable[[int], Any], Tuple[int]]:
    """How a future is packed: as the result that it will have."""
    if _packing.dependencies is None:
        raise TypeError("a future cannot leave its process, except as an argument of another call")
    _packing.dependencies.append(future)
    return _result_of, (future.task,)


def _result_of(task: int) -> Any:
    return loads(_unpacking.results[task])


def needed_results(payload: bytes) -> Tuple[int, ...]:
    """The tasks whose results a call needs."""
    if _is_old(payload):
        return ()
    _, _, count = _HEAD.unpack_from(payload)
    return struct.unpack_from(f"<{count}Q", payload, _HEAD.size)


def unpack_named(payload: bytes, results: Dict[int, bytes]) -> Tuple[Any, Any]:
    """The arguments and keywords for a function that has a name."""
    if _is_old(payload):
        arguments, keywords = loads(payload)
        return arguments, keywords
    _, arguments, keywords = unpack_call(payload, results)
    return arguments, keywords


def unpack_call(payload: bytes, results: Dict[int, bytes]) -> Tuple[Any, Any, Any]:
    """The function, its arguments and its keywords."""
    if _is_old(payload):
        function, arguments, keywords = loads(payload)
        return function, arguments, keywords
    flags, length, count = _HEAD.unpack_from(payload)
    at = _HEAD.size + 8 * count
    packed = payload[at + length :]
    _unpacking.results = results
    try:
        function = loads(payload[at : at + length]) if length else None
        arguments, keywords = loads(base64.b64decode(packed) if flags & _AS_TEXT else packed)
    finally:
        _unpacking.results = {}
    return function, arguments, keywords


def _is_old(payload: bytes) -> bool:
    """Whether it is one pickle: without dependencies, or of an earlier version."""
    return payload[0] == 0x80
