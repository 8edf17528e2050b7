"""Programs as they were written for the original of this interface, through a module that only passes
ours on. None of them knows of Loxley."""

import threading
import time

import pytest
from work_stealing import Agent, Task, WorkStealingMetrics, WorkStealingScheduler


def fleet(*lengths, **skills):
    """A scheduler, and agents filled by hand before they are registered."""
    scheduler = WorkStealingScheduler()
    agents = []
    for number, length in enumerate(lengths):
        agent = Agent(f"agent-{number}", skills.get("skills", {"python"}))
        for position in range(length):
            agent.enqueue_task(Task(f"{number}-{position}", {"python"}, priority=2))
        scheduler.register_agent(agent)
        agents.append(agent)
    return scheduler, agents


def test_whoever_ignores_what_request_work_returns_finds_it_on_the_queue():
    scheduler, (busy, idle) = fleet(8, 0)
    scheduler.request_work("agent-1")
    assert (busy.queue_length, idle.queue_length) == (7, 1)
    task = idle.dequeue_task()
    assert task.task_id == "0-7" and task.started_at is not None
    assert scheduler.get_metrics()["total_queued"] == 7


def test_what_request_work_returns_is_the_task_on_the_queue():
    scheduler, (busy, idle) = fleet(8, 0)
    stolen = scheduler.request_work("agent-1")
    assert idle.task_queue[0] is stolen and stolen not in busy.task_queue
    assert stolen.started_at is None and stolen.assigned_at is not None


def test_nobody_is_robbed_who_is_not_busy():
    scheduler, (busy, idle) = fleet(8, 0)
    got = [scheduler.request_work("agent-1") for _ in range(6)]
    assert [task is not None for task in got] == [True, True, True, False, False, False]
    assert (busy.queue_length, idle.queue_length) == (5, 3)
    stats = scheduler.get_metrics()
    # Where nobody was busy nothing was tried.
    assert (stats["successful_steals"], stats["failed_steals"]) == (3, 0)
    assert stats["tasks_migrated"] == 3 and stats["success_rate"] == 1.0


def test_a_threshold_that_is_set_counts():
    scheduler, (busy, idle) = fleet(4, 0)
    assert scheduler.request_work("agent-1") is None
    scheduler.config["thresholds"]["busy_threshold"] = 2
    assert scheduler.request_work("agent-1") is not None
    assert scheduler.request_work("agent-1") is not None
    assert scheduler.request_work("agent-1") is None
    assert (busy.queue_length, idle.queue_length) == (2, 2)


def test_an_agent_that_holds_tasks_may_ask_too():
    scheduler, (busy, other) = fleet(9, 3)
    assert scheduler.request_work("agent-1") is not None
    assert (busy.queue_length, other.queue_length) == (8, 4)


def test_the_busiest_is_robbed_first():
    scheduler, (busier, busy, idle) = fleet(12, 8, 0)
    assert scheduler.request_work("agent-2").task_id.startswith("0-")


def test_nothing_urgent_and_nothing_the_thief_cannot_do_is_stolen():
    scheduler = WorkStealingScheduler()
    busy, thief = Agent("busy", {"python", "sql"}), Agent("thief", {"sql"})
    for number in range(8):
        busy.enqueue_task(Task(f"urgent{number}", {"sql"}, priority=5))
    for number in range(4):
        busy.enqueue_task(Task(f"python{number}", {"python"}, priority=1))
    scheduler.register_agent(busy)
    scheduler.register_agent(thief)
    assert scheduler.request_work("thief") is None and thief.is_idle
    busy.enqueue_task(Task("query", {"sql"}, priority=3))
    assert scheduler.request_work("thief").task_id == "query"


def test_every_submission_leaves_a_sample_with_the_total():
    scheduler, agents = fleet(0, 0)
    for number in range(5):
        assert scheduler.submit_task(Task(f"t{number}", {"python"}))
    samples = scheduler.metrics.utilization_samples
    assert len(samples) == 5 == scheduler.get_metrics()["total_samples"]
    assert [sample["total_queued"] for sample in samples] == [1, 2, 3, 4, 5]
    assert sorted(samples[-1]["queue_lengths"].values()) == [2, 3]


def test_a_program_with_threads_loses_and_doubles_nothing():
    scheduler, agents = fleet(40, 0, 0)
    done, lock = [], threading.Lock()
    everybody_is_there = threading.Barrier(3)

    def work(agent):
        everybody_is_there.wait(100)
        while len(done) < 40:
            if agent.queue_length == 0:
                scheduler.request_work(agent.agent_id)
            task = agent.dequeue_task()
            if task is None:
                time.sleep(0.001)
                continue
            agent.current_task = task
            time.sleep(0.001)
            with lock:
                done.append(task.task_id)
            agent.current_task = None
            agent.total_completed += 1

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert len(done) == len(set(done)) == 40
    assert sum(agent.total_completed for agent in agents) == 40
    assert scheduler.get_metrics()["successful_steals"] > 0


