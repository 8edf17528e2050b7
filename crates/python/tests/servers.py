"""Real servers and agents for tests. They need the `loxley` program: its path is in `LOXLEY_PROGRAM`; without that
the tests are skipped."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys

import pytest
from gates import PATIENCE, wait_until

PROGRAM = os.environ.get("LOXLEY_PROGRAM")
NEEDS_SERVER = pytest.mark.skipif(not PROGRAM, reason="LOXLEY_PROGRAM names no program")

#: Nobody waits a whole minute for an agent that was killed. (One that is only slow loses its tasks to another, and
#: their results are the same.)
CONFIG = """
load_balancing:
  heartbeats:
    suspect_after_sec: 4
    lost_after_sec: 12
"""


def free_port():
    """A port that stays free while a server is away: none that the system gives to whoever connects to
    somebody, and this process may be connecting to that very server."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A real server in a folder of its own, which can be killed and started again."""

    def __init__(self, folder):
        self.folder = folder
        self.access = folder / "access.json"
        self._port = free_port()
        self._config = folder / "loxley.yaml"
        self._config.write_text(CONFIG)
        self.start()

    def start(self):
        log = open(self.folder / "log", "a")
        address = f"127.0.0.1:{self._port}"
        command = [PROGRAM, "server", "start", "--dir", str(self.folder), "--listen", address]
        command += ["--config", str(self._config)]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers)

    def _answers(self):
        assert self._process.poll() is None, self.log()
        with socket.socket() as probe:
            return self.access.exists() and probe.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def log(self):
        return (self.folder / "log").read_text()


AGENT = """
import loxley, sys
with loxley.Agent(sys.argv[2], {"python"}).serve(sys.argv[1], processes=2) as service:
    print("serves", flush=True)
    service.wait()
"""


def start_agent(access, name):
    """An agent in a process of its own, which can be killed."""
    command = [sys.executable, "-c", AGENT, str(access), name]
    # It imports what the functions of this file are in.
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert agent.stdout.readline() == "serves\n"
    return agent
