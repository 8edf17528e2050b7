"""A program that uses the package with type hints. It is checked, not run: by `mypy --strict` and `pyright`
against what the wheel brings along, as in anybody's project."""

import asyncio
from concurrent.futures import Executor as AnyExecutor
from concurrent.futures import Future
from typing import Dict, List, Optional, Tuple

import loxley
from loxley import partition, simulation


def double(number: int) -> int:
    return 2 * number


def describe(number: int, *, unit: str = "s") -> str:
    return f"{number} {unit}"


@loxley.task
def plain(number: int) -> float:
    return number / 2


@loxley.task(skills=["gpu"], priority=5, timeout=60.0, retries=2)
def train(rows: List[int], rate: float = 0.1) -> Dict[str, float]:
    """Trains."""
    return {"rows": len(rows), "rate": rate}


class Model:
    @loxley.task(retries=1)
    def fit(self, rows: List[int]) -> int:
        return len(rows)


def with_an_executor() -> List[int]:
    with loxley.Executor(2, initializer=print, initargs=("ready",)) as executor:
        any_executor: AnyExecutor = executor
        future = any_executor.submit(double, 4)
        mine: loxley.CallFuture[int] = executor.submit(double, 4)
        plain_future: Future[int] = mine
        worded: str = executor.submit(describe, 4, unit="m").result(timeout=1.0)
        mine.stop()
        results: List[int] = list(
            executor.map(double, [1, 2, 3], chunksize=2, progress=lambda done, total: None)
        )
        view = executor.options(priority=5, timeout=2.0, speculate=True, cost=0.5)
        urgent: int = view.submit(double, 1).result()
        view.submit(double, 1).stop()
        more: List[str] = list(view.map(describe, [1, 2]))
        report: loxley.BalanceReport = executor.report()
        print(report.utilization, worded, more, plain_future, executor.process_ids())
        return [future.result(), urgent, *results]


def with_tasks() -> Tuple[float, Dict[str, float], int]:
    name: Optional[str] = train.__doc__
    print(name)
    return plain(3), train([1, 2], rate=0.5), Model().fit([1])


def with_a_scheduler() -> Dict[str, object]:
    scheduler = loxley.WorkStealingScheduler()
    agent = loxley.Agent("ann", {"python"})
    scheduler.register_agent(agent)
    first = loxley.Task("t", {"python"}, priority=4)
    accepted: bool = scheduler.submit_task(first)
    scheduler.submit_task(loxley.Task("u", dependencies=["t"]))
    task = scheduler.request_work("ann")
    assert accepted and task is not None and task.is_high_priority
    scheduler.complete_task(first)
    sample: loxley.UtilizationSample = scheduler.metrics.utilization_samples[0]
    total: int = sample.total_queued
    print(agent.queue_length, [task.task_id for task in agent.task_queue], len(scheduler.agents), total)
    agent.total_completed += 1
    return dict(scheduler.get_metrics())


async def with_a_client() -> List[object]:
    with loxley.Client("access.json") as client:
        one: int = await client.submit(double, 4)
        future: loxley.RemoteFuture[int] = client.submit(double, 4)
        view = client.options(skills=["gpu"], priority=5, retries=3, deadline=60.0)
        half: float = view.submit(plain, 3).result(10)
        trained: Dict[str, float] = view.submit(train, [1, 2], rate=0.2).result()
        fitted: int = client.submit(Model().fit, [1, 2]).result()
        futures: List[loxley.RemoteFuture[int]] = client.map(double, range(3))
        gathered: List[int] = client.gather(futures, timeout=5.0)
        done, pending = client.wait(futures)
        # A future as an argument stands for its result.
        chained: int = client.submit(double, future).result()
        worded: str = client.submit(describe, 4, unit="m").result()
        total: int = client.submit(len, futures).result()
        named = client.submit("double", 21).result()
        for ended in client.as_completed(futures):
            print(ended.result() + 1, ended.task, ended.explain())
        print(half, trained, fitted, gathered, done, pending, chained, worded, total, named)
        return [one, *await client.gather_async(futures)]


def with_an_agent() -> None:
    with loxley.Agent("ann", {"gpu"}).serve("access.json", functions={"double": double}) as service:
        over: bool = service.wait(1.0)
        print(over)


def with_tools() -> str:
    groups: List[object] = list(partition.chunks([1, 2, 3], 2))
    run = simulation.simulate("basic", seed=1)
    advice: loxley.Advice = loxley.advise([1.0, 2.0], 2)
    return f"{groups} {run.statistics['executed']} {advice.strategy}"


if __name__ == "__main__":
    print(with_an_executor(), with_tasks(), with_a_scheduler(), with_tools())
    asyncio.run(with_a_client())
    with_an_agent()
