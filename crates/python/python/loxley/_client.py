"""A Loxley server from Python: functions go in, futures come out.

A call travels as the function ``loxley.python`` of whatever agent serves Python functions
(:meth:`loxley.Agent.serve`), with everything it needs inside. A function that an agent offers under a
name of its own is called by that name.
"""

from __future__ import annotations

import base64
import concurrent.futures
import json
import os
import threading
import time
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Optional, Sequence, Union

from loxley._core import ServerClient
from loxley._packing import RemoteError, dumps, loads, loads_exception
from loxley._progress import Callback, Progress
from loxley._wishes import check_priority

#: What agents that run any Python call offer.
PYTHON = "loxley.python"
#: In the message of a failed attempt, what follows is the exception itself.
EXCEPTION_MARK = "\nloxley-exception:"

#: How long one question to the server may wait for an answer.
_POLL_SECONDS = 20.0
#: How often the tasks of a job that is under way are looked at, from and to.
_LOOK_SECONDS = (0.02, 0.5)

AccessPath = Union[str, "os.PathLike[str]", None]


class RemoteFuture(concurrent.futures.Future):  # type: ignore[type-arg]
    """The future of a task on a server. It can be awaited, and given to ``concurrent.futures.wait``."""

    def __init__(self, client: Client, task: int) -> None:
        super().__init__()
        self._client = client
        #: The number of the task on the server.
        self.task = task

    def cancel(self) -> bool:
        """Cancels the task, running or not. False when it is over."""
        if self.done():
            return self.cancelled()
        self._client._connection.cancel_task(self.task)
        self._client._look()
        return True

    def running(self) -> bool:
        """Whether an agent runs the task."""
        return not self.done() and self.info()["state"] == "running"

    def info(self) -> Dict[str, Any]:
        """What the server knows of the task."""
        return json.loads(self._client._connection.task(self.task))  # type: ignore[no-any-return]

    def explain(self) -> str:
        """Why the task is where it is, why it is not running, and what would make it run."""
        told = json.loads(self._client._connection.explain(self.task))
        return "\n".join([told["place"], *told["obstacles"], *told["remedies"]])

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        return asyncio.wrap_future(self).__await__()


class _Wishes:
    """What is said of tasks besides what they do."""

    def __init__(
        self,
        skills: Sequence[str] = (),
        priority: int = 3,
        timeout: Optional[float] = None,
        retries: int = 0,
        speculate: bool = False,
        cost: Optional[float] = None,
        deadline: Optional[float] = None,
        group: Optional[str] = None,
    ) -> None:
        if isinstance(skills, str):
            raise TypeError("skills is a collection of names, not one name")
        check_priority(priority)
        self.request: Dict[str, Any] = {
            "skills": list(skills),
            "priority": priority,
            "time_limit_sec": timeout,
            "retry": {"retries": retries},
            "speculate": speculate,
            "cost_sec": cost,
            "deadline_sec": deadline,
            "group": group,
        }


class task:
    """Says what a function needs when it runs on a server.

    >>> @task(skills=["gpu"], priority=5)
    ... def train(rows):
    ...     return len(rows)
    >>> train([1, 2, 3])  # here, it is the function it was
    3

    ``client.submit(train, rows)`` then asks for an agent with the skill. ``timeout``, ``retries``,
    ``speculate``, ``cost``, ``deadline`` (all in seconds) and ``group`` mean what they mean for tasks.
    """

    def __init__(self, function: Optional[Callable[..., Any]] = None, **wishes: Any) -> None:
        self._function = function
        self._wishes = _Wishes(**wishes)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._function is None:
            decorated = task(arguments[0])
            decorated._wishes = self._wishes
            decorated.__doc__ = arguments[0].__doc__
            return decorated
        return self._function(*arguments, **keywords)


