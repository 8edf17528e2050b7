"""What Loxley's scheduler does beyond the pure-Python one."""

import gc
import json
import threading
import time
import weakref

import pytest
from loxley import Agent, Task, WorkStealingScheduler


def test_priorities_are_one_to_five():
    with pytest.raises(ValueError, match="priority 7 is not between 1"):
        Task("t", priority=7)
    task = Task("t")
    with pytest.raises(ValueError):
        task.priority = 0
    assert (task.priority, task.data, task.dependencies, task.skill_requirements) == (3, {}, [], set())


def test_skills_are_a_collection():
    with pytest.raises(TypeError, match="collection"):
        Task("t", "python")
    with pytest.raises(TypeError, match="collection"):
        Agent("a", "python")
    with pytest.raises(ValueError, match="empty"):
        Agent("a").enqueue_task(Task("t", [" "])) or WorkStealingScheduler().submit_task(
            Task("t", [" "])
        )


def test_configuration_by_file_with_mistakes_at_their_line(tmp_path):
    path = tmp_path / "loxley.yaml"
    path.write_text("load_balancing:\n  thresholds:\n    busy_threshold: 2\n")
    scheduler = WorkStealingScheduler(str(path))
    assert scheduler.config["thresholds"]["busy_threshold"] == 2
    assert scheduler.config["load_balancing"]["strategy"] == "hybrid"
    path.write_text("load_balancing:\n  thresholds:\n    buzy_threshold: 2\n")
    with pytest.raises(ValueError, match=r"loxley.yaml:3:5: .*buzy_threshold"):
        WorkStealingScheduler(path)
    with pytest.raises(ValueError):
        scheduler.reload_file(path)
    assert scheduler.config["thresholds"]["busy_threshold"] == 2
    with pytest.raises(FileNotFoundError):
        WorkStealingScheduler(tmp_path / "nothing.yaml")


def test_a_setting_counts_at_once_and_a_mistake_changes_nothing():
    scheduler = WorkStealingScheduler()
    busy = Agent("busy", {"x"})
    for number in range(4):
        busy.enqueue_task(Task(number, {"x"}))
    scheduler.register_agent(busy)
    scheduler.register_agent(Agent("idle", {"x"}))
    assert scheduler.get_metrics()["busy_agents"] == 0
    scheduler.config["thresholds"]["busy_threshold"] = 3
    assert scheduler.get_metrics()["busy_agents"] == 1
    with pytest.raises(ValueError, match="busy_threshold"):
        scheduler.config["thresholds"]["busy_threshold"] = "many"
    assert scheduler.config["thresholds"]["busy_threshold"] == 3
    scheduler.config["strategy"] = "push"
    assert scheduler.request_work("idle") is None
    assert busy.queue_length == 4


def test_time_passes_between_start_and_stop():
    scheduler = WorkStealingScheduler()
    scheduler.config["thresholds"]["rebalance_interval_sec"] = 0.02
    scheduler.config["metrics"]["utilization_sample_interval_sec"] = 0.02
    busy, idle = Agent("busy", {"x"}), Agent("idle", {"x"})
    for number in range(12):
        busy.enqueue_task(Task(number, {"x"}))
    scheduler.register_agent(busy)
    scheduler.register_agent(idle)
    with scheduler:
        deadline = time.time() + 10
        while time.time() < deadline:
            if idle.queue_length > 0 and scheduler.metrics.utilization_samples:
                break
            time.sleep(0.01)
    assert idle.queue_length > 0
    sample = scheduler.metrics.utilization_samples[0]
    assert sample["queue_lengths"]["busy"] in (10, 11, 12) and abs(sample.timestamp - time.time()) < 60
    count = scheduler.metrics.get_stats()["total_samples"]
    time.sleep(0.2)
    assert scheduler.metrics.get_stats()["total_samples"] <= count + 1


def test_registering_again():
    scheduler = WorkStealingScheduler()
    first = Agent("a", {"x"})
    scheduler.register_agent(first)
    scheduler.register_agent("b", {"x"})
    task = Task("t", {"x"})
    first.enqueue_task(task)
    scheduler.register_agent(first)
    assert first.queue_length == 1
    second = Agent("a", {"x"})
    scheduler.register_agent(second)
    assert scheduler.agents["a"] is second and first.queue_length == 0
    assert sum(task in agent.task_queue for agent in scheduler.agents.values()) == 1
    with pytest.raises(ValueError, match="another scheduler"):
        WorkStealingScheduler().register_agent(second)


def test_the_queue_can_be_changed_like_a_list():
    agent = Agent("a", {"x"})
    WorkStealingScheduler().register_agent(agent)
    tasks = [Task(number, {"x"}) for number in range(5)]
    agent.task_queue.extend(tasks)
    assert agent.task_queue.index(tasks[2]) == 2 and agent.task_queue.count(tasks[2]) == 1
    assert agent.task_queue.pop() is tasks[4] and agent.task_queue.popleft() is tasks[0]
    agent.task_queue.remove(tasks[2])
    with pytest.raises(ValueError):
        agent.task_queue.remove(tasks[2])
    with pytest.raises(IndexError):
        agent.task_queue[2]
    assert list(reversed(agent.task_queue)) == [tasks[3], tasks[1]]
    agent.task_queue.clear()
    assert not agent.task_queue and agent.is_idle
    agent.task_queue = tasks
    assert list(agent.task_queue) == tasks


