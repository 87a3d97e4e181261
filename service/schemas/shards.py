"""Requests and answers between the shards of a model and the client that asks all of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator
from pydantic_core import PydanticCustomError

from longtail.service.schemas.base import (
    Answer,
    LabelSetName,
    Listed,
    ModelReference,
    Version,
    WholeNumber,
)
from longtail.service.schemas.labels import NearLabel

MAX_VALUE = 1e15
"""Of a vector; sums of its squares are then finite in float32."""

Column = Annotated[WholeNumber, Field(ge=0, le=2**31 - 1)]
Value = Annotated[FiniteFloat, Field(ge=-MAX_VALUE, le=MAX_VALUE)]


class ShardQuestion(BaseModel):
    """Base of what is asked."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    version: Version | None = None
    """Model version, a number or `current`; the service's first where absent."""


class KnownLabelsRequest(ShardQuestion):
    """Labels that a filter names."""

    include: Listed[str] = []
    """Ids of labels."""
    exclude: Listed[str] = []
    """Ids of labels."""
    include_set: LabelSetName | None = None
    """Name of a stored set of labels."""
    exclude_set: LabelSetName | None = None
    """Name of a stored set of labels."""


class StoredSet(Answer):
    """A stored set of labels, as the service has it."""

    label_count: int
    """Number of ids in the set."""
    digest: str
    """Hash of these ids in any order; it is equal where two services have the same set."""


class SetMembers(StoredSet):
    """A stored set of labels, and how much of it a version has."""

    known: int
    """Number of these ids that are labels of the version."""


class KnownLabels(Answer):
    """The labels of a filter that a version has."""

    model: ModelReference
    include: list[str]
    """Those of `include`, each once."""
    exclude: list[str]
    """Those of `exclude`, each once."""
    include_set: SetMembers | None
    """Null where none was named."""
    exclude_set: StoredSet | None
    """Null where none was named."""


class LabelVectorsRequest(ShardQuestion):
    """Labels whose vectors are requested."""

    ids: Listed[str] = Field(min_length=1)
    """Of labels of the version."""


class LabelVector(BaseModel):
    """The vector by which a label is compared with others."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )

    id: str
    """Of the label."""
    columns: Listed[Column]
    """Indices of the columns that are not 0, in rising order."""
    values: Listed[Value]
    """The float32 values of these columns."""

    @model_validator(mode="after")
    def _columns_rise(self) -> Self:
        if len(self.columns) != len(self.values):
            raise PydanticCustomError("vector_lengths", "Give as many 'values' as 'columns'")
        if any(first >= second for first, second in pairwise(self.columns)):
            raise PydanticCustomError("vector_columns", "Give 'columns' in rising order")
        return self


class LabelVectors(Answer):
    """The vectors of labels."""

    model: ModelReference
    vectors: list[LabelVector]
    """In the order of the request."""


class NearestLabelsRequest(ShardQuestion):
    """Vectors of labels, from any shard of a model."""

    vectors: Listed[LabelVector] = Field(min_length=1)
    """As `POST /v1/shard/label-vectors` answered them."""


class NearestLabels(Answer):
    """The labels of a version that are nearest to vectors."""

    model: ModelReference
    most: int
    """Most labels that are returned for one vector."""
    nearest: list[list[NearLabel]]
    """For each vector, the nearest label first; the vector's own label is left out."""
