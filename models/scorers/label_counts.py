"""How many labels a text needs: the threshold "auto"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Float64
from pydantic import ConfigDict, Field
from scipy.special import expit

from longtail.models.files.typed_json import json_forms

LABEL_COUNTS_NAME = "label_counts.json"
"""Of the file of a bundle that holds a `PlaceThreshold` for each scorer that has one."""


@dataclass(frozen=True, slots=True)
class PlaceThreshold:
    """A threshold that rises with the place of a label in its text.

    The label in place i, counted from 1, is answered where its log-odds are at least
    first + rise log i. With rise 0 that is one threshold for all labels, and the larger it is, the
    less the number of labels differs between texts.

    Attributes:
        first: Log-odds, in nats.
        rise: At least 0.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    first: Annotated[float, Field(allow_inf_nan=False)]
    rise: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def of_texts(self, probabilities: Float64[np.ndarray, "text k"]) -> Float64[np.ndarray, text]:
        """Return the probability of the last answered label of each text; inf where there is none.

        Args:
            probabilities: Of the best labels of each text, falling.
        """
        places = np.arange(1, probabilities.shape[1] + 1)
        is_answered = probabilities >= expit(self.first + self.rise * np.log(places))
        found: Float64[np.ndarray, text] = np.where(is_answered, probabilities, np.inf).min(axis=1)
        return found


label_counts_to_json, label_counts_from_json = json_forms(dict[str, PlaceThreshold])
"""Write and read the file `LABEL_COUNTS_NAME`."""
