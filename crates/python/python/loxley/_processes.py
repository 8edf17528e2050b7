"""Starting worker processes, and how they ended.

Every process is one of ``multiprocessing``, so whatever that can hand to a process (locks, queues, proxies
of a manager) can be in ``initargs``, and all share one resource tracker: a segment of shared memory that a
call looks at is not taken for its own. By default it is a fresh interpreter that leaves the main module
alone; a program needs no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
from multiprocessing import context as contexts
from multiprocessing import (
    popen_spawn_posix,
    process,
    reduction,
    resource_tracker,
    spawn,
    synchronize,
    util,
)
from typing import Any, Callable, Iterator, List, Optional, Tuple

from loxley._main_again import dumps_without_globals
from loxley._main_globals import MainGlobals
from loxley._packing import PROTOCOL, ByValue


class Worker:
    """A process that serves a line."""

    def __init__(
        self, context: Any, descriptor: int, initializer: Optional[Initializer]
    ) -> None:
        line = socket.socket(fileno=os.dup(descriptor))
        try:
            is_forked = context.get_start_method() == "fork"
            self.process = context.Process(
                target=_serve, args=(line, initializer, is_forked), daemon=False
            )
            with _no_interrupts():
                self.process.start()
        finally:
            line.close()

    @property
    def pid(self) -> int:
        """Its id."""
        return self.process.pid  # type: ignore[no-any-return]

    def kill(self) -> None:
        """Ends it now."""
        with contextlib.suppress(OSError, ValueError):
            self.process.kill()

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Waits until it has ended. Returns its exit code; None if it has not."""
        self.process.join(timeout)
        return self.process.exitcode  # type: ignore[no-any-return]

    def has_ended(self) -> bool:
        """Whether it is gone, whatever it left behind."""
        return self.process.exitcode is not None

    def how_it_ended(self) -> str:
        """What to say of it."""
        code = self.wait(5)
        if code is None:
            return "closed its line"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


class Initializer:
    """What each process does first. Where a process is not forked, it travels while the process is being
    started, the only moment at which locks, queues and connections can; functions may travel by value."""

    def __init__(self, function: Callable[..., Any], arguments: Tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self, space: MainGlobals) -> None:
        self._function(*self._arguments)

    def __reduce__(self) -> Any:
        try:
            return _unpack_initializer, (_dumps((self._function, self._arguments)),)
        except NeedsFork:
            raise
        except Exception:
            function = dumps_without_globals(self._function)
            if function is None:
                raise
            return _unpack_initializer, (_dumps((None, self._arguments)), function)


def _unpack_initializer(
    packed: bytes, apart: Optional[bytes] = None
) -> Callable[[MainGlobals], None]:
    # Unpickled when it is called, so that what goes wrong then is told as what goes wrong in it.
    def initialize(space: MainGlobals) -> None:
        (function, arguments), _ = space.loads(packed)
        if apart is not None:
            function, _ = space.loads(apart)
        function(*arguments)

    return initialize


def _dumps(value: Any) -> bytes:
    content = io.BytesIO()
    _Pickler(content, PROTOCOL).dump(value)
    return content.getvalue()


class NeedsFork(Exception):
    """An initializer is to get what only a process gets that is forked from this one."""


class _Pickler(ByValue):
    """By value what cannot be imported, and with everything that multiprocessing can hand over."""

    @property
    def dispatch_table(self) -> Any:
        extra = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        return {**super().dispatch_table, **extra}

    def reducer_override(self, value: Any) -> Any:
        # Nobody else finds a semaphore without a name: that of a lock, and so of a queue, which the context `fork` made,
        # the usual one before Python 3.14.
        if isinstance(value, synchronize.SemLock) and value._semlock.name is None:  # type: ignore[attr-defined]
            raise NeedsFork
        return super().reducer_override(value)


class _FreshPopen(popen_spawn_posix.Popen):
    """Starts a fresh interpreter as ``spawn`` does, without the main module of this one."""

    #: The descriptors that the process gets, those of what it is handed included.
    _fds: List[int]

    def _launch(self, process_object: Any) -> None:
        tracker: Any = resource_tracker.getfd()
        self._fds.append(tracker)
        content = io.BytesIO()
        contexts.set_spawning_popen(self)
        try:
            reduction.dump(_preparation(process_object), content)
            reduction.dump(process_object, content)
        finally:
            contexts.set_spawning_popen(None)
        # The process reads what to do from one pipe, and closes the other when it ends.
        to_read, to_write = os.pipe()
        self.sentinel, ending = os.pipe()
        try:
            self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
            command = spawn.get_command_line(tracker_fd=tracker, pipe_handle=to_read)
            self._fds.extend([to_read, ending])
            self.pid = _spawn(spawn.get_executable(), command, self._fds)
            os.close(to_read)
            to_read = -1
            with open(to_write, "wb", closefd=False) as file:
                file.write(content.getbuffer())
        finally:
            for descriptor in (to_read, to_write, ending):
                if descriptor >= 0:
                    os.close(descriptor)


#: Starts a program that gets some descriptors and no others. (What is said of its types is not so.)
_spawn: Any = util.spawnv_passfds


def _preparation(process_object: Any) -> Any:
    """What a fresh interpreter should have in common with this one."""
    spawn._check_not_importing_main()  # type: ignore[attr-defined]
    return {
        "name": process_object._name,
        "authkey": process.current_process().authkey,
        "sys_path": [path or os.curdir for path in sys.path],
        "sys_argv": sys.argv,
        "log_to_stderr": util._log_to_stderr,  # type: ignore[attr-defined]
    }


class FreshProcess(contexts.SpawnProcess):
    """A process that is a fresh interpreter."""

    @staticmethod
    def _Popen(process_object: Any) -> Any:
        return _FreshPopen(process_object)


class FreshContext(contexts.SpawnContext):
    """As ``multiprocessing.get_context("spawn")``, for processes that leave the main module alone."""

    Process = FreshProcess


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """A process that is born meanwhile does not hear Ctrl-C before it is told not to."""
    # Its start ends with a look whether interrupts are heard again: it must have happened before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    line: socket.socket, initializer: Optional[Callable[[MainGlobals], None]], is_forked: bool
) -> None:
    """What a worker process does."""
    from loxley import _worker

    # Ctrl-C in the terminal reaches only who waits there.
    with contextlib.suppress(OSError):
        os.setsid()
    # A forked process has the lines of others too; only its own must stay open in it.
    os.dup2(line.fileno(), 0)
    line.close()
    _worker.main(initializer, is_forked)
