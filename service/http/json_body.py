"""JSON bodies: the one way in for all routes.

Lists stop at their first wrong item (`longtail.service.schemas.base.Listed`), elements are counted
before they are parsed, and large bodies are parsed on another thread, so that no body holds up the
event loop or takes many times its size in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from longtail.models.results import Prediction, ScoredLabel
from longtail.service.engine.engine import EngineAnswer
from longtail.service.engine.queries import Query
from longtail.service.http.deps import Service, add_log_fields, media_type_of, while_connected
from longtail.service.schemas.base import schemas_of
from longtail.service.schemas.requests import PredictRequest
from longtail.service.wire.lines import INLINE_BYTES, read_json
from longtail.service.wire.problems import faults_of

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
JSON = "application/json"


class JsonBody(Generic[Model]):
    """A dependency that reads the JSON body of a request: `Annotated[M, Depends(JsonBody(M))]`.

    FastAPI's own body parameters are parsed and validated on the event loop, and make an object of
    every error.
    """

    def __init__(self, model: type[Model]) -> None:
        self.model = model

    async def __call__(self, request: Request) -> Model:
        """Return the body."""
        if media_type_of(request) != JSON:
            raise HTTPException(415, f"Send the body with the header 'Content-Type: {JSON}'")
        content = await request.body()
        return await off_the_loop(len(content), partial(parse_json_body, content, self.model))


async def off_the_loop(num_bytes: int, work: Callable[[], Result]) -> Result:
    """Return what parsing or writing a body gives; of a large one it is done on another thread."""
    return work() if num_bytes <= INLINE_BYTES else await run_in_threadpool(work)


def parse_json_body(content: bytes, model: type[Model]) -> Model:
    """Return what a body says.

    Errors are those that FastAPI gives for a parameter of this model.
    """
    if not content:
        missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
        raise RequestValidationError([missing])
    return validated(model, read_json(content))


def validated(model: type[Model], content: object) -> Model:
    """Return a model of content: what JSON says, or a request of another form."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise RequestValidationError(faults_of(error)) from error


def checked(model: type[Model], **fields: object) -> Model:
    """Return `validated` of fields that a request of another form gives."""
    return validated(model, fields)


def describe_bodies(document: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Add the bodies that `JsonBody` reads to an OpenAPI document, and their schemas."""
    for route in routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for dependency in route.dependant.dependencies:
            if isinstance(dependency.call, JsonBody):
                model = dependency.call.model
                schema = {"$ref": f"#/components/schemas/{model.__name__}"}
                for method in route.methods or ():
                    document["paths"][route.path][method.lower()]["requestBody"] = {
                        "required": True,
                        "content": {JSON: {"schema": schema}},
                    }
                for name, found in schemas_of(model).items():
                    document["components"]["schemas"].setdefault(name, found)


Written = TypeVar("Written")
_LABEL_BYTES = 128
"""About the size of a label in an answer."""


async def written_off_the_loop(
    predictions: Sequence[Prediction], write: Callable[[], Written]
) -> Written:
    """Return what writing an answer gives; one of many labels is written on another thread."""
    num_labels = sum(len(each.labels) for each in predictions)
    return await off_the_loop(_LABEL_BYTES * num_labels, write)


async def answer_request(request: Request, service: Service, body: PredictRequest) -> EngineAnswer:
    """Return the labels of a request's texts; admits, counts and logs it.

    Args:
        request: Its body has been read; when its client hangs up, the work is dropped.
        service: Who answers.
        body: What is asked.
    """
    add_log_fields(request.scope, texts=len(body.all_texts), k=body.k)
    query = Query(body.all_texts, body, body.timeout_s)
    answer = await while_connected(request, service.engine.predict(query))
    service.telemetry.observe_predict(answer.scorer, answer.model.version, answer.seconds.compute)
    add_log_fields(
        request.scope,
        version=answer.model.version,
        scorer=answer.scorer,
        queue_ms=round(answer.seconds.queue * 1000, 1),
        compute_ms=round(answer.seconds.compute * 1000, 1),
    )
    return answer


def score_of(label: ScoredLabel) -> float:
    """Return the score of a label from 0 to 1, for protocols that have one number.

    The label's probability; else the logistic sigmoid of its score, which keeps the order.
    """
    if label.probability is not None:
        return label.probability
    return 0.5 * (1 + math.tanh(label.score / 2))
