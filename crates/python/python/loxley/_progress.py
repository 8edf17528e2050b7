"""Telling a program how far many calls are."""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Optional

#: Gets how many calls are done, and how many there are, if that is known.
Callback = Callable[[int, Optional[int]], Any]


class Progress:
    """Counts calls that are done, and tells a callback. What the callback raises is logged."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._done = 0

    def add(self, count: int, total: Optional[int]) -> None:
        """So many more are done. Calls of the callback do not overlap."""
        with self._lock:
            self._done += count
            try:
                self._callback(self._done, total)
            except Exception:
                logging.getLogger("loxley").exception("exception calling callback for progress")
