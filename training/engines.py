"""What computes the parts of a training that do not depend on each other: this process, or Ray."""

from __future__ import annotations

from dataclasses import dataclass

from models.errors import ConfigError

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
