"""A straightforward scheduler in pure Python with the published interface.

It is the peer of the benchmark and the oracle of the tests: whatever a program sees with this one, it
must see with Loxley's. It follows the rules S3, S4, S6, S7 and S10 and nothing else, and it scans every
agent for every task, as one writes it first.
"""

import threading
import time


class Task:
    def __init__(self, task_id, skill_requirements=None, priority=3, dependencies=None, data=None):
        self.task_id = task_id
        self.skill_requirements = set(skill_requirements or ())
        self.priority = priority
        self.dependencies = list(dependencies or ())
        self.data = {} if data is None else data
        self.created_at = time.time()
        self.assigned_at = None
        self.started_at = None
        self.completed_at = None

    @property
    def is_high_priority(self):
        return self.priority >= 4

    @property
    def wait_time(self):
        return (self.started_at or time.time()) - self.created_at


class Agent:
    def __init__(self, agent_id, capabilities=()):
        self.agent_id = agent_id
        self.names = list(capabilities)
        self.capabilities = set(capabilities)
        self.task_queue = []
        self.current_task = None
        self.total_completed = 0
        self.total_failed = 0

    @property
    def queue_length(self):
        return len(self.task_queue)

    @property
    def is_idle(self):
        return self.current_task is None and not self.task_queue

    @property
    def success_rate(self):
        total = self.total_completed + self.total_failed
        return self.total_completed / total if total else 1.0

    def can_execute(self, task, strict=False):
        required = task.skill_requirements
        if not required:
            return True
        return required <= self.capabilities if strict else bool(required & self.capabilities)

    def get_skill_score(self, task):
        required = task.skill_requirements
        return len(required & self.capabilities) / len(required) if required else 1.0

    def enqueue_task(self, task):
        task.assigned_at = time.time()
        at = len(self.task_queue)
        while at and self.task_queue[at - 1].priority < task.priority:
            at -= 1
        self.task_queue.insert(at, task)

    def dequeue_task(self):
        if not self.task_queue:
            return None
        task = self.task_queue.pop(0)
        task.started_at = time.time()
        return task

    def steal_task(self, prefer_recent=True):
        open_tasks = [task for task in self.task_queue if not task.is_high_priority]
        if not open_tasks:
            return None
        lowest = min(task.priority for task in open_tasks)
        candidates = [task for task in open_tasks if task.priority == lowest]
        task = candidates[-1] if prefer_recent else candidates[0]
        self.task_queue.remove(task)
        return task


class Metrics:
    def __init__(self):
        self.successful_steals = 0
        self.failed_steals = 0
        self.tasks_migrated = 0
        self.rebalance_cycles = 0
        self.task_wait_times = []
        self.utilization_samples = []

    @property
    def total_steals(self):
        return self.successful_steals + self.failed_steals

    def record_steal_attempt(self, success, tasks_stolen=0):
        if success:
            self.successful_steals += 1
            self.tasks_migrated += tasks_stolen
        else:
            self.failed_steals += 1

    def record_task_wait(self, wait):
        self.task_wait_times.append(wait)

    def record_utilization_sample(self, queues):
        lengths = dict(queues)
        sample = {
            "timestamp": time.time(),
            "queue_lengths": lengths,
            "total_queued": sum(lengths.values()),
        }
        self.utilization_samples.append(sample)

    def get_stats(self):
        waits = self.task_wait_times
        total = self.total_steals
        return {
            "total_steals": total,
            "successful_steals": self.successful_steals,
            "failed_steals": self.failed_steals,
            "success_rate": self.successful_steals / total if total else 0.0,
            "tasks_migrated": self.tasks_migrated,
            "rebalance_cycles": self.rebalance_cycles,
            "avg_task_wait_time": sum(waits) / len(waits) if waits else 0.0,
            "total_samples": len(self.utilization_samples),
        }


