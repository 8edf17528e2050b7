"""A program written for a pure-Python scheduler, run unchanged against that one and against Loxley."""

import collections
import random
import threading
import time

import loxley
import pure_scheduler
import pytest

BOTH = pytest.mark.parametrize("lib", [pure_scheduler, loxley], ids=["pure", "loxley"])


def names(queue):
    return [task.task_id for task in queue]


@BOTH
def test_a_queue_is_a_sequence_in_priority_order_before_and_after_registration(lib):
    scheduler = lib.WorkStealingScheduler()
    agent = lib.Agent("a1", {"python"})
    for number, priority in enumerate([3, 5, 1, 3]):
        agent.enqueue_task(lib.Task(f"t{number}", {"python"}, priority))
    before = list(agent.task_queue)
    assert names(before) == ["t1", "t0", "t3", "t2"]
    scheduler.register_agent(agent)
    assert scheduler.agents["a1"] is agent
    assert all(mine is theirs for mine, theirs in zip(before, agent.task_queue))
    late = lib.Task("late", {"cobol"}, 4)
    agent.enqueue_task(late)  # by hand, nobody asks whether the agent can do it
    assert names(agent.task_queue) == ["t1", "late", "t0", "t3", "t2"]
    assert len(agent.task_queue) == agent.queue_length == 5
    assert agent.task_queue[0] is before[0] and agent.task_queue[-1] is before[-1]
    assert late in agent.task_queue
    assert agent.task_queue[1:3] == [late, before[1]]
    assert scheduler.get_metrics()["total_queued"] == 5


@BOTH
def test_tasks_keep_their_identity_through_submit_steal_and_unregister(lib):
    scheduler = lib.WorkStealingScheduler()
    busy, idle = lib.Agent("busy", {"python"}), lib.Agent("idle", {"python"})
    scheduler.register_agent(busy)
    tasks = [lib.Task(f"t{number}", {"python"}, 3) for number in range(8)]
    assert all(scheduler.submit_task(task) for task in tasks)
    assert all(task.assigned_at is not None for task in tasks)
    scheduler.register_agent(idle)
    stolen = scheduler.request_work("idle")
    assert stolen is tasks[-1]
    assert list(idle.task_queue) == [stolen] and busy.queue_length == 7
    stolen.custom_attribute = "programs do this"
    remaining = scheduler.unregister_agent("busy")
    assert [id(task) for task in remaining] == [id(task) for task in tasks[:-1]]
    assert "busy" not in scheduler.agents and busy.queue_length == 0
    assert scheduler.unregister_agent("nobody") is None


@BOTH
def test_a_worker_loop_finishes_everything(lib):
    scheduler = lib.WorkStealingScheduler()
    agents = [lib.Agent(f"a{number}", {"python", "sql"}) for number in range(3)]
    for agent in agents:
        scheduler.register_agent(agent)
    tasks = [lib.Task(f"t{n}", {"python"}, 1 + n % 5, data={"n": n}) for n in range(60)]
    for task in tasks:
        assert scheduler.submit_task(task) is True
    done, lock = [], threading.Lock()

    def work(agent):
        while True:
            if agent.queue_length == 0:
                scheduler.request_work(agent.agent_id)
            task = agent.dequeue_task()
            if task is None:
                if len(done) == len(tasks):
                    return
                time.sleep(0.001)
                continue
            agent.current_task = task
            task.completed_at = time.time()
            scheduler.metrics.record_task_wait(task.wait_time)
            with lock:
                done.append(task)
            agent.current_task = None
            agent.total_completed += 1

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(task.data["n"] for task in done) == list(range(60))
    assert len({id(task) for task in done}) == 60
    assert sum(agent.total_completed for agent in agents) == 60
    assert all(agent.is_idle for agent in agents)


