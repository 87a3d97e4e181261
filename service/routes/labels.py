"""The routes of the label catalogue: search it, show a label, list the stored sets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool

from service.schemas.base import ModelReference, Version
from service.schemas.labels import LabelDetail, LabelList, LabelSetList, LabelSetSummary
from service.web.deps import ServiceDep, require_known_query
from service.web.problem_handlers import responses
from service.web.request_state import add_log_fields
from service.wire.labels import detail_of, summary_of

MAX_LIMIT = 1000
"""Labels in one answer."""
MAX_OFFSET = 10_000_000

router = APIRouter(tags=["catalogue"], dependencies=[Depends(require_known_query)])

VersionQuery = Annotated[
    Version | None, Query(description="Model version, a number or `current`.", examples=[1])
]


@router.get(
    "/v1/labels",
    summary="Search the labels, or show one",
    responses=responses(404, 422, 429, 503, 504),
)
async def list_labels(
    request: Request,
    service: ServiceDep,
    query: Annotated[
        str,
        Query(
            max_length=1000,
            description="What the name or id begins with, or words (or their beginnings) of name, "
            "id, description or keywords, all of which a label must have. Case and accents don't "
            "matter. Empty: all labels.",
            examples=["olive oil"],
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Labels to return.")] = 20,
    offset: Annotated[
        int, Query(ge=0, le=MAX_OFFSET, description="Labels to pass over, for further pages.")
    ] = 0,
    version: VersionQuery = None,
    id: Annotated[  # noqa: A002  # the parameter's name
        str | None,
        Query(
            description="The id of one label to show, whatever characters it has, such as a URI; "
            "beside it only `version` counts.",
            examples=["http://eurovoc.europa.eu/1264"],
        ),
    ] = None,
) -> LabelList | LabelDetail:
    """Return the labels that match a query; or, given an `id`, all that is known of that label.

    First come those whose name or id is the query, then those whose name or id begins with it,
    those that have all its words in the name, and all others; among equals those with more training
    documents.
    """
    if id is not None:
        return detail_of(*await service.engine.describe(id, version))
    model = service.manager.get(version)
    found = await run_in_threadpool(
        # The search is made when first asked for, which takes seconds: so that belongs there, too.
        lambda: model.predictor.label_search.find(query, limit=limit, offset=offset)
    )
    add_log_fields(request.scope, version=model.version, found=found.total)
    catalogue = model.predictor.catalogue
    return LabelList(
        model=ModelReference(version=model.version, digest=model.digest),
        total=found.total,
        labels=[summary_of(catalogue[index]) for index in found.labels],
    )


@router.get(
    "/v1/labels/{label_id:path}",
    summary="One label",
    responses=responses(404, 422, 429, 503, 504),
)
async def show_label(
    service: ServiceDep,
    label_id: Annotated[
        str,
        Path(
            description="The label's id, percent-encoded, slashes and all.",
            examples=["1264", "http%3A%2F%2Feurovoc.europa.eu%2F1264"],
        ),
    ],
    version: VersionQuery = None,
) -> LabelDetail:
    """Return all that is known of a label."""
    model, found = await service.engine.describe(label_id, version)
    return detail_of(model, found)


@router.get("/v1/label-sets", summary="Stored sets of labels", responses=responses(422))
def list_label_sets(service: ServiceDep) -> LabelSetList:
    """Return the sets that requests can include or exclude by name."""
    return LabelSetList(
        label_sets=[
            LabelSetSummary(name=each.name, label_count=len(each.ids))
            for each in service.engine.label_sets.all()
        ]
    )
