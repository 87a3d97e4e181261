"""Ray, where it is asked for: the optional extra `ray`."""

from __future__ import annotations

import os
from typing import Any

from models.errors import ConfigError


def import_ray(asked_by: str) -> Any:
    """Return the package.

    Args:
        asked_by: What needs it, such as "--engine ray".

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"{asked_by}: the package ray is missing; install it with pip install 'longtail[ray]'"
        ) from error
    return ray


def start_ray(asked_by: str, num_cpus: int) -> Any:
    """Return Ray, connected: to the cluster that RAY_ADDRESS names, or to one of this machine.

    One that the process is connected to already is left as it is. Nothing is reported to Ray's
    makers, unless RAY_USAGE_STATS_ENABLED says so.

    Args:
        asked_by: As for `import_ray`.
        num_cpus: Processors that a cluster of this machine has, which may be more than there are.

    Raises:
        ConfigError: It is not installed, or the cluster can't be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_ray(asked_by)
    if ray.is_initialized():
        return ray
    of_cluster = "RAY_ADDRESS" in os.environ
    options = {} if of_cluster else {"num_cpus": num_cpus, "include_dashboard": False}
    try:
        ray.init(log_to_driver=False, configure_logging=False, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{asked_by}: no connection to the Ray cluster {os.environ.get('RAY_ADDRESS')!r} "
            f"({error}); start it, or unset RAY_ADDRESS to compute on this machine"
        ) from error
    return ray
