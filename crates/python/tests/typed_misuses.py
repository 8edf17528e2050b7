"""What `mypy --strict` and `pyright` must refuse: every line that says so, and no other. It is never run."""

from typing import List

import loxley


def double(number: int) -> int:
    return 2 * number


@loxley.task(skills=["gpu"])
def train(rows: List[int], rate: float = 0.1) -> float:
    return len(rows) * rate


class Model:
    @loxley.task(retries=1)
    def fit(self, rows: List[int]) -> int:
        return len(rows)


executor = loxley.Executor(2)
client = loxley.Client()

executor.submit(double, "four")  # wrong
executor.submit(double)  # wrong
executor.submit(double, 4, 5)  # wrong
executor.submit(double, numbr=4)  # wrong
word: str = executor.submit(double, 4).result()  # wrong
executor.submit(double, 4).halt()  # wrong
executor.options(priorty=5)  # wrong
executor.options(priority="high")  # wrong
executor.options(priority=5).submit(double, "four")  # wrong
executor.options(priority=5).submit(double, 4).halt()  # wrong
loxley.Executor("two")  # wrong

client.submit(double, "four")  # wrong
client.submit(double, 4, 5)  # wrong
text: str = client.submit(double, 4).result()  # wrong
client.options(skils=["gpu"])  # wrong
client.options(retries="3")  # wrong
client.options(retries=3).submit(double, "four")  # wrong
strings: List[str] = client.gather(client.map(double, [1]))  # wrong

train("rows")  # wrong
train([1], speed=2)  # wrong
label: str = train([1])  # wrong
client.submit(train, [1], rate="fast")  # wrong
Model().fit("rows")  # wrong
loxley.task(skils=["gpu"])  # wrong

loxley.Task("t", priority="high")  # wrong
loxley.WorkStealingScheduler().submit_task("t")  # wrong
