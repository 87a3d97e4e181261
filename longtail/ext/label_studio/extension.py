"""A machine learning backend for Label Studio: routes below `/label-studio`."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.extensions import Extension, Paths, Routes


def _routes() -> Sequence[Routes]:
    from longtail.ext.label_studio.routes import event_schemas, router

    return [Routes(router, asks_for_work=True, schemas=event_schemas)]


EXTENSION = Extension("label_studio", routes=_routes, paths=Paths("/label-studio"))
