"""Starting worker processes, and how they ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any, Optional


class Worker:
    """A process that serves a line: a fresh interpreter, or one of a multiprocessing context."""

    def __init__(self, context: Any, descriptor: int) -> None:
        self._process = _start_in(context, descriptor) if context else _start(descriptor)

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    def kill(self) -> None:
        """Ends it now."""
        try:
            self._process.kill()
        except (OSError, ValueError):
            pass

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Waits until it has ended. Returns its exit code; None if it has not."""
        if not isinstance(self._process, subprocess.Popen):
            self._process.join(timeout)
            return self._process.exitcode  # type: ignore[no-any-return]
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

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


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    """A fresh interpreter with the line as its standard input."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from loxley._worker import main; main()"
    # In a session of its own, so that Ctrl-C in the terminal reaches only who waits there.
    return subprocess.Popen(
        [sys.executable, "-c", start], stdin=descriptor, start_new_session=True
    )


def _start_in(context: Any, descriptor: int) -> Any:
    """A process of a multiprocessing context. It finds the line in place of its standard input."""
    import socket

    line = socket.socket(fileno=os.dup(descriptor))
    try:
        process = context.Process(target=_serve_socket, args=(line,), daemon=False)
        process.start()
    finally:
        line.close()
    return process


def _serve_socket(line: Any) -> None:
    from loxley import _worker

    # A forked process has the lines of others too; only its own must stay open in it.
    os.dup2(line.fileno(), 0)
    line.close()
    _worker.main()
