"""The application factory: `uvicorn --factory longtail.service.app:create_app`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from longtail.extensions import Routes, extensions
from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.errors import ignore
from longtail.models.predict.predictor import Predictor
from longtail.service.engine.engine import Engine
from longtail.service.engine.queries import MAX_FILTER_LABELS, LabelSets, Limits
from longtail.service.engine.self_check import SelfCheck
from longtail.service.engine.traffic import Slots
from longtail.service.feedback.store import FeedbackStore
from longtail.service.feedback.writer import FeedbackWriter
from longtail.service.http.api_keys import KeyRing, Keys
from longtail.service.http.deps import HEALTH_PATHS, MAX_BATCHES, MAX_SEARCHES, Service
from longtail.service.http.feedback import MAX_ENTRIES
from longtail.service.http.front import Front
from longtail.service.http.json_body import describe_bodies
from longtail.service.http.problem_handlers import add_handlers, set_media_types
from longtail.service.http.security import describe_security
from longtail.service.process.compute_threads import ComputeSetup, available_gpu_bytes
from longtail.service.routes.admin import router as admin_router
from longtail.service.routes.batch import router as batch_router
from longtail.service.routes.feedback import router as feedback_router
from longtail.service.routes.health import router as health_router
from longtail.service.routes.labels import router as label_router
from longtail.service.routes.models import router as model_router
from longtail.service.routes.page import read_page
from longtail.service.routes.page import router as page_router
from longtail.service.routes.predict import router as predict_router
from longtail.service.schemas.base import schemas_of
from longtail.service.schemas.requests import PredictRequest, batch_schemas
from longtail.service.settings import Settings, load_settings
from longtail.service.telemetry.logs import add_tracing, end_tracing, make_provider
from longtail.service.telemetry.metrics import Telemetry
from longtail.service.versions.changes import Policy
from longtail.service.versions.loading import ModelLoader, RegistrySource
from longtail.service.versions.redeploy import Redeployer
from longtail.service.versions.serving import ModelManager

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

CORE_ROUTERS = (
    predict_router,  # asked most, so looked at first
    page_router,
    batch_router,
    model_router,
    health_router,
    label_router,
    feedback_router,
    admin_router,
)
"""Routers in the order in which they are looked at; those of extensions come after them."""

DESCRIPTION = """Text goes in; the right few of a very large set of labels come out.

