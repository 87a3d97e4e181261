"""The Open Inference Protocol, which clients of KServe and Triton speak: routes below `/v2`."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.extensions import Extension, Paths, Routes


def _routes() -> Sequence[Routes]:
    from longtail.ext.open_inference.routes import router
    from longtail.ext.open_inference.tensors import InferAnswer, InferRequest
    from longtail.service.schemas.base import schemas_of

    return [Routes(router, schemas=lambda: schemas_of(InferRequest, InferAnswer))]


EXTENSION = Extension(
    "open_inference",
    routes=_routes,
    paths=Paths(
        "/v2",
        names_error=True,
        health=frozenset({"/v2/health/live", "/v2/health/ready"}),
    ),
)
