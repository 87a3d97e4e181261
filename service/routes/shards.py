"""The routes for clients that ask all shards of a model: see `longtail.service.client.sharded`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends
from scipy.sparse import csr_array

from longtail.models.errors import RequestError
from longtail.models.predict.protocol import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import NearLabel
from longtail.service.engine.queries import NamedLabels
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.shards import (
    KnownLabels,
    KnownLabelsRequest,
    LabelVector,
    LabelVectors,
    LabelVectorsRequest,
    NearestLabels,
    NearestLabelsRequest,
    SetMembers,
    StoredSet,
)
from longtail.service.versions.serving import LoadedModel
from longtail.service.web.deps import ServiceDep, require_known_query
from longtail.service.web.json_body import JsonBody
from longtail.service.web.problem_handlers import responses
from longtail.service.wire.labels import near_labels

_REFUSED = (400, 404, 413, 415, 422, 503)
router = APIRouter(
    prefix="/v1/shard",
    tags=["shards"],
    dependencies=[Depends(require_known_query)],
)


@router.post(
    "/known-labels", summary="Which labels of a filter there are", responses=responses(*_REFUSED)
)
def show_known_labels(
    body: Annotated[KnownLabelsRequest, Depends(JsonBody(KnownLabelsRequest))], service: ServiceDep
) -> KnownLabels:
    """Return the labels of a filter that a version has; it is no error if it lacks some.

    A shard has some of the labels only, so only who asks all of them can tell which are unknown.
    """
    labels = NamedLabels(
        tuple(body.include), tuple(body.exclude), body.include_set, body.exclude_set
    )
    model, label_filter, known = service.engine.known_labels(labels, body.version)
    included, excluded = label_filter.include_set, label_filter.exclude_set
    return KnownLabels(
        model=_reference(model),
        include=list(known.include),
        exclude=list(known.exclude),
        include_set=None
        if included is None
        else SetMembers(
            label_count=len(included.ids), digest=included.digest, known=known.num_of_include_set
        ),
        exclude_set=None
        if excluded is None
        else StoredSet(label_count=len(excluded.ids), digest=excluded.digest),
    )


@router.post(
    "/label-vectors", summary="Vectors of labels", responses=responses(*_REFUSED, 429, 504)
)
async def show_label_vectors(
    body: Annotated[LabelVectorsRequest, Depends(JsonBody(LabelVectorsRequest))],
    service: ServiceDep,
) -> LabelVectors:
    """Return the vectors by which labels are compared with others.

    Rows of the encoder's label vectors; of the sparse model's weights where there is no encoder.
    """
    model, vectors = await service.engine.compare(
        len(body.ids), body.version, partial(_vectors_of, ids=body.ids)
    )
    return LabelVectors(model=_reference(model), vectors=vectors)


@router.post(
    "/nearest-labels", summary="Labels nearest to vectors", responses=responses(*_REFUSED, 429, 504)
)
async def show_nearest_labels(
    body: Annotated[NearestLabelsRequest, Depends(JsonBody(NearestLabelsRequest))],
    service: ServiceDep,
) -> NearestLabels:
    """Return the labels of a version that are nearest to vectors of other labels."""
    model, (most, nearest) = await service.engine.compare(
        len(body.vectors), body.version, partial(_nearest_to, vectors=body.vectors)
    )
    return NearestLabels(
        model=_reference(model), most=most, nearest=[near_labels(each) for each in nearest]
    )


def _reference(model: LoadedModel) -> ModelReference:
    return ModelReference(version=model.version, digest=model.digest)


def _vectors_of(predictor: Predictor, ids: list[str]) -> list[LabelVector]:
    rows = [predictor.catalogue.row_of_id(label_id) for label_id in ids]
    unknown = [label_id for label_id, row in zip(ids, rows, strict=True) if row is None]
    if unknown:
        raise RequestError(
            f"ids: this version has no label with the id {unknown[0][:100]!r}; ask the shard that "
            "found it, and name the same version"
        )
    vectors = predictor.facts.vectors_of([row for row in rows if row is not None])
    return [
        LabelVector(
            id=label_id,
            columns=vectors.indices[start:stop].tolist(),
            values=vectors.data[start:stop].tolist(),
        )
        for label_id, start, stop in zip(ids, vectors.indptr[:-1], vectors.indptr[1:], strict=True)
    ]


def _nearest_to(
    predictor: Predictor, vectors: list[LabelVector]
) -> tuple[int, list[tuple[NearLabel, ...]]]:
    num_columns = predictor.facts.num_columns
    last = max((each.columns[-1] for each in vectors if each.columns), default=0)
    if last >= num_columns:
        raise RequestError(
            f"vectors: got column {last}, expected columns below {num_columns}; send vectors of "
            "the same model"
        )
    starts = np.cumsum([0, *(len(each.columns) for each in vectors)])
    columns = np.array([column for each in vectors for column in each.columns], dtype=np.int64)
    values = np.array([value for each in vectors for value in each.values], dtype=np.float32)
    matrix = csr_array((values, columns, starts), shape=(len(vectors), num_columns))
    rows = [predictor.catalogue.row_of_id(each.id) for each in vectors]
    left_out = [NO_LABEL if row is None else row for row in rows]
    return predictor.facts.num_nearest, predictor.facts.nearest_to(matrix, left_out)
