"""What computes a run: this process, or workers of a Ray cluster.

What is done lies in the run's folder as it does without Ray: either way resumes where the other was
interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass

from longtail.models.errors import ConfigError

ASKED_BY = "--engine ray"
NAMES = ("local", "ray")


@dataclass(frozen=True, slots=True)
class Executor:
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


LOCAL = Executor()


def checked_engine(name: str, num_workers: int) -> Executor:
    """Return what computes, by its name.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in NAMES:
        raise ConfigError(f"--engine: got {name!r}; expected one of {NAMES}")
    return Executor(name, num_workers)
