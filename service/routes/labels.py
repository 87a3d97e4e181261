"""The routes of the label catalogue: search it, show a label, list the stored sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from jaxtyping import Float64

from longtail.models.errors import LabelNotFoundError, RequestError
from longtail.models.explain import LabelDetails
from longtail.models.fitted.label_figures import LABEL_FIGURES
from longtail.models.interface.languages import check_language
from longtail.models.options import Version
from longtail.models.predict.predictor import Predictor
from longtail.service.http.deps import ServiceDep, add_log_fields, require_known_query
from longtail.service.http.problem_handlers import responses
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.labels import (
    LabelDetail,
    LabelList,
    LabelQuality,
    LabelSetList,
    LabelSetSummary,
    LabelSummary,
    RelatedLabel,
    Share,
)
from longtail.service.versions.serving import ServedModel

MAX_NARROWER = 1000
"""Labels right below one that an answer about it names."""


def summaries_of(
    predictor: Predictor, rows: Sequence[int], language: str | None = None
) -> list[LabelSummary]:
    """Return what a list says of labels.

    Args:
        predictor: The model.
        rows: Rows of the labels in its catalogue.
        language: Language of the names; without it, or where a label has no name in it, the
            model's.
    """
    hierarchy = predictor.scorers.selector.hierarchy
    labels = [predictor.catalogue[row] for row in rows]
    return [
        LabelSummary(
            id=label.id,
            name=label.names.get(language or "", label.name),
            description=label.description,
            training_count=label.training_count,
            narrower_count=len(hierarchy.narrower(row)),
            scheme=list(label.scheme),
            retired=not label.is_in_use,
            quality=quality,
        )
        for row, label, quality in zip(rows, labels, _qualities(predictor, rows), strict=True)
    ]


def _qualities(predictor: Predictor, rows: Sequence[int]) -> list[LabelQuality | None]:
    figures = LABEL_FIGURES.of(predictor.parts)
    if figures is None:
        return [None] * len(rows)
    counts = figures.of_labels(np.array(rows, dtype=np.int64))
    shares = counts.shares()
    columns = (
        counts.num_true, counts.num_predicted, counts.num_right,
        shares["precision"], shares["recall"],
    )  # fmt: skip
    return [
        LabelQuality(
            carried=carried, predicted=predicted, right=right,
            precision=_share(precision), recall=_share(recall),
        )
        for carried, predicted, right, precision, recall in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]  # fmt: skip


def _share(bounded: Sequence[float]) -> Share | None:
    share, lower, upper = bounded
    return None if share != share else Share(share=share, lower=lower, upper=upper)


def detail_of(model: ServedModel, found: LabelDetails, language: str | None = None) -> LabelDetail:
    """Return all that a model knows of a label, names in a language where there are any in it."""
    predictor = model.predictor
    hierarchy = predictor.scorers.selector.hierarchy

    def related(rows: Sequence[int]) -> list[RelatedLabel]:
        labels = summaries_of(predictor, rows, language)
        return [RelatedLabel(id=label.id, name=label.name) for label in labels]

    (summary,) = summaries_of(predictor, [found.index], language)
    return LabelDetail(
        **dict(summary),
        model=ModelReference(version=model.version, digest=model.digest),
        pseudo_description=found.label.pseudo_description,
        keywords=found.keywords,
        nearest=found.nearest,
        scorers=list(found.scorers),
        names=dict(found.label.names),
        alternative_names=list(found.label.alternative_names),
        notation=found.label.notation,
        broader=related(hierarchy.broader(found.index)),
        narrower=related(hierarchy.narrower(found.index)[:MAX_NARROWER]),
        replaced_by=list(found.label.replaced_by),
    )


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
    sort: Annotated[
        Literal["match", "precision", "recall"],
        Query(
            description="`match`: as below. `precision`, `recall`: the labels for which this is "
            "surely lowest first, by the upper bound of its interval (see `quality`); labels "
            "without it last. For models that have `quality`."
        ),
    ] = "match",
    narrower_of: Annotated[
        str | None,
        Query(
            description="The id of a label: the labels right below it in the vocabulary. Empty: "
            "the labels at its top. `query` and `sort` do not count then.",
            examples=["5360"],
        ),
    ] = None,
    language: Annotated[
        str | None,
        Query(max_length=100, description="Of the names, where the vocabulary has it."),
    ] = None,
    id: Annotated[  # noqa: A002  # the parameter's name
        str | None,
        Query(
            description="The id of one label to show, whatever characters it has, such as a URI; "
            "beside it only `version` and `language` count.",
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
        model, found = await service.engine.describe(id, version)
        check_language(model.predictor.catalogue, language)
        return await run_in_threadpool(detail_of, model, found, language)
    model = service.manager.get(version)
    check_language(model.predictor.catalogue, language)
    page = slice(offset, offset + limit)
    # Search and hierarchy are made when first asked for, which takes seconds: so that belongs to
    # the thread, too.
    service.label_searches.check()
    with service.label_searches.one_more():
        async with service.search_threads:
            found_list = await run_in_threadpool(
                _listed,
                model,
                query if narrower_of is None else None,
                narrower_of,
                page,
                language,
                sort,
            )
    add_log_fields(request.scope, version=model.version, found=found_list.total)
    return found_list


def _listed(
    model: ServedModel,
    query: str | None,
    narrower_of: str | None,
    page: slice,
    language: str | None,
    sort: str,
) -> LabelList:
    predictor = model.predictor
    if query is None:
        rows = _below(predictor, narrower_of or "")
        total, shown = len(rows), rows[page]
    else:
        hits = predictor.label_search.find(
            query, limit=page.stop - page.start, offset=page.start, by=_order_of(predictor, sort)
        )
        total, shown = hits.total, list(hits.labels)
    return LabelList(
        model=ModelReference(version=model.version, digest=model.digest),
        total=total,
        labels=summaries_of(predictor, shown, language),
    )


def _order_of(predictor: Predictor, sort: str) -> Float64[np.ndarray, label] | None:
    """Return the numbers that labels are sorted by; None for the order of the search."""
    if sort == "match":
        return None
    figures = LABEL_FIGURES.of(predictor.parts)
    if figures is None:
        raise RequestError(
            f"sort is {sort!r}, and the model has no figures of its labels; leave it out, or train "
            "with a dev split"
        )
    return figures.shares()[sort][:, 2]


def _below(predictor: Predictor, label_id: str) -> list[int]:
    """Return the rows right below a label, or at the top, in order of their names."""
    catalogue, hierarchy = predictor.catalogue, predictor.scorers.selector.hierarchy
    if not label_id:
        return sorted(hierarchy.tops, key=lambda row: catalogue[row].name)
    row = catalogue.row_of_id(label_id)
    if row is None:
        raise LabelNotFoundError(f"narrower_of: no label has the id {label_id[:100]!r}")
    return sorted(hierarchy.narrower(row), key=lambda each: catalogue[each].name)


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
    return await run_in_threadpool(detail_of, model, found)


@router.get("/v1/label-sets", summary="Stored sets of labels", responses=responses(422))
def list_label_sets(service: ServiceDep) -> LabelSetList:
    """Return the sets that requests can include or exclude by name."""
    return LabelSetList(
        label_sets=[
            LabelSetSummary(name=each.name, label_count=len(each.ids))
            for each in service.engine.label_sets.all()
        ]
    )
