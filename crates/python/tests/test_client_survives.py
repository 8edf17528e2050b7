"""What a client is promised when the server, its agents or both are killed."""

import os
import time

import loxley
import pytest
from gates import PATIENCE, wait_until
from servers import NEEDS_SERVER, Server, start_agent


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.stop()


def add(one, other):
    return one + other


IN_A_LONG_RUN = pytest.param(
    "an agent",
    marks=pytest.mark.skipif(
        not os.environ.get("LOXLEY_TEST_LONG"),
        reason="in a long run; the death of both shows it too",
    ),
)


def double_slowly(number):
    time.sleep(0.002)
    return 2 * number


@NEEDS_SERVER
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victims", ["the server", IN_A_LONG_RUN, "both"])
def test_a_map_survives_the_death_of(server, victims):
    agents = [start_agent(server.access, name) for name in ("one", "two")]
    count = 5000 if os.environ.get("LOXLEY_TEST_LONG") or victims == "the server" else 500
    try:
        with loxley.Client(server.access) as client:
            futures = client.map(double_slowly, range(count))
            early = client.options(skills=["nobody has it"]).submit(pow, 2, 3)
            wait_until(lambda: sum(future.done() for future in futures) >= count // 20)
            if victims != "the server":
                agents[0].kill()
            if victims != "an agent":
                server.kill()
                server.start()
            expected = [2 * number for number in range(count)]
            assert client.gather(futures, timeout=4 * PATIENCE) == expected
            # What was submitted before is still known, and futures that come later too.
            assert not early.done() and client.cancel([early]) == 1
            assert client.submit(add, 1, 2).result(PATIENCE) == 3
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
