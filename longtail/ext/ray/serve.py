"""The service as a deployment of Ray Serve: replicas, autoscaling, and new versions without a gap.

```sh
serve run longtail.ext.ray.serve:build registry=/shared/registry max_replicas=8
```

A replica is the service of `longtail.service.app`, with one version of the registry. It takes
requests when that version has answered its first texts, and not before; where it can't be loaded,
the replica fails, and the ones before it stay. Deploying again with another version lets Serve
start replicas of it, and stop the others when these have answered what they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError, NotReadyError
from longtail.models.extras import require
from longtail.models.files.typed_json import problem_in_words
from longtail.service.app import create_app
from longtail.service.http.deps import Service
from longtail.service.process.compute_threads import prepare_process
from longtail.service.settings import Settings

NAME = "longtail"
_LOOK_S = 0.05
_GRACE_S = 5


class Arguments(BaseModel):
    """The arguments of `build`: on the command line of `serve run`, or in Serve's file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    registry: Path
    """Folder of the registry, where every machine finds it."""
    version: int | Literal["current"] = "current"
    """What to serve; `current` is what that names when `build` is called."""
    min_replicas: int = Field(1, ge=1)
    """Replicas that there are at least."""
    max_replicas: int = Field(1, ge=1)
    """And at most."""
    target_ongoing_requests: float = Field(16, gt=0)
    """Requests, waiting or computed, that Serve wants at a replica: more replicas are started when
    there are more requests, and stopped when there are fewer."""
    max_ongoing_requests: int = Field(256, ge=1)
    """Requests that a replica takes; others wait in Serve's proxies. It refuses by its own
    admission, with 429, before that."""
    num_cpus: int = Field(1, ge=1)
    """Processors of a replica, and threads of its compute libraries."""
    num_gpus: float = Field(0, ge=0)
    """GPUs of a replica."""
    settings: dict[str, Any] = {}
    """More settings of the service, by their names in `longtail.service.settings.Settings`."""


def build(arguments: Mapping[str, Any]) -> Any:
    """Return the application for `serve run` or `serve.run`.

    Args:
        arguments: The fields of `Arguments`.
    """
    require("ray", "longtail.ext.ray.serve")
    from ray import serve

    given = _checked(arguments)
    settings = settings_of(given)
    deployment = serve.deployment(
        serve.ingress(_calling(create_replica, settings))(),
        name=NAME,
        ray_actor_options={"num_cpus": given.num_cpus, "num_gpus": given.num_gpus},
        max_ongoing_requests=given.max_ongoing_requests,
        graceful_shutdown_timeout_s=settings.shutdown_timeout_s + _GRACE_S,
        autoscaling_config={
            "min_replicas": given.min_replicas,
            "max_replicas": max(given.min_replicas, given.max_replicas),
            "target_ongoing_requests": given.target_ongoing_requests,
        },
    )
    return deployment.bind()


def settings_of(given: Arguments) -> Settings:
    """Return the settings of a replica: one version, by its number, whatever `current` becomes."""
    for name in ("admin_keys", "admin_keys_file", "canary_version", "versions", "registry"):
        if name in given.settings:
            raise ConfigError(
                f"settings.{name}: it would concern one replica only; deploy again with another "
                "version instead"
            )
    number = Registry(given.registry).resolve(given.version)
    fixed: dict[str, Any] = {
        "registry": given.registry.resolve(),
        "versions": (number,),
        "watch_interval_s": 0,
        "num_threads": given.num_cpus,
        "device": "cuda" if given.num_gpus else "cpu",
    }
    try:
        return Settings(**fixed | given.settings)
    except ValidationError as error:
        raise ConfigError(f"settings: {_first(error)}") from error


def create_replica(settings: Settings) -> FastAPI:
    """Return the service, which has started only when its models can answer."""
    prepare_process(settings.num_threads)
    app = create_app(settings)
    app.router.lifespan_context = partial(_loaded, app.router.lifespan_context)
    return app


def _calling(function: Callable[..., FastAPI], *given: object) -> Callable[[], FastAPI]:
    """Return a function, which Serve wants to see, that calls another with these arguments."""

    def call() -> FastAPI:
        return function(*given)

    return call


@asynccontextmanager
async def _loaded(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[Any]], app: FastAPI
) -> AsyncIterator[None]:
    service: Service = app.state.service
    async with lifespan(app):
        while service.manager.served is None:
            if service.redeployer.problem is not None:
                raise NotReadyError(service.redeployer.problem)
            await asyncio.sleep(_LOOK_S)
        yield


def _checked(arguments: Mapping[str, Any]) -> Arguments:
    try:
        return Arguments.model_validate(dict(arguments))
    except ValidationError as error:
        raise ConfigError(f"longtail.ext.ray.serve: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    where = ".".join(map(str, found["loc"]))
    return f"{where}: {problem_in_words(found, repr)}"
