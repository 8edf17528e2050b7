"""What Loxley's scheduler does beyond the pure-Python one."""

import gc
import json
import threading
import time
import weakref

import pytest
from gates import wait_until
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
        wait_until(lambda: idle.queue_length > 0 and scheduler.metrics.utilization_samples)
    sample = scheduler.metrics.utilization_samples[0]
    assert sample["queue_lengths"]["busy"] in (10, 11, 12) and abs(sample.timestamp - time.time()) < 600
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
    for number in range(120):
        scheduler.submit_task(Task(number, {"x"}))
    assert any("agents is idle" in problem["message"] for problem in scheduler.health())


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
                if step % 3 == 0:
                    scheduler.request_work(number)
                task = agent.dequeue_task()
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
    before = time.time()
    one, two = scheduler.import_plan(path)
    assert scheduler.agents["old"].capabilities == {"write"}
    assert list(scheduler.agents["new"].task_queue) == [one] and one.data == {"n": 1}
    assert not scheduler.agents["old"].task_queue and two.expected_cost == 0.5
    assert scheduler.waiting_tasks == [two] and scheduler.explain(two) == "`two` waits for `one`"
    assert 60 <= one.deadline - before and one.deadline - time.time() <= 60
    mistakes = {
        "has a field 'skils'": {"tasks": [{"id": "x", "skils": []}]},
        "waits for 'nothing'": {"tasks": [{"id": "x", "dependencies": ["nothing"]}]},
        "in a circle: 'x' -> 'y' -> 'x'|in a circle: 'y' -> 'x' -> 'y'": {
            "tasks": [{"id": "x", "dependencies": ["y"]}, {"id": "y", "dependencies": ["x"]}]
        },
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
        assert scheduler.get_metrics()["total_queued"] == 1
        assert scheduler.waiting_tasks == [two]


def finish_by_hand(scheduler, agent, task):
    scheduler.complete_task(task)


def finish_by_time(scheduler, agent, task):
    task.completed_at = time.time()


def finish_by_count(scheduler, agent, task):
    agent.current_task = task
    agent.current_task = None
    agent.total_completed += 1


@pytest.mark.parametrize("finish", [finish_by_hand, finish_by_time, finish_by_count])
def test_a_task_is_queued_when_its_last_dependency_is_done(finish):
    scheduler = WorkStealingScheduler()
    agent = Agent("a", {"x"})
    scheduler.register_agent(agent)
    first, second = Task("first", {"x"}), Task("second", {"x"})
    both = Task("both", {"x"}, priority=5, dependencies=["first", "second"])
    last = Task("last", {"x"}, dependencies=("both",))
    assert all(scheduler.submit_task(task) for task in (first, second, both, last))
    assert [task.task_id for task in agent.task_queue] == ["first", "second"]
    assert scheduler.explain(both) == "`both` waits for `first`, `second`"
    order = []
    while task := agent.dequeue_task():
        order.append(task.task_id)
        finish(scheduler, agent, task)
    assert order == ["first", "second", "both", "last"]
    # What is done is done: nothing has to be waited for.
    assert scheduler.submit_task(Task("late", {"x"}, dependencies=["first"]))
    assert agent.queue_length == 1 and not scheduler.waiting_tasks


def test_dependencies_that_make_no_sense_are_refused_and_a_failure_is_passed_on():
    scheduler = WorkStealingScheduler()
    agent = Agent("a", {"x"})
    scheduler.register_agent(agent)
    with pytest.raises(ValueError, match="'t' depends on 'nothing', which nobody submitted"):
        scheduler.submit_task(Task("t", {"x"}, dependencies=["nothing"]))
    with pytest.raises(ValueError, match="circle: 't' -> 't'"):
        scheduler.submit_task(Task("t", {"x"}, dependencies=["t"]))
    agent.enqueue_task(Task("hand", {"x"}))
    after = Task("after", {"x"}, dependencies=["hand"])
    later = Task("later", {"x"}, dependencies=["after"])
    assert scheduler.submit_task(after) and scheduler.submit_task(later)
    assert not scheduler.submit_task(Task("odd", {"y"}, dependencies=["hand"]))
    failed = agent.dequeue_task()
    assert scheduler.fail_task(failed) == [after, later]
    with pytest.raises(ValueError, match="which did not succeed"):
        scheduler.submit_task(Task("more", {"x"}, dependencies=["later"]))
    assert agent.is_idle and not scheduler.waiting_tasks


def test_what_becomes_ready_while_nobody_can_do_it_waits_for_somebody_who_can():
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(Agent("a", {"x"}))
    scheduler.register_agent(Agent("b", {"y"}))
    first, second = Task("first", {"x"}), Task("second", {"y"}, dependencies=["first"])
    assert scheduler.submit_task(first) and scheduler.submit_task(second)
    scheduler.unregister_agent("b")
    scheduler.complete_task(scheduler.agents["a"].dequeue_task())
    assert scheduler.explain(second) == "`second` is ready, and no registered agent can do it"
    scheduler.register_agent(Agent("c", {"y"}))
    assert list(scheduler.agents["c"].task_queue) == [second] and second.assigned_at


def test_a_sample_is_taken_at_every_submission_and_worked_out_when_it_is_read():
    scheduler = WorkStealingScheduler()
    for name in ("a", "b"):
        scheduler.register_agent(Agent(name, {"x"}))
    for number in range(4):
        scheduler.submit_task(Task(number, {"x"}))
    scheduler.agents["a"].dequeue_task()
    scheduler.submit_task(Task("last", {"x"}))
    samples = scheduler.metrics.utilization_samples
    assert [sample.total_queued for sample in samples] == [1, 2, 3, 4, 4]
    assert all(sum(sample["queue_lengths"].values()) == sample["total_queued"] for sample in samples)
    assert samples[0].queue_lengths in ({"a": 1, "b": 0}, {"a": 0, "b": 1})
    assert samples[-1].queue_lengths == {"a": 2, "b": 2}
    times = [sample.timestamp for sample in samples]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 600
    assert scheduler.get_metrics()["total_samples"] == 5
    scheduler.config["metrics"]["track_utilization"] = False
    scheduler.submit_task(Task("unseen", {"x"}))
    assert len(scheduler.metrics.utilization_samples) == 5


def test_samples_are_bounded_and_do_not_forget_where_they_began():
    scheduler = WorkStealingScheduler()
    scheduler.register_agent(Agent("full", {"y"}))
    scheduler.register_agent(Agent("a", {"x"}))
    for number in range(3):
        scheduler.submit_task(Task(f"y{number}", {"y"}))
    agent = scheduler.agents["a"]
    for number in range(10_100):
        scheduler.submit_task(Task(number, {"x"}))
        agent.dequeue_task()
    samples = scheduler.metrics.utilization_samples
    assert len(samples) == 10_000 and scheduler.get_metrics()["total_samples"] == 10_103
    assert samples[0].queue_lengths == samples[-1].queue_lengths == {"full": 3, "a": 1}
