"""An agent of a server that runs Python functions.

Calls run in processes of their own, so a call that crashes its process fails alone and the agent goes on.
"""

from __future__ import annotations

import base64
import concurrent.futures
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from loxley._client import EXCEPTION_MARK, PYTHON, task
from loxley._core import ServingAgent
from loxley._executor import Executor
from loxley._packing import dumps_exception, dumps_result, loads

#: Whether a call succeeded, its result or what is said of it, and whether it would fail again.
Answer = Tuple[bool, bytes, bool]

#: An exception that is larger than this is told in words only.
_EXCEPTION_MAX = 32 << 10


class Service:
    """An agent at work. ``stop`` or the end of a ``with`` block ends it."""

    def __init__(
        self,
        access: Any,
        name: str,
        profile: Dict[str, Any],
        functions: Mapping[str, Callable[..., Any]],
        processes: int,
    ) -> None:
        self._executor = Executor(processes)
        offered: Dict[str, Callable[..., Any]] = {PYTHON: self._call_any}
        for title, function in functions.items():
            offered[title] = self._calling(function)
        # Calls ask for their function as a resource, so that only agents that have it are asked.
        has = [*profile.pop("resources"), *((title, processes) for title in offered)]
        profile["resources"] = has
        self._agent = ServingAgent(access, name, functions=offered, slots=processes, **profile)

    def _call_any(self, payload: bytes) -> _UnderWay:
        return _UnderWay(self._executor.submit(_run_any, payload))

    def _calling(self, function: Callable[..., Any]) -> Callable[[bytes], _UnderWay]:
        plain = function._function if isinstance(function, task) else function
        return lambda payload: _UnderWay(self._executor.submit(_run_named, plain, payload))

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the agent ends; Ctrl-C works. Says whether it has."""
        return self._agent.join(1e9 if timeout is None else timeout)

    def stop(self, *, drain: bool = True) -> None:
        """Ends the agent: after what it has, or at once."""
        if drain:
            self._agent.drain()
        else:
            # First the agent, so that the server hears of no failure, but of an agent that went.
            self._agent.stop()
            self._executor.kill_workers()
        self._agent.join(60.0)
        self._executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.stop(drain=kind is None)


class _UnderWay:
    """A call for a task that has begun."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def poll(self, seconds: float) -> Optional[Answer]:
        """What came of it; None if it goes on after so long."""
        done, _ = concurrent.futures.wait([self._future], seconds)
        if not done:
            return None
        try:
            return self._future.result()  # type: ignore[no-any-return]
        except Exception as error:
            # The process died, or the answer could not travel.
            return _failed(error)

    def stop(self) -> None:
        """Nobody wants it any more: its process is ended, and another one takes its place."""
        self._future.stop()


def _run_any(payload: bytes) -> Answer:
    try:
        function, arguments, keywords = loads(payload)
        return True, dumps_result(function(*arguments, **keywords)), False
    except Exception as error:
        return _failed(error)


def _run_named(function: Callable[..., Any], payload: bytes) -> Answer:
    try:
        arguments, keywords = loads(payload)
        return True, dumps_result(function(*arguments, **keywords)), False
    except Exception as error:
        return _failed(error)


def _failed(error: BaseException) -> Answer:
    packed = dumps_exception(error)
    text = f"{type(error).__name__}: {error}"
    if len(packed) <= _EXCEPTION_MAX:
        text += EXCEPTION_MARK + base64.b64encode(packed).decode()
    return False, text.encode(), False
