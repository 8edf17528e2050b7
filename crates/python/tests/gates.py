"""What tests wait for instead of times: a gate that calls in other processes come to, and conditions."""

import itertools
import os
import time

#: How long anything may take, in seconds: far longer than it does, also on a machine that is busy with other things.
PATIENCE = 100.0


class Gate:
    """Calls that come to it wait until it is open. It can be given to other processes."""

    def __init__(self, folder):
        self._folder = folder / "gate"
        self._folder.mkdir()
        self._open = folder / "gate-is-open"

    def open(self):
        """Lets everybody pass, from now on."""
        self._open.touch()

    def come(self, value=None):
        """Waits until the gate is open; for calls. Returns the value."""
        for number in itertools.count():
            try:
                (self._folder / f"{os.getpid()}-{number}").touch(exist_ok=False)
                break
            except FileExistsError:
                continue
        wait_until(self._open.exists)
        return value

    @property
    def arrivals(self):
        """How many calls have come so far."""
        return len(list(self._folder.iterdir()))

    def wait_for(self, count):
        """Waits until so many calls have come."""
        wait_until(lambda: self.arrivals >= count)


def wait_until(condition, seconds=PATIENCE):
    """Waits until the condition holds; for other processes too."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it should have happened long ago"
        time.sleep(0.005)
