"""The settings of reviews, among those of the service."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

ReviewerKind = Literal["rerank", "chat", "cross-encoder"]


class ReviewSettings(BaseModel):
    """What an operator can choose of reviews."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    reviewer: ReviewerKind | None = None
    """Kind of the reviewer that may score the best labels of a text. It is Text Embeddings
    Inference (`rerank`), an OpenAI-compatible service (`chat`), or a folder with a sequence
    classifier (`cross-encoder`). A version knows it by `longtail review`."""
    review_address: str = ""
    """URL of the reviewer, to which texts are sent; or the folder of the cross-encoder. For `chat`
    it ends with what stands before `/chat/completions`, most often `/v1`."""
    review_model: str = ""
    """Model, as the reviewer names it; as it was given to `longtail review`."""
    review_key: str = Field("", repr=False)
    """Key that is sent to the reviewer as a bearer token."""
    review_key_file: Path | None = None
    """File of this key, which is read at the start."""
    review_when: Literal["asked", "doubt"] = "asked"
    """Which texts are reviewed. They are those of requests that ask for it, or besides all texts in
    doubt (`doubt`): those without an accepted label, if the request has `accept`, or else those
    whose best label has a probability from `review_doubt_from` to `review_doubt_to`."""
    review_doubt_from: float = Field(0.2, ge=0, le=1)
    """Least probability of the best label of a text in doubt."""
    review_doubt_to: float = Field(0.8, ge=0, le=1)
    """Greatest probability of the best label of a text in doubt."""
    review_timeout_s: float = Field(5, gt=0, allow_inf_nan=False)
    """Seconds after which a review is given up. The answer is then the one without it."""
    review_attempts: int = Field(2, ge=1, le=10)
    """Most attempts of a review, all within its time."""
    review_concurrency: int = Field(4, ge=1, le=256)
    """Most reviews at a time; others wait, within their time."""
    max_reviews_per_request: int = Field(8, ge=1)
    """Most texts of one request that are reviewed."""
    max_reviews_per_day: int = Field(1000, ge=1)
    """Most attempts of reviews per day (UTC), counted since the start of the service."""
