"""The Python package beside its peers: one run, in turns, ratios.

Started by ``loxley-bench python`` in an environment that has Loxley and the peers. Every pool has the same
number of processes, stays open and has warmed up; what is measured is the calls. A contender that needs
seconds for a tenth of the calls is given a tenth, and its time is scaled: that is marked. One that still
needs seconds is measured twice, the others five times, in an order that changes.
"""

import argparse
import concurrent.futures
import contextlib
import gc
import json
import multiprocessing
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WORKERS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def nothing(item):
    return item


def spin(rounds):
    """Works for a time in proportion to ``rounds``."""
    total = 0
    for number in range(rounds):
        total += number & 7
    return total


def rounds_per_millisecond():
    best = 0.0
    for _ in range(5):
        begin = time.perf_counter()
        spin(100_000)
        best = max(best, 100_000 / (time.perf_counter() - begin) / 1000.0)
    return best


def heavy_tail(count, mean_milliseconds):
    """Costs of which one in a hundred is many times the mean, in rounds of `spin`."""
    chance = random.Random(20)
    costs = [min(chance.paretovariate(1.3), 60.0) for _ in range(count)]
    scale = mean_milliseconds * rounds_per_millisecond() * count / sum(costs)
    return [int(cost * scale) for cost in costs]


class Contender:
    """A name, how to run all items, and which share of them it is given."""

    def __init__(self, name, run, share=1):
        self.name, self.run, self.share = name, run, share


def loxley_map(executor):
    return lambda function, items: list(executor.map(function, items))


def pool_map(executor, chunksize):
    return lambda function, items: list(executor.map(function, items, chunksize=chunksize))


def lineup(only):
    """Every contender that is installed, with an open pool."""
    import loxley

    executor = loxley.Executor(WORKERS)
    process_pool = concurrent.futures.ProcessPoolExecutor(WORKERS)
    pool = multiprocessing.Pool(WORKERS)
    found = {
        "loxley": [("loxley", loxley_map(executor), 1)],
        "process_pool": [
            ("ProcessPoolExecutor, chunksize 1", pool_map(process_pool, 1), 10),
            *(
                (f"ProcessPoolExecutor, chunksize {size}", pool_map(process_pool, size), 1)
                for size in (4, 16, 1000, 12_500, 50_000)
            ),
        ],
        "multiprocessing": [
            ("multiprocessing.Pool", lambda function, items: pool.map(function, items), 1)
        ],
    }
    try:
        from joblib import Parallel, delayed

        def run_joblib(function, items):
            return parallel(delayed(function)(item) for item in items)

        parallel = Parallel(n_jobs=WORKERS)
        parallel.__enter__()
        found["joblib"] = [("joblib (loky)", run_joblib, 1)]
    except ImportError:
        pass
    with contextlib.suppress(ImportError):
        import mpire

        # Its processes are forked, and keep the first function that they get: one pool for each.
        pools = {}

        def run_mpire(function, items):
            if function not in pools:
                pools[function] = mpire.WorkerPool(n_jobs=WORKERS, keep_alive=True)
            items = list(items)
            return pools[function].map(function, items, iterable_len=len(items))

        found["mpire"] = [("mpire", run_mpire, 1)]
    with contextlib.suppress(ImportError):
        import pebble

        pebble_pool = pebble.ProcessPool(max_workers=WORKERS)

        def run_pebble(chunksize):
            return lambda function, items: list(
                pebble_pool.map(function, items, chunksize=chunksize).result()
            )

        found["pebble"] = [
            (f"pebble, chunksize {size}", run_pebble(size), 1) for size in (4, 16, 1000, 12_500, 50_000)
        ]
    try:
        import distributed

        cluster = distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        client = distributed.Client(cluster)

        def run_dask(function, items):
            return client.gather(client.map(function, list(items), pure=False))

        found["dask"] = [("Dask", run_dask, 50)]
    except ImportError:
        pass
    return [
        Contender(*entry)
        for name, entries in found.items()
        if not only or name in only
        for entry in entries
    ]


