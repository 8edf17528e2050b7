"""The deque model in SimPy and asimpy: 64 workers, tasks dealt out in turn, random stealing.

Usage: sim_peers.py simpy|asimpy TASKS. Prints nanoseconds per event. Imported by nothing; run by
`loxley-bench sim` in a virtual environment of its own.
"""

import random
import sys
import time
from collections import deque

WORKERS = 64
PROBE = 1e-6


def deal(tasks, rng):
    deques = [deque() for _ in range(WORKERS)]
    for task in range(tasks):
        deques[task % WORKERS].append(rng.expovariate(1000.0))
    return deques


def find_work(me, deques, rng):
    """The next task: the newest of one's own, or the oldest of somebody else's."""
    if deques[me]:
        return deques[me].pop(), False
    for victim in rng.sample(range(WORKERS), WORKERS):
        if deques[victim]:
            return deques[victim].popleft(), True
    return None, False


def with_simpy(deques, rng):
    import simpy

    env = simpy.Environment()
    events = 0

    def worker(me):
        nonlocal events
        while True:
            work, stolen = find_work(me, deques, rng)
            if work is None:
                return
            if stolen:
                events += 1
                yield env.timeout(PROBE)
            events += 1
            yield env.timeout(work)

    for me in range(WORKERS):
        env.process(worker(me))
    env.run()
    return events


def with_asimpy(deques, rng):
    import asimpy

    env = asimpy.Environment()
    events = 0

    class Worker(asimpy.Process):
        def init(self, me):
            self.me = me

        async def run(self):
            nonlocal events
            while True:
                work, stolen = find_work(self.me, deques, rng)
                if work is None:
                    return
                if stolen:
                    events += 1
                    await self.timeout(PROBE)
                events += 1
                await self.timeout(work)

    for me in range(WORKERS):
        Worker(env, me)
    env.run()
    return events


def main():
    which, tasks = sys.argv[1], int(sys.argv[2])
    rng = random.Random(1)
    deques = deal(tasks, rng)
    run = {"simpy": with_simpy, "asimpy": with_asimpy}[which]
    start = time.perf_counter()
    events = run(deques, rng)
    took = time.perf_counter() - start
    assert events >= tasks
    print(took * 1e9 / events)


main()
