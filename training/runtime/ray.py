"""Parts of training as tasks of Ray: blocks of labels of the sparse model, trials of experiments.

What is done lies in the run's folder as it does without Ray: either way of computing goes on where
the other was stopped. A worker that dies is replaced, and does its block or trial again. This
process writes what they return, so that they need nothing of the folder; but for the runs of
`training.experiments.depl.ablations`, which write what they have made themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from models.errors import ConfigError, LongtailError
from models.ray_runtime import start_ray

ASKED_BY = "--engine ray"
Key = TypeVar("Key")
Result = TypeVar("Result")


def run_tasks(
    run: Callable[[Key], Result], keys: Sequence[Key], num_workers: int
) -> Iterator[tuple[Key, float, Result]]:
    """Yield what a function returns for each key, and its seconds, as they are done.

    Args:
        run: With all that it needs, which is sent to each machine once.
        keys: What to call it with.
        num_workers: Tasks at a time on a machine that is no cluster.

    Raises:
        ConfigError: Ray is not installed, or its cluster can't be reached.
    """
    ray = start_ray(ASKED_BY, num_workers)
    task = ray.remote(num_cpus=1, max_retries=-1)(_timed)
    shared = ray.put(run)
    keys_of = {task.remote(shared, key): key for key in keys}
    while keys_of:
        done, _ = ray.wait(list(keys_of))
        for each in done:
            yield (keys_of.pop(each), *result_of(ray, each))


def result_of(ray: Any, task: Any) -> Any:
    """Return what a task has found.

    Raises:
        LongtailError: The task raised it; without the traceback that Ray writes into its words.
    """  # noqa: DOC501
    try:
        return ray.get(task)
    except LongtailError as error:
        raise getattr(error, "cause", error) from None


def _timed(run: Callable[[Any], Result], key: Any) -> tuple[float, Result]:
    started = time.monotonic()
    found = run(key)
    return time.monotonic() - started, found


NAMES = ("local", "ray")


@dataclass(frozen=True, slots=True)
class Engine:
    """What computes.

    Attributes:
        name: One of `NAMES`.
        num_workers: Of Ray.
    """

    name: str = "local"
    num_workers: int = 1

    @property
    def is_ray(self) -> bool:
        """Whether workers on a cluster do it."""
        return self.name == "ray"


LOCAL = Engine()


def checked_engine(name: str, num_workers: int) -> Engine:
    """Return what computes, by its name.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in NAMES:
        raise ConfigError(f"--engine: got {name!r}; wanted one of {NAMES}")
    return Engine(name, num_workers)
