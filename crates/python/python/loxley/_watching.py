"""Who hears that tasks of a server are over, and settles their futures.

One thread for each client, however many jobs there are. The server tells which tasks end; their ends are
then asked for together. What it did not tell, because it or the connection was away, is found by asking now
and then for everything that is still open. A server that is away is waited for.
"""

from __future__ import annotations

import base64
import collections
import json
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterable, List, Optional, Set

from loxley._core import ServerClient
from loxley._futures import TaskTimeout
from loxley._packing import Arrived, RemoteError, loads_exception

if TYPE_CHECKING:
    from loxley._client import RemoteFuture

#: In the message of a failed attempt, what follows is the exception itself.
EXCEPTION_MARK = "\nloxley-exception:"

#: The ends of so many tasks are asked for at once.
_TOGETHER = 1000
#: So much is remembered of what was told and not known.
_TOLD_MAX = 2000
#: How often everything that is open is asked for, though nobody told of it: from and to, in seconds.
_LOOK_SECONDS = (1.0, 15.0)
#: Of more open tasks the ends are gathered for so long before they are asked for, in seconds.
_FEW = 16
_COMPANY_SECONDS = 0.01
#: How long to wait for a server that is away before it is asked again: from and to.
_AWAY_SECONDS = (0.1, 2.0)


class Watcher:
    """Futures of tasks that are not over, and the thread that settles them."""

    def __init__(self, connection: ServerClient) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._open: Dict[int, RemoteFuture[Any]] = {}
        #: The tasks of each job that are open.
        self._jobs: Dict[int, Set[int]] = {}
        #: What was told of that nobody here knew: a task may end before its number has arrived.
        self._told: Deque[int] = collections.deque(maxlen=_TOLD_MAX)
        self._told_jobs: Deque[int] = collections.deque(maxlen=_TOLD_MAX)
        self._thread: Optional[threading.Thread] = None
        self._process_id = os.getpid()
        self._closed = False
        self._look_pause = _LOOK_SECONDS[0]
        self._next_look = 0.0

    def listen(self) -> None:
        """Hears from now on of every task that ends; before the first one is submitted."""
        if self._thread is not None:
            return
        self._connection.listen()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name="loxley-client", daemon=True
                )
                self._thread.start()

    def add(self, job: int, futures: Iterable[RemoteFuture[Any]]) -> None:
        """Settles these from now on."""
        with self._lock:
            mine = {future.task: future for future in futures}
            self._open.update(mine)
            self._jobs.setdefault(job, set()).update(mine)
            self._look_pause = _LOOK_SECONDS[0]
            self._next_look = time.monotonic() + self._look_pause
            told = [task for task in self._told if task in mine]
            jobs = [job] if job in self._told_jobs else []
        self._connection.hear_of(told, jobs)

    def close(self) -> None:
        """Stops watching. Futures that are not settled stay so."""
        if self._process_id != os.getpid():
            # Forked from the one it belongs to, where locks may be held for ever by threads that are not here.
            return
        self._closed = True
        self._connection.wake()

    def _watch(self) -> None:
        pause = _AWAY_SECONDS[0]
        while not self._closed:
            tasks, jobs, missed = self._connection.wait_for_ends(self._patience())
            if tasks and len(self._open) > _FEW:
                # Where many are open, more are over in a moment: they are asked for together.
                time.sleep(_COMPANY_SECONDS)
                more = self._connection.wait_for_ends(0.0)
                tasks, jobs, missed = tasks + more[0], jobs + more[1], missed or more[2]
            while not self._closed:
                try:
                    self._look(tasks, jobs, missed)
                    pause = _AWAY_SECONDS[0]
                    break
                except ConnectionError:
                    # It has everything it accepted on disk, and will be back.
                    missed = True
                    time.sleep(pause)
                    pause = min(2 * pause, _AWAY_SECONDS[1])
                except BaseException as error:
                    self._fail_all(error)
                    break

    def _patience(self) -> float:
        with self._lock:
            if not self._open:
                return _LOOK_SECONDS[1]
            return max(0.0, self._next_look - time.monotonic())

    def _look(self, tasks: List[int], jobs: List[int], missed: bool) -> None:
        with self._lock:
            ended = {task for task in tasks if task in self._open}
            over = {job for job in jobs if job in self._jobs}
            self._told.extend(task for task in tasks if task not in ended)
            self._told_jobs.extend(job for job in jobs if job not in over)
            for job in over:
                ended.update(self._jobs[job])
            if ended:
                # As long as the server tells, nothing has to be looked for.
                self._next_look = max(self._next_look, time.monotonic() + self._look_pause)
            if missed or time.monotonic() >= self._next_look:
                ended.update(self._open)
                if not missed:
                    self._look_pause = min(2 * self._look_pause, _LOOK_SECONDS[1])
                self._next_look = time.monotonic() + self._look_pause
        self._settle(sorted(ended))
        for job in over:
            self._settle_rest_of(job)

    def _settle(self, tasks: List[int]) -> None:
        for at in range(0, len(tasks), _TOGETHER):
            wanted = tasks[at : at + _TOGETHER]
            while wanted:
                ends = self._connection.ends(wanted)
                for task, state, result, failure, message in ends:
                    self._settle_one(task, state, result, failure, message)
                if not ends:
                    break
                # An answer has so much room; what had none is asked for again.
                found = {end[0] for end in ends}
                wanted = [task for task in wanted if task > max(found) and task not in found]

    def _settle_rest_of(self, job: int) -> None:
        """A job is over, and with it tasks that never began, of which nobody kept a word."""
        with self._lock:
            rest = sorted(self._jobs.get(job, ()))
        while rest:
            page = json.loads(self._connection.tasks(job, rest[0], _TOGETHER))
            for info in page["items"]:
                if info["state"] in ("succeeded", "failed", "cancelled"):
                    last = info.get("last") or {}
                    failure, message = last.get("failure"), last.get("message")
                    self._settle_one(info["id"], info["state"], None, failure, message)
            if page.get("next") is None:
                return
            rest = [task for task in rest if task >= page["next"]]

    def _settle_one(
        self,
        task: int,
        state: str,
        result: Optional[bytes],
        failure: Optional[str],
        message: Optional[str],
    ) -> None:
        with self._lock:
            future = self._open.pop(task, None)
            if future is None:
                return
            mine = self._jobs.get(future.job)
            if mine is not None:
                mine.discard(task)
                if not mine:
                    del self._jobs[future.job]
        try:
            if state == "succeeded":
                future.settle(Arrived(result or b"\x80\x04N."))
            elif state == "cancelled":
                future.settle_cancelled()
            elif failure == "dependency":
                future.settle_failed(future.failed_dependency() or _failure(failure, message))
            else:
                future.settle_failed(_failure(failure, message))
        except BaseException:
            # What a callback raises concerns nobody else.
            logging.getLogger("loxley").exception("exception while a future was settled")

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            futures, self._open, self._jobs = list(self._open.values()), {}, {}
        for future in futures:
            try:
                future.settle_failed(error)
            except BaseException:
                logging.getLogger("loxley").exception("exception while a future was settled")


def _failure(failure: Optional[str], message: Optional[str]) -> BaseException:
    """What was raised, if it could travel; else what was said of it."""
    text, mark, packed = (message or "").partition(EXCEPTION_MARK)
    if mark:
        try:
            return loads_exception(base64.b64decode(packed))
        except BaseException:
            return RemoteError(text)
    if failure == "time_limit":
        return TaskTimeout("the task ran longer than its time limit, and was stopped")
    return RemoteError(text or failure or "the task failed")
