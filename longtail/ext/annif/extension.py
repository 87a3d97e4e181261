"""The REST API of Annif: routes below `/v1/projects`, and its lists of what there is."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.extensions import Extension, Paths, Routes


def _routes() -> Sequence[Routes]:
    from longtail.ext.annif.routes import router
    from longtail.ext.annif.schemas import SuggestForm
    from longtail.service.schemas.base import schemas_of

    return [Routes(router, schemas=lambda: schemas_of(SuggestForm))]


EXTENSION = Extension("annif", routes=_routes, paths=Paths("/v1/projects"))