class WorkStealingScheduler:
    busy_threshold = 5
    idle_threshold = 2
    severe_imbalance_ratio = 3.0
    max_steal_per_cycle = 3
    history_weight = 0.3

    def __init__(self):
        self.agents = {}
        self.metrics = Metrics()
        self._lock = threading.RLock()

    def start(self):
        pass

    def stop(self):
        pass

    def register_agent(self, agent):
        with self._lock:
            self.agents[agent.agent_id] = agent

    def unregister_agent(self, agent_id):
        with self._lock:
            agent = self.agents.pop(agent_id, None)
            if agent is None:
                return None
            remaining = [agent.current_task] if agent.current_task is not None else []
            remaining += agent.task_queue
            agent.task_queue = []
            return remaining

    def submit_task(self, task):
        with self._lock:
            best, best_score = None, None
            for agent in self.agents.values():
                if not agent.can_execute(task, strict=task.is_high_priority):
                    continue
                score = (
                    agent.get_skill_score(task)
                    - agent.queue_length / 10
                    + agent.success_rate * self.history_weight
                )
                if best_score is None or score > best_score + 1e-9:
                    best, best_score = agent, score
            if best is None:
                return False
            best.enqueue_task(task)
            lengths = {name: agent.queue_length for name, agent in self.agents.items()}
            self.metrics.record_utilization_sample(lengths)
            return True

    def request_work(self, agent_id):
        with self._lock:
            thief = self.agents.get(agent_id)
            if thief is None:
                return None
            others = [agent for agent in self.agents.values() if agent is not thief]
            others.sort(key=lambda agent: -agent.queue_length)
            for victim in others:
                if victim.queue_length <= self.busy_threshold:
                    break
                for task in reversed(victim.task_queue):
                    if task.is_high_priority or not thief.can_execute(task):
                        continue
                    victim.task_queue.remove(task)
                    thief.enqueue_task(task)
                    self.metrics.record_steal_attempt(True, 1)
                    self.metrics.record_task_wait(task.wait_time)
                    return task
            if any(agent.queue_length > self.busy_threshold for agent in self.agents.values()):
                # Only where there was somebody to steal from was it an attempt.
                self.metrics.record_steal_attempt(False)
            return None

    def _rebalance_push(self):
        with self._lock:
            lengths = [agent.queue_length for agent in self.agents.values()]
            if not lengths:
                return 0
            longest, shortest = max(lengths), min(lengths)
            if shortest == 0:
                unbalanced = longest > self.busy_threshold
            else:
                unbalanced = longest / shortest > self.severe_imbalance_ratio
            if not unbalanced:
                return 0
            self.metrics.rebalance_cycles += 1
            moved = 0
            for busy in sorted(self.agents.values(), key=lambda agent: -agent.queue_length):
                while moved < self.max_steal_per_cycle and busy.queue_length > self.busy_threshold:
                    if not self._move_one(busy):
                        break
                    moved += 1
            return moved

    rebalance = _rebalance_push

    def _move_one(self, busy):
        idle = [agent for agent in self.agents.values() if agent.queue_length < self.idle_threshold]
        for target in sorted(idle, key=lambda agent: agent.queue_length):
            for task in reversed(busy.task_queue):
                if not task.is_high_priority and target.can_execute(task):
                    busy.task_queue.remove(task)
                    target.enqueue_task(task)
                    self.metrics.record_steal_attempt(True, 1)
                    return True
        return False

    def get_metrics(self):
        with self._lock:
            lengths = [agent.queue_length for agent in self.agents.values()]
            return {
                **self.metrics.get_stats(),
                "agent_count": len(lengths),
                "total_queued": sum(lengths),
                "busy_agents": sum(length > self.busy_threshold for length in lengths),
                "idle_agents": sum(length < self.idle_threshold for length in lengths),
            }

    def get_agent_status(self):
        with self._lock:
            return {
                agent_id: {
                    "queue_length": agent.queue_length,
                    "capabilities": agent.names,
                    "success_rate": agent.success_rate,
                    "total_completed": agent.total_completed,
                    "has_current_task": agent.current_task is not None,
                }
                for agent_id, agent in self.agents.items()
            }