@BOTH
def test_placement_follows_skills_load_and_history(lib):
    scheduler = lib.WorkStealingScheduler()
    half, full = lib.Agent("half", {"python"}), lib.Agent("full", {"python", "gpu"})
    scheduler.register_agent(half)
    scheduler.register_agent(full)
    scheduler.submit_task(lib.Task("both", {"python", "gpu"}, 3))
    assert names(full.task_queue) == ["both"]
    # A high priority needs every skill; an unknown skill nobody has.
    assert scheduler.submit_task(lib.Task("urgent", {"python", "gpu"}, 5))
    assert names(full.task_queue) == ["urgent", "both"]
    assert scheduler.submit_task(lib.Task("impossible", {"cobol"}, 3)) is False
    # A bad history tips the balance between equals, and a good one tips it back.
    one, other = lib.Agent("one", {"sql"}), lib.Agent("other", {"sql"})
    scheduler.register_agent(one)
    scheduler.register_agent(other)
    one.total_completed, one.total_failed = 1, 9
    scheduler.submit_task(lib.Task("q1", {"sql"}, 3))
    assert names(other.task_queue) == ["q1"]
    one.total_completed = 99
    scheduler.submit_task(lib.Task("q2", {"sql"}, 3))
    assert names(one.task_queue) == ["q2"]


@BOTH
def test_skills_that_change_count_at_once(lib):
    scheduler = lib.WorkStealingScheduler()
    agent = lib.Agent("a1", {"python"})
    scheduler.register_agent(agent)
    agent.enqueue_task(lib.Task("mine", {"python"}, 2))
    task = lib.Task("t", {"gpu"}, 5)
    assert scheduler.submit_task(task) is False
    agent.capabilities.add("gpu")
    assert agent.can_execute(task, strict=True)
    assert scheduler.submit_task(task) is True
    assert names(agent.task_queue) == ["t", "mine"]
    agent.capabilities = {"python"}
    assert scheduler.submit_task(lib.Task("u", {"gpu"}, 3)) is False


@BOTH
def test_high_priority_stays_and_the_thief_must_be_capable(lib):
    scheduler = lib.WorkStealingScheduler()
    busy = lib.Agent("busy", {"python", "gpu"})
    for number in range(4):
        busy.enqueue_task(lib.Task(f"high{number}", {"python"}, 5))
    for number in range(4):
        busy.enqueue_task(lib.Task(f"gpu{number}", {"gpu"}, 2))
    busy.enqueue_task(lib.Task("open", {"python"}, 3))
    scheduler.register_agent(busy)
    scheduler.register_agent(lib.Agent("thief", {"python"}))
    assert scheduler.request_work("thief").task_id == "open"
    assert scheduler.request_work("thief") is None
    assert scheduler.request_work("nobody") is None
    stats = scheduler.metrics.get_stats()
    assert (stats["successful_steals"], stats["failed_steals"]) == (1, 1)
    assert stats["success_rate"] == 0.5
    assert busy.steal_task().task_id == "gpu3"
    assert busy.steal_task(prefer_recent=False).task_id == "gpu0"


@BOTH
def test_a_push_moves_at_most_three_tasks_and_counts_its_cycle(lib):
    scheduler = lib.WorkStealingScheduler()
    busy, idle = lib.Agent("busy", {"python"}), lib.Agent("idle", {"python"})
    for number in range(12):
        busy.enqueue_task(lib.Task(f"t{number}", {"python"}, 2))
    scheduler.register_agent(busy)
    scheduler.register_agent(idle)
    scheduler._rebalance_push()
    # The idle agent stops being idle with two tasks.
    assert (busy.queue_length, idle.queue_length) == (10, 2)
    assert scheduler.get_metrics()["rebalance_cycles"] == 1
    assert scheduler.get_metrics()["tasks_migrated"] == 2