def measure(contenders, function, items, rounds, scale_slow, lazy=False):
    """Seconds of each contender in each round, in another order each time.

    Lazy items come out of a generator instead of a list."""
    times = {contender.name: [] for contender in contenders}
    for contender in contenders:
        contender.run(function, items[: 4 * WORKERS])
    chance = random.Random(7)
    for _ in range(rounds):
        for contender in chance.sample(contenders, len(contenders)):
            share = contender.share if scale_slow else 1
            if len(times[contender.name]) >= 2 and min(times[contender.name]) > 2.0 * share:
                # Nobody needs to know better.
                continue
            settle()
            mine = items[: len(items) // share]
            begin = time.perf_counter()
            results = contender.run(function, (item for item in mine) if lazy else mine)
            seconds = time.perf_counter() - begin
            assert len(results) == len(mine)
            times[contender.name].append(seconds * share)
    return times


def settle():
    """Lets the one before finish what it does in the background, Dask's forgetting of keys above all."""
    gc.collect()
    time.sleep(0.5)


def report(case, contenders, times, extra):
    ours = statistics.median(times["loxley"])
    for contender in contenders:
        median = statistics.median(times[contender.name])
        yield {
            "case": case,
            "contender": contender.name,
            "seconds": round(median, 9),
            "best_seconds": round(min(times[contender.name]), 9),
            "ratio_to_loxley": round(median / ours, 3),
            "scaled_from_share": contender.share,
            **extra,
        }


def pools(options):
    if not any(map(options.wants, ("noop", "lazy", "heavy-tail"))):
        return
    contenders = lineup(options.only)
    rounds = 1 if options.quick else 5
    count = 10_000 if options.quick else 100_000
    items = list(range(count))
    # Chunks of a few cannot be meant for calls that do nothing: the best of the large ones counts.
    large = [c for c in contenders if not c.name.endswith((" 4", " 16"))]
    for case in filter(options.wants, ("noop", "lazy")):
        times = measure(large, nothing, items, rounds, scale_slow=True, lazy=case == "lazy")
        yield from report(f"{case}-{count}", large, times, {"workers": WORKERS})
    if not options.wants("heavy-tail"):
        return
    count = 200 if options.quick else 2_000
    costs = heavy_tail(count, 1.0)
    # Large chunks cannot be meant for calls of milliseconds: the best of the small ones counts.
    small = [c for c in contenders if not c.name.endswith(("1000", "12500", "50000"))]
    times = measure(small, spin, costs, rounds, scale_slow=False)
    bound = max(sum(costs) / WORKERS, max(costs)) / rounds_per_millisecond() / 1000.0
    for contender in small:
        contender.share = 1
    yield from report(f"heavy-tail-{count}", small, times, {"lower_bound_s": round(bound, 3)})


def total_of(array):
    return float(array.sum())


def negated(array):
    return -array


@contextlib.contextmanager
def array_lineup(only):
    """Who can run a function over arrays, each with an open pool: as a mapping from names."""
    import loxley

    found = {}
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(loxley.Executor(WORKERS))
        found["loxley"] = lambda function, items: list(executor.map(function, items))
        process_pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(WORKERS))
        found["ProcessPoolExecutor"] = lambda function, items: list(process_pool.map(function, items))
        with contextlib.suppress(ImportError):
            from joblib import Parallel, delayed

            parallel = stack.enter_context(Parallel(n_jobs=WORKERS))
            found["joblib (memmaps)"] = lambda function, items: parallel(
                delayed(function)(item) for item in items
            )
        with contextlib.suppress(ImportError):
            import ray

            ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
            stack.callback(ray.shutdown)

            def run_ray(function, items):
                remote = ray.remote(function)
                return ray.get([remote.remote(item) for item in items])

            found["Ray (object store)"] = run_ray
        yield {name: run for name, run in found.items() if not only or name.split()[0].lower() in only}


def arrays(options):
    """Large arrays to and from processes: 40 of 5 MB, as arguments, and as arguments and results."""
    if not options.wants("arrays"):
        return
    import numpy

    count, size = (8, 655_360) if options.quick else (40, 655_360)

    def make():
        # New ones each time: joblib does not send an array again that it has sent, changed or not.
        return [numpy.full(size, float(number)) for number in range(count)]

    with array_lineup(options.only) as runs:
        for case, function in (("arrays-in", total_of), ("arrays-in-and-out", negated)):
            times = {name: [] for name in runs}
            for run in runs.values():
                run(function, make()[: 2 * WORKERS])
            chance = random.Random(11)
            for _ in range(1 if options.quick else 5):
                for name in chance.sample(list(runs), len(runs)):
                    items = make()
                    settle()
                    begin = time.perf_counter()
                    results = runs[name](function, items)
                    times[name].append(time.perf_counter() - begin)
                    assert len(results) == count
                    del results
            contenders = [Contender(name, None) for name in runs]
            extra = {"megabytes": round(count * size * 8 / 1e6)}
            yield from report(f"{case}-{count}", contenders, times, extra)


def latency(options):
    """One call and its result, again and again."""
    if not options.wants("latency"):
        return
    import loxley

    with contextlib.ExitStack() as stack:
        pools = {
            "loxley": loxley.Executor(WORKERS),
            "ProcessPoolExecutor": concurrent.futures.ProcessPoolExecutor(WORKERS),
        }
        calls = {
            name: stack.enter_context(pool).submit for name, pool in pools.items()
        }
        times = {name: [] for name in calls}
        for call in calls.values():
            call(nothing, 0).result()
        for _ in range(3 if options.quick else 9):
            for name, call in calls.items():
                rounds = 200
                begin = time.perf_counter()
                for number in range(rounds):
                    call(nothing, number).result()
                times[name].append((time.perf_counter() - begin) / rounds)
        contenders = [Contender(name, None) for name in calls]
        yield from report("latency-submit-result", contenders, times, {})


