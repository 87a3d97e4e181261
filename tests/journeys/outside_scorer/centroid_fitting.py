"""Fits the scorer of `centroids.py`."""

import numpy as np
from centroids import CENTROIDS, Centroids
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from longtail.training.fitting import FittedOn, Fitting
from longtail.training.pipeline.fittings import register


class CentroidConfig(BaseModel):
    """What is configured of it."""

    model_config = ConfigDict(extra="forbid")

    least: float = Field(default=0.0, ge=0)
    """Values of a mean that are no larger are dropped."""


class CentroidFitting(Fitting):
    """Takes the mean of the documents of each label."""

    name = CENTROIDS
    settings = CentroidConfig

    def fit(self, on: FittedOn, settings: CentroidConfig, before: Centroids | None) -> Centroids:
        del before
        means = csr_array(normalize(csr_array(on.truth.T) @ on.features), dtype=np.float32)
        means.data[means.data <= settings.least] = 0
        means.eliminate_zeros()
        means.sort_indices()
        ids, nearest = on.ids(), (on.features @ means.T).toarray().argmax(axis=0)
        return Centroids(means, tuple(ids[row] for row in nearest.tolist()))


register(CentroidFitting())
