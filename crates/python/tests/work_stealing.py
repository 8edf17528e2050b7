"""A module of the name under which programs may know the interface; it only passes ours on."""

from loxley import Agent, Task, WorkStealingMetrics, WorkStealingScheduler  # noqa: F401
