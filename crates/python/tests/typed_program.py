"""A program that uses the package with type hints. It is checked, not run: by `mypy` against what the wheel
brings along, as in anybody's project."""

import asyncio
from concurrent.futures import Executor as AnyExecutor
from typing import Dict, List

import loxley
from loxley import partition, simulation


def double(number: int) -> int:
    return 2 * number


def with_an_executor() -> List[int]:
    with loxley.Executor(2) as executor:
        any_executor: AnyExecutor = executor
        future = any_executor.submit(double, 4)
        results = list(executor.map(double, [1, 2, 3], progress=lambda done, total: None))
        urgent: int = executor.options(priority=5).submit(double, 1).result()
        report: loxley.BalanceReport = executor.report()
        print(report.utilization)
        return [future.result(), urgent, *results]


def with_a_scheduler() -> Dict[str, object]:
    scheduler = loxley.WorkStealingScheduler()
    agent = loxley.Agent("ann", {"python"})
    scheduler.register_agent(agent)
    accepted: bool = scheduler.submit_task(loxley.Task("t", {"python"}, priority=4))
    task = scheduler.request_work("ann")
    assert accepted and task is not None and task.is_high_priority
    print(agent.queue_length, [task.task_id for task in agent.task_queue], len(scheduler.agents))
    return dict(scheduler.get_metrics())


async def with_a_client() -> List[object]:
    client = loxley.Client("access.json")
    one = await client.submit(double, 4)
    return [one, *await client.gather_async(client.map(double, range(3)))]


def with_tools() -> str:
    groups: List[object] = list(partition.chunks([1, 2, 3], 2))
    run = simulation.simulate("basic", seed=1)
    advice: loxley.Advice = loxley.advise([1.0, 2.0], 2)
    return f"{groups} {run.statistics['executed']} {advice.strategy}"


if __name__ == "__main__":
    print(with_an_executor(), with_a_scheduler(), with_tools())
    asyncio.run(with_a_client())
