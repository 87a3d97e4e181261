"""The route `/rerank` of Text Embeddings Inference: a cross-encoder behind HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from longtail.models.review.endpoint import Endpoint

_MAX_TEXTS = 32
"""Of a request; the server's own default limit."""


class RerankReviewer(Endpoint):
    """Sends the text as the query, and candidates as the texts to rank."""

    def __init__(self, address: str, model: str, key: str) -> None:
        """Prepare; `model` only names the one that the server runs."""
        super().__init__(f"rerank {model}".strip(), address, "/rerank", key)

    async def scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        """Return the raw scores of the server's model (see `Reviewer.scores`)."""
        found: list[float] = []
        for start in range(0, len(candidates), _MAX_TEXTS):
            part = candidates[start : start + _MAX_TEXTS]
            body = {"query": text, "texts": part, "raw_scores": True, "truncate": True}
            found += await self.ask(body, partial(_scores, num=len(part)))
        return found


def _scores(answer: list[dict[str, Any]], num: int) -> list[float]:
    if len(answer) != num:
        raise ValueError
    score_of = {each["index"]: float(each["score"]) for each in answer}
    return [score_of[index] for index in range(num)]