class _Submitting:
    """What a client and a view of it with other wishes have in common."""

    _wishes: Optional[_Wishes]

    def _submit_all(
        self, function: Any, calls: List[Any], name: Optional[str]
    ) -> List[RemoteFuture]:
        raise NotImplementedError

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> RemoteFuture:
        """Submits one call and returns its future. When this returns, the call survives a crash.

        Instead of a function, the name of one that an agent offers will do.
        """
        return self._submit_all(function, [(arguments, keywords)], None)[0]

    def map(
        self, function: Any, *iterables: Iterable[Any], progress: Optional[Callback] = None
    ) -> List[RemoteFuture]:
        """Submits a call for each item, all in one job, and returns their futures in order.

        ``progress`` is called, from another thread, with how many are done and how many there are,
        whenever one is.
        """
        futures = self._submit_all(function, [(items, {}) for items in zip(*iterables)], None)
        if progress is not None:
            told, total = Progress(progress), len(futures)
            for future in futures:
                future.add_done_callback(lambda _: told.add(1, total))
        return futures


class Client(_Submitting):
    """A client of a Loxley server.

    ``access`` is the access file; without it, ``LOXLEY_ACCESS`` or the usual place counts.

        with loxley.Client() as client:
            futures = client.map(process, files)
            for future in client.as_completed(futures):
                print(future.result())
            total = client.gather(futures)

    Futures can be awaited: ``await client.submit(process, file)``. All methods may be called from any
    thread.
    """

    def __init__(self, access: AccessPath = None) -> None:
        self._connection = ServerClient(None if access is None else os.fspath(access))
        self._wishes = None
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._jobs: Dict[int, Dict[int, RemoteFuture]] = {}
        self._watchers: Dict[int, threading.Thread] = {}
        self._closed = False

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._connection.url

    def options(self, **wishes: Any) -> _Submitting:
        """The same client for calls with other wishes: ``skills``, ``priority``, ``timeout``,
        ``retries``, ``speculate``, ``cost``, ``deadline``, ``group``."""
        return _View(self, _Wishes(**wishes))

    def gather(self, futures: Iterable[RemoteFuture], timeout: Optional[float] = None) -> List[Any]:
        """The results of all futures, in order. The first exception is raised."""
        end = None if timeout is None else time.monotonic() + timeout
        return [
            future.result(None if end is None else max(0.0, end - time.monotonic()))
            for future in list(futures)
        ]

    def as_completed(
        self, futures: Iterable[RemoteFuture], timeout: Optional[float] = None
    ) -> Iterator[RemoteFuture]:
        """The futures, each as soon as it is done."""
        return concurrent.futures.as_completed(list(futures), timeout)  # type: ignore[return-value]

    def wait(
        self,
        futures: Iterable[RemoteFuture],
        timeout: Optional[float] = None,
        return_when: str = concurrent.futures.ALL_COMPLETED,
    ) -> Any:
        """Waits for futures: a pair of those that are done and those that are not."""
        return concurrent.futures.wait(list(futures), timeout, return_when)

    def cancel(self, futures: Iterable[RemoteFuture]) -> int:
        """Cancels tasks, and says how many were not over."""
        return sum(not future.done() and future.cancel() for future in list(futures))

    async def gather_async(self, futures: Iterable[RemoteFuture]) -> List[Any]:
        """The results of all futures, in order, for asyncio."""
        import asyncio

        return list(await asyncio.gather(*map(asyncio.wrap_future, list(futures))))

    def agents(self) -> List[Dict[str, Any]]:
        """The agents of the fleet: one record each."""
        return json.loads(self._connection.agents())  # type: ignore[no-any-return]

    def server(self) -> Dict[str, Any]:
        """The server itself, with the figures of the fleet."""
        return json.loads(self._connection.server())  # type: ignore[no-any-return]

    def health(self) -> Dict[str, Any]:
        """What is wrong with the fleet, and what to do about it."""
        return json.loads(self._connection.health())  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stops watching. Tasks go on; futures that are not done stay so."""
        self._closed = True
        self._look()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Submitting.

    def _submit_all(
        self,
        function: Any,
        calls: List[Any],
        name: Optional[str],
        wishes: Optional[_Wishes] = None,
    ) -> List[RemoteFuture]:
        if not calls:
            return []
        if isinstance(function, task):
            wishes = wishes or function._wishes
            function = function._function
        request = (wishes or _Wishes()).request
        described = {key: value for key, value in request.items() if value not in (None, [], False)}
        # A skill is a wish where one of several will do; that an agent has the function is a need.
        described["needs"] = {"named": {function if isinstance(function, str) else PYTHON: 1}}
        tasks = [{**described, "run": {"function": _packed(function, call)}} for call in calls]
        job = json.loads(self._connection.submit(json.dumps({"name": name, "tasks": tasks})))
        first = job["first_task"]
        futures = [RemoteFuture(self, first + number) for number in range(len(calls))]
        self._watch(job["id"], {future.task: future for future in futures})
        return futures

    # Watching: a thread for each job that is not over.

    def _look(self) -> None:
        self._bell.set()

    def _watch(self, job: int, futures: Dict[int, RemoteFuture]) -> None:
        watcher = threading.Thread(
            target=self._settle_job, args=(job, futures), name=f"loxley-job-{job}", daemon=True
        )
        watcher.start()

    def _settle_job(self, job: int, futures: Dict[int, RemoteFuture]) -> None:
        pause, longest = _LOOK_SECONDS
        try:
            while futures and not self._closed:
                # A job of one task is over when its task is; of others some end earlier.
                patience = _POLL_SECONDS if len(futures) == 1 else pause
                is_over = self._connection.wait_job(job, patience) is not None
                settled = self._settle_ended(job, futures)
                pause = _LOOK_SECONDS[0] if settled else min(longest, pause * 1.5)
                if is_over and not settled:
                    raise RemoteError("the job is over, and the server does not say how")
        except Exception as error:
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)

    def _settle_ended(self, job: int, futures: Dict[int, RemoteFuture]) -> int:
        settled, position = 0, min(futures)
        while True:
            page = json.loads(self._connection.tasks(job, position, 1000))
            for info in page["items"]:
                future = futures.get(info["id"])
                if future is not None and info["state"] in ("succeeded", "failed", "cancelled"):
                    self._settle(future, info)
                    del futures[info["id"]]
                    settled += 1
            following = page.get("next")
            if following is None or not futures:
                return settled
            position = following

    def _settle(self, future: RemoteFuture, info: Dict[str, Any]) -> None:
        state = info["state"]
        if state == "cancelled":
            concurrent.futures.Future.cancel(future)
            future.set_running_or_notify_cancel()
            return
        try:
            if state == "succeeded":
                future.set_result(loads(self._connection.result(future.task)))
            else:
                # Lists leave out what a failed attempt said.
                future.set_exception(_failure(future.info().get("last") or {}))
        except Exception as error:
            if not future.done():
                future.set_exception(error)


class _View(_Submitting):
    """A client as seen by calls with other wishes."""

    def __init__(self, client: Client, wishes: _Wishes) -> None:
        self._client = client
        self._wishes = wishes

    def _submit_all(
        self, function: Any, calls: List[Any], name: Optional[str]
    ) -> List[RemoteFuture]:
        return self._client._submit_all(function, calls, name, self._wishes)


def _packed(function: Any, call: Any) -> Dict[str, str]:
    """A call as the server takes it: a name and bytes."""
    if isinstance(function, str):
        name, payload = function, dumps(call)
    else:
        name, payload = PYTHON, dumps((function, *call))
    return {"name": name, "input": base64.b64encode(payload).decode()}


def _failure(attempt: Dict[str, Any]) -> BaseException:
    """What was raised, if it could travel; else what was said of it."""
    text, mark, packed = (attempt.get("message") or "").partition(EXCEPTION_MARK)
    if mark:
        return loads_exception(base64.b64decode(packed))
    if attempt.get("failure") == "time_limit":
        from loxley._futures import TaskTimeout

        return TaskTimeout("the task ran longer than its time limit, and was stopped")
    return RemoteError(text or attempt.get("failure") or "the task failed")
