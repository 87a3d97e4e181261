"""The Open Inference Protocol, version 2, over REST (`/v2`), so that its clients can ask us.

https://github.com/kserve/open-inference-protocol; with the binary tensor data extension. One model,
`longtail`, whose versions are those of the registry. `tensors` beside this reads and
writes the bodies.
"""

from __future__ import annotations

import gzip
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from longtail.ext.open_inference.tensors import (
    INPUT,
    OUTPUTS,
    InferRequest,
    TensorMetadata,
    parse_request,
    texts_of,
    write_answer,
)
from longtail.service.http.deps import Service, ServiceDep
from longtail.service.http.json_body import (
    answer_request,
    checked,
    off_the_loop,
    written_off_the_loop,
)
from longtail.service.http.problem_handlers import accepts_gzip, responses
from longtail.service.schemas.base import Answer
from longtail.service.schemas.requests import PredictRequest
from longtail.service.versions.serving import ServedModel
from longtail.service.wire.problems import Kind, KindError

MODEL = "longtail"
HEADER_LENGTH = "Inference-Header-Content-Length"
_NO_MODEL = Kind("model-not-found", 404, "No such model version is loaded")
_MAX_DIGITS = 18

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])

ModelName = Annotated[str, Path(description=f"`{MODEL}`.")]
ModelVersion = Annotated[str, Path(description="Number of the version, or `current`.")]


class ServerLive(Answer):
    """That the process answers."""

    live: bool


class ServerReady(Answer):
    """That requests can be answered."""

    ready: bool


class ModelReady(ServerReady):
    """That a model can answer."""

    name: str


class ServerMetadata(Answer):
    """Name and release of the service."""

    name: str
    version: str
    """Release of the service."""
    extensions: list[str]


class ModelMetadata(Answer):
    """Inputs and outputs of a model."""

    name: str
    versions: list[str]
    """Loaded versions, or the requested one."""
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


@router.get("/health/live", summary="Is the process alive?", responses=responses())
async def health_live() -> ServerLive:
    """Answer 200 as long as the process can answer at all."""
    return ServerLive(live=True)


@router.get("/health/ready", summary="Can it predict?", responses=responses(503))
async def health_ready(service: ServiceDep) -> ServerReady:
    """Answer 200 once all models are loaded, and 503 before."""
    service.check_ready()
    return ServerReady(ready=True)


@router.get("", summary="The server", responses=responses())
async def server_metadata(request: Request) -> ServerMetadata:
    """Return the name and release of the service, and the extensions that it knows."""
    return ServerMetadata(
        name=MODEL, version=request.app.version, extensions=["binary_tensor_data"]
    )


@router.get("/models/{model}", summary="The model", responses=responses(404, 422, 503))
async def model_metadata(model: ModelName, service: ServiceDep) -> ModelMetadata:
    """Return the loaded versions, and the tensors that go in and come out."""
    _check_name(model)
    return _metadata([str(number) for number in sorted(service.manager.serving().models)])


@router.get(
    "/models/{model}/versions/{version}",
    summary="A version of the model",
    responses=responses(404, 422, 503),
)
async def version_metadata(
    model: ModelName, version: ModelVersion, service: ServiceDep
) -> ModelMetadata:
    """Return the tensors that go in and come out."""
    return _metadata([str(_loaded(service, model, version).version)])


@router.get("/models/{model}/ready", summary="Can it predict?", responses=responses(404, 422, 503))
async def model_ready(model: ModelName, service: ServiceDep) -> ModelReady:
    """Answer 200 once all models are loaded, and 503 before."""
    _check_name(model)
    service.check_ready()
    return ModelReady(name=model, ready=True)


@router.get(
    "/models/{model}/versions/{version}/ready",
    summary="Can a version predict?",
    responses=responses(404, 422, 503),
)
async def version_ready(model: ModelName, version: ModelVersion, service: ServiceDep) -> ModelReady:
    """Answer 200 where the version is loaded, and 404 where it is not."""
    _loaded(service, model, version)
    service.check_ready()
    return ModelReady(name=model, ready=True)


_INFER: dict[str, Any] = {
    "response_class": Response,
    "responses": responses(400, 404, 413, 415, 422, 429, 503, 504)
    | {
        200: {
            "description": "One tensor for each output; after the JSON come binary ones",
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/InferAnswer"}},
                "application/octet-stream": {},
            },
        }
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "description": "JSON; binary tensors may follow it, whose JSON then is "
            f"`{HEADER_LENGTH}` bytes long",
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/InferRequest"}}
            },
        }
    },
}


@router.post("/models/{model}/infer", summary="Labels of texts", **_INFER)
async def infer(model: ModelName, request: Request, service: ServiceDep) -> Response:
    """Return the best labels of the texts in the input `text`, as tensors.

    Parameters of the request: the options of `/v1/predict` but `explain` and `version`; `timeout`
    in microseconds, `binary_data_output`.

    Rows with fewer than k labels are filled up: with empty strings, the least float32 as score and
    -1 as probability; `num_labels` says how many there are. A probability is -1 too where the
    scorer has none.
    """
    _check_name(model)
    return await _infer(request, service, None)


@router.post(
    "/models/{model}/versions/{version}/infer", summary="Labels of texts by a version", **_INFER
)
async def infer_by_version(
    model: ModelName, version: ModelVersion, request: Request, service: ServiceDep
) -> Response:
    """Return the best labels by a version that is loaded; all else as without it."""
    return await _infer(request, service, _loaded(service, model, version).version)


async def _infer(request: Request, service: Service, version: int | None) -> Response:
    content, header_length = await request.body(), request.headers.get(HEADER_LENGTH)
    max_texts = service.settings.max_texts_per_request

    def parse() -> tuple[InferRequest, PredictRequest]:
        asked, binary = parse_request(content, header_length)
        options = asked.parameters.model_dump(exclude_unset=True)
        if asked.parameters.timeout is not None:
            options["timeout_s"] = asked.parameters.timeout / 1e6
        texts = texts_of(asked, binary, max_texts)
        return asked, checked(PredictRequest, texts=texts, version=version, **options)

    asked, body = await off_the_loop(len(content), parse)
    outputs = asked.requested_outputs()
    answer = await answer_request(request, service, body)
    written, json_bytes = await written_off_the_loop(
        answer.predictions, lambda: write_answer(MODEL, asked, answer, outputs, body.k)
    )
    headers, media_type = {"Vary": "Accept-Encoding"}, "application/json"
    if json_bytes is not None:
        headers[HEADER_LENGTH] = str(json_bytes)
        media_type = "application/octet-stream"
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        written = await run_in_threadpool(gzip.compress, written, compresslevel=1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(written, headers=headers, media_type=media_type)


def _metadata(versions: list[str]) -> ModelMetadata:
    return ModelMetadata(
        name=MODEL, versions=versions, platform=MODEL, inputs=[INPUT], outputs=OUTPUTS
    )


def _check_name(model: str) -> None:
    if model != MODEL:
        raise KindError(_NO_MODEL, f"there is no model {model[:100]!r}; the only one is {MODEL!r}")


def _loaded(service: Service, model: str, version: str) -> ServedModel:
    _check_name(model)
    if version == "current":
        return service.manager.get(version)
    if not (version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS):
        raise KindError(
            _NO_MODEL, f"there is no version {version[:100]!r}; expected a number, or 'current'"
        )
    return service.manager.get(int(version))