Every error is a problem document (RFC 9457, `application/problem+json`)."""


def create_app(
    settings: Settings | None = None,
    *,
    load: Callable[[Bundle], Predictor] | None = None,
    tracing: TracerProvider | None = None,
) -> FastAPI:
    """Return the service; it begins to load models when it is started, not here.

    Args:
        settings: Where absent, read from `LONGTAIL_` variables.
        load: Makes a verified bundle into a model that can answer; where absent, the real one.
        tracing: Takes the spans; where absent, as the settings say.
    """
    settings = settings or load_settings()
    service = _assemble(settings, load, tracing or make_provider(_release()))
    app = FastAPI(
        title="Longtail",
        version=_release(),
        description=DESCRIPTION,
        lifespan=_lifespan,
        redirect_slashes=False,  # an empty redirect of a POST helps nobody
        openapi_url=None,  # `page_router` has the route, off the event loop
        docs_url=None,  # FastAPI's pages load scripts from other hosts; `page_router` has ours
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # there is our own
    )
    app.state.service = service
    added = [each for extension in extensions() for each in extension.routes()]
    routers = (*CORE_ROUTERS, *(each.router for each in added))
    app.state.routes = [route for router in routers for route in router.routes]
    app.state.page, app.state.api_docs = read_page(), read_page("api_docs")
    for router in routers:
        app.include_router(router)
    add_handlers(app)
    work_routers = (predict_router, batch_router, *(each.router for each in added))
    app.add_middleware(
        Front,
        service=service,
        work_routes=[route for router in work_routers for route in router.routes],
        direct_routes=predict_router.routes,
    )
    if service.tracing is not None:
        add_tracing(app, service.tracing, app.state.routes, HEALTH_PATHS)
    app.openapi = cache(partial(_openapi, app, added))  # type: ignore[method-assign]  # as FastAPI documents
    return app


def load_predictor(settings: Settings, compute: ComputeSetup, bundle: Bundle) -> Predictor:
    """Return the real model of a bundle."""
    if bundle.manifest.encoder is not None:
        compute.use_libraries()
    return Predictor.of_bundle(
        bundle,
        device=settings.device,
        num_threads=settings.num_threads,
        precision=settings.precision,
        index=settings.index,
    )


def _assemble(
    settings: Settings,
    load: Callable[[Bundle], Predictor] | None,
    tracing: TracerProvider | None,
) -> Service:
    registry = Registry(settings.registry)
    manager = ModelManager(registry)
    limits = Limits(
        max_texts=settings.max_texts_per_request,
        max_text_characters=settings.max_text_characters,
        max_k=settings.max_k,
        max_queue_tokens=settings.max_queue_tokens,
        max_batch_tokens=settings.max_batch_tokens,
        request_timeout_s=settings.request_timeout_s,
    )
    telemetry = Telemetry()
    compute = ComputeSetup(
        settings.num_threads, device=settings.device, niceness=settings.compute_niceness
    )
    engine = Engine(
        manager,
        limits,
        telemetry,
        label_sets=LabelSets(settings.label_sets),
        num_workers=1 if load else compute.num_workers,
        prepare_thread=ignore if load else compute.prepare_thread,
        prepare_work=compute.prepare_work,
        is_helped=lambda: load is not None or compute.has_libraries,
    )
    telemetry.watch_queue(lambda: engine.admission.tokens)
    redeployer = _redeployer(
        settings,
        manager,
        load or partial(load_predictor, settings, compute),
        ignore if load else compute.prepare_trial,
    )
    engine.complete = redeployer.complete
    return Service(
        settings=settings,
        manager=manager,
        engine=engine,
        telemetry=telemetry,
        batches=Slots(MAX_BATCHES, "batches"),
        label_searches=Slots(MAX_SEARCHES, "label searches"),
        redeployer=redeployer,
        keys=Keys(
            admin=KeyRing("admin", settings.admin_keys, settings.admin_keys_file),
            api=KeyRing("api", settings.api_keys, settings.api_keys_file),
        ),
        compute=compute,
        tracing=tracing,
        self_check=SelfCheck(engine, settings.request_timeout_s),
        feedback=_feedback_writer(settings),
    )


def _feedback_writer(settings: Settings) -> FeedbackWriter | None:
    if settings.feedback is None:
        return None
    store = FeedbackStore(settings.feedback, max_bytes=settings.max_feedback_bytes)
    return FeedbackWriter(store)


def _redeployer(
    settings: Settings,
    manager: ModelManager,
    load: Callable[[Bundle], Predictor],
    prepare_thread: Callable[[], object],
) -> Redeployer:
    uri = settings.registry_source
    source = RegistrySource(uri, manager.registry) if uri else None
    loader = ModelLoader(
        manager.registry,
        load,
        source=source,
        memory_factor=settings.memory_factor,
        map_arrays=settings.map_arrays,
        preload=settings.preload,
        prepare_thread=prepare_thread,
        available_gpu=partial(available_gpu_bytes, settings.device),
    )
    return Redeployer(manager, loader, Policy.of(settings), source)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service

    service.engine.start()
    if service.feedback is not None:
        service.feedback.start()
    service.redeployer.start(service.engine.run, service.telemetry.models)
    yield
    service.self_check.close()
    service.redeployer.close()
    service.engine.close()
    if service.feedback is not None:
        service.feedback.close()
    if service.tracing is not None:
        end_tracing(service.tracing)


def _openapi(app: FastAPI, added: Sequence[Routes]) -> dict[str, Any]:
    service: Service = app.state.service
    document = describe_security(set_media_types(FastAPI.openapi(app)), service.keys)
    describe_bodies(document, app.state.routes)
    limits = service.settings
    schemas = document["components"]["schemas"]
    unnamed = batch_schemas() | schemas_of(PredictRequest)
    for each in added:
        unnamed |= each.schemas()
    for name, schema in unnamed.items():
        schemas.setdefault(name, schema)
    batch = document["paths"]["/v1/batch"]["post"]["parameters"]
    options = {each["name"]: each["schema"] for each in batch}
    bodies = (schemas[name]["properties"] for name in ("BatchLine", "PredictRequest"))
    for fields in (options, *bodies):
        fields["k"]["maximum"] = limits.max_k
        for listed in (fields["include"]["anyOf"][0], fields["exclude"]):
            listed["maxItems"] = MAX_FILTER_LABELS
        if "text" in fields:
            fields["text"]["maxLength"] = limits.max_text_characters
            fields["title"]["anyOf"][0]["maxLength"] = limits.max_text_characters
    fields = schemas["PredictRequest"]["properties"]
    fields["texts"]["maxItems"] = limits.max_texts_per_request
    schemas["FeedbackRequest"]["properties"]["entries"]["maxItems"] = MAX_ENTRIES
    fields["texts"]["items"]["maxLength"] = limits.max_text_characters
    return document


def _release() -> str:
    try:
        return version("longtail")
    except PackageNotFoundError:  # run from a folder, not installed
        return "0"
