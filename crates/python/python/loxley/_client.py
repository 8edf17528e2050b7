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
import time
import weakref
from typing import (
    Any,
    Callable,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from loxley._core import ServerClient
from loxley._futures import LazyFuture
from loxley._packing import Arrived
from loxley._progress import Callback, Progress
from loxley._remote_calls import (
    PYTHON,
    PackedArguments,
    PackedFunction,
    pack_arguments,
    pack_function,
    stand_in,
    whole_call,
)
from loxley._task import ParamSpec, RemoteTask, RemoteWishes
from loxley._watching import Watcher

#: What one task may get, in bytes: it has to fit into a message to its agent.
ARGUMENTS_MAX = 8 << 20
#: An entry of an array may be so long, as text.
_ENTRY_MAX = 96 << 10
#: So many bytes of arguments go into one job.
_JOB_BYTES = 32 << 20
#: And so many calls that are no entries of an array.
_JOB_TASKS = 10_000
#: How long it may take until what the server knows is known here, in seconds.
_HEARD_SECONDS = 30.0
#: A job of more tasks is looked at bit by bit: the server may not know the later ones yet.
_KNOWN_AT_ONCE = 1000

AccessPath = Union[str, "os.PathLike[str]", None]
T = TypeVar("T")
P = ParamSpec("P")

#: A call as it was given: arguments and keywords.
Call = Tuple[Tuple[Any, ...], Dict[str, Any]]


class RemoteFuture(LazyFuture[T]):
    """The future of a task on a server. It can be awaited, given to ``concurrent.futures.wait``, and be an
    argument of another call: that one then waits for it, and gets its result."""

    def __init__(
        self,
        client: Client,
        job: int,
        task: int,
        position: int,
        depends_on: Sequence[RemoteFuture[Any]],
    ) -> None:
        super().__init__()
        self._client = client
        #: The number of the task on the server, and of its job.
        self.task = task
        self.job = job
        self._position = position
        self._depends_on = depends_on

    def cancel(self) -> bool:
        """Cancels the task, running or not. False when it is over."""
        if self.done():
            return self.cancelled()
        self._client._connection.cancel_task(self.task)
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

    def settle(self, arrived: Arrived) -> None:
        """The task succeeded."""
        if not self.done():
            self._arrive(arrived)

    def settle_cancelled(self) -> None:
        """The task was cancelled."""
        self._cancel_here()

    def settle_failed(self, error: BaseException) -> None:
        """The task failed."""
        if not self.done():
            self.set_exception(error)

    def failed_dependency(self) -> Optional[BaseException]:
        """What went wrong with a future that this one depends on."""
        # The server told of their ends before it told of this one, but maybe not in this answer.
        concurrent.futures.wait(self._depends_on, 0 if not self._depends_on else None)
        return next(filter(None, map(failure_of, self._depends_on)), None)

    def __reduce__(self) -> Any:
        return stand_in(self)

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        state = "pending" if not self.done() else self._state.lower()
        return f"<RemoteFuture of task {self.task}: {state}>"


#: A future among arguments, or several.
Needed = Union[RemoteFuture[Any], List[RemoteFuture[Any]], Dict[Any, RemoteFuture[Any]]]


class _Submitting:
    """What a client and a view of it with other wishes have in common."""

    def _submit_all(self, function: Any, calls: List[Call]) -> List[RemoteFuture[Any]]:
        raise NotImplementedError

    # What depends on futures cannot be checked: one of them stands for its result.

    @overload
    def submit(
        self, function: Callable[..., T], first: Needed, /, *arguments: Any, **keywords: Any
    ) -> RemoteFuture[T]: ...

    @overload
    def submit(
        self,
        function: Callable[..., T],
        first: Any,
        second: Needed,
        /,
        *arguments: Any,
        **keywords: Any,
    ) -> RemoteFuture[T]: ...

    @overload
    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs
    ) -> RemoteFuture[T]: ...

    @overload
    def submit(self, function: str, /, *arguments: Any, **keywords: Any) -> RemoteFuture[Any]: ...

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> RemoteFuture[Any]:
        """Submits one call and returns its future. When this returns, the call survives a crash.

        Instead of a function, the name of one that an agent offers will do. A future among the
        arguments, also inside of lists and the like, stands for its result: the call waits for it.
        """
        return self._submit_all(function, [(arguments, keywords)])[0]

    @overload
    def map(
        self,
        function: Callable[..., T],
        *iterables: Iterable[Any],
        progress: Optional[Callback] = None,
    ) -> List[RemoteFuture[T]]: ...

    @overload
    def map(
        self, function: str, *iterables: Iterable[Any], progress: Optional[Callback] = None
    ) -> List[RemoteFuture[Any]]: ...

    def map(
        self, function: Any, *iterables: Iterable[Any], progress: Optional[Callback] = None
    ) -> List[RemoteFuture[Any]]:
        """Submits a call for each item and returns their futures in order. The function travels once.

        ``progress`` is called, from another thread, with how many are done and how many there are,
        whenever one is.
        """
        futures = self._submit_all(function, [(items, {}) for items in zip(*iterables)])
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
            total = client.submit(sum, futures).result()

    Futures can be awaited: ``await client.submit(process, file)``. All methods may be called from any
    thread. While the server is away, futures wait for it.
    """

    def __init__(self, access: AccessPath = None) -> None:
        self._connection = ServerClient(None if access is None else os.fspath(access))
        self._watcher = Watcher(self._connection)
        weakref.finalize(self, self._watcher.close).atexit = False

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._connection.url

    def options(
        self,
        *,
        skills: Sequence[str] = (),
        priority: int = 3,
        timeout: Optional[float] = None,
        retries: int = 0,
        speculate: bool = False,
        cost: Optional[float] = None,
        deadline: Optional[float] = None,
        group: Optional[str] = None,
    ) -> ClientView:
        """The same client for calls with other wishes; times are in seconds."""
        wishes = RemoteWishes(
            skills, priority, timeout, retries, speculate, cost, deadline, group
        )
        return ClientView(self, wishes)

    def gather(
        self, futures: Iterable[RemoteFuture[T]], timeout: Optional[float] = None
    ) -> List[T]:
        """The results of all futures, in order. The first exception is raised."""
        end = None if timeout is None else time.monotonic() + timeout
        return [
            future.result(None if end is None else max(0.0, end - time.monotonic()))
            for future in list(futures)
        ]

    def as_completed(
        self, futures: Iterable[RemoteFuture[T]], timeout: Optional[float] = None
    ) -> Iterator[RemoteFuture[T]]:
        """The futures, each as soon as it is done."""
        return concurrent.futures.as_completed(list(futures), timeout)  # type: ignore[return-value]

    def wait(
        self,
        futures: Iterable[RemoteFuture[T]],
        timeout: Optional[float] = None,
        return_when: str = concurrent.futures.ALL_COMPLETED,
    ) -> Tuple[Set[RemoteFuture[T]], Set[RemoteFuture[T]]]:
        """Waits for futures: a pair of those that are done and those that are not."""
        done, pending = concurrent.futures.wait(list(futures), timeout, return_when)
        return done, pending  # type: ignore[return-value]

    def cancel(self, futures: Iterable[RemoteFuture[Any]]) -> int:
        """Cancels tasks, and says how many were not over."""
        return sum(not future.done() and future.cancel() for future in list(futures))

    async def gather_async(self, futures: Iterable[RemoteFuture[T]]) -> List[T]:
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
        self._watcher.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    # Submitting.

    def _submit_all(
        self, function: Any, calls: List[Call], wishes: Optional[RemoteWishes] = None
    ) -> List[RemoteFuture[Any]]:
        if not calls:
            return []
        decorated = getattr(function, "__func__", function)
        if isinstance(decorated, RemoteTask):
            wishes = wishes or decorated.wishes
            if decorated is function:
                function = decorated.__wrapped__
        self._watcher.listen()
        described = (wishes or RemoteWishes()).described()
        # A skill is a wish where one of several will do; that an agent has the function is a need.
        described["needs"] = {"named": {function if isinstance(function, str) else PYTHON: 1}}
        futures: List[RemoteFuture[Any]] = []
        for batch in batches(function, calls):
            futures.extend(self._submit_batch(described, function, batch))
        return futures

    def _submit_batch(
        self, described: Dict[str, Any], function: Any, batch: Batch
    ) -> List[RemoteFuture[Any]]:
        if batch.failure is not None:
            # Nobody has to ask the server about it.
            future: RemoteFuture[Any] = RemoteFuture(self, 0, 0, 0, batch.needs[0])
            future.settle_failed(batch.failure)
            return [future]
        needed = {future for needs in batch.needs for future in needs}
        for future in needed:
            self._check_dependency(future)
        tasks = [{**described, **part} for part in batch.parts]
        try:
            job = json.loads(self._connection.submit(json.dumps({"tasks": tasks})))
        except RuntimeError:
            concurrent.futures.wait(needed, _HEARD_SECONDS)
            if not any(map(failure_of, needed)):
                raise
            # The server knew of a failure first: now it is known here too.
            again = batches(function, batch.calls)
            return [one for rest in again for one in self._submit_batch(described, function, rest)]
        number, first = job["id"], job["first_task"]
        futures: List[RemoteFuture[Any]] = [
            RemoteFuture(self, number, first + at, at, needs) for at, needs in enumerate(batch.needs)
        ]
        self._watcher.add(number, futures)
        return futures

    def _check_dependency(self, future: RemoteFuture[Any]) -> None:
        if future._client.url != self.url:
            raise ValueError(f"{future!r} is of the server at {future._client.url}, not {self.url}")
        # The server looks at a large job bit by bit: of a task that it may not have looked at yet it
        # cannot know that others depend on it.
        if future._position >= _KNOWN_AT_ONCE:
            concurrent.futures.wait([future])


class ClientView(_Submitting):
    """A client as seen by calls with other wishes."""

    def __init__(self, client: Client, wishes: RemoteWishes) -> None:
        self._client = client
        self._wishes = wishes

    def _submit_all(self, function: Any, calls: List[Call]) -> List[RemoteFuture[Any]]:
        return self._client._submit_all(function, calls, self._wishes)

    def __repr__(self) -> str:
        return f"<{self._client!r} with {self._wishes!r}>"


def failure_of(future: RemoteFuture[Any]) -> Optional[BaseException]:
    """What went wrong with a future, as far as is known here."""
    if not future.done():
        return None
    if future.cancelled():
        return concurrent.futures.CancelledError()
    return future.exception()


class Batch:
    """Calls that are submitted as one job."""

    def __init__(self) -> None:
        #: The calls as they were given.
        self.calls: List[Call] = []
        #: Why the only call of it is not submitted at all.
        self.failure: Optional[BaseException] = None
        #: Tasks and arrays of tasks, as the server takes them.
        self.parts: List[Dict[str, Any]] = []
        #: What each call depends on.
        self.needs: List[Tuple[RemoteFuture[Any], ...]] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the next call should go into another one."""
        return self._bytes >= _JOB_BYTES or len(self.parts) >= _JOB_TASKS

    def add_entry(self, function: PackedFunction, entry: str) -> None:
        """Adds a call to the array of this function."""
        if not self.parts or "entries" not in self.parts[-1]:
            array = {**_run(PYTHON, function.head()), "entries": {"lines": []}}
            self.parts.append(array)
        self.parts[-1]["entries"]["lines"].append(entry)
        self.needs.append(())
        self._bytes += len(entry)

    def add_task(self, name: str, payload: bytes, needs: Tuple[RemoteFuture[Any], ...]) -> None:
        """Adds a call as a task of its own."""
        if len(payload) > ARGUMENTS_MAX:
            raise ValueError(
                f"a call of {len(payload):,} bytes is too large for the server, which takes"
                f" {ARGUMENTS_MAX:,}: let the function read from where agents can, or pass the future"
                " of a call that returns the data"
            )
        part = _run(name, payload)
        if needs:
            part["depends_on_tasks"] = [future.task for future in needs]
        self.parts.append(part)
        self.needs.append(needs)
        self._bytes += len(payload)