def test_lists_stay_what_they_were():
    agent = Agent(agent_id="a", capabilities=["sql", "api"])
    assert agent.capabilities == ["sql", "api"] and agent.capabilities == {"api", "sql"}
    assert agent.capabilities[0] == "sql" and agent.capabilities != ["api", "sql"]
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(agent)
    assert scheduler.submit_task(Task("t", ["gpu"], 4)) is False
    agent.capabilities.append("gpu")
    assert scheduler.submit_task(Task("t", ["gpu"], 4)) is True
    assert scheduler.get_agent_status()["a"]["capabilities"] == ["sql", "api", "gpu"]
    agent.capabilities.remove("api")
    assert list(agent.capabilities) == ["sql", "gpu"] and Agent("b", {"y", "x"}).capabilities == ["x", "y"]
    assert Task("t", ["sql", "api"], 3).skill_requirements == ["sql", "api"]


def test_what_an_agent_and_a_task_are_made_of():
    agent = Agent("a", ["x"], total_completed=3, total_failed=1, performance_history={"x": 0.5})
    assert agent.success_rate == 0.75 and agent.performance_history == {"x": 0.5}
    assert Agent("a", ["x"]).performance_history == {}
    order = sorted([Task("low", [], 1), Task("high", [], 5), Task("middle", [], 3)])
    assert [task.task_id for task in order] == ["high", "middle", "low"]


def test_metrics_count_without_a_scheduler_and_can_be_set():
    metrics = WorkStealingMetrics()
    metrics.record_steal_attempt(success=True, tasks_stolen=2)
    metrics.record_steal_attempt(success=True)
    metrics.record_steal_attempt(success=False)
    busy = Agent("busy", ["x"])
    busy.enqueue_task(Task("t", ["x"], 3))
    metrics.record_utilization_sample([busy, Agent("idle", ["x"])])
    stats = metrics.get_stats()
    assert (stats["total_steals"], stats["tasks_migrated"], stats["total_samples"]) == (3, 2, 1)
    assert stats["success_rate"] == pytest.approx(2 / 3)
    (sample,) = metrics.utilization_samples
    assert sample["queue_lengths"] == {"busy": 1, "idle": 0} and sample["total_queued"] == 1
    metrics.rebalance_cycles += 1
    metrics.total_steals = metrics.successful_steals = metrics.failed_steals = metrics.tasks_migrated = 0
    assert metrics.get_stats()["total_steals"] == 0 == metrics.tasks_migrated
    assert metrics.rebalance_cycles == 1 and metrics.last_rebalance <= time.time()


def test_a_scheduler_that_is_asked_how_the_fleet_is():
    scheduler, (busy, half, idle) = fleet(8, 3, 0)
    assert scheduler._get_busy_agents() == [busy] and scheduler._get_idle_agents() == [idle]
    assert scheduler._check_severe_imbalance() is True
    assert scheduler._find_best_agent(Task("t", ["python"], 3)) is idle
    assert scheduler._find_best_agent(Task("t", ["cobol"], 3)) is None
    assert [agent.queue_length for agent in (busy, half, idle)] == [8, 3, 0]
    began = scheduler.metrics.last_rebalance
    scheduler._rebalance_push()
    assert scheduler.get_metrics()["rebalance_cycles"] == 1 and idle.queue_length > 0
    assert scheduler.metrics.last_rebalance > began
    assert scheduler._default_config()["thresholds"]["busy_threshold"] == 5
    assert WorkStealingScheduler()._check_severe_imbalance() is False


def test_starting_and_stopping():
    scheduler, _ = fleet(1)
    assert scheduler.running is False and scheduler.rebalance_thread is None
    scheduler.start()
    scheduler.start()
    thread = scheduler.rebalance_thread
    assert scheduler.running is True and thread.is_alive()
    scheduler.stop()
    scheduler.stop()
    thread.join(100)
    assert scheduler.running is False and not thread.is_alive()


def test_an_agent_that_leaves_gives_back_what_it_had_and_nobody_has_nothing():
    scheduler, (agent,) = fleet(2)
    agent.current_task = agent.dequeue_task()
    assert [task.task_id for task in scheduler.unregister_agent("agent-0")] == ["0-0", "0-1"]
    assert scheduler.unregister_agent("agent-0") is None