def test_deadlines_come_first_within_a_priority():
    agent = Agent("a", {"x"})
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(agent)
    later = Task("later", {"x"}, deadline=time.time() + 100)
    sooner = Task("sooner", {"x"}, deadline=time.time() + 10)
    for task in (Task("never", {"x"}), later, sooner):
        assert scheduler.submit_task(task)
    assert [task.task_id for task in agent.task_queue] == ["sooner", "later", "never"]


def test_what_does_not_fit_is_refused():
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(Agent("small", {"x"}, memory=1 << 30, resources={"gpu": 1}))
    assert scheduler.submit_task(Task("fits", {"x"}, memory=1 << 29, resources={"gpu": 1}))
    assert not scheduler.submit_task(Task("large", {"x"}, memory=1 << 31))
    assert not scheduler.submit_task(Task("gpus", {"x"}, resources={"gpu": 2}))


def test_why_and_health():
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(Agent("a", {"x"}))
    first, second = Task("first", {"x"}), Task("second", {"x"})
    scheduler.submit_task(first)
    scheduler.submit_task(second)
    assert scheduler.explain(second) == (
        "`second` is on the queue of `a`, behind 1 other tasks, because it had the highest score, 1.200"
    )
    assert scheduler.explain(Task("unknown")) is None
    assert scheduler.health() == []
    for number in range(20):
        scheduler.submit_task(Task(number, {"x"}))
    assert any("busy" in problem["message"] for problem in scheduler.health())


def test_many_threads_at_once():
    scheduler = WorkStealingScheduler()
    for number in range(8):
        scheduler.register_agent(Agent(number, {"x"}))
    taken, errors = [], []

    def work(number):
        try:
            agent = scheduler.agents[number]
            for step in range(300):
                scheduler.submit_task(Task((number, step), {"x"}))
                task = agent.dequeue_task() or scheduler.request_work(number)
                if task is not None:
                    taken.append(task)
                list(agent.task_queue)
                agent.total_completed += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    left = [task for agent in scheduler.agents.values() for task in agent.task_queue]
    assert len({task.task_id for task in taken + left}) == len(taken) + len(left) == 2400


def test_garbage_may_be_collected_at_any_moment():
    kept = []
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        scheduler = WorkStealingScheduler()
        for number in range(300):
            agent = Agent(number, {"x"})
            scheduler.register_agent(agent)
            kept.append((agent, Task(number, {"x"})))
            kept[-1][1].note = "an attribute"
            scheduler.submit_task(kept[-1][1])
    finally:
        gc.set_threshold(*before)
    assert scheduler.get_metrics()["total_queued"] == 300


def test_a_task_that_nobody_needs_is_let_go():
    scheduler = WorkStealingScheduler()
    agent = Agent("a", {"x"})
    scheduler.register_agent(agent)
    task = Task("t", {"x"})
    seen = weakref.ref(task)
    scheduler.submit_task(task)
    agent.dequeue_task()
    task.data["self"] = task
    del task
    gc.collect()
    assert seen() is None


def test_an_orchestrators_lists_are_taken_over_whole_or_not_at_all(tmp_path):
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(Agent("old", {"write"}))
    plan = {
        "agents": [{"id": "old", "capabilities": ["read"]}, {"id": "new", "capabilities": ["read"]}],
        "tasks": [
            {"id": "one", "skills": ["read"], "priority": 5, "deadline_sec": 60, "payload": {"n": 1}},
            {"id": "two", "skills": ["write"], "dependencies": ["one"], "expected_cost_sec": 0.5},
        ],
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    one, two = scheduler.import_plan(path)
    assert scheduler.agents["old"].capabilities == {"write"}
    assert list(scheduler.agents["new"].task_queue) == [one] and one.data == {"n": 1}
    assert list(scheduler.agents["old"].task_queue) == [two] and two.expected_cost == 0.5
    assert 50 < one.deadline - time.time() < 61
    mistakes = {
        "has a field 'skils'": {"tasks": [{"id": "x", "skils": []}]},
        "waits for 'nothing'": {"tasks": [{"id": "x", "dependencies": ["nothing"]}]},
        "is there twice": {"tasks": [{"id": "x"}, {"id": "x"}]},
        "without an id": {"agents": [{"capabilities": []}]},
        "not jobs": {"jobs": []},
        "nobody can do task 'y'": {
            "agents": [{"id": "third"}],
            "tasks": [{"id": "x"}, {"id": "y", "skills": ["fly"]}],
        },
        "priority 7 is not between 1": {"tasks": [{"id": "x"}, {"id": "y", "priority": 7}]},
    }
    for message, wrong in mistakes.items():
        with pytest.raises(ValueError, match=message):
            scheduler.import_plan(wrong)
        assert set(scheduler.agents) == {"old", "new"}
        assert scheduler.get_metrics()["total_queued"] == 2