def batches(function: Any, calls: List[Call]) -> Iterator[Batch]:
    """The calls, in order, as jobs that are not too large. The function is packed once."""
    name = function if isinstance(function, str) else None
    packed = PackedFunction(b"", ()) if name else pack_function(function)
    batch = Batch()
    for call in calls:
        if batch.is_full:
            yield batch
            batch = Batch()
        arguments = pack_arguments(call)
        needs = tuple(dict.fromkeys((*packed.dependencies, *arguments.dependencies)))
        failure = next(filter(None, map(failure_of, needs)), None)
        if failure is not None:
            if batch.calls:
                yield batch
            batch = Batch()
            batch.failure, batch.needs = failure, [needs]
            yield batch
            batch = Batch()
            continue
        batch.calls.append(call)
        if name is not None and not needs:
            batch.add_task(name, arguments.arguments, ())
        elif name is None and not needs and len(calls) > 1 and _is_entry(arguments):
            batch.add_entry(packed, arguments.entry())
        else:
            batch.add_task(name or PYTHON, whole_call(packed, arguments), needs)
    if batch.calls:
        yield batch


def _is_entry(arguments: PackedArguments) -> bool:
    return len(arguments.arguments) * 4 // 3 < _ENTRY_MAX


def _run(name: str, payload: bytes) -> Dict[str, Any]:
    """What a task does, as the server takes it."""
    return {"run": {"function": {"name": name, "input": base64.b64encode(payload).decode()}}}