@BOTH
def test_the_dictionaries_have_the_published_keys(lib):
    scheduler = lib.WorkStealingScheduler()
    agent = lib.Agent("a1", ["sql", "python"])
    scheduler.register_agent(agent)
    agent.current_task = lib.Task("t", set(), 1)
    scheduler.metrics.record_task_wait(1.0)
    scheduler.metrics.record_task_wait(2.0)
    scheduler.metrics.record_steal_attempt(True)
    scheduler.metrics.record_utilization_sample({"a1": 0})
    metrics = scheduler.get_metrics()
    assert set(metrics) == {
        "total_steals", "successful_steals", "failed_steals", "success_rate", "tasks_migrated",
        "rebalance_cycles", "avg_task_wait_time", "agent_count", "total_queued", "busy_agents",
        "idle_agents", "total_samples",
    }  # fmt: skip
    assert metrics["avg_task_wait_time"] == 1.5 and metrics["total_samples"] == 1
    assert scheduler.metrics.task_wait_times == [1.0, 2.0]
    sample = scheduler.metrics.utilization_samples[0]
    assert sample["queue_lengths"] == {"a1": 0} and sample["total_queued"] == 0
    assert scheduler.get_agent_status() == {
        "a1": {
            "queue_length": 0,
            "capabilities": ["sql", "python"],
            "success_rate": 1.0,
            "total_completed": 0,
            "has_current_task": True,
        }
    }


def drive(lib, seed):
    """A random program: what it saw, step by step."""
    chance = random.Random(seed)
    skills = ["a", "b", "c"]
    scheduler = lib.WorkStealingScheduler()
    if lib is loxley:
        # With pushes, a task that few can do makes room for itself; the oracle does not know that.
        scheduler.config["strategy"] = "pull"
    agents = [lib.Agent(n, chance.sample(skills, chance.randint(1, 3))) for n in range(5)]
    seen = []
    for agent in agents[:3]:
        scheduler.register_agent(agent)
    for step in range(300):
        choice = chance.random()
        agent = chance.choice(agents)
        if choice < 0.45:
            wanted = chance.sample(skills, chance.randint(0, 2))
            # Placement between equals is open: only acceptance is compared.
            task = lib.Task(step, wanted, chance.randint(1, 5))
            capable = any(
                other.can_execute(task, strict=task.is_high_priority)
                for other in scheduler.agents.values()
            )
            accepted = scheduler.submit_task(task)
            assert accepted == capable
            if accepted:
                owner = next(o for o in scheduler.agents.values() if task in o.task_queue)
                owner.task_queue.remove(task)
                agent.enqueue_task(task)
            seen.append(accepted)
        elif choice < 0.6:
            task = agent.dequeue_task()
            seen.append(task and task.task_id)
        elif choice < 0.7:
            task = agent.steal_task(chance.random() < 0.5)
            seen.append(task and task.task_id)
        elif choice < 0.75 and agent.agent_id not in scheduler.agents:
            scheduler.register_agent(agent)
        elif choice < 0.8:
            seen.append(names(scheduler.unregister_agent(agent.agent_id) or []))
        elif choice < 0.85:
            agent.total_failed += 1
        seen.append([names(agent.task_queue) for agent in agents])
        seen.append(scheduler.get_metrics()["total_queued"])
    return seen


@pytest.mark.parametrize("seed", range(20))
def test_a_random_program_sees_the_same(seed):
    assert drive(pure_scheduler, seed) == drive(loxley, seed)


