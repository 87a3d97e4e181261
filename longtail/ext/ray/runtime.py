"""The connection to Ray: the optional extra `ray`."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from longtail.models.errors import ConfigError
from longtail.models.extras import require

logger = logging.getLogger(__name__)

_ASKED_BY = "--engine ray"
_HERE = "local"
_CONNECT_TIMEOUT_S = 10.0


def start_ray(num_cpus: int) -> Any:
    """Return Ray, connected: to the cluster that RAY_ADDRESS names, or to one of this machine.

    One that the process is connected to already is left as it is. Where RAY_ADDRESS is not set, is
    empty or "local", a cluster is started for this process, whatever others run here. Nothing is
    reported to Ray's makers, unless RAY_USAGE_STATS_ENABLED says so.

    Args:
        num_cpus: Processors that a cluster of this machine has, which may be more than there are.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require("ray", _ASKED_BY)
    import ray

    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS") or _HERE
    options: dict[str, Any] = {}
    try:
        if address == _HERE:
            options = {"address": _HERE, "num_cpus": num_cpus, "include_dashboard": False}
        else:
            _check_reachable(address)
        ray.init(log_to_driver=False, configure_logging=False, **options)
    except Exception as error:  # Ray raises just this where one of its processes does not start
        raise ConfigError(
            f"{_ASKED_BY}: Ray at {address!r} does not start or answer, with {num_cpus} processors "
            f"({type(error).__name__}: {error}); start the cluster that RAY_ADDRESS names, set "
            "RAY_AUTH_MODE=token if it wants a token, or unset both to compute on this machine, "
            "which takes memory, open files and a folder for logs (RAY_TMPDIR or /tmp/ray)"
        ) from error
    found = ray.cluster_resources().get("CPU", 0)
    if found < num_cpus:
        logger.warning(
            "%s: %d processors are expected, and the Ray cluster %r has %d; what finds none waits "
            "until there are more: ask for fewer workers, or let the cluster grow",
            _ASKED_BY, num_cpus, address, found,
        )  # fmt: skip
    return ray


def _check_reachable(address: str) -> None:
    # Connect to a host and port, which Ray would try for minutes; others are Ray's to judge.
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
