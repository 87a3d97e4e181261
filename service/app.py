"""The application factory: `uvicorn --factory service.app:create_app`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI

from models.bundle import Bundle
from models.registry import Registry
from service.deps import Service
from service.engine import Engine, Limits
from service.limits import BodyLimitMiddleware
from service.manager import ModelManager, Predictor, Serving
from service.problems import add_handlers, set_media_types
from service.routes import router
from service.settings import Settings, load_settings
from service.telemetry import Telemetry, TelemetryMiddleware

DESCRIPTION = """Text goes in; the right few of a very large set of labels come out.

Every error is a problem document (RFC 9457, `application/problem+json`)."""


def create_app(
    settings: Settings | None = None,
    *,
    load: Callable[[Bundle], Predictor] | None = None,
) -> FastAPI:
    """Return the service; it begins to load models when it is started, not here.

    Args:
        settings: Where absent, read from `LONGTAIL_` variables.
        load: Makes a verified bundle into a model that can answer; where absent, the real one.

    Raises:
        ConfigError: A setting is wrong.
    """
    settings = settings or load_settings()
    service = _assemble(settings, load or partial(load_predictor, settings))
    app = FastAPI(title="Longtail", version=_release(), description=DESCRIPTION, lifespan=_lifespan)
    app.state.service = service
    app.include_router(router)
    add_handlers(app)
    app.add_middleware(BodyLimitMiddleware, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(TelemetryMiddleware, telemetry=service.telemetry)
    app.openapi = partial(_openapi, app)  # type: ignore[method-assign]  # as FastAPI documents
    return app


def load_predictor(settings: Settings, bundle: Bundle) -> Predictor:
    """Return the real model of a bundle."""
    from models.predictor import Predictor as BundlePredictor  # brings PyTorch

    return BundlePredictor.of_bundle(
        bundle, device=settings.device, num_threads=settings.num_threads
    )


def _assemble(settings: Settings, load: Callable[[Bundle], Predictor]) -> Service:
    manager = ModelManager(Registry(settings.registry), settings.versions, load)
    limits = Limits(settings.max_texts_per_request, settings.max_text_characters, settings.max_k)
    return Service(settings, manager, Engine(manager, limits), Telemetry())


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service

    def publish(serving: Serving) -> None:
        service.telemetry.set_loaded(serving.models)

    service.manager.start_loading(service.engine.warm_up, publish)
    yield
    service.manager.close()
    service.engine.close()


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's document with our errors, and the limits of this service."""
    document = set_media_types(FastAPI.openapi(app))
    limits = app.state.service.settings
    fields = document["components"]["schemas"]["PredictRequest"]["properties"]
    fields["k"]["maximum"] = limits.max_k
    fields["text"]["maxLength"] = limits.max_text_characters
    fields["texts"]["maxItems"] = limits.max_texts_per_request
    fields["texts"]["items"]["maxLength"] = limits.max_text_characters
    return document


def _release() -> str:
    try:
        return version("longtail")
    except PackageNotFoundError:  # run from a folder, not installed
        return "0"