class Books:
    """What a program can see of a fleet, and the published rules over it. It never asks the scheduler
    whether it is right."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.before = self.look()
        #: How often each task was moved; one that moved twice stays.
        self.moves = collections.Counter()
        self.robbed = set()

    def look(self):
        return {name: list(agent.task_queue) for name, agent in self.scheduler.agents.items()}

    def moved(self):
        """Which tasks changed queues since the last look: task, from whom, to whom."""
        before, after = self.before, self.look()
        was = {id(task): name for name, queue in before.items() for task in queue}
        found = [
            (task, was[id(task)], name)
            for name, queue in after.items()
            for task in queue
            if was.get(id(task), name) != name
        ]
        self.moves.update(id(task) for task, _, _ in found)
        for queue in after.values():
            assert [-task.priority for task in queue] == sorted(-task.priority for task in queue)
        self.before = after
        return before, found

    def can_give(self, queues, giver, taker):
        """Whether there is a task that may go from one to the other."""
        agent = self.scheduler.agents[taker]
        return any(
            not task.is_high_priority and agent.can_execute(task) and self.moves[id(task)] < 2
            for task in queues[giver]
        )

    def check_push(self, moved_count):
        """S7: only when out of balance, at most three, from the busy to the idle who can do them."""
        queues, found = self.moved()
        lengths = {name: len(queue) for name, queue in queues.items()}
        assert moved_count == len(found) <= 3
        if not lengths:
            return
        most, fewest = max(lengths.values()), min(lengths.values())
        is_severe = most > 5 if fewest == 0 else most / fewest > 3.0
        givers = [name for name in lengths if lengths[name] > 5]
        takers = [name for name in lengths if lengths[name] < 2]
        can_move = any(self.can_give(queues, one, two) for one in givers for two in takers)
        assert bool(found) == (is_severe and can_move)
        for task, giver, taker in found:
            assert giver in givers and taker in takers and not task.is_high_priority
            assert self.scheduler.agents[taker].can_execute(task)
        for name in takers:
            assert len(self.before[name]) <= 2

    def check_pull(self, thief, task, strategy):
        """S6 and S8: nothing by push; else the busiest first unless it was just robbed (S15),
        nothing urgent, nothing the thief cannot do."""
        # What it moved must be judged by the moves before it.
        queues = self.before
        givers = [
            name
            for name in queues
            if name != thief and len(queues[name]) > 5 and self.can_give(queues, name, thief)
        ]
        _, found = self.moved()
        if strategy == "push" or not givers:
            assert task is None and not found
            return
        ((moved, giver, taker),) = found
        assert moved is task and taker == thief
        longer = {name for name in givers if len(queues[name]) > len(queues[giver])}
        assert longer <= self.robbed
        self.robbed.add(giver)
        assert not task.is_high_priority and self.scheduler.agents[thief].can_execute(task)
        assert task not in self.before[giver]


@pytest.mark.parametrize("strategy", ["pull", "push", "hybrid"])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_strategy_the_published_rules_hold(strategy, seed):
    chance = random.Random(seed)
    skills = ["a", "b", "c"]
    scheduler = loxley.WorkStealingScheduler()
    scheduler.config["strategy"] = strategy
    agents = [loxley.Agent(n, chance.sample(skills, chance.randint(1, 3))) for n in range(5)]
    for agent in agents:
        scheduler.register_agent(agent)
    queued = 0
    books = Books(scheduler)
    for step in range(300):
        choice, agent = chance.random(), chance.choice(agents)
        books.before = books.look()
        task = loxley.Task(step, chance.sample(skills, chance.randint(0, 2)), chance.randint(1, 5))
        if choice < 0.3:
            capable = [a for a in agents if a.can_execute(task, strict=task.is_high_priority)]
            accepted = scheduler.submit_task(task)
            assert accepted == bool(capable)
            queued += accepted
            assert not accepted or any(task in a.task_queue for a in capable)
            for other, _, taker in books.moved()[1]:
                # Only a push makes room for a task that few can do, and only with what may move.
                assert strategy != "pull" and not other.is_high_priority
                assert scheduler.agents[taker].can_execute(other)
        elif choice < 0.6:
            # A pile on one of the first two, so that queues get out of balance.
            chance.choice(agents[:2]).enqueue_task(task)
            queued += 1
        elif choice < 0.75:
            task = scheduler.request_work(agent.agent_id)
            books.check_pull(agent.agent_id, task, strategy)
        elif choice < 0.9:
            books.check_push(scheduler.rebalance())
        else:
            queued -= agent.dequeue_task() is not None
        assert scheduler.get_metrics()["total_queued"] == queued