@contextlib.contextmanager
def served(program):
    """A server with an agent: a client of it."""
    import loxley

    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [program, "server", "start", "--dir", folder, "--listen", f"127.0.0.1:{port}"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        access = pathlib.Path(folder) / "access.json"
        try:
            while True:
                with socket.socket() as probe:
                    if access.exists() and probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            agent = loxley.Agent("bench")
            with agent.serve(access, processes=WORKERS), loxley.Client(access) as client:
                yield client
        finally:
            server.kill()
            server.wait()


def gathering(options):
    """Many futures of a server gathered, beside Dask's; and one future after the other."""
    if not options.wants("gather"):
        return
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(served(options.program))
        found = {
            "loxley": (client.map, client.gather, client.submit),
        }
        with contextlib.suppress(ImportError):
            import distributed

            cluster = distributed.LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=50
            )
            dask = stack.enter_context(distributed.Client(cluster))
            found["Dask"] = (
                lambda function, items: dask.map(function, items, pure=False),
                dask.gather,
                lambda function, item: dask.submit(function, item, pure=False),
            )
        medians = {}
        for count in (100, 1_000) if options.quick else (1_000, 10_000):
            times = {name: [] for name in found}
            for name, (start, gather, _) in found.items():
                gather(start(nothing, list(range(20))))
                for _ in range(1 if options.quick or count > 1_000 else 3):
                    settle()
                    begin = time.perf_counter()
                    assert gather(start(nothing, list(range(count)))) == list(range(count))
                    times[name].append(time.perf_counter() - begin)
            medians[count] = {name: statistics.median(these) for name, these in times.items()}
            contenders = [Contender(name, None) for name in found]
            yield from report(f"gather-{count}", contenders, times, {"durable": "loxley"})
        small, large = sorted(medians)
        growth = {name: medians[large][name] / medians[small][name] for name in found}
        for name in found:
            yield {
                "case": f"gather-growth-{small}-to-{large}",
                "contender": name,
                "seconds": round(medians[large][name], 9),
                "ratio_to_loxley": round(growth[name] / growth["loxley"], 3),
                "scaled_from_share": 1,
                "growth": round(growth[name], 3),
            }
        times = {name: [] for name in found}
        for _ in range(20 if options.quick else 100):
            for name, (_, _, submit) in found.items():
                begin = time.perf_counter()
                submit(nothing, 1).result()
                times[name].append(time.perf_counter() - begin)
        contenders = [Contender(name, None) for name in found]
        yield from report("gather-latency-of-one", contenders, times, {"durable": "loxley"})


def scheduler(options):
    """`submit_task` beside a plain scheduler of the same interface, which scans every agent."""
    import loxley

    sys.path.insert(0, options.oracle)
    import pure_scheduler

    for agents in (10, 1_000) if options.wants("submit_task") else ():
        times = {"loxley": [], "pure Python": []}
        for _ in range(3 if options.quick else 7):
            for name, library in (("loxley", loxley), ("pure Python", pure_scheduler)):
                fleet = library.WorkStealingScheduler()
                for number in range(agents):
                    skills = {"python", f"skill-{number % 10}"}
                    fleet.register_agent(library.Agent(f"agent-{number}", skills))
                tasks = [
                    library.Task(f"task-{number}", {"python"}, 1 + number % 5)
                    for number in range(200 if agents > 100 else 1_000)
                ]
                begin = time.perf_counter()
                for task in tasks:
                    fleet.submit_task(task)
                times[name].append((time.perf_counter() - begin) / len(tasks))
        contenders = [Contender(name, None) for name in times]
        yield from report(f"submit_task-{agents}-agents", contenders, times, {})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", type=lambda text: text.split(",") if text else [])
    parser.add_argument("--oracle", default=".")
    parser.add_argument("--program", default="loxley")
    parser.add_argument("--filter", default="", type=lambda text: text.split(",") if text else [])
    options = parser.parse_args()
    options.wants = lambda case: not options.filter or any(t in case for t in options.filter)
    cases = (scheduler, pools, arrays, latency, gathering)
    for rows in (case(options) for case in cases):
        for row in rows:
            if options.json:
                print(json.dumps(row), flush=True)
                continue
            mark = f"  (a {row['scaled_from_share']}th, scaled)" if row["scaled_from_share"] > 1 else ""
            print(
                f"{row['case']:24} {row['contender']:36} {row['seconds'] * 1e3:12.4f} ms"
                f" {row['ratio_to_loxley']:9.2f} x{mark}",
                flush=True,
            )


if __name__ == "__main__":
    main()
