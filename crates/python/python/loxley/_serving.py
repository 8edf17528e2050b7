"""An agent of a server that runs Python functions.

Calls run in processes of their own, so a call that crashes its process fails alone and the agent goes on.
"""

from __future__ import annotations

import base64
import concurrent.futures
import time
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple

from loxley._core import ServerClient, ServingAgent
from loxley._executor import Executor
from loxley._packing import RemoteError, describe, dumps_exception, dumps_result
from loxley._remote_calls import PYTHON, needed_results, unpack_call, unpack_named
from loxley._task import RemoteTask
from loxley._watching import EXCEPTION_MARK

#: Whether a call succeeded, its result or what is said of it, and whether it would fail again.
Answer = Tuple[bool, bytes, bool]

#: An exception that is larger than this is told in words only.
_EXCEPTION_MAX = 32 << 10
#: How long a server that is away is waited for when a call needs results, in seconds.
_AWAY_MAX = 120.0


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
        self._server = ServerClient(access)
        self._name = name
        offered: Dict[str, Callable[..., Any]] = {PYTHON: self._call_any}
        for title, function in functions.items():
            offered[title] = self._calling(function)
        # Calls ask for their function as a resource, so that only agents that have it are asked.
        has = [*profile.pop("resources"), *((title, processes) for title in offered)]
        profile["resources"] = has
        self._agent = ServingAgent(access, name, functions=offered, slots=processes, **profile)

    def _call_any(self, payload: bytes) -> _UnderWay:
        results = self._results(needed_results(payload))
        return _UnderWay(self._executor.submit(_run_any, payload, results))

    def _calling(self, function: Callable[..., Any]) -> Callable[[bytes], _UnderWay]:
        plain = function.__wrapped__ if isinstance(function, RemoteTask) else function

        def call(payload: bytes) -> _UnderWay:
            results = self._results(needed_results(payload))
            return _UnderWay(self._executor.submit(_run_named, plain, payload, results))

        return call

    def _results(self, tasks: Iterable[int]) -> Dict[int, bytes]:
        """What a call depends on: those tasks have succeeded, or it would not have been given here."""
        missing, found = list(tasks), {}
        end = time.monotonic() + _AWAY_MAX
        while missing:
            try:
                ends = self._server.ends(missing[:1000])
            except ConnectionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
                continue
            new = {task: result for task, _, result, _, _ in ends if result is not None}
            found.update(new)
            if not new:
                raise RemoteError(f"the results of tasks {missing} are gone from the server")
            missing = [task for task in missing if task not in found]
        return found

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

    def __repr__(self) -> str:
        state = "ended" if self._agent.join(0.0) else "serves"
        return f"<Service of agent {self._name!r}: {state} {self._server.url}>"

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


def _run_any(payload: bytes, results: Dict[int, bytes]) -> Answer:
    try:
        function, arguments, keywords = unpack_call(payload, results)
        return True, dumps_result(function(*arguments, **keywords)), False
    except Exception as error:
        return _failed(error)


def _run_named(
    function: Callable[..., Any], payload: bytes, results: Dict[int, bytes]
) -> Answer:
    try:
        arguments, keywords = unpack_named(payload, results)
        return True, dumps_result(function(*arguments, **keywords)), False
    except Exception as error:
        return _failed(error)


def _failed(error: BaseException) -> Answer:
    packed = dumps_exception(error)
    text = describe(error)
    if len(packed) <= _EXCEPTION_MAX:
        text += EXCEPTION_MARK + base64.b64encode(packed).decode()
    return False, text.encode(), False
